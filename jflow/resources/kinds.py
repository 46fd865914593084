"""The kinds of resources that a plan may name, and how each is made."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jflow.errors import InvalidArgumentError
from jflow.plan import ResourceSpec
from jflow.resources.attempt import Resource
from jflow.resources.queue import Queue
from jflow.resources.queue_spec import QueueSpec


@dataclass(frozen=True)
class Kind:
    """A kind of resource.

    Attributes:
      parse: a definition from what JSON made of it; raises InvalidArgumentError.
      make: a resource of a definition, and its name for messages.
    """

    parse: Callable[[Any], Any]
    make: Callable[[Any, str], Resource]


def _queue(spec: QueueSpec, name: str) -> Resource:
    return Queue(spec, name, random.Random(spec.seed).randrange)


_KINDS: Mapping[str, Kind] = {"queue": Kind(QueueSpec.from_attributes, _queue)}


def make(spec: ResourceSpec) -> Resource:
    """The resource that a plan describes.

    Raises:
      InvalidArgumentError: if it describes none.
    """
    return _kind(spec).make(_definition(spec), spec.name)


def check_same(found: Any, spec: ResourceSpec) -> None:
    """Raises InvalidArgumentError if a resource was made in another way than a plan describes."""
    _definition(spec).check_same(found.spec, spec.name)


def _definition(spec: ResourceSpec) -> Any:
    try:
        record = json.loads(spec.definition)
    except ValueError as error:
        raise InvalidArgumentError(f"the definition of {spec} cannot be read: {error}") from None
    return _kind(spec).parse(record)


def _kind(spec: ResourceSpec) -> Kind:
    if spec.kind not in _KINDS:
        raise InvalidArgumentError(f"{spec} is of no known kind; there are {sorted(_KINDS)}")
    return _KINDS[spec.kind]

"""The kinds of resources that a plan may name, and how each is made."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jflow.errors import InvalidArgumentError
from jflow.plan import ResourceSpec
from jflow.records import Roots, open_records
from jflow.resources.accumulator import Accumulator, SparseAccumulator
from jflow.resources.accumulator_spec import AccumulatorSpec
from jflow.resources.attempt import Resource
from jflow.resources.position import Position, PositionSpec
from jflow.resources.queue import Queue
from jflow.resources.queue_spec import QueueSpec
from jflow.resources.reader import Reader, ReaderSpec


@dataclass(frozen=True)
class Kind:
    """A kind of resource.

    Attributes:
      parse: a definition from what JSON made of it; raises InvalidArgumentError.
      make: a resource of a definition, its name for messages, and where files may be read.
    """

    parse: Callable[[Any], Any]
    make: Callable[[Any, str, Roots], Resource]


def _queue(spec: QueueSpec, name: str, _: Roots) -> Resource:
    # A seed may be any integer, but NumPy takes no negative ones.
    seed = None if spec.seed is None else [abs(spec.seed), int(spec.seed < 0)]
    return Queue(spec, name, np.random.default_rng(seed))


def _accumulator(spec: AccumulatorSpec, name: str, _: Roots) -> Resource:
    return SparseAccumulator(spec, name) if spec.is_sparse else Accumulator(spec, name)


def _reader(spec: ReaderSpec, name: str, roots: Roots) -> Resource:
    return Reader(
        spec,
        name,
        lambda work, position: open_records(spec.kind, work, spec.options, roots, position),
    )


def _position(spec: PositionSpec, name: str, _: Roots) -> Resource:
    return Position(spec, name)


_KINDS: Mapping[str, Kind] = {
    "queue": Kind(QueueSpec.from_attributes, _queue),
    "accumulator": Kind(AccumulatorSpec.from_attributes, _accumulator),
    "position": Kind(PositionSpec.from_attributes, _position),
    "reader": Kind(ReaderSpec.from_attributes, _reader),
}


def make(spec: ResourceSpec, roots: Roots) -> Resource:
    """The resource that a plan describes.

    Args:
      spec: the description.
      roots: where it may read files.

    Raises:
      InvalidArgumentError: if it describes none.
    """
    return _kind(spec).make(_definition(spec), spec.name, roots)


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

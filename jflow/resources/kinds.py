"""The registry of resource kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jflow.errors import InvalidArgumentError
from jflow.plan import ResourceSpec
from jflow.records.allowed_directories import AllowedDirectories
from jflow.resources.accumulator import ACCUMULATOR
from jflow.resources.attempt import Resource
from jflow.resources.iterator_state import ITERATOR_STATE
from jflow.resources.kernel import Kernel
from jflow.resources.kind import Kind
from jflow.resources.queue import QUEUE
from jflow.resources.reader import READER

KINDS: tuple[Kind[Any], ...] = (
    ACCUMULATOR,
    ITERATOR_STATE,
    QUEUE,
    READER,
)
"""All kinds of resources; a new one is a package and a line here."""

_BY_NAME: Mapping[str, Kind[Any]] = {kind.name: kind for kind in KINDS}

KERNELS: Mapping[str, Kernel] = {
    name: kernel for kind in KINDS for name, kernel in kind.kernels.items()
}
"""The kernels of all kinds by name."""


def make(spec: ResourceSpec, roots: AllowedDirectories) -> Resource:
    """The resource that a plan describes.

    Args:
      spec: the description.
      roots: the directories that it may read.

    Raises:
      InvalidArgumentError: if the description is malformed.
    """
    return kind_of(spec).make(_definition(spec), spec.name, roots)


def check_same(found: Any, spec: ResourceSpec) -> None:
    """Raises InvalidArgumentError if a resource was made in another way than a plan describes."""
    _definition(spec).check_same(found.spec, spec.name)


def kind_of(spec: ResourceSpec) -> Kind[Any]:
    """The kind of the resource that a plan describes. Raises InvalidArgumentError if unknown."""
    kind = _BY_NAME.get(spec.kind)
    if kind is None:
        raise InvalidArgumentError(f"{spec} is of no known kind; there are {sorted(_BY_NAME)}")
    return kind


def _definition(spec: ResourceSpec) -> Any:
    return kind_of(spec).spec.from_bytes(spec.definition)

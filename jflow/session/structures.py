"""Flattens fetch structures into their leaves, and rebuilds them from values."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from functools import partial
from typing import Any

import jax

from jflow.graph import Operation, Symbolic

Build = Callable[[Iterator[Any]], Any]
"""Builds a structure again from the values for its leaves, which come in their order."""


def take_apart(structure: Any, leaves: list[Any]) -> Build:
    """Adds the leaves of a structure to a list, in the order in which it has them.

    Lists, tuples, dicts and their subclasses, named tuples, other mutable mappings, dataclasses,
    classes of attrs and the pytrees that JAX knows are containers. All else is a leaf.

    Args:
      structure: any nesting of containers. The keys of mappings may be anything.
      leaves: takes the leaves.

    Returns:
      What builds the structure again: containers of the same types, keys in the same order.
    """
    kind = type(structure)
    if kind is list or kind is tuple:
        return _sequence(kind, structure, leaves)
    if structure is None or isinstance(structure, str | Symbolic | Operation):
        leaves.append(structure)
        return next
    if isinstance(structure, MutableMapping):
        return _mapping(structure, leaves)
    if isinstance(structure, tuple):
        return _sequence(getattr(kind, "_make", kind), structure, leaves)
    if isinstance(structure, list):
        return _list(structure, leaves)
    return _object(structure, leaves)


def _sequence(make: Callable[[list[Any]], Any], items: Iterable[Any], leaves: list[Any]) -> Build:
    builds = [take_apart(item, leaves) for item in items]
    return lambda values: make([build(values) for build in builds])


def _list(items: list[Any], leaves: list[Any]) -> Build:
    """Of a subclass, which may have attributes of its own and any constructor."""
    builds = [take_apart(item, leaves) for item in items]
    original = copy.copy(items)

    def build(values: Iterator[Any]) -> Any:
        built = copy.copy(original)
        built[:] = [item(values) for item in builds]
        return built

    return build


def _mapping(items: MutableMapping[Any, Any], leaves: list[Any]) -> Build:
    builds = [(key, take_apart(item, leaves)) for key, item in items.items()]
    if type(items) is dict:
        return lambda values: {key: build(values) for key, build in builds}
    original = copy.copy(items)

    def build(values: Iterator[Any]) -> Any:
        # A key that exists keeps its position when its value is set.
        built = copy.copy(original)
        for key, item in builds:
            built[key] = item(values)
        return built

    return build


def _object(structure: Any, leaves: list[Any]) -> Build:
    children, tree = jax.tree.flatten(structure, is_leaf=lambda x: x is not structure)
    if not (len(children) == 1 and children[0] is structure):
        return _sequence(partial(jax.tree.unflatten, tree), children, leaves)
    names = _fields(structure)
    if names is None:
        leaves.append(structure)
        return next
    kind = type(structure)
    builds = {name: take_apart(getattr(structure, field), leaves) for field, name in names}
    return lambda values: kind(**{name: build(values) for name, build in builds.items()})


def _fields(structure: Any) -> list[tuple[str, str]] | None:
    """The fields of a dataclass or a class of attrs, and the constructor's names for them."""
    if isinstance(structure, type):
        return None
    if dataclasses.is_dataclass(structure):
        return [(field.name, field.name) for field in dataclasses.fields(structure) if field.init]
    attributes = getattr(type(structure), "__attrs_attrs__", None)
    if attributes is None:
        return None
    return [
        (field.name, getattr(field, "alias", None) or field.name.lstrip("_"))
        for field in attributes
        if field.init
    ]

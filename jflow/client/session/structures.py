"""Flattens fetch structures into leaves, and rebuilds them from values."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from functools import partial
from typing import Any

import jax

from jflow.compiler.graph import Operation, Symbolic

Build = Callable[[Iterator[Any]], Any]
"""Rebuilds a structure from values for its leaves, in the order of the leaves."""


def take_apart(structure: Any, leaves: list[Any]) -> Build:
    """Flattens a structure: appends its leaves to a list, in order.

    Containers are lists, tuples, dicts and their subclasses, named tuples, other mutable mappings,
    dataclasses, attrs classes and registered JAX pytrees. Anything else is a leaf.

    Args:
      structure: any nesting of containers. The keys of mappings can be anything.
      leaves: the list to append to.

    Returns:
      The function that rebuilds the structure, with the same types and order of keys.
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
    """Flattens a subclass of list, which is copied: it may have attributes and any constructor."""
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
        # Setting the value of an existing key keeps the order of keys.
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
    """The fields of a dataclass or attrs class, each with its name in the constructor."""
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

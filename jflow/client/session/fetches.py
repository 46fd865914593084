"""Converts the user's fetch structures and feeds to the values of a step, and back."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from jflow.base.values import (
    Array,
    HostArray,
    as_array,
    declared,
    from_physical,
    is_compatible,
    physical_form,
    shape_text,
    to_physical,
)
from jflow.client.ops.slices import IndexedSlices
from jflow.compiler.graph import Graph, Operation, Symbolic, Tensor

Build = Callable[[Iterator[Any]], Any]
"""Rebuilds a structure from values for its leaves, in the order of the leaves."""


def flatten(structure: Any, leaves: list[Any]) -> Build:
    """Flattens a fetch structure: appends its leaves to a list, in order.

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
    if isinstance(structure, IndexedSlices):
        return _slices(structure, leaves)
    if structure is None or isinstance(structure, str | Symbolic | Operation):
        leaves.append(structure)
        return next
    if isinstance(structure, MutableMapping):
        return _mapping(structure, leaves)
    if isinstance(structure, tuple):
        return _sequence(getattr(kind, "_make", kind), structure, leaves)
    return (_list if isinstance(structure, list) else _object)(structure, leaves)


def _slices(rows: IndexedSlices, leaves: list[Any]) -> Build:
    """Flattens rows of a tensor to the rows and their indices."""
    leaves.extend((rows.values, rows.indices))
    shape = rows.dense_shape
    return lambda values: IndexedSlices(next(values), next(values), shape)


def _sequence(make: Callable[[list[Any]], Any], items: Iterable[Any], leaves: list[Any]) -> Build:
    builds = [flatten(item, leaves) for item in items]
    return lambda values: make([build(values) for build in builds])


def _list(items: list[Any], leaves: list[Any]) -> Build:
    """Flattens a subclass of list; it is rebuilt as a copy, since its constructor is unknown."""
    builds = [flatten(item, leaves) for item in items]
    original = copy.copy(items)

    def build(values: Iterator[Any]) -> Any:
        built = copy.copy(original)
        built[:] = [item(values) for item in builds]
        return built

    return build


def _mapping(items: MutableMapping[Any, Any], leaves: list[Any]) -> Build:
    builds = [(key, flatten(item, leaves)) for key, item in items.items()]
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
    builds = {name: flatten(getattr(structure, field), leaves) for field, name in names}
    return lambda values: kind(**{name: build(values) for name, build in builds.items()})


def _fields(structure: Any) -> list[tuple[str, str]] | None:
    """Returns the fields of a dataclass or attrs object, each with its constructor's parameter."""
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


class Fetches:
    """A flattened fetch structure, which is filled with the values of each step.

    Args:
      build: rebuilds the structure from values for the leaves.
      leaves: tensors to fetch and operations to run.

    Attributes:
      tensors, targets: the tensors and the operations among the leaves, each once.
    """

    def __init__(self, build: Build, leaves: Sequence[Tensor | Operation]) -> None:
        self._build = build
        self._leaves = leaves
        self.tensors = tuple(dict.fromkeys(x for x in leaves if isinstance(x, Tensor)))
        self._is_plain = all(physical_form(tensor.dtype) is None for tensor in self.tensors)
        self.targets = tuple(dict.fromkeys(x for x in leaves if isinstance(x, Operation)))
        at: dict[Any, int] = {tensor: i for i, tensor in enumerate(self.tensors)}
        self._positions = [at.get(leaf, -1) for leaf in leaves]
        self._is_one_tensor = build is next and self._is_plain and bool(self.tensors)

    def fill(self, values: Mapping[Tensor, Array]) -> Any:
        """Rebuilds the structure from physical values; scalars become NumPy scalars."""
        leaf_values = [
            from_physical(values[x], x.dtype) if isinstance(x, Tensor) else None
            for x in self._leaves
        ]
        return self._build(iter(leaf_values))

    def fill_fetched(self, values: Sequence[Array]) -> Any:
        """Like `fill`, from a sequence with one value for each of `tensors`."""
        if self._is_one_tensor:
            return values[0][()]
        if self._is_plain:
            return self._build(values[i][()] if i >= 0 else None for i in self._positions)
        return self.fill(dict(zip(self.tensors, values, strict=True)))


_SINGLE = frozenset({Tensor, Operation})
_FLAT = frozenset({list, tuple})


def key_of(fetches: Any, feed_dict: Mapping[Any, Any] | None) -> Any:
    """Returns a cache key of the step with these fetches and feed keys; None if it has none.

    Returns:
      A key; None if the structure is not a tensor or operation, or a list or tuple of them.
    """
    if feed_dict and type(feed_dict) is not dict:
        return None
    if type(fetches) in _SINGLE:
        return (fetches, *feed_dict) if feed_dict else fetches
    if type(fetches) in _FLAT and all(type(leaf) in _SINGLE for leaf in fetches):
        return (type(fetches), len(fetches), *fetches, *(feed_dict or ()))
    return None


_REAL = frozenset(map(np.dtype, (np.float16, np.float32, np.float64)))


class FeedSlot:
    """Converts the values fed for one tensor; those that need no conversion take a fast path."""

    __slots__ = ("_dtype", "_limit", "_quick", "_shape", "_tensor")

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor
        self._shape = tensor.aval.shape
        self._dtype = tensor.dtype
        is_plain = isinstance(self._dtype, np.dtype) and physical_form(self._dtype) is None
        self._quick = (np.ndarray, self._dtype.type) if is_plain else ()
        is_real = tensor.aval.shape in (None, ()) and self._dtype in _REAL
        self._limit = float(np.finfo(self._dtype).max) if is_real else -1.0

    def physical(self, value: Any) -> Array:
        """Returns the physical form of a value. Raises as `parse_feeds`."""
        is_quick = type(value) in self._quick and value.dtype == self._dtype
        if is_quick and self._shape in (None, value.shape):
            return np.asarray(value)
        if type(value) is float and -self._limit <= value <= self._limit:
            return np.array(value, self._dtype)
        return _physical_value(self._tensor, value)


def parse_fetches(graph: Graph, fetches: Any) -> Fetches:
    """Flattens a fetch structure and resolves its leaves.

    Args:
      graph: the session's graph.
      fetches: a tensor, variable, operation or the name of one, or containers of them; see
        `flatten`.

    Raises:
      TypeError: if a leaf is none of these.
      ValueError: if a leaf is not in this graph.
    """
    leaves: list[Any] = []
    build = flatten(fetches, leaves)
    return Fetches(build, [_element(graph, leaf) for leaf in leaves])


def _element(graph: Graph, leaf: Any) -> Tensor | Operation:
    if isinstance(leaf, str):
        try:
            by_name = graph.get_tensor_by_name if ":" in leaf else graph.get_operation_by_name
            return by_name(leaf)
        except (KeyError, ValueError) as error:
            raise ValueError(f"cannot fetch {leaf!r}: {error.args[0]}") from None
    if isinstance(leaf, Symbolic):
        leaf = leaf.graph_element()
    if not isinstance(leaf, Tensor | Operation):
        raise TypeError(
            "expected a tensor, variable, operation, the name of one, or a structure of them as a "
            f"fetch, got {leaf!r:.80} of type {type(leaf).__name__}"
        )
    if leaf.graph is not graph:
        raise ValueError(
            f"cannot fetch {leaf!r}: it is not an element of this session's graph; open the "
            "session in the block of its graph, or as Session(graph=...)"
        )
    return leaf


def parse_feeds(graph: Graph, feed_dict: Mapping[Any, Any] | None) -> dict[Tensor, Array]:
    """Converts fed values to their physical form.

    Args:
      graph: the session's graph.
      feed_dict: values by tensor, variable or tensor name; for a `SparseTensor`, `IndexedSlices`
        or tuple of tensors a tuple of values, or an object of the same class.

    Returns:
      The physical form of each value, by tensor.

    Raises:
      TypeError: if a key is not a tensor of this graph, or a value cannot be converted to the
        tensor's dtype.
      ValueError: if a value does not have the tensor's shape.
    """
    if feed_dict is None:
        return {}
    if not isinstance(feed_dict, Mapping):
        raise TypeError(f"feed_dict must be a dict, got {type(feed_dict).__name__}")
    pairs = (pair for item in feed_dict.items() for pair in _parts(*item))
    return dict(_feed(graph, key, value) for key, value in pairs)


def parse_feed_list(graph: Graph, keys: Iterable[Any]) -> tuple[Tensor, ...]:
    """Resolves feed keys to tensors. Raises TypeError for a key that is not one of this graph."""
    parts = (part for key in keys for part, _ in _parts(key, None))
    return tuple(_feed_key(graph, part) for part in parts)


def _parts(key: Any, value: Any) -> Iterator[tuple[Any, Any]]:
    """Yields the tensors of a fed structure, each with its value, if there are values."""
    if isinstance(key, IndexedSlices):
        key = (key.values, key.indices)
        value = (value.values, value.indices) if isinstance(value, IndexedSlices) else value
    if not isinstance(key, tuple) or not all(isinstance(x, Symbolic | tuple) for x in key):
        yield key, value
        return
    if value is None:
        values: Sequence[Any] = [None] * len(key)
    elif isinstance(value, tuple | list) and len(value) == len(key):
        values = value
    else:
        raise ValueError(
            f"expected {len(key)} values for the tensors of {key!r}, got {value!r:.80}"
        )
    for part, own in zip(key, values, strict=True):
        yield from _parts(part, own)


def _feed(graph: Graph, key: Any, value: Any) -> tuple[Tensor, Array]:
    tensor = _feed_key(graph, key)
    return tensor, _physical_value(tensor, value)


def _physical_value(tensor: Tensor, value: Any) -> Array:
    """Converts a value fed for a tensor to its physical form."""
    if isinstance(value, Symbolic | Operation):
        raise TypeError(
            f"cannot feed {tensor!r}: the value {value!r} is a graph element; fetch it first and "
            "feed the result"
        )
    try:
        array = as_array(value, tensor.dtype, on_host=isinstance(tensor.aval, HostArray))
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"cannot feed {tensor!r}: {error}") from None
    if not is_compatible(tensor.aval.shape, array.shape):
        raise ValueError(
            f"Cannot feed value of shape {array.shape} for tensor {tensor.name!r}, which has "
            f"shape {shape_text(declared(tensor.aval.shape))} (made at {tensor.op.origin})"
        )
    return to_physical(array)


def _feed_key(graph: Graph, key: Any) -> Tensor:
    if isinstance(key, str):
        try:
            return graph.get_tensor_by_name(key)
        except (KeyError, ValueError) as error:
            raise TypeError(f"Cannot interpret feed_dict key {key!r}: {error.args[0]}") from None
    tensor = key.graph_element() if isinstance(key, Symbolic) else None
    if tensor is None or tensor.graph is not graph:
        raise TypeError(
            f"Cannot interpret feed_dict key {key!r}: it is not a tensor of this session's graph"
        )
    if not graph.is_feedable(tensor):
        raise ValueError(
            f"{tensor!r} may not be fed: it is in a branch or loop, or other operations were built "
            "with its value as a shape, an axis or a number; use a placeholder or "
            "placeholder_with_default for it"
        )
    return tensor  # type: ignore[no-any-return]

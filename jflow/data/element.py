"""What an element is: a pytree of NumPy arrays, NumPy scalars, str and bytes.

Strings stay Python objects until a batch makes an object array of them: NumPy's own string
arrays would cut the zero bytes at a string's end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from jflow.errors import InvalidArgumentError
from jflow.graph import Tensor
from jflow.values import TensorSpec, string


def as_element(value: Any) -> Any:
    """Makes NumPy arrays and scalars of the leaves of what a user's code returned."""
    if value is None:
        raise InvalidArgumentError(
            "an element of a dataset must be a pytree of arrays, got None; "
            "return an element, and drop those not wanted with filter"
        )
    return jax.tree.map(_as_leaf, value)


def _as_leaf(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray | np.generic | str | bytes):
        return leaf
    if isinstance(leaf, Tensor):
        raise InvalidArgumentError(
            f"the leaves of an element must be arrays, got {leaf!r}, an operation of a graph; "
            "a function of a dataset computes with NumPy or jax.numpy, and the decoders of jflow "
            "give arrays there where they are given arrays"
        )
    array = np.asarray(leaf)
    if array.dtype == object:
        raise InvalidArgumentError(
            "the leaves of an element must be arrays, numbers, str or bytes, "
            f"got {type(leaf).__name__}: {leaf!r}"
        )
    return array[()]


def spec_of(element: Any) -> Any:
    """Shapes and dtypes of one element; str and bytes have the shape ()."""
    return jax.tree.map(_leaf_spec, element)


def _leaf_spec(leaf: Any) -> TensorSpec:
    if isinstance(leaf, str | bytes):
        return TensorSpec((), string)
    return TensorSpec(np.shape(leaf), leaf.dtype)


def stack(elements: Sequence[Any]) -> Any:
    """One batch of elements: their leaves along a new first axis."""
    _check_structures(elements)
    return jax.tree.map(lambda *leaves: _stack_leaves(leaves), *elements)


def pad_and_stack(elements: Sequence[Any], value: Any) -> Any:
    """One batch of elements whose leaves are first padded at the end to the longest of each."""
    _check_structures(elements)
    return jax.tree.map(lambda *leaves: _stack_leaves(_padded(leaves, value)), *elements)


def _check_structures(elements: Sequence[Any]) -> None:
    expected: Any = jax.tree.structure(elements[0])
    for number, element in enumerate(elements):
        found = jax.tree.structure(element)
        if found != expected:
            raise InvalidArgumentError(
                f"a batch needs elements of one structure: element 0 of the batch is {expected}, "
                f"element {number} is {found}; bring them to one structure with map"
            )


def _stack_leaves(leaves: Sequence[Any]) -> Any:
    first = _shape_and_kind(leaves[0])
    for number, leaf in enumerate(leaves):
        if _shape_and_kind(leaf) != first:
            raise InvalidArgumentError(
                "a batch needs elements of one shape and kind: element 0 of the batch is "
                f"{_leaf_spec(leaves[0])}, element {number} is {_leaf_spec(leaf)}; "
                "bring them to one shape with map, or use padded_batch"
            )
    if isinstance(leaves[0], str | bytes):
        return np.array(leaves, dtype=object)
    return np.stack(leaves)


def _shape_and_kind(leaf: Any) -> tuple[tuple[int, ...], str]:
    # Specs of every leaf of every element would take longer than stacking them.
    return ((), "O") if isinstance(leaf, str | bytes) else (np.shape(leaf), leaf.dtype.kind)


def _padded(leaves: Sequence[Any], value: Any) -> Sequence[Any]:
    strings = any(isinstance(leaf, str | bytes) for leaf in leaves)
    if strings or len({np.ndim(leaf) for leaf in leaves}) > 1:
        return leaves
    longest = np.max([np.shape(leaf) for leaf in leaves], axis=0)
    return [
        np.pad(leaf, [(0, int(n)) for n in longest - np.shape(leaf)], constant_values=value)
        for leaf in leaves
    ]


def unstack(batch: Any) -> list[Any]:
    """The elements of a batch, one for each index of the first axis."""
    leaves: list[Any]
    structure: Any
    leaves, structure = jax.tree.flatten(batch)
    lengths = {len(leaf) if np.ndim(leaf) else None for leaf in leaves}
    if len(lengths) != 1 or None in lengths:
        raise InvalidArgumentError(
            f"unbatch needs leaves with a first axis of one length, got {spec_of(batch)}"
        )
    return [structure.unflatten(leaf) for leaf in zip(*leaves, strict=True)]


def batched_spec(spec: Any, size: int | None, padded: bool = False) -> Any:
    """The spec of batches; the size is None where the last batch may be smaller."""

    def batched(leaf: TensorSpec) -> TensorSpec:
        inner = (None,) * len(_sizes(leaf)) if padded else _sizes(leaf)
        return TensorSpec((size, *inner), leaf.dtype)

    return jax.tree.map(batched, spec)


def unbatched_spec(spec: Any) -> Any:
    """The spec of the elements of batches."""
    return jax.tree.map(lambda leaf: TensorSpec(_sizes(leaf)[1:], leaf.dtype), spec)


def unknown_axes(spec: Any) -> set[int]:
    """The axes along which some leaf has no fixed length."""
    return {
        axis
        for leaf in jax.tree.leaves(spec)
        for axis, length in enumerate(_sizes(leaf))
        if length is None
    }


def common_spec(specs: Sequence[Any]) -> Any:
    """What holds for the elements of several datasets, whose structures must be equal."""
    if len({jax.tree.structure(spec) for spec in specs}) > 1:
        raise InvalidArgumentError(
            "datasets of one structure have one spec, got "
            + " and ".join(repr(spec) for spec in specs)
        )
    return jax.tree.map(lambda *leaves: _common_leaf(leaves), *specs)


def _common_leaf(leaves: Sequence[TensorSpec]) -> TensorSpec:
    dtypes = {leaf.dtype for leaf in leaves}
    ranks = {len(_sizes(leaf)) for leaf in leaves}
    if len(dtypes) > 1 or len(ranks) > 1:
        raise InvalidArgumentError(
            "datasets with elements of one dtype and rank have one spec, got "
            + " and ".join(repr(leaf) for leaf in leaves)
        )
    lengths = zip(*map(_sizes, leaves), strict=True)
    return TensorSpec(tuple(n[0] if len(set(n)) == 1 else None for n in lengths), dtypes.pop())


def loosened(spec: Any, axes: Iterable[int]) -> Any:
    """The spec with no fixed length along the axes."""

    def loosen(leaf: TensorSpec) -> TensorSpec:
        shape = tuple(None if axis in axes else n for axis, n in enumerate(_sizes(leaf)))
        return TensorSpec(shape, leaf.dtype)

    return jax.tree.map(loosen, spec)


def _sizes(leaf: TensorSpec) -> tuple[int | None, ...]:
    """The sizes of a leaf, whose rank is known as some element was there."""
    assert leaf.shape is not None
    return leaf.shape

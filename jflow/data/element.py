"""Elements of datasets, pytrees of NumPy arrays and scalars, str and bytes, and calls on them.

Strings stay Python objects and become object arrays in a batch, because NumPy's own string
arrays drop zero bytes at the end of a string.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jflow.base.values import TensorSpec, string
from jflow.compiler.graph import Tensor
from jflow.compiler.graph.stack import EagerDecoding
from jflow.errors import InvalidArgumentError


def as_element(value: Any) -> Any:
    """Converts the leaves of a user's value to NumPy arrays and scalars, str and bytes."""
    if value is None:
        raise InvalidArgumentError(
            "an element of a dataset must be a pytree of arrays, got None; "
            "return an element, and remove elements with filter"
        )
    return jax.tree.map(_as_leaf, value)


def _as_leaf(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray | np.generic | str | bytes):
        return leaf
    if isinstance(leaf, Tensor):
        raise InvalidArgumentError(
            f"the leaves of an element must be arrays, got the graph tensor {leaf!r}; a function "
            "of a dataset computes with NumPy or jax.numpy, and the decoders of jflow return "
            "arrays there if their arguments are arrays"
        )
    array = np.asarray(leaf)
    if array.dtype == object:
        raise InvalidArgumentError(
            "the leaves of an element must be arrays, numbers, str or bytes, "
            f"got {type(leaf).__name__}: {leaf!r}"
        )
    return array[()]


def spec_of(element: Any) -> Any:
    """Returns the shapes and dtypes of an element; str and bytes have the shape ()."""
    return jax.tree.map(_leaf_spec, element)


def _leaf_spec(leaf: Any) -> TensorSpec:
    if isinstance(leaf, str | bytes):
        return TensorSpec((), string)
    return TensorSpec(np.shape(leaf), leaf.dtype)


def stack(elements: Sequence[Any]) -> Any:
    """Stacks the leaves of elements along a new first axis."""
    _check_structures(elements)
    return jax.tree.map(lambda *leaves: _stack_leaves(leaves), *elements)


def pad_and_stack(elements: Sequence[Any], value: Any) -> Any:
    """Pads the leaves of elements at the end to the longest of each, and stacks them."""
    _check_structures(elements)
    return jax.tree.map(lambda *leaves: _stack_leaves(_pad_leaves(leaves, value)), *elements)


def _check_structures(elements: Sequence[Any]) -> None:
    expected: Any = jax.tree.structure(elements[0])
    for number, element in enumerate(elements):
        structure = jax.tree.structure(element)
        if structure != expected:
            raise InvalidArgumentError(
                f"a batch requires elements of one structure: element 0 of the batch is "
                f"{expected}, element {number} is {structure}; make the structures equal with map"
            )


def _stack_leaves(leaves: Sequence[Any]) -> Any:
    first = _shape_and_kind(leaves[0])
    for number, leaf in enumerate(leaves):
        if _shape_and_kind(leaf) != first:
            raise InvalidArgumentError(
                "a batch requires elements of one shape and kind of dtype: element 0 of the batch "
                f"is {_leaf_spec(leaves[0])}, element {number} is {_leaf_spec(leaf)}; "
                "make the shapes equal with map, or use padded_batch"
            )
    if isinstance(leaves[0], str | bytes):
        return np.array(leaves, dtype=object)
    return np.stack(leaves)


def _shape_and_kind(leaf: Any) -> tuple[tuple[int, ...], str]:
    # A full spec of each leaf would take longer than stacking.
    return ((), "O") if isinstance(leaf, str | bytes) else (np.shape(leaf), leaf.dtype.kind)


def _pad_leaves(leaves: Sequence[Any], value: Any) -> Sequence[Any]:
    strings = any(isinstance(leaf, str | bytes) for leaf in leaves)
    if strings or len({np.ndim(leaf) for leaf in leaves}) > 1:
        return leaves
    longest = np.max([np.shape(leaf) for leaf in leaves], axis=0)
    return [
        np.pad(leaf, [(0, int(n)) for n in longest - np.shape(leaf)], constant_values=value)
        for leaf in leaves
    ]


def unstack(batch: Any) -> list[Any]:
    """Splits a batch into its elements along the first axis."""
    leaves: list[Any]
    structure: Any
    leaves, structure = jax.tree.flatten(batch)
    lengths = {len(leaf) if np.ndim(leaf) else None for leaf in leaves}
    if len(lengths) != 1 or None in lengths:
        raise InvalidArgumentError(
            f"unbatch requires leaves with a first axis of one length, got {spec_of(batch)}"
        )
    return [structure.unflatten(leaf) for leaf in zip(*leaves, strict=True)]


def batched_spec(spec: Any, size: int | None, padded: bool = False) -> Any:
    """Returns the spec of batches; `size` is None if the last batch may be smaller."""

    def batched(leaf: TensorSpec) -> TensorSpec:
        inner = (None,) * len(_sizes(leaf)) if padded else _sizes(leaf)
        return TensorSpec((size, *inner), leaf.dtype)

    return jax.tree.map(batched, spec)


def unbatched_spec(spec: Any) -> Any:
    """Returns the spec of the elements that batches of this spec split into."""
    return jax.tree.map(lambda leaf: TensorSpec(_sizes(leaf)[1:], leaf.dtype), spec)


def unknown_axes(spec: Any) -> set[int]:
    """Returns the axes along which the length of any leaf is unknown."""
    return {
        axis
        for leaf in jax.tree.leaves(spec)
        for axis, length in enumerate(_sizes(leaf))
        if length is None
    }


def common_spec(specs: Sequence[Any]) -> Any:
    """Returns a spec that fits the elements of all datasets; sizes that differ become unknown."""
    if len({jax.tree.structure(spec) for spec in specs}) > 1:
        raise InvalidArgumentError(
            "a common spec requires datasets of one structure, got "
            + " and ".join(repr(spec) for spec in specs)
        )
    return jax.tree.map(lambda *leaves: _common_leaf(leaves), *specs)


def _common_leaf(leaves: Sequence[TensorSpec]) -> TensorSpec:
    dtypes = {leaf.dtype for leaf in leaves}
    ranks = {len(_sizes(leaf)) for leaf in leaves}
    if len(dtypes) > 1 or len(ranks) > 1:
        raise InvalidArgumentError(
            "a common spec requires elements of one dtype and rank, got "
            + " and ".join(repr(leaf) for leaf in leaves)
        )
    lengths = zip(*map(_sizes, leaves), strict=True)
    return TensorSpec(tuple(n[0] if len(set(n)) == 1 else None for n in lengths), dtypes.pop())


def loosened(spec: Any, axes: Iterable[int]) -> Any:
    """Returns the spec with unknown lengths along `axes`."""

    def loosen(leaf: TensorSpec) -> TensorSpec:
        shape = tuple(None if axis in axes else n for axis, n in enumerate(_sizes(leaf)))
        return TensorSpec(shape, leaf.dtype)

    return jax.tree.map(loosen, spec)


def _sizes(leaf: TensorSpec) -> tuple[int | None, ...]:
    """Returns a leaf's sizes; its rank is known, as its spec was made from an element."""
    assert leaf.shape is not None
    return leaf.shape


def name_of(function: Callable[..., Any]) -> str:
    """Returns the name of a function for messages and saved positions."""
    if isinstance(function, functools.partial):
        return name_of(function.func)
    return getattr(function, "__name__", type(function).__name__)


class ElementNote:
    """A context manager that notes the transform and element on exceptions of user code."""

    def __init__(self, transform: str, number: int) -> None:
        self._transform = transform
        self._number = number

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, StopIteration):
            # The iterator around this would take it for the end of the data.
            raise RuntimeError(
                f"{self._transform} raised StopIteration at element {self._number}"
            ) from error
        if isinstance(error, Exception):
            error.add_note(
                f"in {self._transform} of a dataset, at element {self._number} (counted from 0)"
            )


@dataclass(frozen=True)
class UserCall:
    """A user function as a transform; tuples are passed as separate arguments, as in tf.data.

    Attributes:
      transform: its name in errors, such as "map(normalise)".
      function: the user function.
      finish: converts its result; its errors get the same notes.
    """

    transform: str
    function: Callable[..., Any]
    finish: Callable[[Any], Any]

    def __call__(self, number: int, element: Any) -> Any:
        with ElementNote(self.transform, number), EagerDecoding():
            spread = element if type(element) is tuple else (element,)
            return self.finish(self.function(*spread))

"""`TensorShape` and `Dimension`: shapes as in TensorFlow 1, which JAX accepts as tuples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn, SupportsIndex

import jax
import jax.export

from jflow.base.values.dims import declared, is_known, plain_shape, unknown_dim


class Dimension:
    """A size in a shape: an int, or a symbol of JAX if it is unknown.

    Args:
      value: the size, None if it is unknown, or another dimension.

    Raises:
      TypeError: if it is not a size.
      ValueError: if it is negative.
    """

    __slots__ = ()

    def __new__(cls, value: Any) -> Any:
        if isinstance(value, Dimension):
            return value
        return _wrap_size(unknown_dim() if value is None else _as_size(value))

    @property
    def value(self) -> int | None:
        """The size as an int; None if it is unknown."""
        return int(self) if isinstance(self, int) else None

    def is_compatible_with(self, other: Any) -> bool:
        """Whether two sizes are equal or one is unknown."""
        other = Dimension(other)
        return self.value is None or other.value is None or self.value == other.value

    def assert_is_compatible_with(self, other: Any) -> None:
        """Raises ValueError if two sizes are known and not equal."""
        if not self.is_compatible_with(other):
            raise ValueError(f"Dimensions {self} and {other} are not compatible")

    def merge_with(self, other: Any) -> Any:
        """Returns the known one of two sizes. Raises as `assert_is_compatible_with`."""
        self.assert_is_compatible_with(other)
        return Dimension(other) if self.value is None else self

    def __repr__(self) -> str:
        return str(plain_size(self))


class _KnownDimension(Dimension, int):
    __slots__ = ()

    def __new__(cls, value: int) -> _KnownDimension:
        return int.__new__(cls, value)

    def __reduce__(self) -> Any:
        return int, (int(self),)


_SYMBOL: Any = type(unknown_dim())


class _UnknownDimension(Dimension, _SYMBOL):  # type: ignore[misc]
    __slots__ = ()

    def __new__(cls, symbol: Any) -> _UnknownDimension:
        unknown: _UnknownDimension = _as_kind(cls, symbol)
        return unknown

    def __init__(self, _: Any) -> None:
        """Does nothing: `__new__` has initialized the symbol."""

    @property
    def symbol(self) -> Any:
        """The same symbol as an object of JAX's class."""
        return _as_kind(_SYMBOL, self)

    def __eq__(self, other: object) -> bool:
        # JAX's symbols are equal to those of their own class only.
        return bool(plain_size(self) == plain_size(other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        value: int = _SYMBOL.__hash__(self)
        return value


def plain_size(size: Any) -> Any:
    """Converts a `Dimension` to an int or a symbol of JAX; returns anything else unchanged."""
    if isinstance(size, _UnknownDimension):
        return size.symbol
    return int(size) if isinstance(size, _KnownDimension) else size


def _as_kind(kind: Any, symbol: Any) -> Any:
    """Returns a copy of a symbol as an object of another class."""
    instance = object.__new__(kind)
    for name in _SYMBOL.__slots__:
        setattr(instance, name, getattr(symbol, name))
    return instance


def _wrap_size(size: Any) -> Any:
    if size is None or isinstance(size, Dimension):
        return Dimension(size)
    return _KnownDimension(size) if is_known(size) else _UnknownDimension(size)


class TensorShape(tuple[Any, ...]):
    """The shape of a tensor: a tuple of sizes with the methods of TensorFlow 1's `TensorShape`.

    Each size is an int, or a symbol of JAX if it is unknown, and has `value`: the int, or None.
    A shape is equal to a list or tuple of the same sizes, in which None stands for any unknown one.

    Args:
      dims: the sizes, None for an unknown one; a single size; another shape; or None if not even
        the rank is known. Such a shape is false, and has no sizes to take.

    Raises:
      TypeError: if a size is not an integer.
      ValueError: if a size is negative.
    """

    __slots__ = ()

    def __new__(cls, dims: Any) -> TensorShape:
        if isinstance(dims, TensorShape):
            return dims
        if dims is None:
            return UNKNOWN_SHAPE
        sizes = dims if isinstance(dims, Iterable) and not isinstance(dims, str) else (dims,)
        return tuple.__new__(cls, map(_as_size, sizes))

    @classmethod
    def of(cls, sizes: Sequence[Any] | None) -> TensorShape:
        """Returns the shape with these sizes, numbers and symbols; of unknown rank for None."""
        return UNKNOWN_SHAPE if sizes is None else tuple.__new__(cls, sizes)

    @property
    def rank(self) -> int | None:
        """The number of dimensions, None if it is unknown."""
        return tuple.__len__(self)

    @property
    def ndims(self) -> int | None:
        """The same as `rank`."""
        return self.rank

    @property
    def dims(self) -> list[Any] | None:
        """The sizes as a list of `Dimension`, None if the rank is unknown."""
        return None if self.rank is None else list(self)

    @property
    def sizes(self) -> tuple[Any, ...] | None:
        """The sizes as plain numbers and symbols; None if the rank is unknown."""
        return None if self.rank is None else tuple(tuple.__iter__(self))

    def as_list(self) -> list[int | None]:
        """Returns the sizes, None for unknown ones. Raises ValueError if the rank is unknown."""
        sizes = declared(self.sizes)
        if sizes is None:
            raise ValueError("as_list() is not defined for a shape of unknown rank")
        return list(sizes)

    def num_elements(self) -> int | None:
        """Returns the number of elements, None if it is unknown."""
        return math.prod(map(int, self)) if self.is_fully_defined() else None

    def is_fully_defined(self) -> bool:
        """Whether the rank and all sizes are known."""
        return self.rank is not None and None not in self.as_list()

    def assert_is_fully_defined(self) -> None:
        """Raises ValueError if the rank or a size is unknown."""
        if not self.is_fully_defined():
            raise ValueError(f"Shape {self} is not fully defined")

    def is_compatible_with(self, other: Any) -> bool:
        """Whether a tensor could have both shapes."""
        other = TensorShape(other)
        if self.rank is None or other.rank is None:
            return True
        pairs = zip(self, other, strict=False)
        return self.rank == other.rank and all(a.is_compatible_with(b) for a, b in pairs)

    def assert_is_compatible_with(self, other: Any) -> None:
        """Raises ValueError if no tensor could have both shapes."""
        if not self.is_compatible_with(other):
            raise ValueError(f"Shapes {self} and {TensorShape(other)} are incompatible")

    def merge_with(self, other: Any) -> TensorShape:
        """Combines the known sizes of two shapes.

        Raises ValueError if no tensor can have both.
        """
        other = TensorShape(other)
        if not self.is_compatible_with(other):
            raise ValueError(f"Shapes {self} and {other} are not compatible")
        if self.rank is None or other.rank is None:
            return other if self.rank is None else self
        pairs = zip(self.sizes or (), other.sizes or (), strict=True)
        return TensorShape.of([a if is_known(a) else b for a, b in pairs])

    def most_specific_compatible_shape(self, other: Any) -> TensorShape:
        """Returns a shape with the sizes on which both shapes agree; other sizes are unknown."""
        other = TensorShape(other)
        if self.rank is None or self.rank != other.rank:
            return UNKNOWN_SHAPE
        pairs = zip(self.sizes or (), other.sizes or (), strict=True)
        return TensorShape.of([a if _is_same(a, b) else None for a, b in pairs])

    def concatenate(self, other: Any) -> TensorShape:
        """Returns this shape followed by another one; the rank is unknown if either is."""
        other = TensorShape(other)
        if self.rank is None or other.rank is None:
            return UNKNOWN_SHAPE
        return TensorShape.of((*(self.sizes or ()), *(other.sizes or ())))

    def with_rank(self, rank: int) -> TensorShape:
        """Returns this shape, or one of unknown sizes and this rank if its rank is unknown.

        Raises ValueError if it has another rank.
        """
        if self.rank not in (None, rank):
            raise ValueError(f"Shape {self} must have rank {rank}")
        return TensorShape.of([None] * rank) if self.rank is None else self

    def with_rank_at_least(self, rank: int) -> TensorShape:
        """Returns this shape. Raises ValueError if it has a lower rank."""
        if self.rank is not None and self.rank < rank:
            raise ValueError(f"Shape {self} must have rank at least {rank}")
        return self

    def with_rank_at_most(self, rank: int) -> TensorShape:
        """Returns this shape. Raises ValueError if it has a higher rank."""
        if self.rank is not None and self.rank > rank:
            raise ValueError(f"Shape {self} must have rank at most {rank}")
        return self

    def assert_has_rank(self, rank: int) -> None:
        """Raises ValueError if the shape is known to have another rank."""
        self.with_rank(rank)

    def assert_same_rank(self, other: Any) -> None:
        """Raises ValueError if both ranks are known and differ."""
        other = TensorShape(other)
        if None not in (self.rank, other.rank) and self.rank != other.rank:
            raise ValueError(f"Shapes {self} and {other} must have the same rank")

    # As a tuple -------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        return map(_wrap_size, tuple.__iter__(self))

    def __getitem__(self, index: Any) -> Any:
        item = tuple.__getitem__(self, index)
        return TensorShape.of(item) if isinstance(index, slice) else _wrap_size(item)

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, list | tuple):
            return NotImplemented
        return self.concatenate(other)

    def __radd__(self, other: Any) -> Any:
        return TensorShape(other).concatenate(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list | tuple) or isinstance(other, _UnknownShape):
            return False
        sizes, others = self.sizes or (), plain_shape(other)
        return len(sizes) == len(others) and all(map(_is_same, sizes, others))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return tuple.__hash__(self)

    def __repr__(self) -> str:
        return str(declared(self.sizes))

    def __copy__(self) -> TensorShape:
        return self

    def __deepcopy__(self, _: Any) -> TensorShape:
        return self

    def __reduce__(self) -> Any:
        return TensorShape, (None if self.rank is None else self.as_list(),)


_ADVICE = "declare it with set_shape or jflow.ensure_shape"


class _UnknownShape(TensorShape):
    """The shape of a tensor of unknown rank: equal to None, false, and without sizes."""

    __slots__ = ()

    @property
    def rank(self) -> None:
        return None

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> NoReturn:
        raise ValueError(f"Cannot take the length of a shape with unknown rank; {_ADVICE}")

    def __iter__(self) -> NoReturn:
        raise ValueError(f"Cannot iterate over a shape with unknown rank; {_ADVICE}")

    def __getitem__(self, index: SupportsIndex | slice) -> NoReturn:
        raise ValueError(f"Cannot take a size of a shape with unknown rank; {_ADVICE}")

    def __eq__(self, other: object) -> bool:
        return other is None or isinstance(other, _UnknownShape)

    def __hash__(self) -> int:
        return hash(None)

    def __repr__(self) -> str:
        return "TensorShape(None)"


UNKNOWN_SHAPE: TensorShape = tuple.__new__(_UnknownShape)
"""The shape of tensors of unknown rank."""


def _as_size(value: Any) -> Any:
    """Converts a size to a plain number or a symbol; None stays None."""
    if value is None or jax.export.is_symbolic_dim(value):
        return plain_size(value)
    try:
        size = int(value.__index__())
    except (AttributeError, TypeError):
        raise TypeError(f"expected a size (an integer or None), got {value!r}") from None
    if size < 0:
        raise ValueError(f"Dimension {size} must be >= 0")
    return size


def _is_same(one: Any, other: Any) -> bool:
    """Whether two sizes are equal; None equals any unknown size."""
    if one is None or other is None:
        return not is_known(one) and not is_known(other)
    return bool(one == other)


def _flatten(shape: TensorShape) -> tuple[tuple[Any, ...], None]:
    return tuple(shape.sizes or ()), None


def _unflatten(_: None, sizes: Iterable[Any]) -> Any:
    return tuple(sizes)


# To JAX a shape is a tree of its sizes, as any tuple.
jax.tree_util.register_pytree_node(TensorShape, _flatten, _unflatten)

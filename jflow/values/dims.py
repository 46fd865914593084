"""Sizes of dimensions that are not known before a step runs.

Such a size is a symbol of JAX's shape polymorphism (`jax.export.symbolic_shape`): JAX traces
functions of it, and two sizes that must be equal are one symbol. A program is compiled again for
each size that comes along.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

import jax.export

Dim = Any
"""A number, or a symbol; the symbols' type has no public name."""

_SCOPE = jax.export.SymbolicScope()
_NUMBERS = itertools.count()
_SYMBOL = re.compile(r"[A-Za-z_]\w*")


def unknown_dim(hint: str = "n") -> Dim:
    """A new symbol for a size of at least 1."""
    (dim,) = jax.export.symbolic_shape(f"{hint}{next(_NUMBERS)}", scope=_SCOPE)
    return dim


def unknown_sizes(rank: int) -> tuple[Dim, ...]:
    """A shape of new symbols."""
    return tuple(unknown_dim() for _ in range(rank))


def is_known(dim: Dim) -> bool:
    """Whether a size is a number."""
    return isinstance(dim, int)


def is_symbol(dim: Dim) -> bool:
    """Whether a size is a single symbol, of which an argument of a program tells the value."""
    return not is_known(dim) and _SYMBOL.fullmatch(str(dim)) is not None


def is_static(shape: Sequence[Dim] | None) -> bool:
    """Whether rank and all sizes are known."""
    return shape is not None and all(map(is_known, shape))


def as_shape(shape: Any) -> tuple[Dim, ...] | None:
    """The shape that a user's value stands for: a new symbol for each None, None for any rank.

    Raises:
      TypeError: if it is no shape.
    """
    if shape is None:
        return None
    try:
        dims = tuple(shape) if not isinstance(shape, int) else (shape,)
        return tuple(_as_dim(dim) for dim in dims)
    except TypeError:
        raise TypeError(
            f"a shape is a sequence of sizes, None for those that are not known; got {shape!r}"
        ) from None


def _as_dim(dim: Any) -> Dim:
    if jax.export.is_symbolic_dim(dim):
        return dim
    return unknown_dim() if dim is None or int(dim) == -1 else int(dim)


def declared(shape: Sequence[Dim] | None) -> tuple[int | None, ...] | None:
    """The shape with None for each symbol, as it is declared where symbols are not known."""
    if shape is None:
        return None
    return tuple(dim if is_known(dim) else None for dim in shape)

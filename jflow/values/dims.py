"""Sizes of dimensions that are not known before a step runs.

Such a size is a symbol of JAX's shape polymorphism (`jax.export.symbolic_shape`): JAX traces
functions of it, and two sizes that must be equal are one symbol. A program is compiled again for
each size that comes along.
"""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax.export

Dim = Any
"""A number, or a symbol; the symbols' type has no public name."""

_SCOPE = jax.export.SymbolicScope()
_CANONICAL_SCOPE = jax.export.SymbolicScope()
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


def canonical_sizes(shapes: Iterable[Sequence[Dim]]) -> Callable[[Dim], Dim] | None:
    """Returns a renaming of symbols that does not depend on how many were made before them.

    Symbols are numbered by process; in the renaming they are a, b, c … in the order in which they
    first appear in `shapes`, so that equal programs have equal symbols. A canonical name does not
    end with a digit and belongs to a scope of its own, so JAX refuses a program in which a symbol
    was not renamed; it never takes one symbol for another.

    Args:
      shapes: those of a program's arguments, which tell it all of its sizes.

    Returns:
      A function from a size to the renamed one, or None if there is no symbol to rename or one
      that was made elsewhere, whose scope may have constraints.
    """
    unknown = [dim for shape in shapes for dim in shape if not is_known(dim)]
    if not unknown or any(getattr(dim, "scope", None) is not _SCOPE for dim in unknown):
        return None
    # Expressions come last: their text is in the order of the names, which are still numbered.
    names = dict.fromkeys(str(dim) for dim in unknown if is_symbol(dim))
    for dim in unknown:
        names.update(dict.fromkeys(symbols_of(dim)))
    numbered = (name for name in names if name[-1].isdigit())  # not a function such as "max"
    renamed = {name: _letters(i) for i, name in enumerate(numbered)}
    done: dict[str, Dim] = {}

    def rename(dim: Dim) -> Dim:
        if is_known(dim):
            return dim
        text = str(dim)
        if text not in done:
            changed = _SYMBOL.sub(lambda match: renamed.get(match[0], match[0]), text)
            (done[text],) = jax.export.symbolic_shape(changed, scope=_CANONICAL_SCOPE)
        return done[text]

    return rename


def symbols_of(dim: Dim) -> list[str]:
    """Names of the symbols in a size in the order in which they were made, with its functions'."""
    found = set() if is_known(dim) else {*_SYMBOL.findall(str(dim))}
    return sorted(found, key=lambda name: (int(re.sub(r"\D", "", name) or 0), name))


def _letters(number: int) -> str:
    """The number as a name: a, b, … z, aa, ab, …"""
    name = ""
    while number >= 0:
        number, letter = divmod(number, len(string.ascii_lowercase))
        name = string.ascii_lowercase[letter] + name
        number -= 1
    return name

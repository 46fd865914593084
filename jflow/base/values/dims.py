"""Dimension sizes that are unknown until a step runs.

An unknown size is a symbol of JAX's shape polymorphism (`jax.export.symbolic_shape`). JAX traces
functions of symbolic shapes, and sizes that must be equal share one symbol. A program is compiled
again for each concrete size that it is called with.
"""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax.export

Dim = Any
"""An int or a symbolic size, whose type is not public in JAX."""

Sizes = dict[str, Dim]
"""Substitutions: the sizes that replace symbols, by the names of the symbols."""

_SCOPE = jax.export.SymbolicScope()
_CANONICAL_SCOPE = jax.export.SymbolicScope()
_NUMBERS = itertools.count()
_SYMBOL = re.compile(r"[A-Za-z_]\w*")
_NAMED = re.compile(r"\b[A-Za-z_]\w*\b(?!\()")  # not a function such as "max("
_HINTS = "nhwc"
_FUNCTIONS = frozenset({"floordiv", "max", "min", "mod"})
_EXPRESSION = re.compile(r"[\w+\-*^(), ]{1,4096}", re.ASCII)


def unknown_dim(hint: str = "n") -> Dim:
    """Returns a new symbol for a size of at least 1, whose name begins with one of `_HINTS`."""
    (dim,) = jax.export.symbolic_shape(f"{hint}{next(_NUMBERS)}", scope=_SCOPE)
    return dim


def newest_size() -> int:
    """Returns a number for `sizes_after`, which then returns the symbols that were made later."""
    return next(_NUMBERS)


def sizes_after(number: int) -> set[str]:
    """Returns all possible names of the symbols made since `newest_size` returned a number."""
    return {f"{hint}{i}" for i in range(number + 1, next(_NUMBERS)) for hint in _HINTS}


def unknown_sizes(rank: int) -> tuple[Dim, ...]:
    """Returns a shape of new symbols."""
    return tuple(unknown_dim() for _ in range(rank))


def is_known(dim: Dim) -> bool:
    """Whether a size is a number rather than a symbolic expression."""
    return isinstance(dim, int)


def is_symbol(dim: Dim) -> bool:
    """Whether a size is a single symbol, which a program can read from an argument's shape."""
    return not is_known(dim) and _SYMBOL.fullmatch(str(dim)) is not None


def plain_shape(shape: Any) -> Any:
    """Returns the sizes of a shape as JAX has them; None for a shape of unknown rank."""
    return getattr(shape, "sizes", shape)  # of `TensorShape`


def is_static(shape: Sequence[Dim] | None) -> bool:
    """Whether the rank and all sizes are known."""
    sizes = plain_shape(shape)
    return sizes is not None and all(map(is_known, sizes))


def as_shape(shape: Any) -> tuple[Dim, ...] | None:
    """Converts a user's shape: each None or -1 becomes a new symbol; None means any rank.

    Raises:
      TypeError: if it is not a shape.
    """
    shape = plain_shape(shape)
    if shape is None:
        return None
    try:
        dims = tuple(shape) if not isinstance(shape, int) else (shape,)
        return tuple(_as_dim(dim) for dim in dims)
    except TypeError:
        raise TypeError(
            f"expected a shape (a sequence of sizes, None for unknown ones), got {shape!r}"
        ) from None


def _as_dim(dim: Any) -> Dim:
    if jax.export.is_symbolic_dim(dim):
        return getattr(dim, "symbol", dim)  # of `Dimension`
    return unknown_dim() if dim is None or int(dim) == -1 else int(dim)


def declared(shape: Sequence[Dim] | None) -> tuple[int | None, ...] | None:
    """Returns a shape with None for each symbolic size, as users write shapes."""
    sizes = plain_shape(shape)
    return None if sizes is None else tuple(dim if is_known(dim) else None for dim in sizes)


def canonical_sizes(shapes: Iterable[Sequence[Dim]]) -> Callable[[Dim], Dim] | None:
    """Returns a function that renames symbols independently of those made earlier.

    Symbols are numbered by process. The renaming calls them a, b, c … in the order in which they
    first appear in `shapes`, so equal programs get equal symbols. Canonical names do not end with
    a digit and belong to a scope of their own, so JAX refuses a program in which a symbol was not
    renamed and never mistakes one symbol for another.

    Args:
      shapes: shapes of a program's arguments, which determine all of its sizes.

    Returns:
      A function from a size to the renamed size. None if there is no symbol, or if a symbol comes
      from another scope, which may have constraints.
    """
    unknown_dims = [dim for shape in shapes for dim in shape if not is_known(dim)]
    if not unknown_dims or any(getattr(dim, "scope", None) is not _SCOPE for dim in unknown_dims):
        return None
    # Expressions come last: their text is in the order of the names, which are still numbered.
    names = dict.fromkeys(str(dim) for dim in unknown_dims if is_symbol(dim))
    for dim in unknown_dims:
        names.update(dict.fromkeys(symbols_of(dim)))
    numbered = (name for name in names if name[-1].isdigit())  # not a function such as "max"
    new_names = {name: _letters(i) for i, name in enumerate(numbered)}
    renamed_sizes: dict[str, Dim] = {}

    def rename(dim: Dim) -> Dim:
        if is_known(dim):
            return dim
        text = str(dim)
        if text not in renamed_sizes:
            changed = _SYMBOL.sub(lambda match: new_names.get(match[0], match[0]), text)
            (renamed_sizes[text],) = jax.export.symbolic_shape(changed, scope=_CANONICAL_SCOPE)
        return renamed_sizes[text]

    return rename


def symbols_in(dim: Dim) -> list[Dim]:
    """Returns the symbols in a size, sorted by age."""
    if is_known(dim):
        return []
    names = (name for name in symbols_of(dim) if name not in _FUNCTIONS)
    return [jax.export.symbolic_shape(name, scope=dim.scope)[0] for name in names]


def joined(sizes: Sizes, one: Dim, other: Dim) -> Sizes:
    """Extends substitutions so that two sizes, each a symbol or a number, become equal.

    A number takes the place of a symbol, and an older symbol that of a younger one.

    Raises:
      ValueError: if they are two different numbers then.
    """
    one, other = substituted(one, sizes), substituted(other, sizes)
    if one == other:
        return sizes
    if is_known(one) and is_known(other):
        raise ValueError(f"{one} is not {other}")
    older, younger = sorted((one, other), key=lambda dim: (not is_known(dim), _age(str(dim))))
    new_sizes = {str(younger): older}
    return {name: substituted(dim, new_sizes) for name, dim in sizes.items()} | new_sizes


def substituted(dim: Dim, sizes: Mapping[str, Dim]) -> Dim:
    """Substitutes numbers or other symbols for some symbols of a size."""
    if is_known(dim) or sizes.keys().isdisjoint(symbols_of(dim)):
        return dim
    text = _NAMED.sub(lambda match: str(sizes.get(match[0], match[0])), str(dim))
    (size,) = jax.export.symbolic_shape(text, scope=dim.scope)
    return size


def parsed_dim(text: str, symbols: dict[str, Dim]) -> Dim:
    """Parses the text of a size, replacing its symbols with other sizes.

    Args:
      text: an expression of symbols.
      symbols: the sizes for names in such texts; new symbols are added for those that are missing.

    Raises:
      ValueError: if it is not such an expression, or a size in `symbols` is an expression itself.
    """
    if not _EXPRESSION.fullmatch(text):
        raise ValueError(f"{text!r:.80} is not an expression of sizes")

    def renamed(match: re.Match[str]) -> str:
        if match[0] not in symbols:
            symbols[match[0]] = unknown_dim()
        size = symbols[match[0]]
        if not (is_known(size) or is_symbol(size)):
            raise ValueError(f"the size {size} is neither a number nor a symbol")
        return str(size)

    (dim,) = jax.export.symbolic_shape(_NAMED.sub(renamed, text), scope=_SCOPE)
    return dim


def symbols_of(dim: Dim) -> list[str]:
    """Returns the names in a size, oldest first: its symbols, and functions such as max."""
    symbols = set() if is_known(dim) else {*_SYMBOL.findall(str(dim))}
    return sorted(symbols, key=_age)


def _age(name: str) -> tuple[int, str]:
    return int(re.sub(r"\D", "", name) or 0), name


def _letters(number: int) -> str:
    """Converts a number to a name: a, b, …, z, aa, ab and so on."""
    name = ""
    while number >= 0:
        number, letter = divmod(number, len(string.ascii_lowercase))
        name = string.ascii_lowercase[letter] + name
        number -= 1
    return name

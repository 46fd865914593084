"""Infers which unknown sizes must be equal for a call to be valid.

In TensorFlow an unknown size is compatible with any size, and each kernel checks the sizes that a
step gives it. In JAX two sizes are equal or not when a function is traced. A call that does not fit
is therefore traced again with one size in the place of another, of those that the error is about,
and with as few as possible. The arguments pass through `ensure_sizes_p` first, and the step checks
that the sizes are equal (`lowering/sizes.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from itertools import combinations
from typing import Any, TypeVar

import jax.extend.core as jex

from jflow.base.values import (
    Dim,
    Sizes,
    is_known,
    joined,
    newest_size,
    sizes_after,
    symbols_in,
)
from jflow.compiler.graph import tracing
from jflow.compiler.graph.primitives import ensure_sizes

_Traced = TypeVar("_Traced")

_REFUSALS = (TypeError, ValueError, AssertionError)
"""What JAX and checks of users raise for shapes that do not fit. Comparing sizes that are unknown
(`InconclusiveDimensionOperation`) says nothing about whether they have to be equal."""

_MAX_ROUNDS = 4
_MAX_PAIRS = 8
"""How many sizes are tried, one after another, before all are made equal together."""
_SHAPE = re.compile(r"[(\[]([^()\[\]]*)[)\]]")
_WORD = re.compile(r"\w+")
_BESIDE = re.compile(r"(?<!\w)(\w+)(?:,| and| vs\.?| !=| is different from) (?=(\w+))")

_Pair = tuple[Dim, Dim]
"""Two sizes, at least one of them a symbol."""

_ADVICE = (
    "a size None is known only in a step; declare what it is or which other one it is equal to by "
    "jflow.ensure_shape, as in jflow.ensure_shape(y, (x.shape[0], 10))"
)


def make_jaxpr(
    fun: Callable[..., Any], shapes: Sequence[Any], arguments: Sequence[Any]
) -> jex.ClosedJaxpr:
    """Like `tracing.make_jaxpr`, but makes unknown sizes equal where the call needs it.

    Args:
      fun, shapes: likewise.
      arguments: the arguments of these shapes, for messages.
    """

    def trace(sizes: Sizes) -> jex.ClosedJaxpr:
        @wraps(fun)
        def ensured(*arrays: Any) -> Any:
            return fun(*(ensure_sizes(x, sizes) for x in arrays))

        return tracing.make_jaxpr(ensured if sizes else fun, shapes)

    return fitted(trace, (one.shape for one in shapes), arguments)


def fitted(
    trace: Callable[[Sizes], _Traced], shapes: Iterable[Sequence[Dim]], arguments: Sequence[Any]
) -> _Traced:
    """Traces a call; if it fails, retries with unknown sizes made equal where the call needs it.

    Args:
      trace: traces it with some sizes in the place of others.
      shapes: the shapes of its arguments.
      arguments: the arguments, for messages.

    Raises:
      Exception: as `trace` does; it names sizes as the user wrote them.
    """
    newest = newest_size()
    try:
        return trace({})
    except Exception as error:
        symbols = {str(one): one for shape in shapes for dim in shape for one in symbols_in(dim)}
        inner = sizes_after(newest)
        if (symbols.keys() | inner).isdisjoint(_WORD.findall(str(error))):
            raise
        refitted = _trace_unified(trace, symbols, error)
        if refitted is None:
            _explain(error, symbols.keys() | inner, arguments)
            raise
        return refitted


def _trace_unified(
    trace: Callable[[Sizes], _Traced], symbols: Mapping[str, Dim], error: Exception
) -> _Traced | None:
    """Traces with as few sizes made equal as possible; returns None if no choice makes it valid."""

    def attempt(equal: Sequence[_Pair]) -> _Traced | Exception:
        try:
            return trace(_sizes(equal))
        except Exception as refusal:  # the user's code, for sizes that do not fit
            return refusal

    needed: list[_Pair] = []
    for _ in range(_MAX_ROUNDS):
        more = _consistent_pairs(needed, _pairs(error, symbols))
        if not more:
            return None
        each = [[pair] for pair in more[:_MAX_PAIRS]]
        for added in [*each, more] if len(more) > 1 else each:
            traced = attempt([*needed, *added])
            if not isinstance(traced, Exception):
                return _drop_unneeded(attempt, [*needed, *added], traced)
            refusal = traced
        needed, error = [*needed, *more], refusal
    return None


def _drop_unneeded(
    attempt: Callable[[Sequence[_Pair]], _Traced | Exception],
    needed: Sequence[_Pair],
    traced: _Traced,
) -> _Traced:
    """Removes equalities that the call does not need."""
    left = [*needed]
    for pair in needed:
        fewer = [one for one in left if one is not pair]
        if fewer and not isinstance(other := attempt(fewer), Exception):
            left, traced = fewer, other
    return traced


def _sizes(equal: Sequence[_Pair]) -> Sizes:
    sizes: Sizes = {}
    for one, other in equal:
        sizes = joined(sizes, one, other)
    return sizes


def _consistent_pairs(needed: Sequence[_Pair], pairs: Sequence[_Pair]) -> list[_Pair]:
    """Returns the pairs, in order, that can be added to `needed` without a contradiction."""
    consistent, sizes = [], _sizes(needed)
    for pair in pairs:
        with suppress(ValueError):  # a size would be two numbers
            more = joined(sizes, *pair)
            if more != sizes:
                sizes = more
                consistent.append(pair)
    return consistent


def _pairs(error: Exception, symbols: Mapping[str, Dim]) -> list[_Pair]:
    """Parses JAX's error message for pairs of sizes that may have to be equal.

    These are the sizes at the same place of two shapes, or beside each other. Only if there are
    none, all unknown sizes are meant.
    """
    if not isinstance(error, _REFUSALS):
        return []
    message = str(error)
    shapes = [_words_of(text) for text in _SHAPE.findall(message)]
    aligned = [
        pair
        for one, other in combinations(shapes, 2)
        for pair in zip(reversed(one), reversed(other), strict=False)
    ]
    beside = _BESIDE.findall(_SHAPE.sub(" ", message))
    unknown = [word for word in dict.fromkeys(_WORD.findall(message)) if word in symbols]
    return _sized((*aligned, *beside), symbols) or _sized(combinations(unknown, 2), symbols)


def _sized(names: Iterable[tuple[str, str]], symbols: Mapping[str, Dim]) -> list[_Pair]:
    pairs = []
    for name, other_name in dict.fromkeys(names):
        one, other = _size(name, symbols), _size(other_name, symbols)
        is_known_pair = is_known(one) and is_known(other)
        if one is not None and other is not None and not is_known_pair and one != other:
            pairs.append((one, other))
    return pairs


def _words_of(shape: str) -> list[str]:
    return [size.strip() for size in shape.split(",") if size.strip()]


def _size(name: str, symbols: Mapping[str, Dim]) -> Dim | None:
    return int(name) if name.isdecimal() and int(name) > 0 else symbols.get(name)


def _explain(error: Exception, symbols: Collection[str], arguments: Sequence[Any]) -> None:
    """Rewrites an error to name the sizes as the user wrote them, and adds advice."""
    text = _WORD.sub(lambda word: "None" if word[0] in symbols else word[0], str(error))
    suffix = f"; the arguments are {', '.join(map(repr, arguments))}" if arguments else ""
    advice = _ADVICE + suffix
    if error.args == (str(error),):
        error.args = (f"{text.rstrip(' .')}: {advice}",)
    else:
        error.add_note(advice)

"""Calls on tensors of unknown rank: recorded in the graph, replayed as operations by a step.

JAX traces a function only for known ranks. A call on a tensor of unknown rank, such as
`placeholder(float32) * 2`, therefore becomes one operation that remembers the call. A step that is
fed the tensor knows its shape, and replays the call in a copy of the graph (`expansion.py`).

What code that builds on the results needs at once, their number, dtypes and, if the rank makes no
difference, their shapes, is found by tracing the call for several ranks. The replay checks it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import jax

from jflow.base.values import AbstractValue, HostArray, is_known, symbols_of, unknown_sizes
from jflow.compiler.graph import tracing
from jflow.compiler.graph.primitives import ResourceRef, VariableRef, state_of

ReplayOfCall = Callable[[Any, Sequence[Any]], Sequence[Any]]
"""Makes the operations of a recorded call in a graph, of its tensors; returns the results."""

_MAX_RANK = 5
"""The ranks that are tried until one fits."""
_MAX_COMPARED = 3
"""The ranks that are compared to find whether the shapes of the results depend on the rank; of
tensors of different ranks one less."""
_MAX_UNLIKE = 3
"""For how many tensors of unknown rank ranks that differ are tried."""
_MAX_SIZES = 4
"""How many of the sizes in the other arguments are tried in place of an unknown one."""


@dataclass(frozen=True)
class RecordedCall:
    """A call of a function on tensors whose ranks are not known yet.

    Attributes:
      avals: the abstract values of the results.
      out_tree: the structure of the results.
      state: the variables and resources that the function uses.
      replay: makes its operations.
      fallback: as `replay`, on the host, for a step that does not know the ranks either; None if
        there is no such operation.
    """

    avals: tuple[AbstractValue, ...]
    out_tree: Any
    state: tuple[VariableRef | ResourceRef, ...]
    replay: ReplayOfCall
    fallback: ReplayOfCall | None = None


def record(
    fun: Callable[..., Any], in_tree: Any, leaves: Sequence[tracing.Static | Any], name: str
) -> RecordedCall:
    """Infers the results of a call on tensors of unknown rank, and returns it as a record.

    Args:
      fun, in_tree, leaves: as for `tracing.trace`; some abstract values are of unknown rank.
      name: name of its operations.

    Raises:
      TypeError: if no rank fits, or the structure or dtypes of the results depend on the rank.
    """
    results: _Results | None = None
    if tracing.is_fixed(fun):
        with suppress(TypeError):  # a leaf is not hashable, or the call is wrong, which shows again
            results = _known_results(fun, in_tree, tuple(leaves))
    avals, out_tree, state = results or _results(fun, in_tree, leaves)

    def replay(graph: Any, tensors: Sequence[Any]) -> Sequence[Any]:
        rest = iter(tensors)
        values = [x.value if isinstance(x, tracing.Static) else next(rest) for x in leaves]
        args, kwargs = jax.tree.unflatten(in_tree, values)
        results = jax.tree.leaves(graph.apply(fun, args, kwargs, name=name))
        return results if avals else []

    return RecordedCall(avals, out_tree, state, replay)


_Results = tuple[tuple[AbstractValue, ...], Any, tuple[VariableRef | ResourceRef, ...]]


@lru_cache(maxsize=1024)
def _known_results(fun: Callable[..., Any], in_tree: Any, leaves: tuple[Any, ...]) -> _Results:
    return _results(fun, in_tree, leaves)


def _results(fun: Callable[..., Any], in_tree: Any, leaves: Sequence[Any]) -> _Results:
    """Traces a call for several ranks; returns result types, their structure and the state used."""
    trials: list[_Trial] = []
    errors: list[Exception] = []
    n_unranked = sum(isinstance(leaf, HostArray) for leaf in leaves)
    for ranks in _ranks(n_unranked):
        if trials and _depends_on_rank(trials):
            break
        if trials and max(ranks) > _MAX_COMPARED - (len({*ranks}) > 1):
            continue
        for shapes, is_exact in _stand_ins(ranks, leaves):
            try:
                traced = tracing.trace(fun, in_tree, _with_shapes(leaves, shapes))
            except Exception as error:  # the user's code, for a rank or size that does not fit
                errors.append(error)
                continue
            trials.append(_Trial(traced, is_exact))
            _check_same(trials[0].traced, traced)
            if is_exact:
                break
    if not trials:
        raise _refusal(errors)
    traced = trials[0].traced
    is_unranked = n_unranked > _MAX_UNLIKE or _depends_on_rank(trials)
    avals = tuple(
        HostArray(None, aval.dtype, aval.weak_type) if is_unranked else aval
        for aval in traced.jaxpr.out_avals
    )
    used = (ref for eqn in traced.jaxpr.eqns for ref in state_of(eqn))
    return avals, traced.out_tree, tuple(dict.fromkeys(used))


class _Trial(NamedTuple):
    """One trace of a call, with trial shapes for its arguments of unknown rank.

    Attributes:
      traced: its equations.
      is_exact: whether these shapes stand for all of their ranks.
    """

    traced: tracing.Traced
    is_exact: bool


_Ranks = tuple[int, ...]
_Shapes = tuple[tuple[Any, ...], ...]


def _ranks(n: int) -> Iterator[_Ranks]:
    """Yields the combinations of ranks to try for `n` tensors, equal ranks first."""
    yield from ((rank,) * n for rank in range(_MAX_RANK + 1))
    if n <= _MAX_UNLIKE:
        unlike = (ranks for ranks in product(range(_MAX_RANK - 1), repeat=n) if len({*ranks}) > 1)
        yield from sorted(unlike, key=max)


def _stand_ins(ranks: _Ranks, leaves: Sequence[Any]) -> Iterator[tuple[_Shapes, bool]]:
    """Yields trial shapes of these ranks, and whether each stands for all shapes of its rank.

    A symbol stands for any size, but JAX refuses it where a size has to be a certain one, such as
    that of a matrix in the other argument.
    """
    yield tuple(_symbols()[:rank] for rank in ranks), True
    if any(ranks):
        for size in dict.fromkeys((1, 2, *_sizes_in(leaves))):
            yield tuple((size,) * rank for rank in ranks), False


@lru_cache(maxsize=1)
def _symbols() -> tuple[Any, ...]:
    return unknown_sizes(_MAX_RANK)


def _sizes_in(leaves: Sequence[Any]) -> list[Any]:
    """Returns the first few sizes and positive integers among the other arguments."""
    sizes: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, tracing.Static):
            sizes.extend([leaf.value] if isinstance(leaf.value, int) and leaf.value > 0 else [])
        else:
            sizes.extend(leaf.shape or ())
    return [*dict.fromkeys(sizes)][:_MAX_SIZES]


def _with_shapes(leaves: Sequence[Any], shapes: _Shapes) -> list[Any]:
    rest = iter(shapes)
    return [
        jax.core.ShapedArray(next(rest), leaf.dtype, weak_type=leaf.weak_type)
        if isinstance(leaf, HostArray)
        else leaf
        for leaf in leaves
    ]


def _depends_on_rank(trials: Sequence[_Trial]) -> bool:
    """Whether the trials show that the shapes of results depend on the shapes of arguments."""
    shapes = {tuple(aval.shape for aval in trial.traced.jaxpr.out_avals) for trial in trials}
    if len(shapes) > 1 or not all(trial.is_exact for trial in trials):
        return True
    own = {name for size in _symbols() for name in symbols_of(size)}
    dims = (dim for shape in shapes for one in shape for dim in one)
    return any(not own.isdisjoint(symbols_of(dim)) for dim in dims if not is_known(dim))


def _check_same(one: tracing.Traced, other: tracing.Traced) -> None:
    """Raises TypeError if two traces differ in the structure or the dtypes of their results."""
    kinds = [
        (traced.out_tree, [(x.dtype, x.weak_type) for x in traced.jaxpr.out_avals])
        for traced in (one, other)
    ]
    if kinds[0] != kinds[1]:
        raise TypeError(
            "the number or the dtypes of the results depend on the rank of an argument, which is "
            "unknown; declare it with set_shape or jflow.ensure_shape"
        )


def _refusal(errors: Sequence[Exception]) -> Exception:
    """Returns the error to raise for a call that could be traced for no rank."""
    first, *others = errors
    if all(type(error) is type(first) and str(error) == str(first) for error in others):
        return first
    refusal = TypeError(
        "the rank of an argument is unknown, and the call fits none that was tried: "
        f"{errors[-1]}; declare it with set_shape or jflow.ensure_shape"
    )
    refusal.__cause__ = errors[-1]
    return refusal

"""`map_fn`, `foldl`, `foldr` and `scan`: loops of graph code over the rows of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jflow.base.values import as_dtype
from jflow.client.ops.control.body import (
    TracedBody,
    as_tensors,
    check_types,
    run_after,
    strong,
    trace_body,
)
from jflow.client.ops.control.program import (
    BodyProgram,
    body_program,
    read_state,
    without_derivatives,
    write_state,
)
from jflow.client.ops.control.stateful import stateful_scan
from jflow.client.ops.lift import lift, target_graph
from jflow.compiler.graph import Graph, Tensor, name_scope
from jflow.compiler.graph.text import type_text
from jflow.errors import UnimplementedError


def map_fn(
    fn: Callable[..., Any],
    elems: Any,
    dtype: Any = None,
    parallel_iterations: int | None = None,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    name: str | None = None,
) -> Any:
    """Returns the results of a function for each row, one after another.

    Args:
      fn: function of a row: of the structure of `elems`, without the first axis.
      elems: a pytree of T[n, ...].
      dtype: the dtypes of the results, in their order; None for those that the function returns.
      back_prop: whether derivatives flow through it.
      parallel_iterations, swap_memory, infer_shape: without effect.
      name: scope of the operations.

    Returns:
      The results, each with a first axis for the rows.

    Raises:
      TypeError: if the results have other dtypes than `dtype` says.
      UnimplementedError: as `cond`.
    """
    wanted = [jax.dtypes.canonicalize_dtype(as_dtype(one)) for one in jax.tree.leaves(dtype)]

    def step(_: Any, row: Any) -> tuple[Any, Any]:
        results = fn(row)
        leaves = jax.tree.leaves(results)
        found = [_as_tensor(leaf).dtype for leaf in leaves]
        if wanted and wanted != found:
            names = ([str(one) for one in dtypes] for dtypes in (found, wanted))
            raise TypeError("fn of map_fn returns {}, and dtype says {}".format(*names))
        return (), results

    return _over_rows(step, (), elems, name or "map", False, back_prop)[1]


def foldl(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
) -> Any:
    """Returns the last value of `value = fn(value, row)` over the rows, from the first one on.

    Args:
      fn: function of the value and a row; returns the next value, of equal dtypes and shapes.
      elems: a pytree of T[n, ...].
      initializer: the first value; None for the first row, which is then left out.
      back_prop: whether derivatives flow through it.
      parallel_iterations, swap_memory: without effect.
      name: scope of the operations.

    Raises:
      TypeError, ValueError: if the function returns other dtypes, structures or shapes.
      UnimplementedError: as `cond`.
    """
    return _folded(
        fn, elems, initializer, name or "foldl", back_prop, is_reverse=False, keeps=False
    )


def foldr(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
) -> Any:
    """As `foldl`, from the last row on."""
    return _folded(fn, elems, initializer, name or "foldr", back_prop, is_reverse=True, keeps=False)


def scan(  # noqa: PLR0913, PLR0917 - the arguments are TensorFlow's
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    reverse: bool = False,
    name: str | None = None,
) -> Any:
    """Returns all values of `value = fn(value, row)`, each with a first axis for the rows.

    Args:
      reverse: whether to begin with the last row.
      fn, elems, parallel_iterations, back_prop, swap_memory, name: as for `foldl`.
      initializer: the value before the first one; None for the first row, which is then the first
        value.
      infer_shape: without effect.

    Raises:
      TypeError, ValueError, UnimplementedError: as `foldl`.
    """
    return _folded(
        fn, elems, initializer, name or "scan", back_prop, is_reverse=reverse, keeps=True
    )


def _folded(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any,
    name: str,
    has_derivatives: bool,
    *,
    is_reverse: bool,
    keeps: bool,
) -> Any:
    if not callable(fn):
        raise TypeError(f"{fn!r} is not callable.")

    def step(value: Any, row: Any) -> tuple[Any, Any]:
        new = fn(value, row)
        return new, new if keeps else ()

    if initializer is not None:
        last, kept = _over_rows(step, initializer, elems, name, is_reverse, has_derivatives)
        return kept if keeps else last
    at = -1 if is_reverse else 0
    rest = slice(None, -1) if is_reverse else slice(1, None)
    arrays = jax.tree.map(_as_tensor, elems)
    first = jax.tree.map(lambda x: x[at], arrays)
    others = jax.tree.map(lambda x: x[rest], arrays)
    last, kept = _over_rows(step, first, others, name, is_reverse, has_derivatives)
    if not keeps:
        return last
    join = partial(lift(partial(_joined, is_reverse)), name="join")
    return jax.tree.map(join, first, kept)


def _joined(is_reverse: bool, first: Any, kept: Any) -> Any:
    parts = [kept, first[None]] if is_reverse else [first[None], kept]
    return jnp.concatenate(parts)


def _as_tensor(value: Any) -> Any:
    graph = target_graph(value)
    return jnp.asarray(value) if graph is None else graph.as_tensor(value)


def _over_rows(
    step: Callable[[Any, Any], tuple[Any, Any]],
    first: Any,
    elems: Any,
    name: str,
    is_reverse: bool,
    has_derivatives: bool,
) -> tuple[Any, Any]:
    """Returns the last value, and what the step has kept for each row."""
    graph = target_graph(first, elems)
    if graph is None:
        start = jax.tree.map(jnp.asarray, first)
        rows = jax.tree.map(jnp.asarray, elems)
        return jax.lax.scan(step, start, rows, reverse=is_reverse)
    with graph.as_default(), name_scope(name):
        what = f"fn of {name!r}"
        return _added(graph, step, first, elems, what, is_reverse, has_derivatives)


def _added(
    graph: Graph,
    step: Callable[[Any, Any], tuple[Any, Any]],
    first: Any,
    elems: Any,
    what: str,
    is_reverse: bool,
    has_derivatives: bool,
) -> tuple[Any, Any]:
    start, rows = as_tensors(graph, first), as_tensors(graph, elems)
    if not jax.tree.leaves(rows):
        raise ValueError("elems must be a tensor, or a structure of them")
    for tensor in jax.tree.leaves(rows):
        if tensor.aval.shape is None or not tensor.ndim:
            raise ValueError(f"elements in elems must be 1+ dimensional Tensors, got {tensor!r}")
    if any(tensor.aval.shape is None for tensor in jax.tree.leaves(start)):
        raise UnimplementedError("the rank of a value is unknown; declare it by ensure_shape")
    values = jax.tree.map(lambda x: strong(x.aval), start)
    row = jax.tree.map(lambda x: jax.core.ShapedArray(x.aval.shape[1:], x.dtype), rows)
    before = [*jax.tree.leaves(start), *jax.tree.leaves(rows)]
    body = trace_body(graph, step, (values, row), what, after=before)
    _check_values(body, values)
    add = _as_program if body.is_program(body.written) else stateful_scan
    leaves = jax.tree.leaves(start), jax.tree.leaves(rows)
    results = add(body, *leaves, is_reversed=is_reverse, has_derivatives=has_derivatives)
    last, kept = jax.tree.unflatten(body.tree, results)
    return last, kept


def _as_program(
    body: TracedBody,
    first: Sequence[Tensor],
    rows: Sequence[Tensor],
    *,
    is_reversed: bool,
    has_derivatives: bool,
) -> list[Tensor]:
    """Adds a loop that XLA runs; returns as `stateful_scan`."""
    graph, program = body.graph, body_program(body)
    run: Any = partial(_run_scan, program, len(first), is_reversed)
    run = run if has_derivatives else without_derivatives(run)
    with run_after(graph, (), body.outer_control_inputs):
        old = read_state(graph, program.state, [*first, *rows])
        results = graph.apply(run, (first, rows, old, program.captures), name="loop")
    n = len(body.avals)
    return write_state(graph, program.state, results[n:], list(results[:n]))


def _check_values(body: TracedBody, values: Any) -> None:
    """Checks that the next value is like the one before."""
    leaves = jax.tree.leaves(values)
    new, _ = jax.tree.unflatten(body.tree, range(len(body.avals)))
    found, wanted = map(jax.tree.structure, (new, values))
    if str(found) != str(wanted):
        raise ValueError(
            f"{body.what} returns another structure than the initial value: {found} and {wanted}"
        )
    for before, after in zip(leaves, body.avals, strict=False):
        types = f"{type_text(before)} before a row and {type_text(after)} after it"
        check_types(before, after, f"{body.what}: the value is {types}")


def _run_scan(
    program: BodyProgram,
    n: int,
    is_reversed: bool,
    first: Any,
    rows: Any,
    old: Any,
    captures: Any,
) -> Any:
    run, n_all = program.with_state(program.state), len(program.body.avals)

    def step(carry: Any, row: Any) -> Any:
        number, before = carry
        values = run([*before[:n], *row], before[n:], captures, number)
        return (number + 1, [*values[:n], *values[n_all:]]), values[n:n_all]

    start = jnp.zeros((), jnp.int32), [*first, *old]
    (_, last), kept = jax.lax.scan(step, start, rows, reverse=is_reversed)
    return [*last[:n], *kept, *last[n:]]

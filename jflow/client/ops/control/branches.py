"""`cond`, `case` and `switch_case`: one of several branches, of graph code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jflow.client.ops.checks import Assert
from jflow.client.ops.control.body import TracedBody, check_types, run_after, trace_body
from jflow.client.ops.control.program import (
    BodyProgram,
    body_program,
    merged_state,
    read_state,
    write_state,
)
from jflow.client.ops.control.stateful import stateful_branch
from jflow.client.ops.lift import target_graph
from jflow.compiler.graph import Graph, Tensor, control_dependencies, name_scope
from jflow.compiler.graph.text import type_text

Branch = Callable[[], Any]


def cond(
    pred: Any,
    true_fn: Branch | None = None,
    false_fn: Branch | None = None,
    strict: bool = False,
    name: str | None = None,
    fn1: Branch | None = None,
    fn2: Branch | None = None,
) -> Any:
    """Returns what one of two functions returns, which is chosen when a step runs.

    Only the chosen one is computed. If they have no effects but writes of variables, XLA runs them:
    what they use from outside, variables included, is read before, and a variable that one of them
    writes must be initialized and is written once, behind the branch. Otherwise the operations of
    the chosen one run where their state is, in the order in which they are written. In a function
    that JAX traces this is `jax.lax.cond`.

    Args:
      pred: bool[], a tensor.
      true_fn, fn1: the function if it is true; returns a pytree of tensors.
      false_fn, fn2: the function if it is false; returns tensors of equal dtypes and shapes.
      strict: whether a list or tuple of one tensor stays one; it becomes the tensor otherwise.
      name: scope of the operations.

    Raises:
      TypeError: if `pred` is a bool of Python, or a function is missing, or dtypes differ.
      ValueError: if the results differ in structure or shape.
      UnimplementedError: if a function returns text, or has a tensor of unknown rank.
    """
    if isinstance(pred, bool):
        raise TypeError("pred must not be a Python bool; use `if`, or jflow.constant")
    branches: list[Any] = [true_fn or fn1, false_fn or fn2]
    if not all(map(callable, branches)):
        raise TypeError("cond needs two functions, true_fn and false_fn")
    graph = target_graph(pred)
    if graph is None:
        return jax.lax.cond(pred, *branches)
    scope = name or "cond"
    with graph.as_default(), name_scope(scope):
        chosen = graph.as_tensor(pred)
        if chosen.dtype != bool or chosen.aval.shape not in ((), None):
            raise TypeError(f"pred must be bool[], got {chosen!r}")
        whats = [f"{which} of cond {scope!r}" for which in ("true_fn", "false_fn")]
        bodies = _bodies(graph, branches[::-1], whats[::-1], chosen)
        number = graph.apply(_as_number, (chosen,), name="number")
        return _chosen(graph, bodies, number, strict)


def switch_case(
    branch_index: Any,
    branch_fns: Mapping[int, Branch] | Sequence[Any],
    default: Branch | None = None,
    name: str = "switch_case",
    strict: bool = False,
) -> Any:
    """Returns what one of several functions returns, by its number.

    Args:
      branch_index: i[], the number.
      branch_fns: the functions, or pairs of numbers and functions, or a dict of them.
      default: the function for another number; None for that of the largest number.
      name: scope of the operations.
      strict: as for `cond`.

    Raises:
      TypeError, ValueError, UnimplementedError: as `cond`.
    """
    pairs = [*branch_fns.items()] if isinstance(branch_fns, Mapping) else [*branch_fns]
    if pairs and callable(pairs[0]):
        pairs = [*enumerate(pairs)]
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError(f"a number has two functions: {[number for number, _ in pairs]}")
    if not table:
        raise ValueError("switch_case needs at least one function")
    functions: list[Any] = [table.get(i, default) for i in range(max(table) + 1)]
    last: Any = functions[max(table)] if default is None else default
    if any(one is None for one in functions):
        raise ValueError(f"expected functions for 0 to {max(table)}, got {sorted(table)}")
    branches = [*functions, last]
    graph = target_graph(branch_index)
    if graph is None:
        return jax.lax.switch(_in_range(branch_index, len(functions)), branches)
    with graph.as_default(), name_scope(name):
        given = graph.as_tensor(branch_index)
        whats = [f"branch {i} of switch_case {name!r}" for i in range(len(branches))]
        bodies = _bodies(graph, branches, whats, given)
        number = graph.apply(_in_range, (given, len(functions)), name="number")
        return _chosen(graph, bodies, number, strict)


def case(
    pred_fn_pairs: Any,
    default: Branch | None = None,
    exclusive: bool = False,
    strict: bool = False,
    name: str = "case",
) -> Any:
    """Returns what the first function returns whose predicate is true.

    Args:
      pred_fn_pairs: pairs of bool[] and a function, or a dict of them.
      default: the function if none is true; None for an error of the step.
      exclusive: whether it is an error of the step if several are true.
      strict: as for `cond`.
      name: scope of the operations.

    Raises:
      TypeError, ValueError, UnimplementedError: as `cond`.
      InvalidArgumentError: in the step, if no predicate is true, or several are.
    """
    pairs = [*pred_fn_pairs.items()] if isinstance(pred_fn_pairs, Mapping) else [*pred_fn_pairs]
    if not pairs or not all(len(pair) == 2 and callable(pair[1]) for pair in pairs):
        raise TypeError("fns must be a list of pairs of a predicate and a function")
    graph = target_graph([pred for pred, _ in pairs])
    preds = [pred if graph is None else graph.as_tensor(pred) for pred, _ in pairs]
    branches = [fun for _, fun in pairs]
    every = [*branches, default or branches[-1]]
    if graph is None:
        return jax.lax.switch(_first(*preds), every)
    with graph.as_default(), name_scope(name):
        checks = []
        if default is None or exclusive:
            n_true = graph.apply(_count, tuple(preds), name="count")
            holds = graph.apply(
                _is_in, (n_true, int(default is None), 1 if exclusive else len(preds)), name="ok"
            )
            checks.append(Assert(holds, ["case needs one true condition:", *preds]))
        with control_dependencies(checks):
            number = graph.apply(_first, tuple(preds), name="first")
        return switch_case(number, every, name="branches", strict=strict)


def _count(*preds: Any) -> Any:
    return sum(jnp.asarray(pred, jnp.int32) for pred in preds)


def _is_in(n: Any, least: int, most: int) -> Any:
    return (n >= least) & (n <= most)


def _first(*preds: Any) -> Any:
    """Returns the number of the first true predicate; how many there are if there is none."""
    return jnp.argmax(jnp.stack([*preds, jnp.asarray(True)])).astype(jnp.int32)


def _in_range(number: Any, n: int) -> Any:
    return jnp.where((number >= 0) & (number < n), number, n).astype(jnp.int32)


def _as_number(pred: Any) -> Any:
    return jnp.asarray(pred, jnp.int32)


def _bodies(
    graph: Graph, branches: Sequence[Any], whats: Sequence[str], which: Tensor
) -> list[TracedBody]:
    bodies = [
        trace_body(graph, fun, (), what, after=[which], makes_variables=True)
        for fun, what in zip(branches, whats, strict=True)
    ]
    first = bodies[0]
    for other in bodies[1:]:
        if other.tree != first.tree:
            raise ValueError(
                f"{first.what} and {other.what} return other structures: {first.tree} and "
                f"{other.tree}"
            )
        for one, another in zip(first.avals, other.avals, strict=True):
            types = type_text(one), type_text(another)
            about = f"{first.what} returns {types[0]}, and {other.what} {types[1]}"
            check_types(one, another, about)
    return bodies


def _chosen(graph: Graph, bodies: Sequence[TracedBody], number: Tensor, is_strict: bool) -> Any:
    """Adds the branch, and returns the results in their structure."""
    written = frozenset[Any]().union(*(body.written for body in bodies))
    if all(body.is_program(written) for body in bodies):
        results = _chosen_program(graph, bodies, number)
    else:
        results = stateful_branch(bodies, number)
    chosen = jax.tree.unflatten(bodies[0].tree, results)
    is_single = isinstance(chosen, list | tuple) and len(chosen) == 1 and not is_strict
    return chosen[0] if is_single else chosen


def _chosen_program(graph: Graph, bodies: Sequence[TracedBody], number: Tensor) -> list[Tensor]:
    """Adds a branch that XLA runs."""
    programs = [body_program(body) for body in bodies]
    state = merged_state(programs)
    captures = [one.captures for one in programs]
    others = [op for body in bodies for op in body.outer_control_inputs]
    with run_after(graph, (), others):
        old = read_state(graph, state, [number])
        run = partial(_run_branch, programs)
        values = graph.apply(run, (number, old, captures), name="branch")
    n, n_state = len(bodies[0].avals), len(state)
    new, is_written = values[n : n + n_state], values[n + n_state :]
    return write_state(graph, state, new, list(values[:n]), is_written)


def _run_branch(programs: Sequence[BodyProgram], number: Any, old: Any, captures: Any) -> Any:
    state = merged_state(programs)

    def function(i: int) -> Callable[[Any, Any], list[Any]]:
        run, own = programs[i].with_state(state), programs[i].body.written
        is_written = [ref in own for ref in state]
        return lambda old, captures: [*run((), old, captures[i]), *map(jnp.asarray, is_written)]

    return jax.lax.switch(number, [function(i) for i in range(len(programs))], old, captures)

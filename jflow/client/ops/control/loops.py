"""`while_loop`: a loop of graph code, which ends on a condition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jflow.base.values import HostArray, declared
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
from jflow.client.ops.control.stateful import stateful_while
from jflow.client.ops.lift import target_graph
from jflow.compiler.graph import Graph, Symbolic, Tensor, name_scope
from jflow.compiler.graph.text import type_text
from jflow.errors import UnimplementedError


def while_loop(  # noqa: PLR0913, PLR0917 - the arguments are TensorFlow's
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Any,
    shape_invariants: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
    maximum_iterations: Any = None,
    return_same_structure: bool = False,
) -> Any:
    """Repeats a function of loop variables while a condition of them holds.

    If the functions have no effects but writes of variables, XLA runs the loop: what they use from
    outside is read before, and a variable that the body writes must be initialized and is written
    once, behind the loop. With `maximum_iterations` as a number derivatives flow through it, for
    which it computes the condition that often. Otherwise their operations run where their state is,
    one iteration after the other, in the order in which they are written. In a function that JAX
    traces this is `jax.lax.while_loop`.

    Args:
      cond, body: functions of the loop variables: bool[], and their next values.
      loop_vars: a list or tuple of pytrees of tensors, or one tensor: their first values.
      shape_invariants: as TensorFlow's; the sizes must be those of the first values.
      parallel_iterations, swap_memory: without effect: XLA decides.
      back_prop: whether derivatives flow through the loop.
      name: scope of the operations.
      maximum_iterations: how often at most: a number, an integer tensor, or None for no limit.
      return_same_structure: whether a list of one variable is returned as a list.

    Returns:
      The last values, in the structure of `loop_vars`.

    Raises:
      ValueError: if the body returns another structure or shapes.
      TypeError: if it returns other dtypes, or the condition is not bool[].
      UnimplementedError: if a function returns text or has a tensor of unknown rank; if a shape
        would change; if a body with effects has a tensor as `maximum_iterations`.
      OpError: in the step, as the operations do, with the iteration.
    """
    is_listed = isinstance(loop_vars, list | tuple)
    variables = tuple(loop_vars) if is_listed else (loop_vars,)
    if not variables:
        raise ValueError("No loop variables provided")
    graph = target_graph(variables)
    if graph is None:
        last = _traced(cond, body, variables, maximum_iterations)
        return _like(loop_vars, last) if is_listed else last[0]
    scope = name or "while"
    with graph.as_default(), name_scope(scope):
        first = as_tensors(graph, variables)
        _check_invariants(shape_invariants, first)
        results = _added(graph, cond, body, first, scope, maximum_iterations, back_prop)
    last = jax.tree.unflatten(jax.tree.structure(first), results)
    if is_listed:
        packed = _like(loop_vars, last)
        return packed if return_same_structure or len(results) > 1 else last[0]
    return last[0]


def _added(
    graph: Graph,
    cond: Callable[..., Any],
    body: Callable[..., Any],
    first: Any,
    scope: str,
    limit: Any,
    has_derivatives: bool,
) -> list[Tensor]:
    """Adds the loop, and returns the last values of the leaves of the loop variables."""
    leaves = jax.tree.leaves(first)
    if others := [x for x in leaves if isinstance(x.aval, HostArray)]:
        raise UnimplementedError(
            f"the loop variable {others[0]!r} is text or has an unknown rank; a loop variable is a "
            "number: declare its rank by ensure_shape, or pass the number of a text"
        )
    avals = jax.tree.map(lambda x: strong(x.aval), first)
    step = trace_body(graph, partial(_listed, body), avals, f"the body of {scope!r}", after=leaves)
    goes_on = trace_body(graph, cond, avals, f"the condition of {scope!r}", after=leaves)
    if [(x.dtype, x.shape) for x in goes_on.avals] != [(jnp.dtype(bool), ())]:
        raise TypeError(f"{goes_on.what} must return bool[], got {goes_on.avals}")
    _check_results(step, avals)
    written = step.written | goes_on.written
    if goes_on.written or not all(one.is_program(written) for one in (goes_on, step)):
        return _with_effects(goes_on, step, leaves, limit, has_derivatives)
    return _as_program(goes_on, step, leaves, limit, has_derivatives)


def _with_effects(
    goes_on: TracedBody,
    step: TracedBody,
    first: Sequence[Tensor],
    limit: Any,
    has_derivatives: bool,
) -> list[Tensor]:
    """Adds a loop with effects."""
    if isinstance(limit, Symbolic):
        raise UnimplementedError(
            f"{step.what} has effects, and the number of its iterations at most is a tensor; make "
            "it a number, or count in a loop variable that the condition looks at"
        )
    if limit is not None and int(limit) < 1:
        return [*first]
    most = None if limit is None else int(limit)
    return stateful_while(goes_on, step, first, most, has_derivatives=has_derivatives)


def _as_program(
    goes_on: TracedBody,
    step: TracedBody,
    first: Sequence[Tensor],
    limit: Any,
    has_derivatives: bool,
) -> list[Tensor]:
    """Adds a loop that XLA runs."""
    graph, body = step.graph, body_program(step)
    test = body_program(goes_on, body.state)
    is_bounded = limit is not None and not isinstance(limit, Symbolic) and has_derivatives
    if is_bounded:
        run: Any = partial(_run_bounded, test, body, int(limit))
    else:
        run = partial(_run_while, test, body)
    limits = () if limit is None or is_bounded else (graph.as_tensor(limit),)
    with run_after(graph, (), (*goes_on.outer_control_inputs, *step.outer_control_inputs)):
        old = read_state(graph, body.state, first)
        args = (first, old, test.captures, body.captures, limits)
        run = run if has_derivatives else without_derivatives(run)
        values = graph.apply(run, args, name="loop")
    n = len(step.avals)
    return write_state(graph, body.state, values[n:], list(values[:n]))


def _listed(body: Callable[..., Any], *variables: Any) -> tuple[Any, ...]:
    """Returns the next values as a tuple, as the loop variables are."""
    values = body(*variables)
    if len(variables) == 1 and not isinstance(values, list | tuple):
        return (values,)
    return tuple(values)


def _check_invariants(invariants: Any, first: Any) -> None:
    if invariants is None:
        return
    given = jax.tree.leaves(tuple(invariants), is_leaf=lambda x: hasattr(x, "as_list"))
    avals = [x.aval for x in jax.tree.leaves(first)]
    if len(given) != len(avals):
        raise ValueError(
            f"expected a shape invariant for each of {len(avals)} loop variables, got {len(given)}"
        )
    for shape, aval in zip(given, avals, strict=True):
        wanted = shape.as_list() if hasattr(shape, "as_list") else None
        if wanted is None or any(
            size is None and isinstance(own, int)
            for size, own in zip(wanted, aval.shape, strict=False)
        ):
            raise UnimplementedError(
                f"a loop variable of shape {declared(aval.shape)} with the invariant {shape} would "
                "change its shape: XLA compiles loops for fixed shapes; write into a tensor of the "
                "final size, by jflow.tensor_scatter_nd_update, or use jflow.scan"
            )


def _check_results(step: TracedBody, avals: Any) -> None:
    """Checks that the next values are like the first ones."""
    if step.tree != jax.tree.structure(avals):
        raise ValueError(
            f"{step.what} returns another structure than the loop variables: {step.tree} and "
            f"{jax.tree.structure(avals)}"
        )
    pairs = zip(jax.tree.leaves(avals), step.avals, strict=True)
    for number, (before, after) in enumerate(pairs):
        types = f"{type_text(before)} before and {type_text(after)} after"
        about = f"{step.what}: loop variable {number} is {types} an iteration"
        check_types(before, after, about)


def _run_while(
    goes_on: BodyProgram,
    step: BodyProgram,
    first: Any,
    old: Any,
    outer: Any,
    inner: Any,
    limits: Any,
) -> Any:
    is_on, run = goes_on.with_state(step.state), step.with_state(step.state)
    n = len(first)

    def holds(carry: Any) -> Any:
        number, values = carry
        on, *_ = is_on(values[:n], values[n:], outer, number)
        return on & (number < limits[0]) if limits else on

    def body(carry: Any) -> Any:
        number, values = carry
        return number + 1, run(values[:n], values[n:], inner, number)

    start = jnp.zeros((), jnp.int32), [*first, *old]
    return jax.lax.while_loop(holds, body, start)[1]


def _run_bounded(
    goes_on: BodyProgram,
    step: BodyProgram,
    limit: int,
    first: Any,
    old: Any,
    outer: Any,
    inner: Any,
    _: Any,
) -> Any:
    is_on, run = goes_on.with_state(step.state), step.with_state(step.state)
    n = len(first)

    def body(values: Any, number: Any) -> Any:
        on, *_ = is_on(values[:n], values[n:], outer, number)

        def go_on(old: Any) -> Any:
            return run(old[:n], old[n:], inner, number)

        return jax.lax.cond(on, go_on, lambda old: [*old], values), None

    return jax.lax.scan(body, [*first, *old], jnp.arange(limit))[0]


def _traced(cond: Any, body: Any, variables: tuple[Any, ...], limit: Any) -> Any:
    """Runs the loop in a function that JAX traces."""

    def holds(carry: Any) -> Any:
        number, values = carry
        on = cond(*values)
        return on if limit is None else on & (number < limit)

    def step(carry: Any) -> Any:
        number, values = carry
        return number + 1, _listed(body, *values)

    start = jnp.zeros((), jnp.int32), jax.tree.map(jnp.asarray, variables)
    return jax.lax.while_loop(holds, step, start)[1]


def _like(loop_vars: Any, last: Any) -> Any:
    """Returns the last values as a list, tuple or namedtuple, as the first ones are."""
    kind = type(loop_vars)
    return kind(*last) if hasattr(loop_vars, "_fields") else kind(last)

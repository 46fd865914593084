"""Reverse-mode derivatives of tensors, by `jax.vjp` of the equations between them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

from jflow.base.values import AbstractValue, HostArray, is_compatible, is_unranked
from jflow.compiler.graph import origin, request
from jflow.compiler.graph.effect_order import EffectOrder
from jflow.compiler.graph.graph import Graph, Operation, Tensor
from jflow.compiler.graph.hoisting import hoist_state
from jflow.compiler.graph.primitives import (
    VariableRef,
    is_source,
    is_stateful_control_flow,
    read_p,
    recorded_p,
    with_shape,
)
from jflow.compiler.graph.recorded import RecordedCall
from jflow.compiler.graph.rules import with_free_rules
from jflow.compiler.graph.symbolic import Symbolic
from jflow.compiler.graph.tracing import meshes_of_one_size
from jflow.errors import UnimplementedError
from jflow.plan.xla import jaxprs


class AggregationMethod:
    """TensorFlow's names of methods to add up the derivatives of all uses of a value.

    They all mean the same here, because XLA decides how a sum is computed.
    """

    ADD_N = DEFAULT = 0
    EXPERIMENTAL_TREE = 1
    EXPERIMENTAL_ACCUMULATE_N = 2


def gradients(
    ys: Any,
    xs: Any,
    grad_ys: Any = None,
    name: str = "gradients",
    colocate_gradients_with_ops: bool = False,
    gate_gradients: bool = False,
    aggregation_method: int | None = None,
    stop_gradients: Any = None,
) -> list[Any]:
    """Returns derivatives of the sum of `ys` with respect to each of `xs`.

    Each new operation has the device request of its forward operation. Operations of the forward
    pass that the derivative needs are shared, not repeated.

    Args:
      ys: a tensor or a list of tensors.
      xs: a tensor or variable, or a list of them. The derivative with respect to a variable is
        taken through all of its reads.
      grad_ys: derivatives of the final value with respect to each y; ones if None.
      name: name scope of the new operations.
      colocate_gradients_with_ops: each new operation requests the device of its forward operation,
        whatever this says.
      gate_gradients: whether each derivative waits until all are computed.
      aggregation_method: one of `AggregationMethod`, which mean the same, or None.
      stop_gradients: a tensor or variable, or a list of them, that count as constants; each x is
        still differentiated by.

    Returns:
      A list with a tensor of the shape of x for each x; None if no y depends on it.

    Raises:
      ValueError: if the tensors belong to different graphs, there is no y, or the aggregation
        method is none of these.
      TypeError: if a y or x is not a float or complex tensor.
    """
    _check_aggregation(aggregation_method)
    targets = [y.to_tensor() for y in _listed(ys)]
    if not targets:
        raise ValueError("gradients requires at least one y")
    graph = targets[0].graph
    sources = [_source(graph, x) for x in _listed(xs)]
    leaves = [t for source in sources for t in source.points]
    _check(graph, targets, leaves)
    stopped = [] if stop_gradients is None else _listed(stop_gradients)
    stops = [_source(graph, x) for x in stopped]
    seeds = None if grad_ys is None else [graph.as_tensor(g) for g in _listed(grad_ys)]
    # The requests of the equations count, not those of the blocks around this call.
    with (
        request.empty_request_scope(),
        graph.scopes.replaced(names=graph.unique_name(name) + "/"),
    ):
        path = between(graph, leaves, targets, _points(stops), [x.variable for x in sources])
        if any(map(is_recorded, path)) or any(t.aval.shape is None for t in targets):
            totals = _record(graph, path, targets, sources, seeds, stops)
        else:
            totals = _slopes(graph, targets, sources, seeds, _points(stops))
        return _copies_after_all(graph, totals) if gate_gradients else totals


@dataclass(frozen=True)
class _Source:
    """One of the `xs` that gradients are taken with respect to.

    Attributes:
      points: the tensors whose derivatives add up to the derivative.
      variable: the variable that they are reads of; None if it is a tensor.
    """

    points: list[Tensor]
    variable: VariableRef | None


def _source(graph: Graph, x: Any) -> _Source:
    points = points_of(graph, x)
    return _Source(points, None if isinstance(x, Tensor) else variable_of(x))


def _points(sources: Iterable[_Source]) -> set[Tensor]:
    return {t for source in sources for t in source.points}


def _slopes(
    graph: Graph,
    targets: list[Tensor],
    sources: Sequence[_Source],
    seeds: list[Tensor] | None,
    stops: Collection[Tensor],
) -> list[Tensor | None]:
    """Adds and returns the derivative of the sum of the targets with respect to each source."""
    leaves = list(dict.fromkeys(t for source in sources for t in source.points))
    if seeds is not None:
        seeds = [_cast_to_shape(graph, *pair) for pair in zip(seeds, targets, strict=True)]
    slopes: dict[Tensor, Tensor] = {}
    for group in _independent(graph, leaves, stops):
        slopes.update(_pull_back(graph, group, targets, seeds, stops))
    return [_total(graph, [slopes[t] for t in x.points if t in slopes]) for x in sources]


def _cast_to_shape(graph: Graph, seed: Tensor, target: Tensor) -> Tensor:
    """Casts a derivative to the shape of its target; the step checks that unknown sizes agree."""
    shape: Any = target.aval.shape
    if seed.aval.shape == shape or not is_compatible(seed.aval.shape, shape):
        return seed
    fitted: Tensor = graph.apply(partial(with_shape, shape=shape), (seed,))
    return fitted


def _record(
    graph: Graph,
    path: Iterable[Operation],
    targets: list[Tensor],
    sources: Sequence[_Source],
    seeds: list[Tensor] | None,
    stops: Sequence[_Source],
) -> list[Tensor | None]:
    """Records derivatives through recorded calls, which a step computes once it knows the ranks.

    Args:
      graph: the graph.
      path: the operations between the sources and the targets.
      targets, sources, seeds: as for `_slopes`.
      stops: what counts as constant.
    """
    used = {t for op in path for t in op.inputs}.union(targets)
    state = {ref for op in path if is_recorded(op) for ref in op.eqn.params["state"]}
    reached = [x for x in sources if x.variable in state or not used.isdisjoint(x.points)]
    bases = [t for x in (*reached, *stops) if x.variable is None for t in x.points]

    def replay(here: Graph, tensors: Sequence[Tensor]) -> list[Tensor]:
        rest = iter(tensors)
        ys = [next(rest) for _ in targets]
        gs = None if seeds is None else [next(rest) for _ in seeds]

        def here_of(source: _Source) -> _Source:
            ref = source.variable
            return _Source([next(rest)] if ref is None else _reads_of(here, ref), ref)

        own, constant = [*map(here_of, reached)], [*map(here_of, stops)]
        for op in between(here, _points(own), ys, _points(constant)):
            if is_recorded(op):
                raise TypeError(f"{op.name!r} (made at {op.origin}) is of unknown rank")
        with request.empty_request_scope():
            slopes = _slopes(here, ys, own, gs, _points(constant))
        pairs = zip(slopes, own, strict=True)
        return [_zeros(here, x) if slope is None else slope for slope, x in pairs]

    avals = tuple(map(_slope_aval, reached))
    inputs = [t.var for t in (*targets, *(seeds or []), *bases)]
    call = RecordedCall(avals, None, tuple(sorted(state, key=str)), replay)
    outputs = graph.add_recorded(inputs, call, "vjp").outputs
    slopes = dict(zip(map(id, reached), outputs, strict=True))
    return [slopes.get(id(x)) for x in sources]


def _slope_aval(source: _Source) -> AbstractValue:
    if source.points:
        return source.points[0].aval
    assert source.variable is not None
    return source.variable.aval


def _zeros(graph: Graph, source: _Source) -> Tensor:
    """Returns zeros of a source's shape, for targets that do not depend on it."""
    if source.variable is None:
        zeros: Tensor = graph.apply(jnp.zeros_like, (source.points[0],))
        return zeros
    return graph.constant(np.zeros(source.variable.shape, source.variable.dtype))


def _copies_after_all(graph: Graph, slopes: list[Tensor | None]) -> list[Any]:
    """Returns copies of derivatives, each of which runs only after all of them are computed."""
    terms = list(dict.fromkeys(slope for slope in slopes if slope is not None))
    copies = dict(zip(terms, graph.after([slope.op for slope in terms], terms), strict=True))
    return [None if slope is None else copies[slope] for slope in slopes]


def _independent(
    graph: Graph, leaves: list[Tensor], stops: Collection[Tensor]
) -> list[list[Tensor]]:
    """Divides the leaves into groups in which no leaf depends on another.

    Inside a group all leaves are inputs. The derivative by a leaf that another leaf depends on must
    pass through the other one, so it is computed separately.
    """
    computed = {t for op in between(graph, leaves, leaves, stops) for t in op.outputs}
    if computed.isdisjoint(leaves):
        return [leaves]
    return [[leaf] for leaf in leaves]


def _listed(values: Any) -> list[Any]:
    return list(values) if isinstance(values, list | tuple) else [values]


def _check_aggregation(method: int | None) -> None:
    if method not in {None, 0, 1, 2}:
        raise ValueError(f"expected one of AggregationMethod as aggregation_method, got {method!r}")


def points_of(graph: Graph, x: Any) -> list[Tensor]:
    """Returns the tensors whose derivatives add up to the derivative with respect to `x`."""
    if isinstance(x, Tensor):
        return [x]
    if not isinstance(x, Symbolic):
        raise TypeError(f"expected a tensor or a variable to differentiate by, got {x!r}")
    return _reads_of(graph, variable_of(x))


def variable_of(x: Symbolic) -> VariableRef:
    """Returns the variable that a tensor-like value stands for.

    Raises:
      TypeError: if it stands for several.
    """
    read = x.graph_element().op
    if read.eqn.primitive is not read_p and len(read.inputs) == 1:
        read = read.inputs[0].op  # the value on a caching device is a copy
    variable: VariableRef | None = read.eqn.params.get("variable")
    if variable is None:
        raise TypeError(
            f"cannot differentiate by {x!r} as a whole; differentiate by its parts, `list(v)`, or "
            "by the tensor that was used"
        )
    return variable


def _reads_of(graph: Graph, variable: VariableRef) -> list[Tensor]:
    return [
        op.outputs[0]
        for op in graph.get_operations()
        if op.eqn.primitive is read_p and op.eqn.params["variable"] == variable
    ]


def _check(graph: Graph, targets: Sequence[Tensor], leaves: Sequence[Tensor]) -> None:
    for tensor in (*targets, *leaves):
        if tensor.graph is not graph:
            raise ValueError(f"{tensor!r} belongs to another graph than {targets[0]!r}")
        stays_on_host = isinstance(tensor.aval, HostArray) and not is_unranked(tensor.aval)
        if stays_on_host or not jax.dtypes.issubdtype(tensor.dtype, jnp.inexact):
            raise TypeError(f"cannot differentiate {tensor!r}: expected a float or complex dtype")


def is_recorded(op: Operation) -> bool:
    """Whether an operation is a recorded call."""
    return op.eqn.primitive is recorded_p


def between(
    graph: Graph,
    leaves: Iterable[Tensor],
    targets: Iterable[Tensor],
    stops: Collection[Tensor] = (),
    variables: Collection[VariableRef | None] = (),
) -> dict[Operation, None]:
    """Returns the operations on paths from leaves to targets, in the graph's order.

    No path goes through a tensor of `stops`, but it may begin with one. Paths also begin at
    recorded calls of functions that use one of the variables.
    """
    below: set[Tensor] = set(leaves)
    refs = {*variables}
    downstream: list[Operation] = []
    for op in graph.get_operations():
        if is_source(op.eqn):
            continue
        uses = is_recorded(op) and not refs.isdisjoint(op.eqn.params["state"])
        if uses or any(t in below for t in op.inputs):
            below.update(t for t in op.outputs if t not in stops)
            downstream.append(op)
    needed: set[Tensor] = set(targets)
    path: list[Operation] = []
    for op in reversed(downstream):
        if any(t in needed for t in op.outputs):
            needed.update(op.inputs)
            path.append(op)
    return dict.fromkeys(reversed(path))


def _pull_back(
    graph: Graph,
    leaves: list[Tensor],
    targets: list[Tensor],
    seeds: list[Tensor] | None,
    stops: Collection[Tensor],
) -> dict[Tensor, Tensor]:
    """Returns derivatives with respect to the leaves that a target depends on."""
    path = between(graph, leaves, targets, stops)
    if constants := _without_slope(path, targets):
        stops = {*stops, *constants}
        path = between(graph, leaves, targets, stops)
    used = {t for op in path for t in op.inputs} | set(targets)
    reached = [leaf for leaf in leaves if leaf in used]
    if not reached:
        return {}
    forward, captured = _forward(path, reached, targets, stops)
    n_leaves, n_forward = len(reached), len(reached) + len(captured)

    def pull_back(*args: Any) -> Any:
        rest = args[n_leaves:n_forward]
        values, vjp = jax.vjp(lambda *p: forward(*p, *rest), *args[:n_leaves])
        cotangents = args[n_forward:] or [None] * len(values)
        return vjp([_seed(y, g, t) for y, g, t in zip(values, cotangents, targets, strict=True)])

    inputs = [*reached, *captured, *(seeds or [])]
    shapes = [jaxprs.shape_of(t.aval) for t in inputs]
    # A derivative rule may contain callbacks.
    with meshes_of_one_size(), _loops_explained():
        jaxpr = hoist_state(jax.make_jaxpr(pull_back)(*shapes), keep_rules=True)
    return dict(zip(reached, _insert_sharing(graph, path, jaxpr, inputs), strict=True))


def _without_slope(path: Iterable[Operation], targets: Iterable[Tensor]) -> list[Tensor]:
    """Returns what branches and loops with effects give that has no influence on derivatives.

    Raises:
      UnimplementedError: if one has an influence.
    """
    constants: list[Tensor] = []
    needed = {*targets}
    for op in reversed([*path]):
        has_slope = any(jnp.issubdtype(t.dtype, jnp.inexact) for t in op.outputs if t in needed)
        if has_slope and op.eqn.primitive.name != "stop_gradient":
            needed.update(op.inputs)
        if not is_stateful_control_flow(op.eqn):
            continue
        if has_slope:
            raise UnimplementedError(
                f"{op.name!r} (made at {op.origin}) is a branch or loop with effects, through "
                "which jflow computes no derivatives: JAX would run the effects more or less often "
                "than they are written; have the effects outside, or compute the derivatives "
                "inside",
                op=op.name,
            )
        constants += op.outputs
    return constants


@contextmanager
def _loops_explained() -> Iterator[None]:
    """Context manager that says how loops that end on a condition are differentiated.

    Raises:
      ValueError: in place of JAX's error.
    """
    try:
        yield
    except ValueError as error:
        if "lax.while_loop" not in str(error) or "Reverse-mode" not in str(error):
            raise
        raise ValueError(
            "a loop that ends on a condition has derivatives only if the number of iterations is "
            "bounded: give jflow.while_loop a number as maximum_iterations, or use jflow.scan"
        ) from error


def _seed(value: Any, seed: Any, target: Tensor) -> Any:
    """Returns the derivative of a target to start from, on the device of its value."""
    with request.request_scope(request.requested(target.op.eqn)):
        return jnp.ones_like(value) if seed is None else jnp.asarray(seed, value.dtype)


def _forward(
    path: dict[Operation, None],
    leaves: list[Tensor],
    targets: list[Tensor],
    stops: Collection[Tensor],
) -> tuple[Callable[..., list[Any]], list[Tensor]]:
    """Returns the path as a function of leaves and captured tensors, and the captured tensors."""
    cut = {*leaves, *stops}
    inside = {t for op in path for t in op.outputs if t not in cut}
    used = [t for op in path for t in op.inputs] + list(targets)
    available = {*leaves, *inside}
    captured = [t for t in dict.fromkeys(used) if t not in available]
    program = jaxprs.close(
        [t.var for t in (*leaves, *captured)],
        [t.var for t in targets],
        [_equation(op, cut) for op in path],
    )
    return jex.jaxpr_as_fun(program), captured


def _equation(op: Operation, cut: set[Tensor]) -> jex.JaxprEqn:
    """Returns the equation of an operation in the scope of its name, from which derivatives follow.

    Those outputs that are leaves or stops are fresh variables.
    """
    eqn = with_free_rules(origin.with_scope(op.eqn, op.name.rpartition("/")[0]))
    if not cut.intersection(op.outputs):
        return eqn
    outvars = [jex.Var(t.aval) if t in cut else t.var for t in op.outputs]
    renamed: jex.JaxprEqn = eqn.replace(outvars=outvars)
    return renamed


def _insert_sharing(
    graph: Graph, path: Iterable[Operation], jaxpr: jex.ClosedJaxpr, inputs: Sequence[Tensor]
) -> list[Tensor]:
    """Adds the equations of a derivative, but reuses equal operations of the forward pass."""
    op_by_identity = {_identity(op.eqn, list(op.eqn.invars)): op for op in path}

    def existing(eqn: jex.JaxprEqn, args: list[jaxprs.Atom]) -> Sequence[Tensor] | None:
        op = op_by_identity.get(_identity(eqn, args))
        return None if op is None else op.outputs

    order, names = EffectOrder(), _Names()
    slopes = graph.inline(jaxpr, [t.var for t in inputs], names, existing=existing, order=order)
    return graph.after(order.effects, slopes) if order.effects else slopes


class _Names:
    """Names the equations of a derivative in their order by their scopes.

    What the derivative computes of the forward pass is in the scope "forward". JAX marks the
    equations of a backward pass, but not those in the bodies of calls that it transposes.
    """

    def __init__(self) -> None:
        self._backward: set[jex.Var] = set()

    def __call__(self, eqn: jex.JaxprEqn) -> str:
        inputs = {x for x in eqn.invars if not isinstance(x, jex.Literal)}
        name = origin.name_in_pass(eqn)
        if origin.is_backward(eqn) or not self._backward.isdisjoint(inputs):
            self._backward.update(eqn.outvars)
            return name
        return f"forward/{name}"


def _identity(eqn: jex.JaxprEqn, args: list[jaxprs.Atom]) -> Any:
    """Returns a hashable key; equal keys mean the same computation on the same device."""
    atoms = tuple((x.val.item(), str(x.aval)) if _is_scalar(x) else id(x) for x in args)
    try:
        params = frozenset(eqn.params.items())
        hash(params)
    except TypeError:
        return id(eqn)
    return (eqn.primitive, params, atoms, request.requested(eqn))


def _is_scalar(atom: jaxprs.Atom) -> bool:
    return isinstance(atom, jex.Literal) and hasattr(atom.val, "item") and jnp.shape(atom.val) == ()


def _total(graph: Graph, parts: list[Tensor]) -> Tensor | None:
    if not parts:
        return None
    total = parts[0]
    for part in parts[1:]:
        with request.request_scope(request.requested(total.op.eqn)):
            total = graph.apply(jnp.add, (total, part), name="add")
    return total

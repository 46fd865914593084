"""Opening of loops and branches whose bodies request several devices or call Python.

A graph keeps such a loop as one equation, so that derivatives, files and pictures have it as it was
written. A step *opens* it, in a copy of the graph (`expansion.py`): each equation of the body is an
operation, which is placed and cut like any other, and belongs to an `OpenLoop`. The loop runs as a
part of each device's plan (`jflow.plan.Loop`).

What goes from one iteration to the next is a *carry*: an operation whose input is the first value,
and whose output is in each iteration what the one before has made (`OpenLoop.next`). An array that
a scan maps over is sliced in the body by the number of the iteration. An array that it stacks is a
carry, too: a buffer, in which each iteration writes one element.

What a loop stacks for another one, such as what the forward pass keeps for the backward pass, stays
on every device that has the elements: each of them has a buffer of its own, and the other loop
takes the elements from there. Buffers that nothing uses are pruned.

A `while` has a predicate, which is computed in each iteration before all else of it. The branches
of a conditional are loops of one iteration at most, whose predicates say which branch is taken;
their carries are the results, which each of them passes on or replaces.

Callbacks with effects run in the order of the iterations. A carry without a value of interest puts
them in this order: in each iteration the first one waits for it, and its next value for the last.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import lax

from jflow.base.cluster import DeviceSpec
from jflow.base.values import physical_form
from jflow.compiler.graph import origin, request
from jflow.compiler.graph.callbacks import CLIENT_CPU, has_effects
from jflow.compiler.graph.effect_order import EffectOrder
from jflow.compiler.graph.graph import Graph, Operation, Tensor
from jflow.compiler.graph.hoisting import hoist_state
from jflow.compiler.graph.open_loop import OpenLoop
from jflow.compiler.graph.opening import Opening
from jflow.compiler.graph.primitives import (
    ACCESSES,
    LOOP_ENDS,
    carry_p,
    final_p,
    index_p,
    is_stateful,
    is_stateful_control_flow,
    state_of,
)
from jflow.compiler.graph.spreading import spread_requests
from jflow.errors import UnimplementedError
from jflow.plan import MAX_TRIPS
from jflow.plan.xla import internals, jaxprs
from jflow.plan.xla.jaxprs import allow_64_bits, have_64_bits

_INDEX = jax.core.ShapedArray((), np.dtype("int32"))


class Opened(NamedTuple):
    """What is opened: an operation, or an equation in the body of another one.

    Attributes:
      eqn: the equation.
      name: the name of the operation.
      line: the user's line that made it.
      fed: the tensors whose values are inputs of the step.
      opening: decides what is opened in its body.
      effects: receives the operations that run after all effects of what is opened.
    """

    eqn: jex.JaxprEqn
    name: str
    line: str
    fed: Collection[Tensor]
    opening: Opening
    effects: list[Operation]


def opened(
    op: Operation,
    fed: Collection[Tensor],
    opening: Opening,
    effects: list[Operation],
    graph: Graph,
    inputs: Sequence[Tensor],
) -> list[Tensor]:
    """Adds the operations of a loop or conditional under the current scopes.

    Args:
      op: the loop or conditional.
      fed: the tensors of the copy whose values are inputs of the step.
      opening: decides what is opened in its body.
      effects: receives the operations that run after all effects.
      graph: a copy of its graph.
      inputs: the tensors of the copy in place of the inputs of `op`.

    Returns:
      Its results.
    """
    return _opened(graph, Opened(op.eqn, op.name, op.origin, fed, opening, effects), inputs)


def _opened(graph: Graph, source: Opened, inputs: Sequence[Tensor]) -> list[Tensor]:
    tensors = iter(inputs)
    atoms = source.eqn.invars
    given = [graph.literal(x) if isinstance(x, jex.Literal) else next(tensors) for x in atoms]
    match source.eqn.primitive.name.removeprefix("stateful_"):
        case "scan":
            return _scanned(graph, source, given)
        case "while":
            return _repeated(graph, source, given)
        case _:
            return _branched(graph, source, given)


def _scanned(graph: Graph, source: Opened, given: Sequence[Tensor]) -> list[Tensor]:
    params = source.eqn.params
    n_consts, n_carries = internals.scan_sizes(params)
    init = given[n_consts : n_consts + n_carries]
    if not isinstance(params["length"], int):
        raise UnimplementedError(
            f"{source.name!r} is a loop (at {source.line}) of unknown length "
            f"({params['length']}), which cannot be opened for several devices or calls of Python; "
            "make the length known (set_shape), put one jflow.device block around it, or call "
            "Python after it"
        )
    opening = _Opening(graph, source, params["length"], bool(params["reverse"]))
    if opening.loop.trips:
        arrays = given[n_consts + n_carries :]
        return opening.scan(params["jaxpr"], given[:n_consts], init, arrays)
    stacked = params["jaxpr"].jaxpr.outvars[n_carries:]
    return [*init, *(opening.zeros(var.aval, (0,), DeviceSpec()) for var in stacked)]


def _repeated(graph: Graph, source: Opened, given: Sequence[Tensor]) -> list[Tensor]:
    params = source.eqn.params
    n_cond, n_body = params["cond_nconsts"], params["body_nconsts"]
    init, consts = given[n_cond + n_body :], given[n_cond : n_cond + n_body]
    opening = _Opening(graph, source, params.get("limit") or MAX_TRIPS)
    test = params["cond_jaxpr"], given[:n_cond]
    return opening.repeat(params["body_jaxpr"], consts, init, test)


def _branched(graph: Graph, source: Opened, given: Sequence[Tensor]) -> list[Tensor]:
    index, *operands = given
    branches = source.eqn.params["branches"]
    openings = [_Opening(graph, source, 1) for _ in branches]
    results = [openings[0].zeros(var.aval, (), DeviceSpec()) for var in source.eqn.outvars]
    zeros = [tensor.op for tensor in results]
    for number, (opening, branch) in enumerate(zip(openings, branches, strict=True)):
        chosen = graph.apply(partial(jnp.equal, number), (index,), name="is_taken")
        chosen.op.eqn = request.replaced(chosen.op.eqn, request.resolved(index.op.spec, ()))
        results = opening.take(branch, operands, results, chosen)
    # The zeros go where the first branch replaces them.
    for carry in openings[0].loop.next if openings else ():
        if (first := carry.inputs[0].op) in zeros:
            first.eqn = request.replaced(first.eqn, request.resolved(carry.spec, ()))
    return results


class _Opening:
    """Adds the operations of one open loop.

    Args:
      graph: the copy of the graph.
      source: the loop or conditional.
      trips, is_reversed: as for `OpenLoop`.

    Attributes:
      loop: the open loop.
    """

    def __init__(self, graph: Graph, source: Opened, trips: int, is_reversed: bool = False) -> None:
        self._graph, self._source = graph, source
        scope = graph.scopes.here
        self.loop = OpenLoop(
            source.name,
            source.line,
            trips,
            is_reversed,
            scope.loop,
            request.requested(source.eqn).window,
        )
        self._first = len(graph.get_operations())
        self._control_inputs = scope.control_inputs
        self._zeros: list[Operation] = []
        self._slices: set[Operation] = set()
        self._is_stateful = is_stateful_control_flow(source.eqn)
        self._order = EffectOrder(is_total=self._is_stateful)
        self._token: Tensor | None = None

    def scan(
        self,
        body: jex.ClosedJaxpr,
        consts: Sequence[Tensor],
        init: Sequence[Tensor],
        arrays: Sequence[Tensor],
    ) -> list[Tensor]:
        """Adds a scan; returns the last values of its carries, and the stacked arrays."""
        with self._graph.scopes.replaced(loop=self.loop, control_inputs=()):
            index = self._graph.add(index_p, [], [_INDEX], name="iteration").outputs[0]
            carries, is_same = self._carries(body, len(consts), init)
            elements = [self._apply(_element, array, index) for array in arrays]
            self._slices.update(element.op for element in elements)
            results = self._inline(body, [*consts, *carries, *elements])
            finals = self._finals(carries, is_same, results)
            users = spread_requests(self._added())
            slices = [x for one in elements for x in self._at_users(one, users[one.op], index)]
            stacks = [self._stacked(x, users, index) for x in results[len(init) :]]
        self._move_first([*self._zeros, index.op, *slices])
        return [*finals, *stacks]

    def repeat(
        self,
        body: jex.ClosedJaxpr,
        consts: Sequence[Tensor],
        init: Sequence[Tensor],
        test: tuple[jex.ClosedJaxpr, Sequence[Tensor]],
    ) -> list[Tensor]:
        """Adds a loop with a predicate, given as a program and its constants."""
        with self._graph.scopes.replaced(loop=self.loop, control_inputs=()):
            carries, is_same = self._carries(body, len(consts), init)
            (goes_on,) = self._inline(test[0], [*test[1], *carries])
            # JAX's batched form ends when all examples have ended, and keeps those that have.
            is_batch = bool(goes_on.ndim)
            decides = self._apply(jnp.any, goes_on) if is_batch else self._made_here(goes_on)
            if self._order.effects:
                (decides,) = self._graph.after(self._order.effects, [decides])
            self.loop.predicate = decides
            results = self._inline(body, [*consts, *carries])
            if is_batch:
                pairs = zip(results, carries, strict=True)
                results = [self._apply(_where, goes_on, new, old) for new, old in pairs]
            finals = self._finals(carries, is_same, results)
            spread_requests(self._added())
        self._move_first(self._zeros)
        return finals

    def take(
        self,
        branch: jex.ClosedJaxpr,
        operands: Sequence[Tensor],
        others: Sequence[Tensor],
        chosen: Tensor,
    ) -> list[Tensor]:
        """Adds a branch, which gives its own results or those of other branches."""
        self._first = len(self._graph.get_operations())
        self.loop.predicate = chosen
        with self._graph.scopes.replaced(loop=self.loop, control_inputs=()):
            carries = [self._carry(one) for one in others]
            results = self._inline(branch, operands)
            finals = self._finals(carries, [False] * len(carries), results)
            spread_requests(self._added())
        self._move_first(self._zeros)
        return finals

    def _added(self) -> list[Operation]:
        ops = self._graph.get_operations()[self._first :]
        return [op for op in ops if op.loop is not None and op.loop.is_in(self.loop)]

    def _move_first(self, moved: Sequence[Operation]) -> None:
        """Moves operations before all others of the loop, in the order of the graph."""
        ops = dict.fromkeys(moved)
        later = [op for op in self._graph.get_operations()[self._first :] if op not in ops]
        for op in (*ops, *later):
            del self._graph._operations[op.name]
            self._graph._operations[op.name] = op

    def _inline(self, body: jex.ClosedJaxpr, args: Sequence[Tensor]) -> list[Tensor]:
        """Adds the equations of a body; its effects come after those of the iteration before."""
        if self._token is None and (first := next(filter(self._has_effects, body.eqns), None)):
            self._token = self._first_effect(first)
        inputs = [tensor.var for tensor in args]
        flat = hoist_state(body)
        eqns = [*map(self._source.opening.whole, flat.eqns)]
        with request.carried(self._source.eqn.ctx):
            return self._graph.inline(
                flat.replace(jaxpr=flat.jaxpr.replace(eqns=eqns)),
                inputs,
                origin.name_of,
                existing=self._opened_inside,
                location_of=origin.location_of,
                order=self._order,
            )

    def _opened_inside(self, eqn: jex.JaxprEqn, args: list[jaxprs.Atom]) -> Sequence[Tensor] | None:
        """Opens an equation of the body, if it is one that is opened."""
        if not self._source.opening.opens(eqn):
            return None
        graph, kind = self._graph, eqn.primitive.name.removeprefix("stateful_")
        name = graph.unique_name(kind)
        line = origin.line_of(eqn) or self._source.line
        tensors = [graph.tensor_of(x) for x in args if not isinstance(x, jex.Literal)]
        inner = self._source._replace(
            eqn=eqn.replace(invars=args), name=name, line=line, effects=[]
        )
        before = tuple(self._order.before(eqn))
        scopes = graph.scopes.replaced(names=f"{name}/", control_inputs=before)
        with scopes, request.carried(eqn.ctx):
            results = _opened(graph, inner, tensors)
        self._order.add_together(inner.effects)
        return results

    # Effects ----------------------------------------------------------------------------------

    def _has_effects(self, eqn: jex.JaxprEqn) -> bool:
        return has_effects(eqn) or (self._is_stateful and is_stateful(eqn))

    def _first_effect(self, eqn: jex.JaxprEqn) -> Tensor:
        """Adds a carry that puts effects in order; returns its copy, before all of an iteration.

        Args:
          eqn: the first equation with an effect; the carry is where that runs.
        """
        where = CLIENT_CPU
        if self._is_stateful:
            names = [self._graph.handle_of(ref).name for ref in state_of(eqn)[:1]]
            where = request.resolved(request.requested_device(eqn), names)
        zero = self._zeros_outside(_INDEX, (), where.spec)
        first = self._apply(jnp.copy, self._carry(zero))
        first.op.eqn = request.replaced(first.op.eqn, where)
        self._order.add_together([first.op])
        return first

    def _last_effect(self, first: Tensor) -> None:
        """Gives the carry of `_first_effect` its next value, after all effects of an iteration."""
        if self._is_stateful:  # nothing that has to run
            with self._graph.scopes.replaced(control_inputs=tuple(self._order.effects)):
                last = self._graph.constant(np.int32(0), on_host=True)
            last.op.eqn = request.replaced(last.op.eqn, request.requested(first.op.eqn))
        else:
            (last,) = self._graph.after(self._order.effects, [first])
        self._source.effects.append(self._final(first.op.inputs[0], last).op)

    # Carries ----------------------------------------------------------------------------------

    def _carries(
        self, body: jex.ClosedJaxpr, n_consts: int, init: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[bool]]:
        """Adds the carries; also returns for each whether no iteration changes it.

        Such a carry is a constant.
        """
        olds = body.jaxpr.invars[n_consts:][: len(init)]
        is_same = [new is old for new, old in zip(body.jaxpr.outvars, olds, strict=False)]
        carries = [x if same else self._carry(x) for x, same in zip(init, is_same, strict=True)]
        return carries, is_same

    def _finals(
        self, carries: Sequence[Tensor], is_same: Sequence[bool], results: Sequence[Tensor]
    ) -> list[Tensor]:
        """Gives all carries their next values; returns the last ones."""
        if self._token is not None:
            self._last_effect(self._token)
        return [
            carry if same else self._final(carry, self._made_here(new))
            for carry, new, same in zip(carries, results, is_same, strict=False)
        ]

    def _carry(self, init: Tensor) -> Tensor:
        with self._graph.scopes.replaced(control_inputs=self._control_inputs):
            return self._add(carry_p, init)

    def _final(self, carry: Tensor, new: Tensor) -> Tensor:
        self.loop.next[carry.op] = new
        return self._add(final_p, carry)

    def _add(self, primitive: jex.Primitive, tensor: Tensor) -> Tensor:
        with request.empty_request_scope():
            op = self._graph.add(primitive, [tensor.var], [tensor.aval], name=primitive.name)
        return op.outputs[0]

    def _made_here(self, tensor: Tensor) -> Tensor:
        """Returns a tensor, or a copy of it, that an equation of the body makes.

        What a carry is next is on one device, and a slice of a scanned array on all that use it.
        """
        is_here = tensor.op.loop is self.loop and tensor.op not in self._slices
        # The buffer of a variable changes with its next update, maybe in the next iteration.
        is_made_here = is_here and tensor.op.eqn.primitive not in LOOP_ENDS | ACCESSES
        return tensor if is_made_here else self._apply(jnp.copy, tensor)

    def _apply(self, function: Callable[..., Any], *tensors: Tensor) -> Tensor:
        with request.empty_request_scope():
            result: Tensor = self._graph.apply(function, tensors)
        return result

    # Scanned and stacked arrays ---------------------------------------------------------------

    def _at_users(
        self, element: Tensor, users: Sequence[Operation], index: Tensor
    ) -> list[Operation]:
        """Slices an array on each device that uses its elements; returns the operations."""
        by_spec: dict[DeviceSpec, list[Operation]] = {}
        for user in users:
            by_spec.setdefault(user.spec, []).append(user)
        array, _ = element.op.inputs
        loop = array.op.loop
        # What is fed is another array than the one that a loop has stacked.
        is_stacked = loop is not None and array not in self._source.fed
        stacks = loop.stacks.get(array, {}) if loop is not None and is_stacked else {}
        slices = []
        for number, (spec, here) in enumerate(by_spec.items()):
            source = stacks.get(spec, array)
            own = element if not number else self._apply(_element, source, index)
            _replace(own.op, array, source)
            own.op.eqn = request.replaced(own.op.eqn, request.resolved(spec, ()))
            for user in here:
                _replace(user, element, own)
            slices.append(own.op)
        return slices or [element.op]

    def _stacked(
        self, element: Tensor, users: Mapping[Operation, Sequence[Operation]], index: Tensor
    ) -> Tensor:
        """Stacks a value of each iteration, on all devices that have it."""
        is_computed = element.op.loop is self.loop and element is not index
        specs = [element.op.spec if is_computed else DeviceSpec()]
        specs += [user.spec for user in users.get(element.op, ())] if is_computed else []
        stacks = {spec: self._stack(element, spec, index) for spec in dict.fromkeys(specs)}
        self.loop.stacks[stacks[specs[0]]] = stacks
        return stacks[specs[0]]

    def _stack(self, element: Tensor, spec: DeviceSpec, index: Tensor) -> Tensor:
        carry = self._carry(self._zeros_outside(element.aval, (self.loop.trips,), spec))
        final = self._final(carry, self._apply(_with_element, carry, element, index))
        for op, names in (
            (carry.op, ()),
            (self.loop.next[carry.op].op, (carry.op.name,)),
            (final.op, (carry.op.name,)),
        ):
            op.eqn = request.replaced(op.eqn, request.resolved(spec, names))
        return final

    def _zeros_outside(self, aval: Any, shape: tuple[int, ...], spec: DeviceSpec) -> Tensor:
        """Adds zeros before the loop; as `zeros`."""
        with self._graph.scopes.replaced(loop=self.loop.parent):
            return self.zeros(aval, shape, spec)

    def zeros(self, aval: Any, shape: tuple[int, ...], spec: DeviceSpec) -> Tensor:
        """Adds an array of zeros of some type, with more dimensions before the others."""
        if aval.dtype == jax.dtypes.float0:
            raise NotImplementedError(
                f"{self._source.eqn.primitive.name!r} (at {self.loop.line}) requests several "
                "devices or calls Python, and gives a derivative by integers (float0), which is "
                "not supported; it is always zero: do not return it from the body"
            )

        def filled() -> Any:
            form = physical_form(aval.dtype)
            if form is None:
                return jnp.zeros((*shape, *aval.shape), aval.dtype)
            whole = jax.ShapeDtypeStruct((*shape, *aval.shape), aval.dtype)
            physical = jax.eval_shape(form.unwrap, whole)
            return form.wrap(jnp.zeros(physical.shape, physical.dtype))

        with allow_64_bits(have_64_bits([aval])):
            zeros = self._apply(filled)
        zeros.op.eqn = request.replaced(zeros.op.eqn, request.resolved(spec, ()))
        self._zeros.append(zeros.op)
        return zeros


def _replace(op: Operation, old: Tensor, new: Tensor) -> None:
    """Makes an operation of an open loop use another tensor."""
    if old is not new:
        op.inputs = tuple(new if tensor is old else tensor for tensor in op.inputs)
        invars = [new.var if atom is old.var else atom for atom in op.eqn.invars]
        op.eqn = op.eqn.replace(invars=invars)


def _where(batch: Any, new: Any, old: Any) -> Any:
    chosen = lax.broadcast_in_dim(batch, new.shape, tuple(range(batch.ndim)))
    return lax.select(chosen, new, old)


def _element(array: Any, index: Any) -> Any:
    return lax.dynamic_index_in_dim(array, index, keepdims=False)


def _with_element(array: Any, element: Any, index: Any) -> Any:
    return lax.dynamic_update_index_in_dim(array, element, index, 0)

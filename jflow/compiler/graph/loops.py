"""Opening of loops whose bodies request several devices.

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

JAX's derivatives of a body have equations without a request, such as the sum of two gradients. They
go where the data is: an equation without a request has that of its last input that has one, or of
its first user; a carry has that of its next value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import lax

from jflow.base.cluster import DeviceSpec
from jflow.base.values import physical_form
from jflow.compiler.graph import origin, request
from jflow.compiler.graph.graph import Graph, Operation, Tensor
from jflow.compiler.graph.hoisting import hoist_state
from jflow.compiler.graph.open_loop import OpenLoop
from jflow.compiler.graph.primitives import LOOP_ENDS, carry_p, final_p, index_p
from jflow.compiler.graph.request import Request
from jflow.plan.xla import internals
from jflow.plan.xla.jaxprs import allow_64_bits, have_64_bits

_INDEX = jax.core.ShapedArray((), np.dtype("int32"))


def open_scan(op: Operation, graph: Graph, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Adds the operations of a scan under the current scopes; returns its results.

    Args:
      op: the scan.
      graph: a copy of its graph.
      inputs: the tensors of the copy in place of the inputs of `op`.
    """
    return _Opening(graph, op, inputs).outputs


class _Opening:
    """The operations of one scan.

    Attributes:
      outputs: its results.
    """

    def __init__(self, graph: Graph, op: Operation, inputs: Sequence[Tensor]) -> None:
        params = op.eqn.params
        self._graph, self._op = graph, op
        self._loop = OpenLoop[Operation, Tensor](
            op.name,
            op.origin,
            int(params["length"]),
            bool(params["reverse"]),
            request.requested(op.eqn).window,
        )
        self._body: jex.ClosedJaxpr = hoist_state(params["jaxpr"])
        tensors = iter(inputs)
        given = [
            graph.literal(x) if isinstance(x, jex.Literal) else next(tensors) for x in op.eqn.invars
        ]
        n_consts, n_carries = internals.scan_sizes(params)
        consts, init = given[:n_consts], given[n_consts : n_consts + n_carries]
        if not self._loop.trips:
            stacked = self._body.jaxpr.outvars[n_carries:]
            self.outputs = [*init, *(self._buffer(var.aval, DeviceSpec()) for var in stacked)]
            return
        self._first = len(graph.get_operations())
        self._buffers: list[Operation] = []
        with graph.scopes.replaced(loop=self._loop):
            self._index = graph.add(index_p, [], [_INDEX], name="iteration").outputs[0]
            with graph.scopes.replaced(control_inputs=()):
                self.outputs = self._open(consts, init, given[n_consts + n_carries :])

    def _open(
        self, consts: Sequence[Tensor], init: Sequence[Tensor], arrays: Sequence[Tensor]
    ) -> list[Tensor]:
        """Adds the operations; returns the values after the last iteration."""
        body = self._body.jaxpr
        olds, news = body.invars[len(consts) :][: len(init)], body.outvars[: len(init)]
        # What no iteration changes is a constant.
        is_constant = [new is old for new, old in zip(news, olds, strict=True)]
        carries = [x if same else self._carry(x) for x, same in zip(init, is_constant, strict=True)]
        elements = [self._apply(_element, array, self._index) for array in arrays]
        args = [tensor.var for tensor in (*consts, *carries, *elements)]
        with request.carried(self._op.eqn.ctx):
            results = self._graph.inline(
                self._body, args, origin.name_of, location_of=origin.location_of
            )
        finals = [
            carry if same else self._final(carry, self._made_here(new))
            for carry, new, same in zip(carries, results, is_constant, strict=False)
        ]
        ops = self._graph.get_operations()[self._first :]
        users = _spread_requests(self._loop, ops)
        added = [
            each for element in elements for each in self._at_users(element, users[element.op])
        ]
        finals += [self._stacked(one, users.get(one.op, ())) for one in results[len(init) :]]
        _move(self._graph, self._first, [*self._buffers, self._index.op, *added])
        return finals

    def _carry(self, init: Tensor) -> Tensor:
        return self._add(carry_p, init)

    def _final(self, carry: Tensor, new: Tensor) -> Tensor:
        self._loop.next[carry.op] = new
        return self._add(final_p, carry)

    def _add(self, primitive: jex.Primitive, tensor: Tensor) -> Tensor:
        with request.empty_request_scope():
            op = self._graph.add(primitive, [tensor.var], [tensor.aval], name=primitive.name)
        return op.outputs[0]

    def _made_here(self, tensor: Tensor) -> Tensor:
        """Returns a tensor, or a copy of it that an equation of the body makes."""
        is_made_here = tensor.op.loop is self._loop and tensor.op.eqn.primitive not in LOOP_ENDS
        return tensor if is_made_here else self._apply(jnp.copy, tensor)

    def _apply(self, function: Callable[..., Any], *tensors: Tensor) -> Tensor:
        with request.empty_request_scope():
            result: Tensor = self._graph.apply(function, tensors)
        return result

    # Scanned and stacked arrays ---------------------------------------------------------------

    def _at_users(self, element: Tensor, users: Sequence[Operation]) -> list[Operation]:
        """Slices an array on each device that uses its elements; returns the operations."""
        by_spec: dict[DeviceSpec, list[Operation]] = {}
        for user in users:
            by_spec.setdefault(user.spec, []).append(user)
        array, _ = element.op.inputs
        stacks = {} if array.op.loop is None else array.op.loop.stacks.get(array, {})
        slices = []
        for number, (spec, here) in enumerate(by_spec.items()):
            source = stacks.get(spec, array)
            own = element if not number else self._apply(_element, source, self._index)
            _replace(own.op, array, source)
            own.op.eqn = request.replaced(own.op.eqn, request.resolved(spec, ()))
            for user in here:
                _replace(user, element, own)
            slices.append(own.op)
        return slices or [element.op]

    def _stacked(self, element: Tensor, users: Sequence[Operation]) -> Tensor:
        """Stacks a value of each iteration, on all devices that have it."""
        is_computed = element.op.loop is self._loop and element.op is not self._index.op
        own = element.op.spec if is_computed else DeviceSpec()
        specs = dict.fromkeys([own, *(user.spec for user in users)] if is_computed else [own])
        stacks = {spec: self._stack(element, spec) for spec in specs}
        self._loop.stacks[stacks[own]] = stacks
        return stacks[own]

    def _stack(self, element: Tensor, spec: DeviceSpec) -> Tensor:
        with self._graph.scopes.replaced(loop=None):
            buffer = self._buffer(element.aval, spec)
        self._buffers.append(buffer.op)
        carry = self._carry(buffer)
        final = self._final(carry, self._apply(_with_element, carry, element, self._index))
        for op, names in (
            (carry.op, ()),
            (self._loop.next[carry.op].op, (carry.op.name,)),
            (final.op, (carry.op.name,)),
        ):
            op.eqn = request.replaced(op.eqn, request.resolved(spec, names))
        return final

    def _buffer(self, aval: Any, spec: DeviceSpec) -> Tensor:
        """Adds an array of zeros for the values of all iterations."""
        if aval.dtype == jax.dtypes.float0:
            raise NotImplementedError(
                f"the scan at {self._loop.line} requests several devices and stacks derivatives of "
                "integers (float0), which is not supported; do not map over integers in it"
            )

        def zeros() -> Any:
            shape = (self._loop.trips, *aval.shape)
            form = physical_form(aval.dtype)
            if form is None:
                return jnp.zeros(shape, aval.dtype)
            physical = jax.eval_shape(form.unwrap, jax.ShapeDtypeStruct(shape, aval.dtype))
            return form.wrap(jnp.zeros(physical.shape, physical.dtype))

        with allow_64_bits(have_64_bits([aval])):
            buffer = self._apply(zeros)
        buffer.op.eqn = request.replaced(buffer.op.eqn, request.resolved(spec, ()))
        return buffer


def _move(graph: Graph, first: int, moved: Sequence[Operation]) -> None:
    """Moves operations to position `first` in the order of the graph, before all that use them."""
    ops = dict.fromkeys(moved)
    later = [op for op in graph.get_operations()[first:] if op not in ops]
    for op in (*ops, *later):
        del graph._operations[op.name]
        graph._operations[op.name] = op


def _replace(op: Operation, old: Tensor, new: Tensor) -> None:
    """Makes an operation of an open loop use another tensor."""
    if old is not new:
        op.inputs = tuple(new if tensor is old else tensor for tensor in op.inputs)
        invars = [new.var if atom is old.var else atom for atom in op.eqn.invars]
        op.eqn = op.eqn.replace(invars=invars)


def _element(array: Any, index: Any) -> Any:
    return lax.dynamic_index_in_dim(array, index, keepdims=False)


def _with_element(array: Any, element: Any, index: Any) -> Any:
    return lax.dynamic_update_index_in_dim(array, element, index, 0)


def _spread_requests(
    loop: OpenLoop[Operation, Tensor], ops: Sequence[Operation]
) -> dict[Operation, list[Operation]]:
    """Gives each operation of an open loop a request, and colocates carries with their values.

    Returns:
      The users of each operation in the loop.
    """
    # A carry, its next value and its last one are placed as one, by the request of the second.
    leaders = {carry: new.op for carry, new in loop.next.items()}
    leaders |= {op: leaders[op.inputs[0].op] for op in ops if op.eqn.primitive is final_p}
    users: dict[Operation, list[Operation]] = {op: [] for op in ops}
    for op in ops:
        for source in dict.fromkeys(tensor.op for tensor in op.inputs):
            if source in users:
                users[source].append(op)
    known = _known_requests(ops, users, leaders)
    names: dict[Operation, list[str]] = {}
    for op, leader in leaders.items():
        if op.eqn.primitive is carry_p:
            names.setdefault(leader, []).append(op.name)
    for op in ops:
        leader = leaders.get(op, op)
        own = request.requested(op.eqn)
        spec = known[leader].spec if leader in known else own.spec
        together = (name for name in (*own.names, *names.get(leader, ())) if name != op.name)
        if (changed := request.resolved(spec, dict.fromkeys(together))) != own:
            op.eqn = request.replaced(op.eqn, changed)
    return users


def _known_requests(
    ops: Sequence[Operation],
    users: Mapping[Operation, Sequence[Operation]],
    leaders: Mapping[Operation, Operation],
) -> dict[Operation, Request]:
    """Returns the requests of operations, or of those that they are placed with."""
    known: dict[Operation, Request] = {}
    for op in ops:
        if not (own := request.requested(op.eqn)).is_empty:
            known[leaders.get(op, op)] = own

    def follow(op: Operation, others: Iterable[Operation]) -> None:
        """Gives an operation the request of the first of some others that has one."""
        leader = leaders.get(op, op)
        if leader not in known:
            by = (leaders.get(other, other) for other in others)
            found = next((known[one] for one in by if one in known), None)
            if found is not None:
                known[leader] = found

    n_known = -1
    while len(known) > n_known:
        n_known = len(known)
        for op in ops:
            made_by = (tensor.op for tensor in reversed(op.inputs))
            # The number of the iteration is on all devices.
            follow(op, (one for one in made_by if one.eqn.primitive is not index_p))
        if len(known) == n_known:
            for op in reversed(ops):
                follow(op, users[op])
    return known

"""`BodyProgram`: the body of a branch or loop as a program of JAX.

A variable that the body writes becomes an argument and a result: the branch or loop passes its
value on, and one write behind it stores the last one. What only gives a program its arguments,
such as reads of variables that it does not write, is copied to the outside, where it runs after
what the branch or loop runs after, and after its predicate or first values. So is the draw of a
key for random numbers; each iteration of a loop has numbers of its own, which follow from the key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp

from jflow.base.values import HostArray
from jflow.client.ops.control.body import DRAW, OUTER, Captures, TracedBody, run_after
from jflow.client.stateful.operands import body_of
from jflow.compiler.graph import Graph, Operation, Tensor, VariableRef
from jflow.compiler.graph.primitives import (
    HANDLES,
    READS,
    SOURCES,
    assign_p,
    constant_p,
    group_p,
    host_p,
    placeholder_p,
    read_p,
    recorded_p,
    update_p,
)
from jflow.plan.xla import jaxprs
from jflow.plan.xla.jaxprs import Atom

_INSTEAD = "a branch or loop needs known ranks, text from outside, and no such operation"


@dataclass(frozen=True)
class BodyProgram:
    """A body as a program.

    Attributes:
      body: the body.
      jaxpr: (*arguments, *old values of `state`, *captures) → (*results, *new values of `state`).
      state: the variables that it writes, and those that it reads and another body writes.
      captures: the tensors from outside that it uses.
      keys: which of these are keys of random numbers.
    """

    body: TracedBody
    jaxpr: jex.ClosedJaxpr
    state: tuple[VariableRef, ...]
    captures: tuple[Tensor, ...]
    keys: frozenset[int]

    def with_state(self, state: Sequence[VariableRef]) -> Callable[..., list[Any]]:
        """Returns it as a function of (arguments, values of `state`, captures) to new values.

        The function takes the number of the iteration, too, if it is the body of a loop.

        Args:
          state: at least the variables that it writes.
        """
        run = jex.jaxpr_as_fun(self.jaxpr)
        own = [state.index(ref) for ref in self.state]
        avals = self.body.avals

        def call(
            args: Sequence[Any], old: Sequence[Any], captures: Sequence[Any], number: Any = None
        ) -> list[Any]:
            taken = [
                jax.random.fold_in(x, number) if number is not None and i in self.keys else x
                for i, x in enumerate(captures)
            ]
            values = run(*args, *(old[i] for i in own), *taken)
            new = [*old]
            for i, value in zip(own, values[len(avals) :], strict=True):
                new[i] = value
            results = zip(values[: len(avals)], avals, strict=True)
            # Both branches, and each iteration, need equal types: none that JAX calls weak.
            return [jax.lax.convert_element_type(x, aval.dtype) for x, aval in results] + new

        return call


def body_program(body: TracedBody, others: Collection[VariableRef] = ()) -> BodyProgram:
    """Returns a body as a program.

    Args:
      body: the body; `TracedBody.is_program` must hold.
      others: the variables that another body writes between two runs of this one.

    Raises:
      UnimplementedError: if it has a tensor of unknown rank, or takes text from outside.
    """
    flat = _Flattener(body, others)
    for op in body.ops:
        flat.add(op)
    return flat.program()


def merged_state(bodies: Iterable[BodyProgram]) -> tuple[VariableRef, ...]:
    """Returns the variables that several bodies write, each once."""
    return tuple(dict.fromkeys(ref for body in bodies for ref in body.state))


def read_state(graph: Graph, state: Sequence[VariableRef], after: Sequence[Tensor]) -> list[Tensor]:
    """Returns the values of variables before a branch or loop, after its predicate is known."""
    with run_after(graph, after):
        ops = [graph.add(read_p, [], [x.aval], name="read", variable=x) for x in state]
    return [op.outputs[0] for op in ops]


def write_state(
    graph: Graph,
    state: Sequence[VariableRef],
    values: Sequence[Tensor],
    results: list[Tensor],
    is_written: Sequence[Tensor] | None = None,
) -> list[Tensor]:
    """Stores the values of variables after a branch or loop; returns the results after that.

    Args:
      graph, state: the graph, and the variables.
      values: their new values.
      results: the results of the branch or loop.
      is_written: bool[] for each, whether it was written; None if all were. What others have
        written meanwhile to a variable that was not written stays.
    """
    if not state:
        return results
    writes = []
    for number, (ref, value) in enumerate(zip(state, values, strict=True)):
        if is_written is None:
            atoms, primitive, more = [value.var], assign_p, {}
        else:
            operands = [is_written[number], value]
            body = body_of(_if_written, ref.aval, operands)
            atoms, primitive = [x.var for x in operands], update_p
            more = {"body": body, "is_guarded": False}
        op = graph.add(
            primitive, atoms, [ref.aval], name="write", declares=None, variable=ref, **more
        )
        writes.append(op)
    return graph.after(writes, results)


def without_derivatives(run: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function through which no derivative flows."""

    def call(*args: Any) -> Any:
        stopped = jax.tree.map(jax.lax.stop_gradient, args)
        return jax.tree.map(jax.lax.stop_gradient, run(*stopped))

    return call


def _if_written(old: Any, is_written: Any, new: Any) -> Any:
    return jnp.where(is_written, new, old)


class _Flattener:
    """Collects the equations of a body in their order, with state as values."""

    def __init__(self, body: TracedBody, others: Collection[VariableRef]) -> None:
        self._body = body
        self._inside = {*body.ops}
        self._captures = Captures(body)
        self._outside: dict[jex.Var, Tensor] = {}
        self._keys: set[jex.Var] = set()
        self._old: dict[VariableRef, jex.Var] = {}
        self._new: dict[VariableRef, Atom] = {}
        self._state = body.written.union(others)
        self._consts: dict[jex.Var, Any] = {}

    def add(self, op: Operation) -> None:
        """Adds the next operation of the body."""
        eqn = op.eqn
        if eqn.primitive in HANDLES or eqn.primitive is group_p:
            return
        if eqn.primitive in (assign_p, update_p):
            self._write(op)
        elif eqn.primitive in READS and eqn.params["variable"] in self._state:
            self._captures[eqn.outvars[0]] = self._value_of(eqn.params["variable"])
        elif eqn.primitive in OUTER:
            self._take_from_outside(op)
        elif eqn.primitive in SOURCES or eqn.primitive is recorded_p or op.loop is not None:
            raise self._body.refusal(op, f"has the operation {op.type!r}", _INSTEAD)
        else:
            self._captures.add(eqn)

    def program(self) -> BodyProgram:
        """Returns the program."""
        body = self._body
        results = [self._captures[tensor.var] for tensor in body.outputs]
        captured = self._captures.tensors
        for var, tensor in captured.items():
            if isinstance(tensor.aval, HostArray):
                op = body.graph.tensor_of(var).op
                raise body.refusal(op, f"uses {tensor!r}, which is on the host", _INSTEAD)
        state = tuple(self._old)
        invars = [
            *(tensor.var for tensor in body.inputs),
            *self._old.values(),
            *(tensor.var for tensor in captured.values()),
        ]
        new = [self._new[ref] for ref in state]
        closed = jaxprs.close(invars, [*results, *new], self._captures.eqns, self._consts)
        keys = frozenset(i for i, var in enumerate(captured) if var in self._keys)
        return BodyProgram(body, closed, state, tuple(captured.values()), keys)

    def _write(self, op: Operation) -> None:
        eqn, ref = op.eqn, op.eqn.params["variable"]
        operands = self._captures.inputs_of(eqn)
        old = self._value_of(ref)
        if eqn.primitive is assign_p:
            (value,) = operands
        else:
            program = eqn.params["body"]
            inner = [jex.Var(var.aval) for var in program.jaxpr.constvars]
            self._consts.update(zip(inner, program.consts, strict=True))
            (value,) = jaxprs.inline(program.jaxpr, inner, [old, *operands], self._captures.emit)
        self._new[ref] = self._captures[eqn.outvars[0]] = value

    def _value_of(self, ref: VariableRef) -> Atom:
        if ref not in self._old:
            self._old[ref] = self._new[ref] = jex.Var(ref.aval)
        return self._new[ref]

    def _take_from_outside(self, op: Operation) -> None:
        """Captures the results of an operation, or of a copy of it outside of the body."""
        copied = op if op.eqn.primitive is placeholder_p else self._copied(op)
        for tensor, outside in zip(op.outputs, copied.outputs, strict=True):
            self._outside[tensor.var] = outside
            if not isinstance(tensor.aval, HostArray):
                self._captures.capture(outside, tensor.var)
            if op.eqn.primitive is host_p and op.eqn.params["function"] == DRAW:
                self._keys.add(tensor.var)

    def _copied(self, op: Operation) -> Operation:
        eqn, graph = op.eqn, self._body.graph
        inputs = [
            x if x not in self._outside else self._outside[x].var
            for x in eqn.invars
            if not isinstance(x, jex.Literal)
        ]
        avals = [var.aval for var in eqn.outvars]
        # Nothing orders a constant, and what needs its value finds it.
        after = () if eqn.primitive is constant_p else self._body.entry.control_inputs
        with graph.scopes.replaced(control_inputs=after):
            return graph.add(
                eqn.primitive, inputs, avals, name=op.name.rpartition("/")[2], **eqn.params
            )

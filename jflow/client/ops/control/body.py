"""`TracedBody`: a function of tensors as a program, for a branch or the body of a loop.

The function is called once and adds its operations to the graph. Those that its results need
become the program; what they use from outside becomes further arguments of it, so that a body can
use any tensor and variable. A variable that the body writes becomes an argument and a result: the
branch or loop passes its value on, and one write behind it stores the last one.

The operations of the body stay in the graph, where nothing may use them: they would run whether or
not the branch is chosen. Those that give a program its arguments, such as reads of variables that
it does not write, are therefore copied to the outside, where they run after what the branch or loop
runs after, and after its predicate or first values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp

from jflow.base.values import HostArray
from jflow.client.stateful.operands import body_of
from jflow.compiler.graph import Graph, Operation, Symbolic, Tensor, VariableRef
from jflow.compiler.graph.primitives import (
    HANDLES,
    SOURCES,
    assign_p,
    check_p,
    constant_p,
    group_p,
    host_p,
    is_initialized_p,
    placeholder_p,
    read_p,
    recorded_p,
    update_p,
    value_or_p,
    variable_p,
)
from jflow.errors import UnimplementedError
from jflow.plan.xla import jaxprs
from jflow.plan.xla.jaxprs import Atom

_QUERIES = frozenset({read_p, is_initialized_p, value_or_p})


@dataclass(frozen=True)
class TracedBody:
    """A traced body.

    Attributes:
      what: what it is, for messages, such as "the body of while_loop 'while'".
      jaxpr: (*arguments, *old values of `state`, *captures) → (*results, *new values of `state`).
      tree: the structure of the results.
      avals: the abstract values of the results, without weak types.
      state: the variables that it writes, and those that it reads and another body writes.
      written: whether it writes each of these.
      captures: the tensors from outside that it uses.
    """

    what: str
    jaxpr: jex.ClosedJaxpr
    tree: Any
    avals: tuple[Any, ...]
    state: tuple[VariableRef, ...]
    written: tuple[bool, ...]
    captures: tuple[Tensor, ...]

    def with_state(self, state: Sequence[VariableRef]) -> Callable[..., list[Any]]:
        """Returns it as a function of (arguments, values of `state`, captures) to new values.

        Args:
          state: at least the variables that it writes.
        """
        run = jex.jaxpr_as_fun(self.jaxpr)
        own = [state.index(ref) for ref in self.state]
        n_results = len(self.avals)

        def call(args: Sequence[Any], old: Sequence[Any], captures: Sequence[Any]) -> list[Any]:
            values = run(*args, *(old[i] for i in own), *captures)
            new = [*old]
            for i, value in zip(own, values[n_results:], strict=True):
                new[i] = value
            results = zip(values[:n_results], self.avals, strict=True)
            # Both branches, and each iteration, need equal types: none that JAX calls weak.
            return [jax.lax.convert_element_type(x, aval.dtype) for x, aval in results] + new

        return call


def trace_body(
    graph: Graph,
    fun: Callable[..., Any],
    args: Any,
    what: str,
    *,
    after: Sequence[Tensor] = (),
    others: Sequence[VariableRef] = (),
    may_write: bool = True,
    makes_variables: bool = False,
) -> TracedBody:
    """Calls a function of tensors, and returns the operations that its results need as a program.

    Args:
      graph: the graph.
      fun: the function; returns a pytree of tensors, variables and values, or of operations, which
        count as True once they have run.
      args: the arguments of the function: a tuple of pytrees of abstract values.
      what: what it is, for messages.
      after: the predicate of a branch, or the first values of a loop.
      others: the variables that another body writes between two runs of this one.
      may_write: whether it may write variables.
      makes_variables: whether it may make variables, which are then made outside of it.

    Raises:
      UnimplementedError: if it uses a queue, reader or another resource, calls a function of the
        host or of the client with its own values, or has a tensor of unknown rank.
      ValueError: if it makes variables and must not.
    """
    leaves, tree = jax.tree.flatten(args)
    inputs = [
        graph.add(placeholder_p, [], [strong(aval)], name="argument").outputs[0] for aval in leaves
    ]
    with run_after(graph, after):
        entry = graph.add(group_p, [], [], name="entry")
    before = len(graph.get_operations())
    # So that each use of a variable reads it anew, in the order of the body.
    with graph.scopes.replaced(control_inputs=(entry,)):
        returned = fun(*jax.tree.unflatten(tree, inputs))
        results, out_tree = jax.tree.flatten(returned, is_leaf=_is_leaf)
        outputs = [_as_result(graph, x) for x in results]
    roots = [x for x in results if isinstance(x, Operation)]
    made = graph.get_operations()[before:]
    if not makes_variables and (found := [op for op in made if op.eqn.primitive is variable_p]):
        raise ValueError(f"{what} makes the variable {found[0].name!r}; make it outside of it")
    needed = _needed([*roots, *(x.op for x in outputs)], {*made})
    flat = _Flattener(graph, what, inputs, needed, entry, others, may_write)
    for op in made:
        if op in needed:
            flat.add(op)
    return flat.body(outputs, out_tree)


def run_after(graph: Graph, tensors: Sequence[Tensor]) -> AbstractContextManager[None]:
    """Returns a context manager whose operations run after those that make some tensors."""
    ops = [x.op for x in tensors if x.op.eqn.primitive not in (constant_p, placeholder_p)]
    before = graph.scopes.here.control_inputs
    return graph.scopes.replaced(control_inputs=tuple(dict.fromkeys((*before, *ops))))


def strong(aval: Any) -> jax.core.ShapedArray:
    """Returns an abstract value without a weak type."""
    return jax.core.ShapedArray(aval.shape, aval.dtype)


def merged_state(bodies: Iterable[TracedBody]) -> tuple[VariableRef, ...]:
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


def _is_leaf(value: Any) -> bool:
    return isinstance(value, Symbolic | Operation) or value is None


def _as_result(graph: Graph, value: Any) -> Tensor:
    if value is None:
        raise TypeError("expected tensors as results of a branch or body, got None")
    return graph.as_tensor(True if isinstance(value, Operation) else value)


def _needed(roots: Sequence[Operation], made: set[Operation]) -> set[Operation]:
    """Returns those of some operations that others need, by their data or control inputs."""
    needed: set[Operation] = set()
    pending = [op for op in roots if op in made]
    while pending:
        op = pending.pop()
        if op not in needed:
            needed.add(op)
            before = (*(tensor.op for tensor in op.inputs), *op.control_inputs)
            pending.extend(one for one in before if one in made)
    return needed


class _Flattener:
    """Collects the equations of a body in their order, with state as values."""

    def __init__(
        self,
        graph: Graph,
        what: str,
        inputs: Sequence[Tensor],
        inside: set[Operation],
        entry: Operation,
        others: Sequence[VariableRef],
        may_write: bool,
    ) -> None:
        self._graph = graph
        self._entry = entry
        self._what = what
        self._inputs = inputs
        self._inside = inside
        self._may_write = may_write
        self._atoms: dict[jex.Var, Atom] = {tensor.var: tensor.var for tensor in inputs}
        self._captures: dict[jex.Var, Tensor] = {}
        self._outside: dict[jex.Var, jex.Var] = {}
        self._old: dict[VariableRef, jex.Var] = {}
        self._new: dict[VariableRef, Atom] = {}
        writes = [op.eqn for op in inside if op.eqn.primitive in (assign_p, update_p)]
        self._written = {eqn.params["variable"] for eqn in writes}
        self._state = self._written.union(others)
        self._eqns: list[jex.JaxprEqn] = []
        self._consts: dict[jex.Var, Any] = {}

    def add(self, op: Operation) -> None:
        """Adds the next operation of the body."""
        eqn = op.eqn
        if eqn.primitive is not placeholder_p:
            for tensor in op.outputs:
                self._graph.prevent_feeding(tensor)
        if eqn.primitive in HANDLES or eqn.primitive is group_p:
            return
        if eqn.primitive is check_p:
            raise self._refusal(op, f"checks indices of {eqn.params['variable'].name!r}")
        if eqn.primitive in (assign_p, update_p):
            self._write(op)
        elif eqn.primitive in _QUERIES and eqn.params["variable"] in self._state:
            if eqn.primitive is not read_p:
                raise self._refusal(op, "asks whether a variable is initialized that it writes")
            self._atoms[eqn.outvars[0]] = self._value_of(eqn.params["variable"])
        elif eqn.primitive in _QUERIES or eqn.primitive in (constant_p, placeholder_p):
            self._capture(op)
        elif eqn.primitive is host_p and not eqn.params["resources"]:
            if not op.outputs:
                raise self._refusal(op, f"calls {eqn.params['function']!r} on the host")
            self._capture(op)
        elif eqn.primitive in SOURCES or eqn.primitive is recorded_p or op.loop is not None:
            raise self._refusal(op, f"has the operation {op.type!r}")
        else:
            self._emit_into(op)

    def body(self, outputs: Sequence[Tensor], tree: Any) -> TracedBody:
        """Returns the body, given its results."""
        results = [self._read(tensor) for tensor in outputs]
        state = tuple(self._old)
        invars = [
            *(tensor.var for tensor in self._inputs),
            *self._old.values(),
            *(tensor.var for tensor in self._captures.values()),
        ]
        new = [self._new[ref] for ref in state]
        closed = jaxprs.close(invars, [*results, *new], self._eqns, self._consts)
        avals = tuple(strong(tensor.aval) for tensor in outputs)
        written = tuple(ref in self._written for ref in state)
        captures = tuple(self._captures.values())
        return TracedBody(self._what, closed, tree, avals, state, written, captures)

    def _write(self, op: Operation) -> None:
        eqn, ref = op.eqn, op.eqn.params["variable"]
        if not self._may_write:
            raise self._refusal(op, f"writes the variable {ref.name!r}")
        operands = [self._read(tensor) for tensor in op.inputs]
        old = self._value_of(ref)
        if eqn.primitive is assign_p:
            (value,) = operands
        else:
            program = eqn.params["body"]
            inner = [jex.Var(var.aval) for var in program.jaxpr.constvars]
            self._consts.update(zip(inner, program.consts, strict=True))
            (value,) = jaxprs.inline(program.jaxpr, inner, [old, *operands], self._emit)
        self._new[ref] = self._atoms[eqn.outvars[0]] = value

    def _value_of(self, ref: VariableRef) -> Atom:
        if ref not in self._old:
            self._old[ref] = self._new[ref] = jex.Var(ref.aval)
        return self._new[ref]

    def _emit_into(self, op: Operation) -> None:
        inputs = [x if isinstance(x, jex.Literal) else self._of_var(x, op) for x in op.eqn.invars]
        outvars = self._emit(op.eqn, inputs)
        self._atoms.update(zip(op.eqn.outvars, outvars, strict=True))

    def _emit(self, eqn: jex.JaxprEqn, inputs: list[Atom]) -> list[Atom]:
        outvars = [jex.Var(var.aval) for var in eqn.outvars]
        self._eqns.append(eqn.replace(invars=inputs, outvars=outvars))
        return outvars

    def _read(self, tensor: Tensor) -> Atom:
        return self._of_var(tensor.var, tensor.op)

    def _of_var(self, var: jex.Var, op: Operation) -> Atom:
        if var not in self._atoms:
            self._capture_tensor(op.graph.tensor_of(var), var)
        return self._atoms[var]

    def _capture(self, op: Operation) -> None:
        """Makes a copy of an operation outside of the body, whose results are captured."""
        copied = op if op.eqn.primitive is placeholder_p else self._copied(op)
        for tensor, outside in zip(op.outputs, copied.outputs, strict=True):
            self._outside[tensor.var] = outside.var
            if not isinstance(tensor.aval, HostArray):
                self._capture_tensor(outside, tensor.var)

    def _copied(self, op: Operation) -> Operation:
        if any(x.op in self._inside and x.var not in self._outside for x in op.inputs):
            raise self._refusal(op, f"computes {op.type!r} of its own values")
        eqn = op.eqn
        inputs = [x if isinstance(x, jex.Literal) else self._outside.get(x, x) for x in eqn.invars]
        avals = [var.aval for var in eqn.outvars]
        # Nothing orders a constant, and what needs its value finds it.
        after = () if eqn.primitive is constant_p else self._entry.control_inputs
        with self._graph.scopes.replaced(control_inputs=after):
            return self._graph.add(
                eqn.primitive, inputs, avals, name=op.name.rpartition("/")[2], **eqn.params
            )

    def _capture_tensor(self, tensor: Tensor, var: jex.Var) -> None:
        if isinstance(tensor.aval, HostArray):
            raise self._refusal(tensor.op, f"uses {tensor!r}, which is on the host")
        self._captures[var] = tensor
        self._atoms[var] = tensor.var

    def _refusal(self, op: Operation, does: str) -> UnimplementedError:
        return UnimplementedError(
            f"{self._what} {does} ({op.name!r}, made at {op.origin}); XLA runs branches and loops "
            "as one program of numbers and variables: use queues, text, random numbers, files and "
            "Python outside of it, or loop in Python over session.run"
        )

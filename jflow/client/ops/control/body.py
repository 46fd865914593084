"""`TracedBody`: the operations that a branch, or the body of a loop, has added to the graph.

The function is called once and adds its operations to the graph. Those that its results need are
the body. They stay in the graph, where nothing may use them: they would run whether or not the
branch is chosen. A branch or loop has them as a program of JAX (`program.py`), or, if they use
queues or have other effects, as they are (`stateful.py`). What they use from outside becomes
further arguments of it, so that a body can use any tensor and variable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.core as jex

from jflow.base.values import HostArray
from jflow.compiler.graph import Graph, Operation, Tensor, VariableRef
from jflow.compiler.graph.primitives import (
    READS,
    WRITES,
    check_p,
    constant_p,
    group_p,
    host_p,
    is_stateful_control_flow,
    placeholder_p,
    read_p,
    state_of,
    variable_p,
)
from jflow.errors import UnimplementedError
from jflow.plan.xla.jaxprs import Atom

DRAW = "random_state.draw"
"""The function of the host that draws a key, which a program takes as an argument."""

OUTER = READS | {constant_p, placeholder_p, host_p}
"""The primitives whose results a program takes as arguments."""


@dataclass(frozen=True)
class TracedBody:
    """The operations of a body.

    Attributes:
      what: what it is, for messages, such as "the body of 'while'".
      graph: the graph.
      inputs: its arguments.
      outputs: its results.
      tree: the structure of its results.
      ops: the operations that its results need, in their order.
      entry: the operation that they all run after.
      returned: the operations that it returns.
    """

    what: str
    graph: Graph
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    tree: Any
    ops: tuple[Operation, ...]
    entry: Operation
    returned: tuple[Operation, ...]

    @property
    def avals(self) -> tuple[jax.core.ShapedArray, ...]:
        """The abstract values of its results, without weak types."""
        return tuple(strong(tensor.aval) for tensor in self.outputs)

    @property
    def written(self) -> frozenset[VariableRef]:
        """The variables that it writes."""
        return frozenset(op.eqn.params["variable"] for op in self.ops if op.eqn.primitive in WRITES)

    def is_program(self, written: Collection[VariableRef]) -> bool:
        """Whether JAX can run it: it computes, reads and writes variables, and draws numbers.

        Args:
          written: the variables that it and the bodies of the same branch or loop write.
        """
        outer: set[Operation] = set()
        inside = {*self.ops, *(tensor.op for tensor in self.inputs)}
        for op in self.ops:
            eqn, sources = op.eqn, (tensor.op for tensor in op.inputs)
            if eqn.primitive is host_p and eqn.params["function"] != DRAW:
                if state_of(eqn) or not op.outputs:
                    return False
                if any(one in inside and one not in outer for one in sources):
                    return False
            elif eqn.primitive is check_p or is_stateful_control_flow(eqn):
                return False
            elif eqn.primitive in READS and eqn.params["variable"] in written:
                if eqn.primitive is not read_p:
                    return False
                continue
            elif eqn.primitive not in OUTER:
                continue
            outer.add(op)
        return True

    @property
    def outer_control_inputs(self) -> tuple[Operation, ...]:
        """The operations outside of it that some of its own run after, or that it returns."""
        inside = {*self.ops, self.entry}
        after = [one for op in self.ops for one in op.control_inputs]
        return tuple(dict.fromkeys(one for one in (*after, *self.returned) if one not in inside))

    def refusal(self, op: Operation, does: str, instead: str) -> UnimplementedError:
        """Returns the error for an operation that it must not have."""
        return UnimplementedError(
            f"{self.what} {does} ({op.name!r}, made at {op.origin}); {instead}"
        )


class Captures:
    """A body as equations: what it uses from outside, and the atoms that its tensors become.

    Args:
      body: the body.

    Attributes:
      tensors: the tensors from outside, by their variables.
      eqns: the equations.
    """

    def __init__(self, body: TracedBody) -> None:
        self._body = body
        self._atoms: dict[jex.Var, Atom] = {x.var: x.var for x in body.inputs}
        self.tensors: dict[jex.Var, Tensor] = {}
        self.eqns: list[jex.JaxprEqn] = []

    def __setitem__(self, var: jex.Var, atom: Atom) -> None:
        self._atoms[var] = atom

    def __getitem__(self, var: jex.Var) -> Atom:
        """Returns the atom of a tensor; one from outside is captured."""
        if var not in self._atoms:
            self.capture(self._body.graph.tensor_of(var), var)
        return self._atoms[var]

    def inputs_of(self, eqn: jex.JaxprEqn) -> list[Atom]:
        """Returns the atoms that an equation takes."""
        return [x if isinstance(x, jex.Literal) else self[x] for x in eqn.invars]

    def add(self, eqn: jex.JaxprEqn) -> None:
        """Adds an equation of the body, with atoms in place of its tensors."""
        for old, new in zip(eqn.outvars, self.emit(eqn, self.inputs_of(eqn)), strict=True):
            self[old] = new

    def emit(self, eqn: jex.JaxprEqn, inputs: Sequence[Atom]) -> list[Atom]:
        """Adds an equation with these inputs; returns its results, which are new."""
        outvars = [jex.Var(var.aval) for var in eqn.outvars]
        self.eqns.append(eqn.replace(invars=[*inputs], outvars=outvars))
        return outvars

    def capture(self, tensor: Tensor, var: jex.Var) -> None:
        """Makes a tensor from outside stand for one of the body."""
        self.tensors[var] = tensor
        self._atoms[var] = tensor.var


def trace_body(
    graph: Graph,
    fun: Callable[..., Any],
    args: Any,
    what: str,
    *,
    after: Sequence[Tensor] = (),
    makes_variables: bool = False,
) -> TracedBody:
    """Calls a function of tensors, and returns the operations that its results need.

    Args:
      graph: the graph.
      fun: the function; returns a pytree of tensors, variables and values, or of operations, which
        count as True once they have run.
      args: the arguments of the function: a tuple of pytrees of abstract values.
      what: what it is, for messages.
      after: the predicate of a branch, or the first values of a loop.
      makes_variables: whether it may make variables, which are then made outside of it.

    Raises:
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
        results, out_tree = jax.tree.flatten(returned, is_leaf=_is_none)
        outputs = [_as_result(graph, x) for x in results]
    roots = tuple(x for x in results if isinstance(x, Operation))
    made = graph.get_operations()[before:]
    if not makes_variables and (found := [op for op in made if op.eqn.primitive is variable_p]):
        raise ValueError(f"{what} makes the variable {found[0].name!r}; make it outside of it")
    needed = _needed([*roots, *(x.op for x in outputs)], {*made})
    for op in needed:
        if op.eqn.primitive is not placeholder_p:
            for tensor in op.outputs:
                graph.prevent_feeding(tensor)
    ops = tuple(op for op in made if op in needed)
    return TracedBody(what, graph, tuple(inputs), tuple(outputs), out_tree, ops, entry, roots)


def run_after(
    graph: Graph, tensors: Sequence[Tensor], ops: Iterable[Operation] = ()
) -> AbstractContextManager[None]:
    """Returns a context manager whose operations run after some tensors and operations."""
    made = [x.op for x in tensors if x.op.eqn.primitive not in (constant_p, placeholder_p)]
    before = graph.scopes.here.control_inputs
    return graph.scopes.replaced(control_inputs=tuple(dict.fromkeys((*before, *made, *ops))))


def strong(aval: Any) -> jax.core.ShapedArray:
    """Returns an abstract value without a weak type."""
    return jax.core.ShapedArray(aval.shape, aval.dtype)


def as_tensors(graph: Graph, values: Any) -> Any:
    """Returns a pytree of tensors, variables and values as one of tensors."""
    return jax.tree.map(graph.as_tensor, values)


def check_types(one: Any, other: Any, about: str) -> None:
    """Raises TypeError or ValueError, which say `about`, if two abstract values differ."""
    if one.dtype != other.dtype:
        raise TypeError(f"{about}; jflow.cast one of them")
    if one.shape != other.shape:
        raise ValueError(f"{about}; XLA needs equal shapes")


def _is_none(value: Any) -> bool:
    return value is None


def _as_result(graph: Graph, value: Any) -> Tensor:
    if value is None:
        raise TypeError("expected tensors as results of a branch or body, got None")
    tensor = graph.as_tensor(True if isinstance(value, Operation) else value)
    if isinstance(tensor.aval, HostArray):
        raise UnimplementedError(
            f"a branch or body returns {tensor!r}, text or a value of unknown rank; return numbers "
            "of known rank, such as the number of the text, and look it up outside"
        )
    return tensor


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

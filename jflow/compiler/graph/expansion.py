"""`Expansion`: a copy of a graph for a step, in which some operations are several.

They are the loops that are opened (`opening.py`, `loops.py`) and, in a step that is fed tensors of
unknown rank, the recorded calls on these (`recorded.py`), which are replayed with the shapes of
what is fed. They have the device, control inputs and line of the one operation. All other
operations are the same, under the same names.

Feeding an intermediate tensor does not change its graph, so gradients still flow through what
computes it. Calls are therefore replayed although a feed may cut them off. One that cannot be, such
as a call on a placeholder that is not fed, stays recorded, which matters only if the step needs it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import jax.extend.core as jex
import jax.numpy as jnp

from jflow.base.values import declared, host_abstract, shape_text
from jflow.compiler.graph import request
from jflow.compiler.graph.graph import Graph, Operation, Tensor
from jflow.compiler.graph.importing import location_of
from jflow.compiler.graph.loops import opened
from jflow.compiler.graph.opening import Opening
from jflow.compiler.graph.primitives import group_p, host_p, recorded_p
from jflow.compiler.graph.recorded import ReplayOfCall

_ELEMENTWISE = frozenset({"as_string", "string_to_number", "string_strip", "substr"})
"""The functions of the host whose result has the shape of their first input."""


class Expansion(Graph):
    """A copy of a graph in which the shapes of fed tensors are known, and loops are open.

    Args:
      base: the graph.
      shapes: the shapes of fed tensors whose rank is unknown.
      roots: operations of the graph that the step needs; what they depend on is expanded.
      fed: the tensors of the graph that the step is fed.
      opening: decides which loops are opened; None for none.

    Attributes:
      base: likewise.
      copies: the operation of the same name, by that of `base`. That of one which has become
        several operations runs after them.
    """

    def __init__(
        self,
        base: Graph,
        shapes: Mapping[Tensor, Sequence[Any]],
        roots: Iterable[Operation],
        fed: Collection[Tensor],
        opening: Opening | None,
    ) -> None:
        super().__init__()
        self.base = base
        self.copies: dict[Operation, Operation] = {}
        self._names = base._names.copy()
        self._shapes = shapes
        self._fed = frozenset(fed)
        self._opening = opening
        self._fed_copies: set[Tensor] = set()
        roots = [*roots]
        opened_ops = _ancestors(roots, self._fed)
        self._atoms: dict[jex.Var, jex.Var] = {}
        refs = {op: ref for ref, op in base._handles.items()}
        needed = _ancestors(roots)
        for op in base.get_operations():
            if op in needed and op.eqn.primitive is recorded_p:
                self._replay(op)
            elif opening is not None and op in opened_ops and opening.opens(op.eqn):
                self._open(op, opening)
            else:
                self._copy(op)
            if op in refs:
                self._handles[refs[op]] = self.copies[op]

    def tensor(self, tensor: Tensor) -> Tensor:
        """Returns the tensor of the copy that corresponds to a tensor of `base`."""
        return self._tensors[self._atoms.get(tensor.var, tensor.var)]

    def _copy(self, op: Operation, **params: Any) -> None:
        """Adds a copy of an operation, with further parameters."""
        inputs = tuple(map(self.tensor, op.inputs))
        outvars = [self._result(tensor, inputs) for tensor in op.outputs]
        eqn = op.eqn if self._opening is None else self._opening.whole(op.eqn)
        if params or outvars != eqn.outvars or any(map(_differs, inputs, op.inputs)):
            invars = [
                x if isinstance(x, jex.Literal) else self._atoms.get(x, x) for x in eqn.invars
            ]
            eqn = eqn.replace(invars=invars, outvars=outvars, params=eqn.params | params)
        control_inputs, location = self._before(op), location_of(op)
        copied = Operation(self, op.name, eqn, inputs, control_inputs, location, op.declares)
        self._operations[copied.name] = self.copies[op] = copied
        for old, new in zip(op.outputs, copied.outputs, strict=True):
            self._stand_for(old, new)

    def _result(self, tensor: Tensor, inputs: Sequence[Tensor]) -> jex.Var:
        """Returns the variable of a result, with its shape if that is known now."""
        eqn = tensor.op.eqn
        shape = self._shapes.get(tensor)
        if shape is None and tensor.aval.shape is None and eqn.primitive is host_p:
            is_elementwise = eqn.params["function"] in _ELEMENTWISE
            shape = inputs[0].aval.shape if is_elementwise else None
        return tensor.var if shape is None else jex.Var(host_abstract(shape, tensor.dtype))

    def _stand_for(self, old: Tensor, new: Tensor) -> None:
        self._tensors[new.var] = new
        if old in self._fed:
            self._fed_copies.add(new)
        if new.var is not old.var:
            self._atoms[old.var] = new.var

    def _before(self, op: Operation) -> tuple[Operation, ...]:
        return tuple(self.copies[source] for source in op.control_inputs)

    # Operations that become several -----------------------------------------------------------

    def _open(self, op: Operation, opening: Opening) -> None:
        """Opens a loop or branch."""
        n_before = len(self._operations)
        inputs = [self.tensor(tensor) for tensor in op.inputs]
        effects: list[Operation] = []
        replay = partial(opened, op, self._fed_copies, opening, effects)
        outputs = self._expanded(op, replay, inputs, n_before)
        if effects:  # which happen if any result is used, as those of one operation
            with request.empty_request_scope():
                outputs = self.after(effects, outputs)
        ends = (*(tensor.op for tensor in outputs), *effects)
        self._stand_in(op, outputs, dict.fromkeys(ends))

    def _replay(self, op: Operation) -> None:
        """Replays a recorded call; leaves it as it is if that is impossible."""
        inputs = [self.tensor(tensor) for tensor in op.inputs]
        is_known = all(tensor.aval.shape is not None for tensor in inputs)
        replay = op.eqn.params["replay" if is_known else "fallback"]
        if replay is None:
            self._copy(op)
            return
        n_before = len(self._operations)
        try:
            outputs = self._expanded(op, replay, inputs, n_before)
        except Exception as error:  # the user's code, with the shapes of this step
            self._copy(op, failure=error)
            return
        self._stand_in(op, outputs, self._since(n_before))

    def _stand_in(
        self, op: Operation, outputs: Sequence[Tensor], added: Collection[Operation]
    ) -> None:
        """Records the operations and outputs that an operation has become."""
        copies = [*added]
        if len(copies) != 1:
            with self.scopes.replaced(control_inputs=tuple(copies), location=location_of(op)):
                copies = [self.add(group_p, [], [], name="group")]
        self._rename(copies[0], op.name)
        self.copies[op] = copies[0]
        for old, new in zip(op.outputs, outputs, strict=True):
            self._stand_for(old, new)

    def _expanded(
        self, op: Operation, replay: ReplayOfCall, inputs: list[Tensor], n_before: int
    ) -> list[Tensor]:
        """Adds what an operation becomes; returns its outputs."""
        scopes = self.scopes.replaced(
            names=f"{op.name}/", control_inputs=self._before(op), location=location_of(op)
        )
        with scopes, request.empty_request_scope(), request.carried(op.eqn.ctx):
            results = replay(self, inputs)
            new = {*self._since(n_before)}
            outputs: list[Tensor] = []
            for result in results:
                # Tensors of the graph stay apart, so that each can be fed and fetched.
                is_own = result.op in new and result not in outputs
                outputs.append(result if is_own else self.apply(jnp.copy, (result,)))
        if len(outputs) != len(op.outputs):
            raise ValueError(f"returns {len(outputs)} results, {len(op.outputs)} were expected")
        for old, result in zip(op.outputs, outputs, strict=True):
            wanted = self._shapes.get(old, old.aval.shape)
            if result.dtype != old.dtype or wanted not in (None, result.aval.shape):
                shape = shape_text(declared(result.aval.shape))
                raise ValueError(
                    f"gives {result.dtype.name} {shape}, expected "
                    f"{old.dtype.name} {shape_text(declared(wanted))}"
                )
        return outputs

    def _since(self, n_before: int) -> list[Operation]:
        """Returns the operations added after the first `n_before`."""
        added = len(self._operations) - n_before
        return [*islice(reversed(self._operations.values()), added)][::-1]

    def _rename(self, op: Operation, name: str) -> None:
        del self._operations[op.name]
        op.name = name
        self._operations[name] = op


def _differs(new: Tensor, old: Tensor) -> bool:
    return new.var is not old.var


def _ancestors(roots: Iterable[Operation], fed: Collection[Tensor] = ()) -> set[Operation]:
    ancestors: set[Operation] = set()
    pending = [*roots]
    while pending:
        op = pending.pop()
        if op not in ancestors:
            ancestors.add(op)
            pending.extend(tensor.op for tensor in op.inputs if tensor not in fed)
            pending.extend(op.control_inputs)
    return ancestors

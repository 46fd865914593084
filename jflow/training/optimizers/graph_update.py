"""The update of a graph's variables: operations, each on the device of its variable."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np

from jflow.client.ops import Variable, group
from jflow.client.variables import get_variable_scope
from jflow.compiler.graph import (
    Graph,
    Operation,
    Tensor,
    colocate_with,
    control_dependencies,
    name_scope,
    request,
)
from jflow.plan.xla.jaxprs import shape_of
from jflow.state.saves import StateSource
from jflow.training.optimizers.locality import (
    SHARED,
    LocalComputation,
    OwnerIndex,
    compiled,
    key_of,
    owner_of,
)
from jflow.training.optimizers.rows import RowSums, rows_at
from jflow.training.optimizers.rule import UpdateRule
from jflow.training.optimizers.slots import (
    SlotNames,
    SlotTable,
    key_of_slot,
    sharding_of_slot,
    slot_key,
)
from jflow.training.optimizers.update import TrainedState, apply_update


class GraphUpdates:
    """Adds updates to graphs; they share the state of a variable.

    Args:
      rule: computes the new values.
      table: gets the variables of the state.
      name: the name of the optimizer.
      names: TensorFlow's names of the slots.
      bases: as of `SlotNames.bases`.
    """

    def __init__(
        self,
        rule: UpdateRule,
        table: SlotTable,
        name: str,
        names: SlotNames,
        bases: Mapping[str, float],
    ) -> None:
        self._rule = rule
        self._table = table
        self._name = name
        self._names = names
        self._bases = bases

    def update(
        self, grads: Sequence[Any], variables: Sequence[Variable], name: str | None
    ) -> Operation:
        """Adds the update of variables by gradients, tensors or `IndexedSlices`.

        Args:
          grads, variables: the gradients and the variables.
          name: scope of the operations; the name of the optimizer if None.
        """
        outer = variables[0].graph.scopes.here.names
        with name_scope(name or self._name), control_dependencies(None):
            face = _GraphFace(variables[0].graph, variables)
            state = self._state(face, list(variables), outer)
            return group(
                *apply_update(face, self._rule, state, grads, self._rule.inputs()), name="update"
            )

    def _state(self, face: _GraphFace, variables: list[Variable], outer: str) -> TrainedState:
        """Returns the state for variables, which earlier calls may have created in part."""
        shapes = [v.shape for v in variables]
        leaves, tree = self._rule.state_of(variables)
        owners = [owner_of(path, leaf, shapes) for path, leaf in leaves]
        keys = [slot_key(path, leaf, variables) for path, leaf in leaves]
        if not self._table.by_key.keys() >= {*keys}:
            initial = [v.initial_value for v in variables]
            init = LocalComputation.trace(self._rule.init, [initial], shapes)
            values = face.evaluate(init, initial, [], [])
            self._create(leaves, owners, keys, values, variables, outer)
        return TrainedState(variables, tree, [self._table.by_key[key] for key in keys], owners)

    def _create(
        self,
        leaves: Sequence[tuple[tuple[Any, ...], Any]],
        owners: Sequence[OwnerIndex],
        keys: Sequence[Hashable],
        values: Sequence[Tensor],
        variables: Sequence[Variable],
        outer: str,
    ) -> None:
        """Makes the variables of leaves that have none, in the order in which TensorFlow does."""
        ranks = [self._names.rank(path, i) for (path, _), i in zip(leaves, owners, strict=True)]
        made: set[OwnerIndex] = set()
        for place in sorted(range(len(leaves)), key=ranks.__getitem__):
            key, (path, _), owner = keys[place], leaves[place], owners[place]
            if key not in self._table.by_key:
                made.add(owner)
                value, is_slot = values[place], ranks[place] >= 0
                create = self._slot_creator(value) if is_slot else self._creator(value, outer)
                self._table.add(key, path, owner, variables, create, place)
        for owner in made - {SHARED}:
            for _ in range(self._names.absent(path for path, _ in leaves)):
                self._reserve_slot(variables[owner])

    def _creator(self, value: Tensor, outer: str) -> Callable[[Variable, str], Variable]:
        def create(param: Variable, name: str) -> Variable:
            created = _variable(value, param, f"{param.op.name}/", name)
            if name == "count":
                created.restore_sources = self._powers(param.graph, outer)
            return created

        return create

    def _slot_creator(self, value: Tensor) -> Callable[[Variable, str], Variable]:
        """Returns what makes a slot with the name that its variable has in TensorFlow.

        Checkpoints of earlier versions of jflow have the name of the field, and TensorFlow has a
        name of its own for slots of partitioned variables in a variable scope.
        """

        def create(param: Variable, name: str) -> Variable:
            scope = get_variable_scope().name
            outer = f"{scope}/" if scope else ""
            earlier = _reserved(param.graph, f"{param.op.name}/", name)
            slot = _variable(value, param, f"{outer}{param.op.name}/", self._name)
            other_keys = [key_of_slot(earlier, slot, param)]
            if outer and param.save_slice_info is not None:
                end = slot.op.name[len(param.op.name) + 1 :]
                other_keys.append(f"{param.save_slice_info.full_name}/{end}")
            slot.restore_sources = tuple(map(StateSource, other_keys))
            return slot

        return create

    def _reserve_slot(self, param: Variable) -> None:
        """Keeps the name free that TensorFlow gives to a slot which this state does not have."""
        scope = get_variable_scope().name
        outer = f"{scope}/" if scope else ""
        _reserved(param.graph, f"{outer}{param.op.name}/", self._name)

    def _powers(self, graph: Graph, outer: str) -> tuple[StateSource, ...]:
        """Returns where checkpoints of TensorFlow have the count of updates."""
        return tuple(
            StateSource(_reserved(graph, outer, name), base) for name, base in self._bases.items()
        )


class _GraphFace:
    """The operations of one update; see `UpdateFace`."""

    def __init__(self, graph: Graph, variables: Sequence[Variable]) -> None:
        self._graph = graph
        self._variables = variables

    def apply(self, fun: Callable[..., Any], *args: Any, name: str) -> Any:
        return self._graph.apply(fun, args, name=name)

    def named(self, owner: OwnerIndex) -> AbstractContextManager[Any]:
        here = self._graph.scopes.here.names
        if owner == SHARED:
            return name_scope(here)
        return name_scope(f"{here}update_{self._variables[owner].op.name}/")

    def after(self, grads: Sequence[Any]) -> AbstractContextManager[Any]:
        return control_dependencies([group(*grads, name="gradients")])

    def argument(self, leaf: Any, rows: RowSums | None) -> Any:
        if not isinstance(leaf, Variable):
            return self._graph.as_tensor(leaf)
        if rows is None:
            return leaf.read_value()
        with colocate_with(leaf, ignore_existing=True):
            return self.apply(rows_at, leaf.read_value(), rows.indices, name="take_rows")

    def evaluate(
        self,
        computation: LocalComputation,
        arguments: Sequence[Tensor],
        _grads: Sequence[Any],
        _written: Sequence[Variable],
    ) -> list[Any]:
        known = dict(zip(computation.inputs, arguments, strict=True))
        calls: dict[Hashable, jex.ClosedJaxpr] = {}
        for call in computation.calls:
            key = key_of(call.program)
            if key not in calls:
                calls[key] = _call_of(call.program)
            inputs = [known[x].var for x in call.inputs]
            owner = self._variables[max(call.owner, 0)]
            with self.named(call.owner), colocate_with(owner, ignore_existing=True):
                outputs = self._graph.inline(calls[key], inputs, lambda _: "update")
            known.update(zip(call.outputs, outputs, strict=True))
        return [
            self._graph.constant(np.asarray(x.val)) if isinstance(x, jex.Literal) else known[x]
            for x in computation.outputs
        ]


def _variable(value: Tensor, param: Variable, scope: str, name: str) -> Variable:
    """Makes a variable of the state on the device of a variable that is trained."""
    with name_scope(scope), colocate_with(param, ignore_existing=True):
        sharding = sharding_of_slot(param, value.shape)
        return Variable(value, trainable=False, name=name, sharding=sharding)


def _reserved(graph: Graph, scope: str, name: str) -> str:
    """Returns the name that a variable would get in a name scope, and keeps it free."""
    with graph.scopes.replaced(names=scope):
        return graph.unique_name(name)


def _call_of(program: jex.ClosedJaxpr) -> jex.ClosedJaxpr:
    """Returns a call of a program as one equation."""
    with request.empty_request_scope():
        call: jex.ClosedJaxpr = jax.make_jaxpr(compiled(program))(*map(shape_of, program.in_avals))
    return call

"""`bind`: a model as named variables, and `BoundState`, by which programs use them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from jax.sharding import NamedSharding, PartitionSpec

from jflow.base.cards import MAX_ROWS, Card, Carded, CardTable
from jflow.base.values import as_array
from jflow.client.binding.making import RECORD, ModelVariables
from jflow.client.binding.rules import Rules, answer, unused
from jflow.client.binding.structure import Leaf, ModelStructure, structure_of
from jflow.client.eager import EagerVariable
from jflow.client.eager.variable import declared_ref
from jflow.client.functions import Connection, Function
from jflow.client.functions.differentiable import Differentiable
from jflow.client.ops.creators import with_creators
from jflow.client.ops.variable import Variable, VariableLike
from jflow.client.stateful.initial import check_initial
from jflow.client.variables import ShardedVariable
from jflow.compiler.graph import VariableRef, device, get_default_graph, owners
from jflow.plan.xla import internals

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.\-/]")


def bind(
    model: Any,
    prefix: str,
    devices: Rules[str] = None,
    *,
    shardings: Rules[PartitionSpec | NamedSharding] = None,
    make_anew: bool = False,
) -> BoundState:
    """Makes a named variable of each array of a model, or finds those that the cluster has.

    A model is a module of Flax NNX, a layer, model, metric or optimizer of Keras, or any pytree:
    dicts of parameters of Flax Linen or Haiku, modules of Equinox, states of Optax. The variable of
    an array has its path as name, such as "cnn/conv1/kernel". What else is in a pytree, such as
    functions and numbers of Python, stays a part of its structure.

    Of several programs that bind at once, one makes all variables, with its values, and the others
    find these, wherever they are. Variables of a program that stopped before all were made are made
    again.

    Args:
      model: the model.
      prefix: of the names of the variables; in a container (`jflow.container`) of its own or not.
      devices: where variables are: a device; devices by patterns of paths, as
        `{"embed/*": "/job:ps/task:0", "*": "/job:ps/task:1"}`, of which the first that matches
        counts ("*" is any text, "[" begins a set of characters, as in `fnmatch`); or a function of
        path and array. Where this says nothing, blocks around the call do: `jflow.device`, and
        creators, such as the scope of a `ParameterServerStrategy`, which divides variables.
      shardings: likewise, how they are divided over the meshes that they are on.
      make_anew: whether to give variables that are there the values of the model.

    Raises:
      FailedPreconditionError: if some of the variables are lost, because a task was started again.
      InvalidArgumentError: if another model has this prefix; the error says which variable differs.
      RuntimeError: outside of `jflow.connect` and of the scope of a strategy, or in a function.
      TypeError: if the model has no arrays, or one is of strings.
      ValueError: if a pattern matches no path, two paths have one name, or a sharding does not fit.
    """
    owner = owners.current()
    if not isinstance(owner, Connection) or internals.is_tracing():
        raise RuntimeError(
            "jflow.bind makes variables on a connection; call it inside `with jflow.connect(...):` "
            "or the scope of a strategy, and outside of functions and graphs"
        )
    structure = structure_of(model)
    _check_rules(structure.leaves, devices, shardings)
    _check_names(structure.leaves)
    declared = [
        _DeclaredVariable(owner, f"{prefix}/{_name(leaf)}", leaf, devices, shardings)
        for leaf in structure.leaves
    ]
    refs = [ref for each in declared for ref in each.refs]
    values = [value for each in declared for value in each.values]
    whole_prefix = f"{get_default_graph().scopes.here.names}{prefix}"
    found = ModelVariables(owner, whole_prefix, refs, values).make_or_find(make_anew)
    placed = iter(found)
    variables = [each.variable([next(placed) for _ in each.refs]) for each in declared]
    for ref in found:
        owner.note(ref)
    return BoundState(owner, prefix, structure, variables)


class _DeclaredVariable:
    """The variable of an array, as blocks and rules request it; several if they divide it."""

    def __init__(
        self,
        owner: Connection,
        name: str,
        leaf: Leaf,
        devices: Rules[str],
        shardings: Rules[PartitionSpec | NamedSharding],
    ) -> None:
        self._owner = owner
        self._is_trainable = leaf.is_trainable
        self.refs: list[VariableRef] = []
        self.values: list[Any] = []
        on = answer(devices, leaf)
        # The creator of a strategy's scope would choose another device than the one that is given.
        declare = with_creators(self._declare) if on is None else self._declare
        with nullcontext() if on is None else device(on):
            self._variable: VariableLike = declare(
                initial_value=as_array(leaf.value),
                name=name,
                trainable=leaf.is_trainable,
                sharding=answer(shardings, leaf),
            )
        if not self.refs:
            raise ValueError(
                f"a creator (jflow.variable_creator_scope) made {self._variable!r} in place of "
                f"{name!r} without calling the next one; bind needs a variable"
            )

    def _declare(
        self, *, initial_value: Any, name: str, sharding: Any = None, **_: Any
    ) -> Variable:
        """Returns a variable that is not made yet."""
        value = as_array(initial_value() if callable(initial_value) else initial_value)
        check_initial(value, None, name)
        ref = declared_ref(self._owner, value, name, sharding)
        self.refs.append(ref)
        self.values.append(value)
        return self._of_ref(ref)

    def _of_ref(self, ref: VariableRef) -> Variable:
        return Variable.of_operations(EagerVariable.of_ref(self._owner, ref), self._is_trainable)

    def variable(self, placed: Sequence[VariableRef]) -> VariableLike:
        """Returns the variable, given where it is."""
        parts = [self._of_ref(ref) for ref in placed]
        if isinstance(self._variable, ShardedVariable):
            return ShardedVariable(parts, self._variable.name)
        return parts[0]


class BoundState(Carded, Differentiable):
    """A model whose arrays are variables; `bind` makes it.

    Functions take it as an argument or use it from outside, and read and write all of its variables
    in one step. `jflow.value_and_grad(loss)(state)` calls `loss` with the model, and gives
    gradients of what is trainable, as the model's own library does:

    * of a pytree, the pytree with None for what is no array of floats;
    * of a module of Flax NNX, an `nnx.State` of its variables of the type `nnx.Param`;
    * of Keras, the list of those of `trainable_variables`.

    `trainable()` has the same structure.

    Attributes:
      prefix: of the names of its variables.
    """

    def __init__(
        self,
        owner: Connection,
        prefix: str,
        structure: ModelStructure,
        variables: Sequence[VariableLike],
    ) -> None:
        self._owner = owner
        self._structure = structure
        self._variables = list(variables)
        self._read = Function(self._get, static_argnums=0)
        self._write = Function(self._set_there, static_argnums=(0, 1))
        self.prefix = prefix

    @property
    def variables(self) -> Mapping[str, VariableLike]:
        """The variables by the paths of their arrays."""
        paths = (leaf.path for leaf in self._structure.leaves)
        return dict(zip(paths, self._variables, strict=True))

    @property
    def trainable_variables(self) -> list[VariableLike]:
        """The variables that optimizers train."""
        return [self._variables[i] for i in self._structure.trainable]

    def value(self) -> Any:
        """Returns the model with the values of the variables: in a function those at this line."""
        return self._structure.whole(self._values(range(len(self._variables))))

    def trainable(self) -> Any:
        """Returns the values of the trainable variables, in the structure of gradients."""
        return self._structure.part(self._values(self._structure.trainable))

    def with_part(self, part: Any) -> Any:
        """Returns the model with the values of a trainable part, and of the other variables."""
        pairs = zip(self._variables, self._given(part), strict=True)
        return self._structure.whole([v.value() if x is None else x for v, x in pairs])

    def assign(self, model: Any) -> None:
        """Sets the variables to the values of a model, or of its trainable part.

        Raises:
          ValueError: if it has another structure, or an array another shape.
        """
        self._update("assign", model)

    def assign_add(self, model: Any) -> None:
        """Adds the arrays of a model, or of its trainable part, as `assign`."""
        self._update("assign_add", model)

    def assign_sub(self, model: Any) -> None:
        """Subtracts the arrays of a model, or of its trainable part, as `assign`."""
        self._update("assign_sub", model)

    def pairs(self, gradients: Any) -> list[tuple[Any, VariableLike]]:
        """Returns gradients with their variables, as `Optimizer.apply_gradients` takes them."""
        given = self._given(gradients)
        return [(given[i], self._variables[i]) for i in self._structure.trainable]

    # As one step ------------------------------------------------------------------------------

    def _values(self, numbers: Sequence[int]) -> Sequence[Any]:
        if internals.is_tracing():
            return self._get(tuple(numbers))
        with self._here():
            return self._read(tuple(numbers))

    def _get(self, numbers: tuple[int, ...]) -> tuple[Any, ...]:
        return tuple(self._variables[i].value() for i in numbers)

    def _update(self, method: str, model: Any) -> None:
        given = self._given(model)
        numbers = tuple(i for i, value in enumerate(given) if value is not None)
        values = [given[i] for i in numbers]
        if internals.is_tracing():
            self._set(method, numbers, values)
            return
        with self._here():
            self._write(method, numbers, values)

    def _set(self, method: str, numbers: Sequence[int], values: Sequence[Any]) -> None:
        for i, value in zip(numbers, values, strict=True):
            getattr(self._variables[i], method)(value)

    def _set_there(self, method: str, numbers: Sequence[int], values: Sequence[Any]) -> None:
        """Sets variables; what that computes is computed where they are."""
        for i, value in zip(numbers, values, strict=True):
            on = getattr(self._variables[i], "device", "")
            with device(on) if on else nullcontext():
                getattr(self._variables[i], method)(value)

    def _given(self, model: Any) -> list[Any]:
        try:
            return self._structure.values_of(model)
        except ValueError as error:
            raise ValueError(f"{self!r} does not take this model: {error}") from None

    def _here(self) -> AbstractContextManager[Any]:
        """A context manager in which functions run on the connection of the variables."""
        if owners.current() == self._owner:
            return nullcontext()
        if not self._owner.is_open:
            raise RuntimeError(
                f"{self!r} belongs to {self._owner!r}; call jflow.connect and bind the model again"
            )
        return owners.owned_by(self._owner)

    # What it is -------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(f"{self!r} is not iterable; use its value() or its variables")

    def __repr__(self) -> str:
        return f"<jflow.BoundState {self.prefix!r} of {len(self._variables)} variables>"

    def _card(self) -> Card:
        rows = [
            (path, str(variable.shape), variable.dtype.name, getattr(variable, "device", ""))
            for path, variable in [*self.variables.items()][:MAX_ROWS]
        ]
        facts = (("prefix", self.prefix), ("server", self._owner.target or "this process"))
        head = ("path", "shape", "dtype", "device")
        table = CardTable("variables", head, rows, len(self._variables))
        return Card("BoundState", "", facts, (table,))


def _name(leaf: Leaf) -> str:
    return _NOT_IN_NAMES.sub("_", leaf.path)


def _check_rules(leaves: Sequence[Leaf], *rules: Rules[Any]) -> None:
    for each in rules:
        if patterns := unused(each, leaves):
            paths = ", ".join(leaf.path for leaf in leaves[:8])
            raise ValueError(f"no array has a path like {patterns[0]!r}; there are {paths}")


def _check_names(leaves: Sequence[Leaf]) -> None:
    seen: dict[str, str] = {}
    for leaf in leaves:
        name = _name(leaf)
        if name.split("/")[0] == RECORD:
            raise ValueError(f"{leaf.path!r} has the name of the records of jflow.bind, {RECORD!r}")
        if name in seen:
            raise ValueError(
                f"{leaf.path!r} has the same name as {seen[name]!r}: {name!r}; give one of them "
                "another name in the model"
            )
        seen[name] = leaf.path

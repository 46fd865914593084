"""Variables: values that a container keeps between steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp

from jflow.graph import Dtype, Graph, HostArray, Operation, Symbolic, Tensor, VariableRef, as_dtype
from jflow.graph import get_default_graph as _default_graph
from jflow.graph.primitives import assign_p, read_p, update_p, variable_p
from jflow.graph.tracing import shape_of
from jflow.ops.arrays import group

GLOBAL_VARIABLES = "variables"
TRAINABLE_VARIABLES = "trainable_variables"


class Variable(Symbolic):
    """A named value that outlives a step.

    A local session keeps its own copy and loses it at close. On a cluster the value lives in a
    container of the task that holds it, and every session that uses the same name, container and
    device shares it.

    Args:
      initial_value: a number, array or tensor, or a function without arguments that makes one.
      trainable: whether optimizers should train it.
      name: made unique in the graph by `_1`, `_2`, …; the unique name identifies the value.
      dtype: wanted dtype, or None for the initial value's.

    Raises:
      TypeError, ValueError: if there is no proper initial value.
    """

    def __init__(
        self,
        initial_value: Any,
        trainable: bool = True,
        name: str = "Variable",
        dtype: Any = None,
    ) -> None:
        graph = _default_graph()
        # Reading and initializing later must not wait for the control inputs of this block.
        with graph.scopes.replaced(control_inputs=()):
            value = initial_value() if callable(initial_value) else initial_value
            self.initial_value = _initial(graph, value, dtype, name)
            self.op = graph.add(variable_p, [], [], name=name)
            self._ref = VariableRef(
                self.op.name,
                graph.scopes.container,
                self.initial_value.shape,
                self.initial_value.dtype,
            )
            with graph.scopes.replaced(names=f"{self.op.name}/"):
                self.initializer = self._write(assign_p, [self.initial_value], "Assign").op
                self._value = self._read("read")
        self.trainable = trainable
        graph.add_to_collection(GLOBAL_VARIABLES, self)
        if trainable:
            graph.add_to_collection(TRAINABLE_VARIABLES, self)

    @property
    def graph(self) -> Graph:
        """The graph it belongs to."""
        return self.op.graph

    @property
    def name(self) -> str:
        """Name in the graph, as of a tensor: "x:0"."""
        return f"{self.op.name}:0"

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each dimension."""
        return self._ref.shape

    @property
    def dtype(self) -> Dtype:
        """Type of the elements."""
        return self._ref.dtype

    @property
    def container(self) -> str:
        """The container that holds it, "" for the default one."""
        return self._ref.container

    @property
    def device(self) -> str:
        """The device that was asked for, "" when none was."""
        return self.op.device

    def to_tensor(self) -> Tensor:
        return self._value

    def value(self) -> Tensor:
        """The value in a step; whether before or after an update in it is not said."""
        return self._value

    def read_value(self) -> Tensor:
        """A read of its own, after the control inputs of the block around it."""
        return self._read("read_value")

    def assign(self, value: Any, name: str = "Assign") -> Tensor:
        """Sets the value (and so initializes it); returns the new one.

        Raises:
          ValueError: if the shape differs.
          TypeError: if the dtype differs.
        """
        tensor = self._operand(value)
        if tensor.shape != self.shape:
            raise ValueError(
                f"cannot assign a value of shape {tensor.shape} to {self._ref} "
                f"of shape {self.shape}"
            )
        return self._write(assign_p, [tensor], name)

    def assign_add(self, delta: Any, name: str = "AssignAdd") -> Tensor:
        """Adds to the value in one atomic turn; returns the new one. Raises as `assign`."""
        return self._update(jnp.add, delta, name)

    def assign_sub(self, delta: Any, name: str = "AssignSub") -> Tensor:
        """Subtracts from the value in one atomic turn; returns the new one. Raises as `assign`."""
        return self._update(jnp.subtract, delta, name)

    def eval(self, session: Any = None) -> Any:
        """The value in `session` or the default session."""
        return self._value.eval(session=session)

    def load(self, value: Any, session: Any = None) -> None:
        """Sets the value to an array in `session` or the default session."""
        self.initializer.run({self.initial_value: value}, session)

    def _apply(self, fun: Callable[..., Any], *args: Any) -> Any:
        return self.graph.apply(fun, args)

    def _read(self, name: str) -> Tensor:
        aval = jax.core.ShapedArray(self.shape, self.dtype)
        return self.graph.add(read_p, [], [aval], name=name, variable=self._ref).outputs[0]

    def _write(self, primitive: Any, inputs: list[Tensor], name: str, **params: Any) -> Tensor:
        aval = jax.core.ShapedArray(self.shape, self.dtype)
        atoms = [tensor.var for tensor in inputs]
        op = self.graph.add(primitive, atoms, [aval], name=name, variable=self._ref, **params)
        return op.outputs[0]

    def _update(self, fun: Callable[..., Any], operand: Any, name: str) -> Tensor:
        tensor = self._operand(operand)
        if jnp.broadcast_shapes(self.shape, tensor.shape) != self.shape:
            raise ValueError(
                f"an update of shape {tensor.shape} does not fit {self._ref} of shape {self.shape}"
            )
        old = jax.ShapeDtypeStruct(self.shape, self.dtype)
        body = jax.make_jaxpr(fun)(old, shape_of(tensor.aval))
        return self._write(update_p, [tensor], name, body=body)

    def _operand(self, value: Any) -> Tensor:
        """The value as a tensor of this variable's dtype."""
        if not isinstance(value, Symbolic):
            return self.graph.constant(value, self.dtype)
        tensor = self.graph.as_tensor(value)
        if tensor.dtype != self.dtype:
            raise TypeError(
                f"{self._ref} has dtype {self.dtype.name}, the value has {tensor.dtype.name}; "
                "convert it with .astype of jflow.numpy first"
            )
        return tensor

    def __repr__(self) -> str:
        return f"<jflow.Variable {self.name!r} shape={self.shape} dtype={self.dtype.name}>"


def _initial(graph: Graph, value: Any, dtype: Any, name: str) -> Tensor:
    if value is None:
        raise ValueError(f"variable {name!r} needs an initial value")
    if not isinstance(value, Symbolic):
        tensor = graph.constant(value, dtype, name=f"{name}/initial_value")
    else:
        tensor = graph.as_tensor(value)
    if isinstance(tensor.aval, HostArray):
        raise TypeError(f"variable {name!r} cannot hold strings, only what XLA computes with")
    if dtype is not None and tensor.dtype != as_dtype(dtype):
        raise TypeError(
            f"variable {name!r} is asked for as {as_dtype(dtype)}, "
            f"its initial value has dtype {tensor.dtype}"
        )
    return tensor


def assign(ref: Variable, value: Any, name: str = "Assign") -> Tensor:
    """Sets a variable; see `Variable.assign`."""
    return _variable(ref).assign(value, name)


def assign_add(ref: Variable, value: Any, name: str = "AssignAdd") -> Tensor:
    """Adds to a variable; see `Variable.assign_add`."""
    return _variable(ref).assign_add(value, name)


def assign_sub(ref: Variable, value: Any, name: str = "AssignSub") -> Tensor:
    """Subtracts from a variable; see `Variable.assign_sub`."""
    return _variable(ref).assign_sub(value, name)


def global_variables() -> list[Variable]:
    """Every variable of the default graph, in the order they were made."""
    return _default_graph().get_collection(GLOBAL_VARIABLES)


def trainable_variables() -> list[Variable]:
    """The variables of the default graph that were made with `trainable=True`."""
    return _default_graph().get_collection(TRAINABLE_VARIABLES)


def variables_initializer(var_list: Iterable[Variable], name: str = "init") -> Operation:
    """An operation that initializes the given variables."""
    return group(*(variable.initializer for variable in var_list), name=name)


def global_variables_initializer() -> Operation:
    """An operation that initializes every variable made so far in the default graph."""
    return variables_initializer(global_variables())


def _variable(ref: Any) -> Variable:
    if not isinstance(ref, Variable):
        raise TypeError(f"expected a variable to assign to, got {ref!r}")
    return ref

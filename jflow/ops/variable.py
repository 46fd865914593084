"""Variables: values that a container keeps between steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jflow.eager import EagerVariable
from jflow.graph import Graph, Operation, Symbolic, Tensor, owners
from jflow.graph import get_default_graph as _default_graph
from jflow.graph.completion import visible
from jflow.graph.primitives import read_p
from jflow.stateful import GraphVariable, VariableOperations
from jflow.values import Dtype
from jflow.xla import internals

GLOBAL_VARIABLES = "variables"
LOCAL_VARIABLES = "local_variables"
TRAINABLE_VARIABLES = "trainable_variables"


class Variable(Symbolic):
    """A named value that outlives a step.

    In graph code a variable is part of the graph: `initializer` sets it, a session reads it. A
    local session keeps its own copy and loses it at close. On a cluster the value lives in a
    container of the task that holds it, and every session that uses the same name, container and
    device shares it.

    Inside `jflow.connect` a variable is *eager*: it is there from the start, with its initial value
    if its container does not have it yet, and it can be used as an array, in a `jflow.function` and
    outside of one.

    Args:
      initial_value: a number, array or tensor, or a function without arguments that makes one.
      trainable: whether optimizers should train it.
      name: identifies the value. In a graph it is made unique by `_1`, `_2`, …; an eager variable
        without a name is not shared.
      dtype: wanted dtype, or None for the initial value's.
      collections: of the graph that list it, the global variables if None; an eager variable is in
        none. The trainable variables list it as well if it is trainable.
      validate_shape: whether the shape stays that of the initial value, which must be known then.
        Else an assignment may change its sizes, but not its rank; in graph code only.

    Raises:
      TypeError, ValueError: if there is no proper initial value, or its shape is not known.
      InvalidArgumentError: if it is eager and exists with another shape or dtype.
    """

    def __init__(
        self,
        initial_value: Any,
        trainable: bool = True,
        name: str | None = None,
        dtype: Any = None,
        collections: Sequence[str] | None = None,
        validate_shape: bool = True,
    ) -> None:
        if initial_value is None:
            raise ValueError(f"variable {name or ''!r} needs an initial value")
        self.trainable = trainable
        self._operations: VariableOperations
        owner = owners.current()
        if owner is None:
            graph = _default_graph()
            name = name or "Variable"
            made = GraphVariable(graph, initial_value, name, dtype, validate_shape)
            self._operations = made
            self.initial_value, self.initializer = made.initial_value, made.initializer
            for key in _listing(collections, trainable):
                graph.add_to_collection(key, self)
        elif not validate_shape:
            raise ValueError(
                f"variable {name or ''!r} is eager and cannot have validate_shape=False: functions "
                "are compiled for the sizes of eager variables; make it in graph code"
            )
        else:
            self._operations = EagerVariable(owner, initial_value, name, dtype)
        self._ref = self._operations.ref

    # What it is -------------------------------------------------------------------------------

    @property
    def operations(self) -> VariableOperations:
        """How it is read and written."""
        return self._operations

    @property
    def is_eager(self) -> bool:
        """Whether it has a value outside of sessions."""
        return self._operations.is_eager

    @property
    def op(self) -> Operation:
        """The operation that stands for a graph variable."""
        return self._operations.op

    @property
    def graph(self) -> Graph:
        """The graph that a graph variable belongs to."""
        return self._operations.op.graph

    @property
    def name(self) -> str:
        """Name, as of a tensor: "x:0"."""
        return f"{self._ref.name}:0"

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each dimension."""
        return self._operations.shape

    @property
    def dtype(self) -> Dtype:
        """Type of the elements."""
        return self._ref.dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def container(self) -> str:
        """The container that holds it, "" for the default one."""
        return self._ref.container

    @property
    def device(self) -> str:
        """The requested device, "" if none was; of an eager variable, the one it is on."""
        return str(self._ref.spec)

    # Reading ----------------------------------------------------------------------------------

    def value(self) -> Any:
        """The value: a tensor in graph code, else an array.

        In one step of a graph it is not said whether the value is that before or after an update.
        In a `jflow.function` it is the value at this line.
        """
        return self._operations.value()

    def read_value(self) -> Any:
        """A read of its own; in graph code, after the control inputs of the block around it."""
        return self._operations.read("read_value")

    def numpy(self) -> np.ndarray[Any, Any]:
        """The value of an eager variable as a NumPy array."""
        return np.asarray(self)

    def eval(self, session: Any = None) -> Any:
        """The value in `session` or the default session."""
        return self.to_tensor().eval(session=session)

    def to_tensor(self) -> Tensor:
        return self._operations.to_tensor()

    # Writing ----------------------------------------------------------------------------------

    def assign(self, value: Any, name: str = "Assign") -> Any:
        """Sets the value (and so initializes it).

        Returns:
          The new value: a tensor in graph code, an array in a `jflow.function`; elsewhere the
          variable itself, because the value may not be needed.

        Raises:
          ValueError: if the shape differs.
          InvalidArgumentError: in the step, if only that tells the shape.
          TypeError: if the dtype differs.
        """
        written = self._operations.assign(read(value), name)
        return self if written is None else written

    def assign_add(self, delta: Any, name: str = "AssignAdd") -> Any:
        """Adds to the value atomically; returns and raises as `assign`."""
        return self.update(jnp.add, self._operations.fitting(read(delta)), name=name)

    def assign_sub(self, delta: Any, name: str = "AssignSub") -> Any:
        """Subtracts from the value atomically; returns and raises as `assign`."""
        return self.update(jnp.subtract, self._operations.fitting(read(delta)), name=name)

    def load(self, value: Any, session: Any = None) -> None:
        """Sets the value to an array, for a graph variable in `session` or the default session."""
        self._operations.load(read(value), session)

    def update(self, fun: Callable[..., Any], *operands: Any, name: str = "Update") -> Any:
        """Sets the value to `fun` of the old one and the operands, atomically.

        Args:
          fun: a function of JAX arrays that gives an array of the variable's shape and dtype.
          operands: what it takes after the old value.
          name: name for the operation.

        Returns:
          As `assign`.

        Raises:
          TypeError, ValueError: if it gives something else, or does not take the operands.
        """
        written = self._operations.update(fun, [read(operand) for operand in operands], name)
        return self if written is None else written

    # Arithmetic -------------------------------------------------------------------------------

    def _apply(self, fun: Callable[..., Any], *args: Any) -> Any:
        graph = self._operations.graph_of(args)
        return graph.apply(fun, args) if graph else fun(*map(read, args))

    @property
    def __jax_array__(self) -> Callable[[], Any]:
        if internals.asker() is not internals.Asker.JIT:
            return lambda: self._operations.bind(read_p)
        raise ValueError(
            f"{self._ref} is no array to functions that JAX compiles; give them its value(), or "
            "use the same name in jflow.numpy, jflow.nn, jflow.lax or jflow.random"
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if not self.is_eager:
            return super().__array__()
        return np.array(self._operations.bind(read_p), dtype, copy=copy)

    def __float__(self) -> float:
        return float(self.value())

    def __int__(self) -> int:
        return int(self.value())

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"len() of {self._ref}, which is a scalar")
        return self.shape[0]

    def __iter__(self) -> Any:
        return iter(self.value()) if self.is_eager else super().__iter__()

    def __bool__(self) -> bool:
        return bool(self.value()) if self.is_eager else super().__bool__()

    def __repr__(self) -> str:
        attributes = f"{self.name!r} shape={self.shape} dtype={self.dtype.name}"
        return f"<jflow.Variable {self._operations.describe(attributes)}>"

    def __dir__(self) -> list[str]:
        return visible(super().__dir__(), "operations", "to_tensor")


def read(value: Any) -> Any:
    """The value of a variable; any other argument as it is."""
    return value.value() if isinstance(value, Variable) else value


def _listing(collections: Sequence[str] | None, trainable: bool) -> dict[str, None]:
    """The collections that list a variable, each once."""
    if isinstance(collections, str):
        raise TypeError(f"collections is a list of names, got the text {collections!r}")
    keys = (GLOBAL_VARIABLES,) if collections is None else tuple(collections)
    return dict.fromkeys((*keys, TRAINABLE_VARIABLES) if trainable else keys)

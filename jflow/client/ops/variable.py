"""Variables: values that a container keeps between steps."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jflow.base.cards import Card, Carded
from jflow.base.handles import Uncopyable
from jflow.base.text import bytes_text
from jflow.base.values import Dtype, SaveSliceInfo, TensorShape, declared
from jflow.client.eager import EagerVariable
from jflow.client.ops.creators import CreatedByScope
from jflow.client.ops.in_place import InPlaceOperators, RowUpdates, check_flag
from jflow.client.stateful import GraphVariable, VariableOperations
from jflow.client.stateful.updates import ROWS, SLICES, Body, count_up_to, scatter
from jflow.compiler.graph import (
    Graph,
    GraphKeys,
    Operation,
    Symbolic,
    Tensor,
    colocate_with,
    origin,
    owners,
    request,
)
from jflow.compiler.graph import get_default_graph as _default_graph
from jflow.compiler.graph.members import visible
from jflow.compiler.graph.primitives import read_p
from jflow.plan.xla import internals
from jflow.state.saves import StateSource


class VariableLike(InPlaceOperators, RowUpdates, Carded, Uncopyable, Symbolic):
    """Base of variables and of several variables that are one value; usable as an array."""

    _instead_of_copy = (
        "it stands for state that a copy would share; copy its value, as in "
        "jflow.Variable(variable.value()), or save it with jflow.checkpoint.save or a train.Saver"
    )

    @abstractmethod
    def value(self) -> Any:
        """Returns the value, dtype[*shape]: a tensor in graph code, otherwise an array."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the variable."""

    @property
    @abstractmethod
    def shape(self) -> TensorShape:
        """The size of each dimension."""


class Variable(VariableLike, metaclass=CreatedByScope):
    """A named value that outlives a step.

    In graph code a variable is part of the graph: `initializer` sets it, and sessions read it. A
    local session has its own copy, which ends with it. On a cluster the value lives in a container
    of one task, and all sessions that use the same name, container and device share it.

    Inside `jflow.connect` a variable is *eager*: it has a value from the start, the initial one
    unless its container already holds it, and can be used as an array, inside and outside of a
    `jflow.function`.

    Args:
      initial_value: a number, array or tensor, or a function without arguments that returns one.
      trainable: whether optimizers should train it.
      name: name of the value in the container. In a graph `_1`, `_2`, … make it unique; an eager
        variable without a name is not shared.
      dtype: dtype of the variable; None for the initial value's.
      collections: names of the graph collections that list it; None for the global variables. A
        trainable variable is also in the trainable variables, an eager one is in none.
      validate_shape: whether the shape is fixed to that of the initial value, which must be known.
        If False, an assignment may change the sizes, but not the rank; in graph code only.
      caching_device: a device, or a function as for `jflow.device`, to which a step copies the
        value once for everything that uses `value()` or the variable itself; `read_value()` reads
        where the variable lives. In graph code only.
      constraint: a function from a tensor to one of the same shape and dtype, which optimizers
        apply to each new value.
      sharding: how it is divided over the mesh that it is on: for each dimension the axis, or a
        tuple of axes, or None. It stays so between steps, and updates are in place. None for what
        its first value has, which is whole on each device unless its program says otherwise.

    Attributes:
      trainable: whether optimizers train it.
      constraint: the function, or None.
      save_slice_info: which slice of a partitioned variable it is, None if it is not one.
      restore_sources: where a restore finds it in checkpoints that lack its name.
      initial_value, initializer: of a graph variable: the tensor of its initial value, and the
        operation that sets it.

    Raises:
      TypeError, ValueError: if the initial value is missing or invalid, or its shape is unknown.
      ValueError: inside a function that JAX traces, such as a branch or the body of a loop.
      ValueError: if it is not on a mesh, or an axis of it does not exist or divide a size.
      InvalidArgumentError: if it is eager and exists with another shape, dtype or sharding.
    """

    def __init__(  # noqa: PLR0913 - all but one are TensorFlow's
        self,
        initial_value: Any,
        trainable: bool = True,
        name: str | None = None,
        dtype: Any = None,
        collections: Sequence[str] | None = None,
        validate_shape: bool = True,
        caching_device: Any = None,
        constraint: Callable[[Any], Any] | None = None,
        *,
        sharding: PartitionSpec | NamedSharding | None = None,
    ) -> None:
        _refuse_tracing(name)
        if initial_value is None:
            raise ValueError(f"variable {name or ''!r} needs an initial value")
        if constraint is not None and not callable(constraint):
            raise ValueError(f"expected a function as constraint of {name!r}, got {constraint!r}")
        owner = owners.current()
        if owner is None:
            graph = _default_graph()
            of_graph = GraphVariable(
                graph,
                initial_value,
                name or "Variable",
                dtype,
                validate_shape,
                caching_device,
                sharding=sharding,
            )
            self._set_up(of_graph, trainable, constraint)
            graph.add_to_collections(_listing(collections, trainable), self)
        else:
            _check_eager(name or "", validate_shape, caching_device)
            eager = EagerVariable(owner, initial_value, name, dtype, sharding)
            self._set_up(eager, trainable, constraint)

    @classmethod
    def of_operations(
        cls,
        operations: VariableOperations,
        trainable: bool = True,
        slice_info: SaveSliceInfo | None = None,
    ) -> Variable:
        """Returns a variable made from existing operations, such as those of an imported graph."""
        variable = cls.__new__(cls)
        variable._set_up(operations, trainable, None, slice_info)
        return variable

    def _set_up(
        self,
        operations: VariableOperations,
        trainable: bool,
        constraint: Callable[[Any], Any] | None,
        slice_info: SaveSliceInfo | None = None,
    ) -> None:
        self.trainable = trainable
        self.constraint = constraint
        self.save_slice_info = slice_info
        self.restore_sources: tuple[StateSource, ...] = ()
        self._operations, self._ref = operations, operations.ref
        if isinstance(operations, GraphVariable):
            self.initial_value, self.initializer = operations.initial_value, operations.initializer

    def initialize_from(self, value: Tensor) -> None:
        """Replaces the initial value of a graph variable, and with it the initializer.

        Args:
          value: a tensor of its dtype and shape.
        """
        assert isinstance(self._operations, GraphVariable)
        self._operations.replace_initial_value(value)
        self.initial_value = self._operations.initial_value
        self.initializer = self._operations.initializer

    # What it is -------------------------------------------------------------------------------

    @property
    def operations(self) -> VariableOperations:
        """The reads and writes of this variable: those of a graph, or eager ones."""
        return self._operations

    @property
    def is_eager(self) -> bool:
        """Whether the variable has a value outside of sessions."""
        return self._operations.is_eager

    @property
    def op(self) -> Operation:
        """The handle op of a graph variable."""
        return self._operations.op

    @property
    def graph(self) -> Graph:
        """The graph that a graph variable belongs to."""
        return self._operations.op.graph

    @property
    def name(self) -> str:
        """The variable's name in the form of a tensor name: "x:0"."""
        return f"{self._ref.name}:0"

    @property
    def shape(self) -> TensorShape:
        """The size of each dimension."""
        return TensorShape.of(self._operations.shape)

    @property
    def dtype(self) -> Dtype:
        """The dtype of the elements."""
        return self._ref.dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def container(self) -> str:
        """The name of the variable's container; "" for the default one."""
        return self._ref.container

    @property
    def device(self) -> str:
        """The requested device, "" if there is none; for an eager variable, its actual device."""
        return str(self._ref.spec)

    @property
    def sharding(self) -> PartitionSpec | None:
        """How it is divided over its mesh; None if it is on one device, or is not declared so."""
        return self._operations.sharding

    # Reading ----------------------------------------------------------------------------------

    def value(self) -> Any:
        """Returns the value, dtype[*shape]: a tensor in graph code, otherwise an array.

        In a graph it is the value after the current control dependencies; it is unspecified
        whether other updates of the same step are in it. In a `jflow.function` it is the value at
        this line.
        """
        return self._operations.value()

    def read_value(self) -> Any:
        """Reads the value now; in graph code, after the current control dependencies."""
        return self._operations.read("read_value")

    def initialized_value(self) -> Tensor:
        """Returns the value if the variable is initialized, else its initial value: a tensor.

        Use it for initial values of other variables, which one step may then initialize too.
        """
        return self._operations.initialized_value()

    def numpy(self) -> np.ndarray[Any, Any]:
        """Returns the value of an eager variable as a NumPy array."""
        return np.asarray(self)

    def eval(self, session: Any = None) -> Any:
        """Returns the value in `session`, or in the default session if it is None."""
        return self.graph_element().eval(session=session)

    def to_tensor(self) -> Tensor:
        return self._operations.to_tensor()

    def graph_element(self) -> Tensor:
        return self._operations.graph_element()

    # Writing ----------------------------------------------------------------------------------

    def assign(self, value: Any, use_locking: bool | None = None, name: str = "Assign") -> Any:
        """Sets the value, which also initializes the variable.

        Args:
          value: dtype[*shape], an array, tensor or variable.
          use_locking: without effect: updates are always atomic.
          name: name of the operation.

        Returns:
          The new value: a tensor in graph code, an array in a `jflow.function`. Elsewhere the
          variable itself, because the value may not be needed.

        Raises:
          TypeError: if the value has another dtype.
          ValueError: if the value has another shape.
          InvalidArgumentError: in the step, if a shape that was unknown before is another one.
        """
        check_flag("use_locking", use_locking)
        written = self._operations.assign(read(value), name)
        return self if written is None else written

    def assign_add(
        self, delta: Any, use_locking: bool | None = None, name: str = "AssignAdd"
    ) -> Any:
        """Adds `delta`, dtype[*shape], to the value atomically; returns and raises as `assign`."""
        check_flag("use_locking", use_locking)
        return self.update(jnp.add, self._operations.fitting(read(delta)), name=name)

    def assign_sub(
        self, delta: Any, use_locking: bool | None = None, name: str = "AssignSub"
    ) -> Any:
        """Subtracts `delta` from the value atomically; returns and raises as `assign`."""
        check_flag("use_locking", use_locking)
        return self.update(jnp.subtract, self._operations.fitting(read(delta)), name=name)

    def load(self, value: Any, session: Any = None) -> None:
        """Assigns an array to the variable.

        Args:
          value: dtype[*shape].
          session: the session of a graph variable; None for the default session.
        """
        self._operations.load(read(value), session)

    def update(self, fun: Callable[..., Any], *operands: Any, name: str = "Update") -> Any:
        """Sets the value to `fun(old_value, *operands)` atomically.

        Args:
          fun: a function of JAX arrays that returns an array of the variable's shape and dtype.
          operands: arrays, tensors or variables.
          name: name of the operation.

        Returns:
          The new value, as `assign`.

        Raises:
          TypeError, ValueError: if `fun` does not accept the operands, or returns another shape or
            dtype.
        """
        written = self._operations.update(fun, [read(operand) for operand in operands], name)
        return self if written is None else written

    def count_up_to(self, limit: int, name: str = "CountUpTo") -> Tensor:
        """Increments an integer scalar until it reaches `limit`; see `jflow.count_up_to`."""
        return count_up_to(self._operations, limit, name)

    # Rows -------------------------------------------------------------------------------------

    def scatter_nd_update(self, indices: Any, updates: Any, name: str = "ScatterNdUpdate") -> Any:
        """Assigns to slices given by index vectors; see `jflow.scatter_nd_update`."""
        return self._scatter(SLICES["set"], indices, updates, name)

    def scatter_nd_add(self, indices: Any, updates: Any, name: str = "ScatterNdAdd") -> Any:
        """Adds to slices given by index vectors; see `jflow.scatter_nd_add`."""
        return self._scatter(SLICES["add"], indices, updates, name)

    def scatter_nd_sub(self, indices: Any, updates: Any, name: str = "ScatterNdSub") -> Any:
        """Subtracts from slices given by index vectors; see `jflow.scatter_nd_sub`."""
        return self._scatter(SLICES["subtract"], indices, updates, name)

    def _update_rows(self, method: str, indices: Any, updates: Any, name: str) -> Any:
        return self._scatter(ROWS[method], indices, updates, name)

    def _scatter(self, body: Body, indices: Any, updates: Any, name: str) -> Any:
        if updates is None:
            indices, updates = sparse_delta(indices)
        written = scatter(self._operations, body, read(indices), read(updates), name)
        return self if written is None else written

    # Arithmetic -------------------------------------------------------------------------------

    def _apply(self, fun: Callable[..., Any], *args: Any) -> Any:
        graph = self._operations.graph_of(args)
        return graph.apply(fun, args) if graph else fun(*map(read, args))

    @property
    def __jax_array__(self) -> Callable[[], Any]:
        asker = internals.asker()
        if asker is internals.Asker.JIT:
            raise ValueError(
                f"JAX cannot trace {self._ref} directly; pass its value(), or use the function of "
                "the same name in jflow.numpy, jflow.nn, jflow.lax or jflow.random"
            )
        if not self.is_eager and not internals.is_tracing():
            self._refuse_jax(asker)
        return lambda: self._operations.bind(read_p)

    def _value_for(self, use: str) -> Any:
        return self._operations.bind(read_p) if self.is_eager else super()._value_for(use)

    def __repr__(self) -> str:
        attributes = f"{self.name!r} shape={declared(self.shape)} dtype={self.dtype.name}"
        return f"<jflow.Variable {self._operations.describe(attributes)}>"

    def _card(self) -> Card:
        facts = (
            *value_facts(self),
            ("value", self._operations.preview()),
            ("container", self._ref.container or "the default one"),
            ("device", self._ref.spec),
            ("sharding", self.sharding),
            ("trained by optimizers", "" if self.trainable else "no"),
        )
        note = "" if self.is_eager else "In graph code: its value is that of a session."
        return Card("Variable", self.name, facts, note=note)

    def __dir__(self) -> list[str]:
        return visible(
            super().__dir__(),
            *("graph_element", "initialize_from", "of_operations", "operations"),
            *("restore_sources", "to_tensor"),
        )


def value_facts(variable: Any) -> Sequence[tuple[str, object]]:
    """Returns the shape, the dtype and the size of a variable, for its card."""
    dims, dtype = declared(variable.shape), variable.dtype
    sizes = [size for size in dims or () if size is not None]
    is_sized = dims is not None and len(sizes) == len(dims) and isinstance(dtype, np.dtype)
    n_bytes = bytes_text(math.prod(sizes) * dtype.itemsize) if is_sized else None
    return (("shape", dims), ("dtype", dtype.name), ("size", n_bytes))


def on_device_of(variable: Any) -> AbstractContextManager[Any]:
    """Returns a context manager whose operations run on a variable's device, ignoring outer scopes.

    Args:
      variable: a variable, eager or of a graph, or a tensor.
    """
    if isinstance(variable, Variable) and variable.is_eager:
        spec = variable.operations.ref.spec
        return request.request_scope(request.Request((None, spec), (None,)))
    return colocate_with(variable, ignore_existing=True)


def read(value: Any) -> Any:
    """Returns the value of a variable, and any other argument unchanged."""
    return value.value() if isinstance(value, VariableLike) else value


def _refuse_tracing(name: str | None) -> None:
    """Raises ValueError while JAX traces, since a traced function may run any number of times."""
    if internals.is_tracing():
        which = f"variable {name!r}" if name else "a variable"
        raise ValueError(
            f"{which} is created inside a function that JAX traces "
            f"(at {origin.describe(origin.user_location())}), such as a branch, the body of a loop "
            "or a jflow.function; create it once, outside the function, and use it inside"
        )


def _check_eager(name: str, validate_shape: bool, caching_device: Any) -> None:
    if not validate_shape:
        raise ValueError(
            f"variable {name!r} is eager and cannot have validate_shape=False: functions are "
            "compiled for the sizes of eager variables; make it in graph code"
        )
    if caching_device is not None:
        raise ValueError(
            f"variable {name!r} is eager and cannot have a caching_device: a function reads it "
            "where it lives; make it in graph code"
        )


def _listing(collections: Sequence[str] | None, trainable: bool) -> dict[str, None]:
    """Returns the collections that a variable is added to, each once."""
    if isinstance(collections, str):
        raise TypeError(f"collections is a list of names, got the text {collections!r}")
    keys = (GraphKeys.GLOBAL_VARIABLES,) if collections is None else tuple(collections)
    return dict.fromkeys((*keys, GraphKeys.TRAINABLE_VARIABLES) if trainable else keys)


def sparse_delta(delta: Any) -> tuple[Any, Any]:
    """Returns the indices and values of a sparse delta, such as an `IndexedSlices`."""
    if not (hasattr(delta, "indices") and hasattr(delta, "values")):
        raise TypeError(
            "expected indices and updates, or one object with the attributes indices and values, "
            f"got {delta!r:.80} alone"
        )
    return delta.indices, delta.values

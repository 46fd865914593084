"""Accesses to variables: operations in graph code, equations in traced functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from jflow.base.values import (
    abstract,
    as_array,
    is_compatible,
    is_known,
    is_static,
    is_symbol,
    plain_shape,
    unknown_sizes,
)
from jflow.client.stateful.initial import (
    INITIALIZER,
    declared_sharding,
    guarded,
    initial_tensor,
    initialized_value,
)
from jflow.client.stateful.operands import body_of, checked
from jflow.compiler.graph import (
    Graph,
    Operation,
    Tensor,
    VariableRef,
    device,
    origin,
    request,
)
from jflow.compiler.graph.packing import has_tensors, leaves_of, packed
from jflow.compiler.graph.primitives import assign_p, read_p, update_p, variable_p
from jflow.plan.xla import internals
from jflow.plan.xla.shardings import spec_of_text


class VariableOperations(ABC):
    """Reads and writes a variable.

    If `graph_of` returns a graph, an access becomes an operation of it. Otherwise it is bound as a
    JAX primitive: an equation in a traced function, or an immediate call to the state owner.

    Attributes:
      ref: the reference to the variable in equations.
      is_eager: whether it has a value outside sessions.
      is_varying: whether an assignment may change its sizes.
    """

    is_eager = False
    is_varying = False

    def __init__(self, ref: VariableRef) -> None:
        self.ref = ref

    @property
    @abstractmethod
    def op(self) -> Operation:
        """The handle op. Raises AttributeError if the variable does not belong to a graph."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each dimension."""
        return self.ref.shape

    @abstractmethod
    def graph_of(self, inputs: Sequence[Any]) -> Graph | None:
        """Returns the graph to add an access with these inputs to; None outside of graph code."""

    @abstractmethod
    def value(self) -> Any:
        """Returns the value: a tensor, a traced value or an array."""

    @abstractmethod
    def to_tensor(self) -> Tensor:
        """Returns the value as a tensor."""

    @property
    def sharding(self) -> PartitionSpec | None:
        """How it is divided over its mesh, if that is declared."""
        return spec_of_text(self.ref.sharding)

    def graph_element(self) -> Tensor:
        """Returns the tensor that represents the variable in fetches, feeds and files."""
        return self.to_tensor()

    @abstractmethod
    def load(self, value: Any, session: Any) -> None:
        """Sets the value immediately."""

    @abstractmethod
    def describe(self, attributes: str) -> str:
        """Returns the attributes in the variable's repr, given those common to all variables."""

    def preview(self) -> str | None:
        """Returns the value in one line if this process has it; None otherwise."""
        return None

    def read(self, name: str) -> Any:
        """Adds a read to the graph, or binds it as an equation."""
        graph = self.graph_of(())
        return add_access(graph, read_p, [], self.ref, name) if graph else self.bind(read_p)

    def write(
        self, primitive: jex.Primitive, inputs: Sequence[Any], name: str, **params: Any
    ) -> Any:
        """Adds or binds a write; returns the new value, or None if it was executed immediately."""
        graph = self.graph_of(inputs)
        if graph:
            return add_access(graph, primitive, inputs, self.ref, name, **params)
        return self.bind(primitive, inputs, **params, **traced_line())

    def bind(self, primitive: jex.Primitive, inputs: Sequence[Any] = (), **params: Any) -> Any:
        """Binds an access as a JAX primitive, which stops gradients as in graph code."""
        values = map(jax.lax.stop_gradient, inputs)
        return primitive.bind(*values, variable=self.ref, **params)

    def initialized_value(self) -> Tensor:
        """Returns the value, or else the initial value; see `Variable.initialized_value`."""
        return self.to_tensor()

    # Writes -----------------------------------------------------------------------------------

    def assign(self, value: Any, name: str) -> Any:
        """Sets the value; see `Variable.assign`."""
        operand = self._convert_value(value)
        if not is_compatible(self.shape, operand.shape):
            raise ValueError(
                f"cannot assign a value of shape {operand.shape} to {self.ref} "
                f"of shape {self.shape}"
            )
        if self.is_varying:
            operand = self._check_rank(operand)
        else:
            operand = self.check_shape(operand, self.shape, "cannot assign to")
        return self.write(assign_p, [operand], name)

    def update(
        self,
        fun: Callable[..., Any],
        operands: Sequence[Any],
        name: str,
        *,
        is_guarded: bool = False,
    ) -> Any:
        """Sets the value to `fun` of the old value and the operands; see `Variable.update`.

        If `is_guarded`, `fun` itself returns the old value if the preceding check fails.
        """
        self._check_fixed()
        inputs = [self.operand(operand) for operand in operands]
        body = body_of(fun, self.ref.aval, inputs)
        new = body.out_avals
        if [(x.shape, x.dtype) for x in new] != [(self.shape, self.ref.dtype)]:
            raise ValueError(
                f"an update of {self.ref} returns {', '.join(map(str, new))}, but the variable is "
                f"{self.ref.aval}"
            )
        return self.write(update_p, inputs, name, body=body, is_guarded=is_guarded)

    # Operands ---------------------------------------------------------------------------------

    def operand(self, value: Any, dtype: Any = None) -> Any:
        """Converts a value to an operand: a tensor in graph code, otherwise an array."""
        value = self._packed(value, dtype)
        if not isinstance(value, Tensor | jax.Array):
            value = as_array(value, dtype)
        graph = self.graph_of((value,))
        return graph.as_tensor(value) if graph else value

    def check_shape(
        self, value: Any, shape: tuple[Any, ...], what: str, like: Any = None, leading: int = 0
    ) -> Any:
        """Returns a value of a known shape; if it is not known, the step checks it."""
        if value.shape == shape:
            return value
        return checked(self.graph_of((value,)), value, shape, self.ref, what, like, leading)

    def _convert_value(self, value: Any) -> Any:
        """Converts a value to a tensor or array of the variable's dtype."""
        dtype = self.ref.dtype
        value = self._packed(value, dtype)
        if isinstance(value, jax.Array) and self._promotes(value):
            value = value.astype(dtype)
        if isinstance(value, Tensor | jax.Array) and value.dtype != dtype:
            raise TypeError(
                f"{self.ref} has dtype {dtype.name}, but the value has {value.dtype.name}; "
                "convert it with .astype (in graph code jflow.numpy.astype)"
            )
        return self.operand(value, dtype)

    def _packed(self, value: Any, dtype: Any) -> Any:
        """Returns a list or tuple that contains tensors as one of them, all else unchanged."""
        if not has_tensors(value):
            return value
        return packed(self.graph_of([*leaves_of(value)]), value, dtype)

    def _promotes(self, value: jax.Array) -> bool:
        """Whether a value is weakly typed and JAX promotes it to the variable's dtype."""
        weak = getattr(value, "weak_type", False)
        dtype = self.ref.dtype
        return bool(weak and jnp.promote_types(value.dtype, dtype) == dtype)

    def fitting(self, value: Any) -> Any:
        """Converts a value to an operand that broadcasts to the shape of the variable.

        An operand of unknown shape must have exactly that shape, which the step checks.

        Raises:
          ValueError: if it does not broadcast to it.
        """
        self._check_fixed()
        operand = self._convert_value(value)
        has_sizes = is_static(operand.shape)
        if not has_sizes and is_compatible(self.shape, operand.shape):
            return self.check_shape(operand, self.shape, "cannot update")
        if not has_sizes or jnp.broadcast_shapes(self.shape, operand.shape) != self.shape:
            raise ValueError(
                f"an update of shape {operand.shape} does not fit {self.ref} of shape {self.shape}"
            )
        return operand

    def of_current_shape(self, value: Any) -> Any:
        """Converts a value to an operand of the shape that the variable has in the step."""
        operand, current = self._convert_value(value), self.read("read_value")
        n_sizes = len(current.shape)
        return self.check_shape(operand, current.shape, "cannot assign to", current, n_sizes)

    def _check_rank(self, operand: Any) -> Any:
        """Returns an operand whose rank is checked, for a variable whose sizes may change."""
        # A derived size, such as a sum of two, would look like an argument of the program.
        sizes = plain_shape(operand.shape)
        if sizes is not None and all(is_known(x) or is_symbol(x) for x in sizes):
            return operand
        return self.check_shape(operand, unknown_sizes(len(self.shape)), "cannot assign to")

    def _check_fixed(self) -> None:
        if self.is_varying:
            raise ValueError(
                f"{self.ref} may change its size and cannot be updated in place; assign a new "
                "value: v.assign(v + delta)"
            )


class GraphVariable(VariableOperations):
    """A variable of a graph, which each session initializes in its containers by `initializer`.

    Args:
      graph: the graph.
      initial_value: as for `Variable`.
      name: made unique in the graph.
      dtype: as for `Variable`.
      validate_shape, caching_device, sharding: as for `Variable`.

    Attributes:
      initial_value: the tensor that `initializer` assigns.
      initializer: the operation that initializes the variable.
    """

    def __init__(
        self,
        graph: Graph,
        initial_value: Any,
        name: str,
        dtype: Any,
        validate_shape: bool,
        caching_device: Any = None,
        *,
        sharding: PartitionSpec | NamedSharding | None = None,
    ) -> None:
        # Later reads and initializations must not depend on the control inputs of this block.
        with graph.scopes.replaced(control_inputs=()):
            value = initial_value() if callable(initial_value) else initial_value
            initial = initial_tensor(graph, value, dtype, name, validate_shape)
            self.initial_value = guarded(initial, name)
            shape: Any = self.initial_value.aval.shape
            dtype = self.initial_value.dtype
            if not validate_shape:
                shape = unknown_sizes(len(shape))
            declared = abstract(shape, dtype)
            self._op = graph.add(variable_p, [], [], name=name, declares=declared)
            ref = VariableRef(
                self._op.name,
                graph.scopes.here.container,
                shape,
                dtype,
                self._op.spec,
                graph,
                declared_sharding(sharding, shape, self._op.spec, name),
            )
            super().__init__(ref)
            self.is_varying = not is_static(ref.shape)
            graph.declare(ref, self._op)
            self.replace_initial_value(self.initial_value)
            with graph.scopes.replaced(names=f"{self._op.name}/"):
                self._value: Tensor = self._copy_to_cache(self.read("read"), caching_device)
            graph.declare_value(f"{ref.name}:0", self._value)
            self._later_values: dict[tuple[Operation, ...], Tensor] = {}

    @classmethod
    def of_parts(
        cls,
        op: Operation,
        ref: VariableRef,
        initial_value: Tensor,
        initializer: Operation,
        value: Tensor,
    ) -> GraphVariable:
        """Returns a variable whose operations its graph has already, such as an imported one.

        Args:
          op: the handle operation.
          ref: its reference.
          initial_value, initializer: see above.
          value: the tensor that stands for its value.
        """
        operations = cls.__new__(cls)
        VariableOperations.__init__(operations, ref)
        operations._op, operations._value, operations._later_values = op, value, {}
        operations.initial_value, operations.initializer = initial_value, initializer
        op.graph.declare_initializer(ref, initializer)
        operations.is_varying = not is_static(ref.shape)
        op.graph.declare_value(f"{ref.name}:0", value)
        return operations

    def replace_initial_value(self, value: Tensor) -> None:
        """Makes an initializer that assigns a tensor of the variable's dtype and shape."""
        graph = self._op.graph
        with graph.scopes.replaced(control_inputs=(), names=f"{self._op.name}/"):
            self.initial_value = value
            self.initializer: Operation = self.write(assign_p, [value], INITIALIZER).op
        graph.declare_initializer(self.ref, self.initializer)

    @property
    def op(self) -> Operation:
        return self._op

    @property
    def shape(self) -> tuple[int, ...]:
        # The sizes of a variable that may change them are those of its last read.
        shape: Any = self._value.aval.shape if self.is_varying else self.ref.shape
        sizes: tuple[int, ...] = shape
        return sizes

    def graph_of(self, inputs: Sequence[Any]) -> Graph | None:
        return graph_among(inputs) if internals.is_tracing() else self._op.graph

    def value(self) -> Any:
        return self.read("read") if internals.is_tracing() else self.to_tensor()

    def to_tensor(self) -> Tensor:
        """Returns the value, read after the current control inputs unless it is a cached copy.

        Without control inputs it is one tensor for all uses, whose read nothing orders. Uses after
        the same control inputs share a read, because nothing orders the writes between them.
        """
        scopes = self._op.graph.scopes
        after = scopes.here.control_inputs
        if not after or self._value.op.eqn.primitive is not read_p:
            return self._value
        value = self._later_values.get(after)
        if value is None:
            with scopes.replaced(names=f"{self._op.name}/"):
                value = add_access(self._op.graph, read_p, [], self.ref, "read")
            self._later_values[after] = value
        return value

    def graph_element(self) -> Tensor:
        return self._value

    def _copy_to_cache(self, value: Tensor, where: Any) -> Tensor:
        """Returns a copy of a value on the caching device, or the value itself if there is none."""
        if where is None:
            return value
        with request.request_scope(request.Request((None,))), device(where):
            copied: Tensor = value.graph.apply(jnp.copy, (value,), name="cached")
        return copied

    def initialized_value(self) -> Tensor:
        if self.is_varying:
            raise ValueError(
                f"{self.ref} may change its size, so no tensor can be either its value or its "
                "initial one; initialize it in a step of its own"
            )
        return initialized_value(self.ref, self.initial_value, "initialized_value")

    def load(self, value: Any, session: Any) -> None:
        self.initializer.run({self.initial_value: value}, session)

    def describe(self, attributes: str) -> str:
        return attributes

    def bind(self, primitive: jex.Primitive, inputs: Sequence[Any] = (), **params: Any) -> Any:
        if self.is_varying:
            raise ValueError(
                f"{self.ref} may change its size and cannot be used in a traced function; pass "
                "its value as an argument, and assign the value that the function returns"
            )
        return super().bind(primitive, inputs, **params)


def graph_among(inputs: Sequence[Any]) -> Graph | None:
    """Returns the graph of the first tensor among the inputs, or None."""
    return next((value.graph for value in inputs if isinstance(value, Tensor)), None)


def add_access(
    graph: Graph,
    primitive: jex.Primitive,
    inputs: Sequence[Tensor],
    ref: VariableRef,
    name: str,
    **params: Any,
) -> Tensor:
    """Adds a read or write of a variable to a graph; returns the value after the access."""
    atoms = [tensor.var for tensor in inputs]
    aval = ref.aval
    if not is_static(ref.shape):
        # Another operation may change the sizes between two accesses, so each has its own symbols.
        sizes = inputs[0].aval.shape if primitive is assign_p else unknown_sizes(len(ref.shape))
        aval = jax.core.ShapedArray(sizes, ref.dtype)
    return graph.add(primitive, atoms, [aval], name=name, variable=ref, **params).outputs[0]


def traced_line() -> dict[str, str]:
    """Returns the user's line for a traced write, for errors that JAX may raise later."""
    return {"line": origin.describe(origin.user_location())} if internals.is_tracing() else {}

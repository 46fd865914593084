"""`PartitionedVariable`: one logical variable that consists of several variables, its parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jflow.base.values import Dtype, declared
from jflow.client.ops import Variable
from jflow.client.ops.in_place import check_flag
from jflow.client.variables.partitioners import axis_of, split
from jflow.client.variables.parts import InParts
from jflow.compiler.graph import Graph, Symbolic, Tensor, control_dependencies


class PartitionedVariable(InParts):
    """A variable cut along one dimension into parts, which can be on several tasks.

    `get_variable` makes it if there is a partitioner. As an operand it is one tensor, the
    concatenation of the parts; `embedding_lookup` reads only rows of them. The parts are in the
    collections of the graph; a checkpoint stores the variable as a whole, under its name.

    Args:
      name: its name; those of the parts begin with it.
      shape: its shape.
      dtype: its dtype.
      variable_list: the parts, in order.
      partitions: the number of parts in each dimension, at most one of them larger than 1.
    """

    _called = "parts"

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: Dtype,
        variable_list: Sequence[Variable],
        partitions: Sequence[int],
    ) -> None:
        self._name = name
        self._shape = shape
        self._parts = tuple(variable_list)
        self._partitions = tuple(partitions)
        # Made here, because a session may use the variable when its graph is finalized.
        with control_dependencies(None):
            self._value = self._concatenated()

    @property
    def graph(self) -> Graph:
        """The graph that the parts belong to."""
        return self._parts[0].graph

    @property
    def partitions(self) -> tuple[int, ...]:
        """The number of parts in each dimension."""
        return self._partitions

    @property
    def axis(self) -> int:
        """The dimension along which the variable is cut."""
        return axis_of(self._partitions)

    # Reading ----------------------------------------------------------------------------------

    def as_tensor(self) -> Tensor:
        """Returns the parts concatenated, dtype[*shape], after the control dependencies."""
        return self._concatenated() if self.graph.scopes.here.control_inputs else self._value

    def to_tensor(self) -> Tensor:
        return self.as_tensor()

    def graph_element(self) -> Tensor:
        return self._value

    def eval(self, session: Any = None) -> Any:
        """Returns the value in `session`, or in the default session if it is None."""
        return self._value.eval(session=session)

    def _concatenated(self) -> Tensor:
        values = [part.value() for part in self._parts]
        if len(values) == 1:
            only: Tensor = values[0]
            return only
        joined: Tensor = self.graph.apply(
            jnp.concatenate, (values,), {"axis": self.axis}, name=f"{self._name}/concat"
        )
        return joined

    def _apply(self, fun: Callable[..., Any], *args: Any) -> Any:
        return self.graph.apply(fun, args)

    # Writing ----------------------------------------------------------------------------------

    def assign(
        self, value: Any, use_locking: bool | None = None, name: str = "Assign"
    ) -> list[Any]:
        """Sets each part to its slice of a value.

        Args:
          value: dtype[*shape], an array or tensor; or another partitioned variable with the same
            partition, which is then not concatenated.
          use_locking, name: as for `Variable.assign`.

        Returns:
          The new values of the parts, as `Variable.assign`.

        Raises:
          TypeError, ValueError: as `Variable.assign`.
        """
        check_flag("use_locking", use_locking)
        return self._each(Variable.assign, value, name)

    def assign_add(
        self, value: Any, use_locking: bool | None = None, name: str = "AssignAdd"
    ) -> list[Any]:
        """Adds to each part its slice of a value; see `assign`."""
        check_flag("use_locking", use_locking)
        return self._each(Variable.assign_add, value, name)

    def assign_sub(
        self, value: Any, use_locking: bool | None = None, name: str = "AssignSub"
    ) -> list[Any]:
        """Subtracts from each part its slice of a value; see `assign`."""
        check_flag("use_locking", use_locking)
        return self._each(Variable.assign_sub, value, name)

    def _each(self, method: Callable[..., Any], value: Any, name: str) -> list[Any]:
        slices = self._slices(value)
        return [method(part, piece, name=name) for part, piece in zip(self, slices, strict=True)]

    def _slices(self, value: Any) -> list[Any]:
        if isinstance(value, PartitionedVariable) and value.partitions == self.partitions:
            return [part.value() for part in value]
        if not isinstance(value, Symbolic | jax.Array):
            value = np.asarray(value)
        elif isinstance(value, Symbolic):
            value = self.graph.as_tensor(value)
        if tuple(value.shape) != self._shape:
            raise ValueError(
                f"cannot assign a value of shape {declared(value.shape)} to partitioned variable "
                f"{self._name!r} of shape {self._shape}"
            )
        return split(value, [part.shape[self.axis] for part in self], self.axis)

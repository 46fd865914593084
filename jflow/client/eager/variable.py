"""Eager variables, which are initialized when they are made and are used without a session."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, cast

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jflow.base.values import as_array
from jflow.client.stateful.initial import check_initial, declared_sharding
from jflow.client.stateful.variable import VariableOperations, add_access, graph_among
from jflow.compiler.graph import Graph, Operation, Tensor, VariableRef
from jflow.compiler.graph import get_default_graph as _default_graph
from jflow.compiler.graph.owners import EagerOwner
from jflow.compiler.graph.primitives import read_p, variable_p
from jflow.plan.xla.shardings import spec_of_text

MAX_COPIED_BYTES = 1 << 20
"""A larger value on an accelerator is not shown, because that requires a copy."""

_MAX_WAIT_S = 0.2
_PAUSE_S = 0.001


class EagerVariable(VariableOperations):
    """A variable that a connection reads and writes immediately.

    If the container has a variable of this name, it has that variable's value, else the initial
    value. An access with a tensor as an operand is an operation in the tensor's graph.

    Args:
      owner: the connection.
      initial_value: an array, or a function that computes it on the variable's device.
      name: its name in the container; None for a variable that is not shared.
      dtype: its dtype; None for that of the initial value.
      sharding: as for `Variable`.

    Raises:
      InvalidArgumentError: if the container has a variable of this name with another shape, dtype
        or sharding.
    """

    is_eager = True

    def __init__(
        self,
        owner: EagerOwner,
        initial_value: Any,
        name: str | None,
        dtype: Any,
        sharding: PartitionSpec | NamedSharding | None = None,
    ) -> None:
        if callable(initial_value):
            aval = jax.eval_shape(initial_value)
        else:
            aval = initial_value = as_array(initial_value, dtype)
        check_initial(aval, dtype, name or "")
        ref = declared_ref(owner, aval, name, sharding)
        super().__init__(owner.create(ref, initial_value))
        self._owner = owner
        # Its first value, or another program, may have decided it.
        is_open = self.ref.spec.axes and not self.ref.sharding
        self._sharding = owner.sharding_of(self.ref) if is_open else self.ref.sharding

    @classmethod
    def of_ref(cls, owner: EagerOwner, ref: VariableRef) -> EagerVariable:
        """Returns the operations on a referenced variable, which may be uninitialized."""
        operations = cls.__new__(cls)
        VariableOperations.__init__(operations, ref)
        operations._owner, operations._sharding = owner, ref.sharding
        return operations

    @property
    def sharding(self) -> PartitionSpec | None:
        return spec_of_text(self._sharding)

    @property
    def op(self) -> Operation:
        raise AttributeError(f"{self.ref} is eager and has no operation in a graph")

    def graph_of(self, inputs: Sequence[Any]) -> Graph | None:
        return graph_among(inputs)

    def value(self) -> Any:
        return self.bind(read_p)

    def to_tensor(self) -> Tensor:
        return add_access(_default_graph(), read_p, [], self.ref, "read")

    def load(self, value: Any, session: Any) -> None:
        self.assign(value, "Assign")

    def preview(self) -> str | None:
        has_numbers = isinstance(self.ref.dtype, np.dtype)  # and is not a random key
        return preview(self._owner.peek(self.ref)) if has_numbers else None

    def describe(self, attributes: str) -> str:
        value = self.preview()
        shown = f"device={self.ref.spec}" if value is None else f"value={value}"
        return f"eager {attributes} {shown}"


def declared_ref(
    owner: EagerOwner,
    aval: Any,
    name: str | None,
    sharding: PartitionSpec | NamedSharding | None = None,
) -> VariableRef:
    """Returns a reference to an eager variable as the current blocks request it.

    Args:
      owner, name, sharding: as for `EagerVariable`.
      aval: its shape and dtype.
    """
    scope = _default_graph().scopes.here
    name = scope.names + name if name else owner.unnamed()
    # Device functions of the enclosing blocks take an operation, so it needs a graph.
    declared = jax.core.ShapedArray(aval.shape, aval.dtype)
    spec = Graph().add(variable_p, [], [], name=name, declares=declared).spec
    text = declared_sharding(sharding, aval.shape, spec, name)
    return VariableRef(name, scope.container, tuple(aval.shape), aval.dtype, spec, owner, text)


def preview(array: jax.Array | None) -> str | None:
    """Formats a value on one line, abbreviating long ones.

    Args:
      array: the value in this process, or None. It may not be computed yet, and an update may
        donate its buffer at any time.

    Returns:
      The text; None if there is no value in this process, or it is too large.
    """
    if array is None:
        return None
    try:
        if not _is_computed_soon(array):
            return "(not computed yet)"
        value = _host_elements(array)
        if value is None:
            return None
        text = np.array2string(value, threshold=16, edgeitems=2, separator=" ")
    except Exception:  # the buffer was donated, for which JAX has several errors
        return None
    return " ".join(text.split()).replace("[ ", "[")


def _is_computed_soon(array: jax.Array) -> bool:
    """Whether a value is computed within a short wait."""
    deadline = time.monotonic() + _MAX_WAIT_S
    while not cast("Any", array).is_ready():
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_S)
    return True


def _host_elements(array: jax.Array) -> np.ndarray[Any, Any] | None:
    """Returns the elements on the host, without a copy if possible; None if they are too large."""
    try:
        # Unlike np.asarray, this does not cache a view that would make the next update copy.
        return np.from_dlpack(cast("Any", array))
    except (BufferError, RuntimeError, TypeError):  # on an accelerator, or not a dtype of DLPack
        return np.asarray(array) if array.nbytes <= MAX_COPIED_BYTES else None

"""Snapshots of variables, and how they are taken and restored beside running programs.

A snapshot of several variables is a *cut*: one moment in the order in which accesses to variables
are granted. The writes of every program that was granted before it are in the snapshot, those of
every later program are not. A cut blocks no program: it leases each variable that no program is
writing at once, and each of the others as soon as the program that writes it ends, before the
next one is granted. A later update of a leased variable works on a copy of it, so that no
step waits for longer than that copy takes, and no donation can invalidate the leased value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, Sharding

from jflow.base.cluster import Device
from jflow.base.values import (
    NUMBERS,
    Array,
    Shape,
    TensorSpec,
    is_switched_off,
    shape_text,
    type_name,
)
from jflow.errors import InvalidArgumentError
from jflow.plan import VARYING, VariableKey, VariableSpec
from jflow.plan.xla.hardware import DeviceOrMesh, whole_on
from jflow.plan.xla.host_view import host_view
from jflow.plan.xla.shardings import nearest_sharding, text_of_sharding
from jflow.state.moves import StateId, container_on
from jflow.state.moves.states import VARIABLE
from jflow.state.quotas import Account, Usage
from jflow.state.resources.variable.access import Access, Cut
from jflow.state.resources.variable.state import Buffer, Lease, VariableState, stored_bytes


class VariableId(NamedTuple):
    """Identifies a variable of a task; the default container is ""."""

    container: str
    device: str
    name: str

    @classmethod
    def of(cls, device: Device, key: VariableKey) -> VariableId:
        """Returns the id of the variable with this key on a device."""
        return cls(container_on(device.task, key.container), str(device), key.name)

    @classmethod
    def of_state(cls, state: StateId) -> VariableId:
        """Returns the id of a variable by its name in the cluster."""
        return cls(state.container, state.device, state.name)

    @property
    def state(self) -> StateId:
        """The name of the variable in the cluster."""
        return StateId(self.device, VARIABLE, self.container, self.name)

    def __str__(self) -> str:
        return f"variable {self.name!r} (container {self.container!r}) on {self.device}"


@dataclass(frozen=True, eq=False)
class VariableSnapshot:
    """The saved value of a variable.

    Attributes:
      spec: the variable; its dtype and shape are those that programs see.
      value: a host copy in physical form: an int4 is saved as int8, a random key as its key data.
    """

    spec: VariableSpec
    value: Array

    def check(self, variable: object) -> None:
        """Raises InvalidArgumentError if the value does not match the spec."""
        stored_dtype = NUMBERS.get(self.spec.dtype)
        shape = declared_shape(self.spec)
        if stored_dtype is None:  # random keys, whose data has more dimensions
            is_valid = self.value.ndim > len(shape) and self.value.dtype == np.uint32
        else:
            is_valid = TensorSpec(shape, stored_dtype).physical.fits(self.value)
        if not is_valid:
            raise InvalidArgumentError(
                f"cannot restore {variable}: its value in the snapshot is of {self.spec.dtype} and "
                f"shape {shape_text(shape)}, but its data is of {type_name(self.value)} and shape "
                f"{self.value.shape}"
            )
        if is_switched_off(self.value.dtype):
            raise InvalidArgumentError(
                f"cannot restore {variable}: {self.spec.dtype} needs 64-bit types, which JAX has "
                "switched off; call jax.config.update('jax_enable_x64', True) first"
            )


@dataclass(frozen=True, eq=False)
class LeasedVariable:
    """The leased value of a variable at the moment of a cut.

    Attributes:
      spec: the variable.
      lease: keeps the value unchanged; the device may still be computing it.
    """

    spec: VariableSpec
    lease: Lease

    def snapshot(self) -> VariableSnapshot:
        """Copies the value to the host, waiting for the device, and ends the lease.

        It must be called without `Containers.lock`.
        """
        try:
            array = self.lease.buffer.array
            view = host_view(array)
            spec = replace(self.spec, sharding=text_of_sharding(array.sharding, array.ndim))
            return VariableSnapshot(spec, view if view.flags.owndata else np.array(view))
        finally:
            self.lease.release()


class VariableCut(Cut):
    """A cut that leases variables at one moment, into `leased`.

    It is submitted to `Containers.accesses`; only a program that is writing a variable when the cut
    begins makes it wait.

    Args:
      variables: all variables of the task.
      wanted: which of them to lease.

    Attributes:
      leased: the leased values. Those of variables that were not initialized are missing.
    """

    __slots__ = ("_variables", "leased")

    def __init__(
        self, variables: Mapping[VariableId, VariableState], wanted: Iterable[VariableId]
    ) -> None:
        super().__init__(wanted)
        self._variables = variables
        self.leased: dict[VariableId, LeasedVariable] = {}

    def take(self, key: Hashable) -> None:
        assert isinstance(key, VariableId)
        variable = self._variables.get(key)
        if variable is not None:
            self.leased[key] = LeasedVariable(variable.spec, variable.lease())

    def rollback(self) -> None:
        for leased in self.leased.values():
            leased.lease.release()
        self.leased = {}


class RestoreVariables(Access):
    """Sets variables to saved values, all at one moment; after an error it has set none.

    It is submitted to `Containers.accesses` and is done when it completes. It waits for programs
    that write the variables. Values that are leased do not change. A variable that is not
    initialized is made.

    Args:
      variables: all variables of the task.
      snapshots: what to restore.
      device_of: the device of a variable.
      usage: charged for the variables that it makes.
      is_owned: whether nothing else uses the arrays of the snapshots.

    Attributes:
      is_charged: whether the variables that it makes are charged already; False at first.

    Raises:
      InvalidArgumentError: if a snapshot is inconsistent. If one does not have the dtype and shape
        of its variable, the attempt fails with it; if new variables would exceed a quota, with a
        ResourceExhaustedError.
    """

    __slots__ = ("_arrays", "_snapshots", "_usage", "_variables", "is_charged")

    def __init__(
        self,
        variables: MutableMapping[VariableId, VariableState],
        snapshots: Mapping[VariableId, VariableSnapshot],
        device_of: Callable[[VariableId], DeviceOrMesh],
        usage: Usage,
        *,
        is_owned: bool = False,
    ) -> None:
        # It reads as far as the order is concerned: it needs no time between its grant and its end.
        super().__init__(tuple(snapshots), ())
        self.is_charged = False
        self._variables = variables
        self._usage = usage
        self._snapshots = snapshots
        for key, snapshot in snapshots.items():
            snapshot.check(key)
        # A copy, because on a CPU the array may be a view of the memory that it is made from, also
        # with may_alias=False (JAX 0.10), and programs write to the memory of a variable.
        self._arrays = {
            key: jax.device_put(
                snapshot.value if is_owned else snapshot.value.copy(),
                self._sharding(key, snapshot, device_of(key)),
            )
            for key, snapshot in snapshots.items()
        }

    def _sharding(
        self, key: VariableId, snapshot: VariableSnapshot, device: DeviceOrMesh
    ) -> Sharding:
        """Returns how the new value is sharded: as the old one, if there is one, or as declared."""
        variable = self._variables.get(key)
        if variable is not None and variable.buffer.array.shape == snapshot.value.shape:
            return variable.buffer.array.sharding
        if isinstance(device, Mesh) and snapshot.spec.sharding:
            return nearest_sharding(device, snapshot.spec.sharding, snapshot.value.shape)
        return whole_on(device)

    def take(self) -> None:
        for key, snapshot in self._snapshots.items():
            variable = self._variables.get(key)
            if variable is not None:
                _check_same(key, variable.spec, snapshot.spec)
        if not self.is_charged:
            self._usage.charge(self.new_bytes)
        for key, array in self._arrays.items():
            variable = self._variables.get(key)
            if variable is None:
                spec, account = self._snapshots[key].spec, Account(key.container)
                charged = stored_bytes(array)
                self._variables[key] = VariableState(spec, Buffer(array), account, charged)
            else:
                variable.update(array)
                variable.charge(self._usage)

    @property
    def new_bytes(self) -> Counter[Account]:
        """The bytes of the variables that it makes, by the accounts that they are charged to."""
        made = Counter[Account]()
        for key, array in self._arrays.items():
            if key not in self._variables:
                made[Account(key.container)] += stored_bytes(array)
        return made

    def put(self) -> None:
        """Does nothing: the variables were set at the grant."""

    def rollback(self) -> None:
        """Does nothing: a restored variable is not reset."""

    def reason(self, ahead: Access, writer: Access) -> str:
        return "waited to restore variables that another step writes"


def declared_shape(spec: VariableSpec) -> tuple[int | None, ...]:
    """Returns the shape of a variable, with None for sizes that assignments may change."""
    return tuple(None if size == VARYING else size for size in spec.shape)


def renamed(snapshot: VariableSnapshot, container: str, name: str) -> VariableSnapshot:
    """Returns the snapshot under another container and name."""
    key = replace(snapshot.spec.key, container=container, name=name)
    return replace(snapshot, spec=replace(snapshot.spec, key=key))


def _check_same(key: object, wanted: VariableSpec, saved: VariableSpec) -> None:
    if (wanted.dtype, wanted.shape) != (saved.dtype, saved.shape):
        shapes: tuple[Shape, Shape] = declared_shape(wanted), declared_shape(saved)
        raise InvalidArgumentError(
            f"cannot restore {key}: it has dtype {wanted.dtype} and shape {shape_text(shapes[0])}, "
            f"but the snapshot is of a variable with dtype {saved.dtype} and shape "
            f"{shape_text(shapes[1])}"
        )

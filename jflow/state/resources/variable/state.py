"""The value of a variable on its device, updated in place unless it is leased.

An update donates the buffer of the variable to XLA, which writes the result into it. A reader
that needs the value beyond the moment of reading (a running program, a transfer, a fetch, a later
segment, a snapshot) holds a lease on the buffer. While there is a lease, updates work on a copy,
and the leased value does not change. Usually there is none, and the address of the buffer stays
the same for the lifetime of the variable.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jflow.base.values import memory_bytes
from jflow.plan import VariableSpec
from jflow.state.quotas import DEFAULT, Account, Usage

Write = tuple[str, float]
"""The operation that wrote a value, and the start of its program (`time.monotonic`, seconds)."""

_NO_LEASES: frozenset[Lease] = frozenset()


@dataclass(eq=False, slots=True)
class Buffer:
    """A buffer with one value of a variable.

    Attributes:
      array: the value; the device may still be computing it.
      write: what wrote it; None once the device is known to have computed it.
      leases: the leases on it; one set for all buffers that have never been leased, because each
        update makes a buffer.
      n_updates: how many values the variable had before this one.
    """

    array: jax.Array
    write: Write | None = None
    leases: set[Lease] | frozenset[Lease] = _NO_LEASES
    n_updates: int = 0

    def lease(self) -> Lease:
        """Returns a new lease; the first one on a buffer needs `Containers.lock`."""
        if isinstance(self.leases, frozenset):
            self.leases = set()
        lease = Lease(self)
        self.leases.add(lease)
        return lease

    @property
    def is_computed(self) -> bool:
        """Whether the device has computed the value."""
        if self.write is not None and is_computed(self.array):
            self.write = None
        return self.write is None


@dataclass(eq=False, slots=True)
class Lease:
    """Keeps a buffer unchanged until it is released."""

    buffer: Buffer
    _until: jax.Array | None = None

    def again(self) -> Lease:
        """Returns another lease on the same buffer; this lease must not have been released."""
        return self.buffer.lease()

    def release(self) -> None:
        """Ends the lease; idempotent and thread-safe."""
        leases = self.buffer.leases
        assert isinstance(leases, set)  # it has this one
        leases.discard(self)

    def release_after(self, result: jax.Array) -> None:
        """Ends the lease once the device has computed `result`, which depends on the buffer."""
        if is_computed(result):
            self.release()
        else:
            self._until = result

    @property
    def is_over(self) -> bool:
        """Whether the result passed to `release_after` has been computed."""
        return self._until is not None and is_computed(self._until)


def stored_bytes(array: jax.Array) -> int:
    """Returns the memory that an array takes of all its devices; a replica on each counts."""
    n_bytes, sharding = memory_bytes(array), array.sharding
    if sharding.num_devices == 1 or not n_bytes:
        return n_bytes
    return (
        n_bytes // array.size * math.prod(sharding.shard_shape(array.shape)) * sharding.num_devices
    )


@dataclass(eq=False, slots=True)
class VariableState:
    """An initialized variable and its current value; `Containers.lock` guards every use.

    Attributes:
      spec: its definition.
      buffer: its value.
      account: what its memory is charged to.
      charged: how many bytes of it have been.
    """

    spec: VariableSpec
    buffer: Buffer
    account: Account = DEFAULT
    charged: int = 0

    def charge(self, usage: Usage, n_bytes: int | None = None) -> None:
        """Charges the memory of its value, or so many bytes, in place of what was charged."""
        wanted = stored_bytes(self.buffer.array) if n_bytes is None else n_bytes
        if wanted != self.charged:
            usage.add(self.account, wanted - self.charged)
            self.charged = wanted

    def update(self, array: jax.Array, write: Write | None = None) -> None:
        """Sets a new value."""
        self.buffer = Buffer(array, write, n_updates=self.buffer.n_updates + 1)

    def lease(self) -> Lease:
        """Returns a new lease on the current value."""
        return self.buffer.lease()

    @property
    def is_leased(self) -> bool:
        """Whether there is a lease on the current value."""
        leases = self.buffer.leases
        if not leases:
            return False
        for lease in [lease for lease in leases.copy() if lease.is_over]:
            lease.release()
        return bool(leases)

    def donate(self) -> jax.Array:
        """Returns the value, or a copy if it is leased, for donation; set a new value then."""
        array = self.buffer.array
        return jnp.copy(array) if self.buffer.leases and self.is_leased else array


def is_computed(array: jax.Array) -> bool:
    """Whether the device has computed an array; a donated array counts as computed."""
    try:
        ready: bool = array.is_ready()  # type: ignore[attr-defined]  # not in JAX's type stub
    except RuntimeError:  # it was donated
        return True
    return ready

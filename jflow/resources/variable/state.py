"""The value of a variable on its device, updated in place whenever nothing else looks at it.

An update gives XLA the variable's buffer to write the result into. Whatever needs the value beyond
the moment in which it was read (a program that runs, a transfer, a fetch, a later segment) holds a
lease on the buffer. While there is a lease an update works on a copy, so the holder keeps seeing
what it read; in the usual case there is none, and the address of the buffer stays the same for the
variable's whole life.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

from jflow.plan import VariableSpec

Write = tuple[str, float]
"""What wrote a value: the operation, and when its program was started (`time.monotonic`)."""


@dataclass(eq=False, slots=True)
class Buffer:
    """One value of a variable.

    Attributes:
      array: the value; the device may still be computing it.
      write: what wrote it, until it is known that the device has computed it.
      leases: those that still need it as it is.
    """

    array: jax.Array
    write: Write | None = None
    leases: set[Lease] = field(default_factory=set)

    @property
    def is_computed(self) -> bool:
        """Whether the device has computed the value."""
        if self.write is not None and is_computed(self.array):
            self.write = None
        return self.write is None


@dataclass(eq=False, slots=True)
class Lease:
    """The right to see a buffer unchanged until it is released."""

    buffer: Buffer
    _until: jax.Array | None = None

    def again(self) -> Lease:
        """Another lease on the same buffer; this one must not have been released."""
        lease = Lease(self.buffer)
        self.buffer.leases.add(lease)
        return lease

    def release(self) -> None:
        """Gives the right back; any thread may do so, at any time and more than once."""
        self.buffer.leases.discard(self)

    def release_after(self, result: jax.Array) -> None:
        """Gives the right back once the device has computed a result of what reads the buffer."""
        if is_computed(result):
            self.release()
        else:
            self._until = result

    @property
    def is_over(self) -> bool:
        """Whether it has been given back by now."""
        return self._until is not None and is_computed(self._until)


@dataclass(eq=False, slots=True)
class Variable:
    """A variable that has been initialized; its store's lock guards every use."""

    spec: VariableSpec
    buffer: Buffer

    def lease(self) -> Lease:
        """Keeps the present value as it is until the lease is released."""
        lease = Lease(self.buffer)
        self.buffer.leases.add(lease)
        return lease

    @property
    def is_leased(self) -> bool:
        """Whether something still needs the present value as it is."""
        leases = self.buffer.leases
        if not leases:
            return False
        for lease in [lease for lease in leases.copy() if lease.is_over]:
            lease.release()
        return bool(leases)

    def donate(self) -> jax.Array:
        """The present value as an array that its user may destroy; a new one must be set."""
        array = self.buffer.array
        return jnp.copy(array) if self.buffer.leases and self.is_leased else array

    def set(self, array: jax.Array, write: Write | None = None) -> None:
        """Replaces the value."""
        self.buffer = Buffer(array, write)


def is_computed(array: jax.Array) -> bool:
    """Whether the device has computed an array. One that was donated counts as computed."""
    try:
        ready: bool = array.is_ready()  # type: ignore[attr-defined]  # not in JAX's type stub
    except RuntimeError:  # it was donated
        return True
    return ready

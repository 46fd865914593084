"""The value of a variable on its device, updated in place whenever nobody else looks at it.

An update gives XLA the variable's buffer to write the result into. Whoever needs the value beyond
its own turn (a transfer, a fetch, a later segment) holds a lease on the buffer. While there is a
lease an update works on a copy, so the holder keeps seeing what it read; in the usual case there is
none, and the address of the buffer stays the same for the variable's whole life.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

from jflow.plan import VariableSpec


@dataclass(eq=False)
class Buffer:
    """One value of a variable; `leases` are those who still need it as it is."""

    array: jax.Array
    leases: set[Lease] = field(default_factory=set)


@dataclass(eq=False)
class Lease:
    """The right to see a buffer unchanged until it is released."""

    buffer: Buffer

    def again(self) -> Lease:
        """Another lease on the same buffer; this one must not have been released."""
        lease = Lease(self.buffer)
        self.buffer.leases.add(lease)
        return lease

    def release(self) -> None:
        """Gives the right back; any thread may do so, at any time and more than once."""
        self.buffer.leases.discard(self)


@dataclass(eq=False)
class Variable:
    """A variable that has been initialized; its store's lock guards every use."""

    spec: VariableSpec
    buffer: Buffer

    def lease(self) -> Lease:
        """Keeps the present value as it is until the lease is released."""
        lease = Lease(self.buffer)
        self.buffer.leases.add(lease)
        return lease

    def donate(self) -> jax.Array:
        """The present value as an array that its user may destroy; a new one must be set."""
        array = self.buffer.array
        return jnp.copy(array) if self.buffer.leases else array

    def set(self, array: jax.Array) -> None:
        """Replaces the value."""
        self.buffer = Buffer(array)

"""State that plans use, by name: variables, queues and other resources."""

from __future__ import annotations

from dataclasses import dataclass

from jflow.plan import text as notation


@dataclass(frozen=True, order=True)
class VariableKey:
    """The container and name that identify a variable on a device."""

    container: str
    name: str

    def __str__(self) -> str:
        return f"variable {self.name!r} (container {self.container!r})"


VARYING = 2**64 - 1
"""A size in the shape of a variable that assignments may change."""


@dataclass(frozen=True)
class VariableSpec:
    """A variable that a plan uses.

    Attributes:
      key: its container and name.
      dtype: name of its dtype, such as "float32".
      shape: its sizes, `VARYING` where they may change.
      sharding: how it is sharded over a mesh, as `jflow.plan.xla.shardings` writes it; "" if its
        first value decides.
    """

    key: VariableKey
    dtype: str
    shape: tuple[int, ...]
    sharding: str = ""

    def __str__(self) -> str:
        sharding = f" sharded {self.sharding}" if self.sharding else ""
        return f"{self.key}: {self.dtype} {notation.shape_of_sizes(self.shape, VARYING)}{sharding}"


@dataclass(frozen=True)
class ResourceSpec:
    """A queue or other resource that a plan uses.

    Attributes:
      kind: such as "queue"; names are unique within a kind.
      container, name: identify it on its device.
      owner: the session that it belongs to; "" if it is shared by name.
      definition: its definition, a packed record.
    """

    kind: str
    container: str
    name: str
    owner: str
    definition: bytes

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} (container {self.container!r})"


_MARK = "@"


def private_container(container: str, owner: str) -> str:
    """Returns the name of a session's private container in place of a shared one."""
    return f"{container}{_MARK}{owner}"


def owner_of(container: str) -> str:
    """Returns the session that owns a container, "" if it is shared."""
    return container.rpartition(_MARK)[2] if _MARK in container else ""

"""State that plans use, by name: variables, queues and other resources."""

from __future__ import annotations

from dataclasses import dataclass

from jflow.base.cluster import Axes


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
        shape = tuple(None if size == VARYING else size for size in self.shape)
        return f"{self.key}: {self.dtype} {shape}{sharding}"


UNDIVIDED = "*"
"""In the text of a sharding, a dimension that is not divided."""


def axes_by_dimension(sharding: str) -> list[tuple[str, ...]]:
    """Returns the axes over which each dimension is divided, from the text of a sharding."""
    parts = sharding.split(",") if sharding else []
    return [() if part == UNDIVIDED else tuple(part.split("+")) for part in parts]


def check_sharding(sharding: str, axes: Axes, n_dimensions: int) -> None:
    """Checks the text of a sharding from elsewhere.

    Args:
      sharding: the text; "" says nothing.
      axes: those of the mesh; empty if they are not known.
      n_dimensions: of the value.

    Raises:
      ValueError: if it is not one of so many dimensions over these axes.
    """
    divided = axes_by_dimension(sharding)
    names = [name for parts in divided for name in parts]
    is_known = not axes or {*names} <= dict(axes).keys()
    if sharding and (len(divided) != n_dimensions or len({*names}) < len(names) or not is_known):
        raise ValueError(
            f"{sharding!r:.80} is not a sharding of {n_dimensions} dimensions over the axes "
            f"{[*dict(axes)]}"
        )


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


def shared_container(container: str) -> str:
    """Returns the name of the container in whose place a session may have a private one."""
    return container.partition(_MARK)[0]

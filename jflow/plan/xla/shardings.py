"""How the values of variables are sharded over a mesh, as text.

"data+model,*" says that the first dimension is divided over the axes data and model, the second one
over none, as `jax.sharding.PartitionSpec(("data", "model"), None)` does; "" says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from jflow.base.cluster import Axes
from jflow.plan.state import UNDIVIDED, axes_by_dimension


def text_of_spec(spec: PartitionSpec, shape: Sequence[int], axes: Axes | None) -> str:
    """Returns a partition spec as text.

    Args:
      spec: how a value is sharded.
      shape: the sizes of the value.
      axes: those of its mesh; None if they are not known.

    Raises:
      ValueError: if the mesh has no such axis, two dimensions are divided over one axis, or an axis
        does not divide a size.
    """
    if len(spec) > len(shape):
        raise ValueError(f"{spec} is for at least {len(spec)} dimensions, got the shape {shape}")
    sizes = dict(axes or ())
    divided = _divided(spec, len(shape))
    names = [name for parts in divided for name in parts]
    for name in names:
        if axes is not None and name not in sizes:
            raise ValueError(f"{spec} names the axis {name!r}, but the mesh has {[*sizes]}")
        if names.count(name) > 1:
            raise ValueError(f"{spec} names the axis {name!r} more than once")
    for size, parts in zip(shape, divided, strict=True):
        n_parts = math.prod(sizes.get(name, 1) for name in parts)
        if size % n_parts:
            raise ValueError(
                f"{spec} divides a dimension of size {size} over {'+'.join(parts)}, {n_parts} "
                f"devices, which does not divide it; the shape is {tuple(shape)}"
            )
    return _text(divided)


def text_of_sharding(sharding: Sharding, n_dimensions: int) -> str:
    """Returns how an array is sharded over a mesh; "" if it is on one device."""
    if not isinstance(sharding, NamedSharding):
        return ""
    return _text(_divided(sharding.spec, n_dimensions))


def spec_of_text(text: str) -> PartitionSpec | None:
    """Returns the partition spec that a text means; None for ""."""
    return PartitionSpec(*map(_entry, axes_by_dimension(text))) if text else None


def sharding_on(mesh: Mesh, text: str) -> NamedSharding:
    """Returns the sharding that a text means on a mesh.

    Raises:
      ValueError: if the mesh lacks an axis.
    """
    return NamedSharding(mesh, spec_of_text(text) or PartitionSpec())


def nearest_sharding(mesh: Mesh, text: str, shape: Sequence[int]) -> NamedSharding:
    """Returns the sharding that a text means, as far as another mesh and shape allow it."""
    entries: list[tuple[str, ...] | None] = []
    free = dict(mesh.shape)
    for size, parts in zip(shape, axes_by_dimension(text), strict=False):
        known = tuple(dict.fromkeys(name for name in parts if name in free))
        if known and size % math.prod(free[name] for name in known) == 0:
            entries.append(known)
            for name in known:
                del free[name]
        else:
            entries.append(None)
    return NamedSharding(mesh, PartitionSpec(*entries))


def _entry(parts: tuple[str, ...]) -> str | tuple[str, ...] | None:
    return parts[0] if len(parts) == 1 else parts or None


def _divided(spec: PartitionSpec, n_dimensions: int) -> list[tuple[str, ...]]:
    """Returns the axes that each dimension is divided over; a spec may leave out the last ones."""
    return [*map(_names, spec), *[()] * (n_dimensions - len(spec))]


def _text(divided: Sequence[tuple[str, ...]]) -> str:
    return ",".join("+".join(parts) or UNDIVIDED for parts in divided)


def _names(entry: object) -> tuple[str, ...]:
    """Returns the axes that a dimension is divided over, from an entry of a partition spec."""
    if entry is None or entry is PartitionSpec.UNCONSTRAINED:
        return ()
    return tuple(map(str, entry)) if isinstance(entry, tuple) else (str(entry),)

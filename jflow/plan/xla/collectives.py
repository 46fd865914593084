"""Checks of the operations by which the devices of a mesh communicate.

A device waits for all others of its group, and XLA does not compare the sizes of what they exchange
with those of what it writes to: in groups of one it leaves results uninitialized.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from jflow.errors import InvalidArgumentError
from jflow.plan.xla.internals import MLIR, axes_of_groups
from jflow.plan.xla.vocabulary import names

COLLECTIVES = names(
    "all_gather all_reduce all_to_all collective_broadcast collective_permute reduce_scatter"
)
"""The names of these operations in StableHLO."""

Meshes = Mapping[str, Sequence[tuple[str, int]]]
"""The axes of the meshes of a program, by their names."""

_BY_ID = names("all_gather all_reduce reduce_scatter")
"""Those that may mean devices by their ids in the program."""

_GROUPS, _PAIRS = "replica_groups", "source_target_pairs"


def check_collective(operation: Any, n_devices: int, meshes: Meshes) -> None:
    """Checks a collective of a program for a mesh.

    All devices of the mesh must take part, each once, and the results be as large as what arrives.

    Args:
      operation: the operation.
      n_devices: the number of devices of the mesh.
      meshes: those that it may name its groups by.

    Raises:
      InvalidArgumentError: if it is refused.
    """
    attributes = operation.attributes
    means_devices = {"channel_handle"}
    if operation.name.removeprefix("stablehlo.") in _BY_ID:
        means_devices.add("use_global_device_ids")
    if n_devices > 1 and not all(name in attributes for name in means_devices):
        _refuse(operation, f"without {' and '.join(sorted(means_devices))}: among replicas")
    if _PAIRS in attributes:
        _check_pairs(operation, _integers(attributes[_PAIRS]), n_devices)
        return
    size = group_size(operation, n_devices, meshes)
    for operand, result in zip(operation.operands, operation.results, strict=False):
        _check_sizes(operation, operand.type, result.type, size)


def _check_pairs(operation: Any, pairs: Sequence[int], n_devices: int) -> None:
    for ends in (pairs[::2], pairs[1::2]):
        if len({*ends}) < len(ends) or not {*ends} <= {*range(n_devices)}:
            _refuse(operation, f"from and to the devices {pairs}, expected each at most once")


def group_size(operation: Any, n_devices: int, meshes: Meshes) -> int:
    """Returns how many devices each group has."""
    groups = operation.attributes.get(_GROUPS)
    if isinstance(groups, MLIR.DenseIntElementsAttr):
        devices, shape = _integers(groups), MLIR.RankedTensorType(groups.type).shape
        if sorted(devices) != [*range(n_devices)]:
            _refuse(operation, f"among the devices {devices}, expected each of the mesh once")
        return int(shape[1])
    named = None if groups is None else axes_of_groups(groups)
    if named is None or named[0] not in meshes:
        _refuse(operation, f"among {groups!s:.80}, which are no groups of devices")
    sizes = dict(meshes[named[0]])
    if not set(named[1]) <= sizes.keys() or len({*named[1]}) < len(named[1]):
        _refuse(operation, f"over the axes {named[1]}, but its mesh has {[*sizes]}, each once")
    return math.prod(sizes[axis] for axis in named[1])


def _check_sizes(operation: Any, operand: Any, result: Any, size: int) -> None:
    """Checks that the result of an operation is as large as what arrives from a group."""
    attributes = operation.attributes
    name = operation.name.removeprefix("stablehlo.")
    if name == "all_gather":
        _check_ratio(operation, operand, result, attributes["all_gather_dim"], size)
    elif name == "reduce_scatter":
        _check_ratio(operation, result, operand, attributes["scatter_dimension"], size)
    elif name == "all_to_all" and MLIR.IntegerAttr(attributes["split_count"]).value != size:
        # StableHLO compares the shapes with this number.
        _refuse(operation, f"in {attributes['split_count']} parts among {size} devices")


def _check_ratio(operation: Any, small: Any, large: Any, dimension: Any, size: int) -> None:
    """Checks that one shape is another one, except that a dimension is `size` times as large."""
    number = MLIR.IntegerAttr(dimension).value
    shapes = [_shape(kind) for kind in (small, large)]
    if not (len(shapes[0]) == len(shapes[1]) and 0 <= number < len(shapes[0])):
        _refuse(operation, f"with the types {small} and {large}")
    for i, (one, other) in enumerate(zip(*shapes, strict=True)):
        wanted = one * size if one is not None and i == number else one
        if None not in (wanted, other) and wanted != other:
            _refuse(operation, f"with the types {small} and {large} among {size} devices")


def _shape(kind: Any) -> list[int | None]:
    """Returns the sizes of a type; None for those that are not known yet."""
    tensor = MLIR.RankedTensorType(kind)
    dynamic = tensor.is_dynamic_dim
    return [None if dynamic(i) else tensor.get_dim_size(i) for i in range(tensor.rank)]


def _integers(value: Any) -> list[int]:
    elements = MLIR.DenseIntElementsAttr(value)
    return [elements[i] for i in range(len(elements))]


def _refuse(operation: Any, what: str) -> NoReturn:
    raise InvalidArgumentError(f"a program communicates by {operation.name!r} {what}")

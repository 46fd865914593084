"""Selection of bundles: small values of one program for one device, sent as one array.

All results of a program are there at the same time, so nothing waits for a value of a bundle that
would not have waited for the others. A value of its own costs what a message costs, or about as
much: a result of the program that makes it, an entry of the rendezvous, and an argument of each
program that takes it. A bundle costs a copy in the programs at both ends.

A bundle is a result of the program that makes its tensors. No program makes the values of variables
that are only read or set: if there are enough of them, one more program makes their bundle.

What host calls take stays apart, because only programs take a bundle apart. So do values that are
not small, and a few variables: they are sent from their own memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from jflow.base.cluster import Device
from jflow.compiler.graph import Operation, Tensor
from jflow.compiler.graph.bundle import Bundle, is_small
from jflow.compiler.graph.primitives import ACCESSES
from jflow.compiler.partition.stages import Value

MIN_VARIABLES = 16
"""So many variables are worth a program that makes a bundle of them."""

Crossings = dict[tuple[Value | Bundle, Device], int]
"""(value, target) → the stage that receives the value."""

Bundles = Mapping[tuple[Tensor, Device], Bundle]
"""(tensor, target) → the bundle in which the tensor travels there."""


def bundles_of(
    crossings: Crossings,
    number: Mapping[Operation, int],
    piece_of: Mapping[Operation, int],
    in_calls: Collection[tuple[Tensor, Device]],
) -> Bundles:
    """Returns the bundles of a step.

    Args:
      crossings: what crosses.
      number: the position of each operation in the graph.
      piece_of: the program of each operation.
      in_calls: the tensors that host calls take, and where.
    """
    groups: dict[tuple[int, Device, np.dtype, bool], list[Tensor]] = {}
    for value, target in crossings:
        if isinstance(value, Tensor) and is_small(value) and (value, target) not in in_calls:
            key = piece_of[value.op], target, value.dtype, _is_variable(value)
            groups.setdefault(key, []).append(value)
    bundles: dict[tuple[Tensor, ...], Bundle] = {}
    by_tensor: dict[tuple[Tensor, Device], Bundle] = {}
    for (_, target, _, are_variables), tensors in groups.items():
        if len(tensors) >= (MIN_VARIABLES if are_variables else 2):
            # In the order of the graph: devices that take the same tensors take the same bundle.
            tensors.sort(key=lambda tensor: (number[tensor.op], tensor.index))
            bundle = bundles.setdefault(tuple(tensors), Bundle(tuple(tensors)))
            by_tensor |= dict.fromkeys(((one, target) for one in tensors), bundle)
    return by_tensor


def together(crossings: Crossings, bundles: Bundles) -> Crossings:
    """Returns the crossings with each bundle in place of its tensors."""
    by_pair: Crossings = {}
    for (value, target), stage in crossings.items():
        whole = bundles.get((value, target), value) if isinstance(value, Tensor) else value
        by_pair[whole, target] = min(stage, by_pair.get((whole, target), stage))
    return by_pair


def arriving(bundles: Bundles, device: Device) -> Mapping[Tensor, Bundle]:
    """Returns the bundle of each tensor that reaches a device in one."""
    return {tensor: one for (tensor, target), one in bundles.items() if target == device}


def bundles_by_program(
    piece_of: Mapping[Operation, int], crossings: Crossings
) -> dict[int, list[Bundle]]:
    """Returns the bundles that each program has as results."""
    bundles: dict[int, list[Bundle]] = {}
    for one in dict.fromkeys(value for value, _ in crossings if isinstance(value, Bundle)):
        bundles.setdefault(piece_of[one.tensors[0].op], []).append(one)
    return bundles


def is_inside(bundle: Bundle) -> bool:
    """Whether the program that computes a bundle's tensors also packs them."""
    return not _is_variable(bundle.tensors[0])


def _is_variable(tensor: Tensor) -> bool:
    """Whether the array of a tensor may be the buffer of a variable."""
    found: bool = tensor.op.eqn.primitive in ACCESSES
    return found

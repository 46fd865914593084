"""Data locality: operations without a request go to the data that they use, if that sends less.

A step sends a value to each other device that uses it. The operations of a function that request no
device are on the master's first device at first, the default. Those that may move go where a sum
is least: of the bytes that are sent, of what messages cost, and of the work that leaves the default
device, all in bytes. Matrix products, convolutions, decompositions, loops and calls of Python never
move, because where they run decides which task computes, not only what is sent.

For two devices the least sum is a minimum cut of a network. For more, each device in turn takes
what is best moved to it, as in the expansion moves of Boykov, Veksler and Zabih (Fast approximate
energy minimization via graph cuts, 2001), of which each is a minimum cut. A move stands only if
fewer bytes are sent after it. Of equal cuts the one that moves least is taken.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import jax.extend.core as jex
import numpy as np

from jflow.base.cluster import Device
from jflow.base.values import is_known
from jflow.compiler.graph import Operation, Tensor
from jflow.compiler.graph.control import control_sources
from jflow.compiler.graph.primitives import group_p
from jflow.compiler.placement.equations import Count, size_of
from jflow.compiler.placement.work import count_operations

_MESSAGE_BYTES = 1 << 16
"""What a link carries in the time that it takes to send nothing: the cost of one value more."""

_ELEMENT_BYTES = 0.3
"""What a link carries in the time that one addition takes, of many in a row."""

_TRANSCENDENTAL = 10.0
"""How many additions an exponential takes as long as."""

_OPAQUE = frozenset({"ffi_call", "pallas_call", "custom_partitioning", "shard_map"})
"""What may be made for one kind of device only."""

_EXPENSIVE = [Count.FLOPS, Count.CONVOLUTIONS, Count.ITERATIONS, Count.CALLS]

_MAX_SUM = 1 << 29
_UNCUT = 1 << 30
"""Capacities are int32; their sum stays below the one of an arc that no cut contains."""


@dataclass(frozen=True)
class _Value:
    """A value that operations which may move make or use.

    Attributes:
      n_bytes: its size.
      producer: the number of the operation that makes it; None if that does not move.
      source: where it is made, unless its producer may move.
      users: the numbers of the operations that use it and may move.
      fixed: the devices of its other users.
    """

    n_bytes: float
    producer: int | None
    source: Device
    users: frozenset[int]
    fixed: frozenset[Device]

    def sent_to(self, devices: Sequence[Device]) -> set[Device]:
        """Returns the devices that it is sent to if the movable operations are on `devices`."""
        source = self.source if self.producer is None else devices[self.producer]
        return {*self.fixed, *(devices[user] for user in self.users)} - {source}


def may_move(op: Operation) -> bool:
    """Whether an operation that requests no device may leave the default device.

    What computes products or loops, calls Python, has effects, waits for others, is made for one
    kind of device, or has sizes that are not known stays.
    """
    eqn = op.eqn
    if eqn.effects or eqn.primitive is group_p or control_sources(op) or _is_opaque(eqn):
        return False
    if not all(_has_known_size(tensor) for tensor in (*op.inputs, *op.outputs)):
        return False
    return not count_operations([op])[0][_EXPENSIVE].any()


def _is_opaque(eqn: jex.JaxprEqn) -> bool:
    inner = (each for body in jex.jaxprs_in_params(eqn.params) for each in body.eqns)
    return eqn.primitive.name in _OPAQUE or any(map(_is_opaque, inner))


def _has_known_size(tensor: Tensor) -> bool:
    shape = getattr(tensor.aval, "shape", ())
    return shape is not None and all(map(is_known, shape))


def localized(
    placement: Mapping[Operation, Device],
    movable: Sequence[Operation],
    fetches: Collection[Tensor],
) -> dict[Operation, Device]:
    """Returns devices for operations, between which fewer bytes are sent.

    Args:
      placement: a device for each operation of a step, in its order.
      movable: operations that may go to other devices of the placement; all on one device, where
        the step is fed and fetched.
      fetches: the fetched tensors.

    Returns:
      The operations that go to another device, with that.
    """
    if not movable:
        return {}
    fetches = frozenset(fetches)
    default = placement[movable[0]]
    candidates = dict.fromkeys(device for device in placement.values() if device != default)
    values = _values(placement, {op: i for i, op in enumerate(movable)}, fetches, default)
    work = [_work_bytes(op) for op in movable]
    devices = [default] * len(movable)
    is_better = True
    while is_better:
        is_better = False
        for target in candidates:
            expanded = _expanded(values, work, devices, target)
            if _bytes_sent(values, expanded) < _bytes_sent(values, devices):
                devices, is_better = expanded, True
    return {op: to for op, to in zip(movable, devices, strict=True) if to != default}


def _values(
    placement: Mapping[Operation, Device],
    numbers: Mapping[Operation, int],
    fetches: Collection[Tensor],
    default: Device,
) -> list[_Value]:
    """Returns the values whose way depends on where operations go."""
    users: dict[Tensor, dict[Operation, None]] = {}
    for op in placement:
        for tensor in () if op.eqn.primitive is group_p else op.inputs:
            users.setdefault(tensor, {})[op] = None
    for tensor in fetches:
        users.setdefault(tensor, {})
    values = []
    for tensor, using in users.items():
        producer = numbers.get(tensor.op)
        moving = frozenset(numbers[op] for op in using if op in numbers)
        fixed = {placement[op] for op in using if op not in numbers}
        if tensor in fetches:
            fixed.add(default)
        n_bytes = size_of(tensor.aval)
        if (moving or producer is not None) and n_bytes:
            source = placement.get(tensor.op, default)  # what is fed comes from the master
            values.append(_Value(n_bytes, producer, source, moving, frozenset(fixed)))
    return values


def _work_bytes(op: Operation) -> float:
    """Returns what an operation computes, as bytes that are sent in the same time."""
    counts = count_operations([op])[0]
    elements = counts[Count.ELEMENTS] + _TRANSCENDENTAL * counts[Count.TRANSCENDENTALS]
    return float(elements) * _ELEMENT_BYTES


def _bytes_sent(values: Sequence[_Value], devices: Sequence[Device]) -> float:
    return sum(value.n_bytes * len(value.sent_to(devices)) for value in values)


def _expanded(
    values: Sequence[_Value], work: Sequence[float], devices: Sequence[Device], target: Device
) -> list[Device]:
    """Returns the devices after the best operations have gone to one more device."""
    network = _Network(devices, target, work)
    for value in values:
        network.add(value)
    moved = network.cut()
    return [target if i in moved else device for i, device in enumerate(devices)]


class _Network:
    """A flow network whose minimum cut says which operations go to a device, the target.

    Its nodes are the source, the sink, the operations and helpers. An operation on the sink's side
    of the cut goes to the target; on the source's side it stays where it is, which may be the
    target already. The cut has an arc of each value and device to which the value is sent, and an
    arc of the work of each operation that moves.
    """

    _SOURCE, _SINK = 0, 1

    def __init__(self, devices: Sequence[Device], target: Device, work: Sequence[float]) -> None:
        self._devices = devices
        self._target = target
        self._n_nodes = 2 + len(devices)
        self._arcs: list[tuple[int, int, float]] = [
            (self._SOURCE, self._node(op), n_bytes) for op, n_bytes in enumerate(work) if n_bytes
        ]

    def add(self, value: _Value) -> None:
        """Adds the arcs of a value."""
        weight = value.n_bytes + _MESSAGE_BYTES
        source, producer = value.source, self._SOURCE
        if value.producer is not None:
            source, producer = self._devices[value.producer], self._node(value.producer)
        if source != self._target:
            self._add_moving(value, producer, weight)
        for device in {*value.fixed, *(self._devices[user] for user in value.users)}:
            if device != self._target:
                self._add_staying(value, producer, source == device, device, weight)

    def _add_moving(self, value: _Value, producer: int, weight: float) -> None:
        """It is sent to the target if a user is there and the producer stays."""
        if self._target in value.sent_to(self._devices):
            self._arcs.append((producer, self._SINK, weight))
            return
        helper = self._helper()
        self._arcs.append((producer, helper, weight))
        self._arcs += [(helper, self._node(user), math.inf) for user in value.users]

    def _add_staying(
        self, value: _Value, producer: int, is_source: bool, device: Device, weight: float
    ) -> None:
        """It is sent to a device if a user stays there and the producer does not."""
        reached = producer if is_source else self._SINK
        if reached == self._SOURCE:
            return  # made there by what does not move
        if device in value.fixed:
            self._arcs.append((self._SOURCE, reached, weight))
            return
        helper = self._helper()
        self._arcs.append((helper, reached, weight))
        self._arcs += [
            (self._node(user), helper, math.inf)
            for user in value.users
            if self._devices[user] == device
        ]

    def cut(self) -> set[int]:
        """Returns the operations on the sink's side of the minimum cut that has the fewest."""
        if not self._arcs:
            return set()
        from scipy.sparse import csr_array  # noqa: PLC0415 - it takes a while to import
        from scipy.sparse.csgraph import breadth_first_order, maximum_flow  # noqa: PLC0415

        total = sum(weight for *_, weight in self._arcs if weight < math.inf)
        scale = min(1.0, _MAX_SUM / max(total, 1.0))
        # Arcs are merged here, because a sum of two without a limit would not fit into an int32.
        capacity: dict[tuple[int, int], int] = {}
        for tail, head, weight in self._arcs:
            units = max(1, int(weight * scale)) if weight < math.inf else _UNCUT
            capacity[tail, head] = min(_UNCUT, capacity.get((tail, head), 0) + units)
        tails, heads = np.array([*capacity]).T
        limits = np.array([*capacity.values()], np.int32)
        graph = csr_array((limits, (tails, heads)), (self._n_nodes, self._n_nodes))
        residual = graph - maximum_flow(graph, self._SOURCE, self._SINK).flow
        residual.data[residual.data < 0] = 0
        residual.eliminate_zeros()
        reached = breadth_first_order(
            residual.T.tocsr(), self._SINK, directed=True, return_predecessors=False
        )
        return {int(node) - 2 for node in reached if 2 <= node < 2 + len(self._devices)}

    def _node(self, operation: int) -> int:
        return 2 + operation

    def _helper(self) -> int:
        self._n_nodes += 1
        return self._n_nodes - 1

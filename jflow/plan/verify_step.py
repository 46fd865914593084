"""Verifier of the plans of a step: how they fit together.

Each plan by itself is checked before (`verify.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jflow.base.cluster import Device
from jflow.errors import InvalidArgumentError
from jflow.plan.plan import MAX_EDGES, Loop, Plan, Recv, Send, fetch_indices, stride_of


def verify_step(plans: Sequence[Plan], n_fetches: int) -> None:
    """Checks that verified plans form a complete step.

    Each value that a device receives is sent by the device that it names, in an earlier stage, so
    that the step cannot deadlock with itself.

    Args:
      plans: one for each device of the step.
      n_fetches: how many values the step returns.

    Raises:
      InvalidArgumentError: names the devices and the edge, or the fetched values.
    """
    fetches = [index for plan in plans for index in fetch_indices([plan])]
    if len(fetches) != n_fetches or sorted(fetches) != list(range(len(fetches))):
        raise InvalidArgumentError(
            f"a step of {n_fetches} fetched values came with plans that give {fetches[:100]}"
        )
    devices = set()
    for plan in plans:
        if plan.device in devices:
            raise InvalidArgumentError(f"a step has two plans for {plan.device}")
        devices.add(plan.device)
    _verify_edges(plans)
    if stride := stride_of(plans):
        _verify_strides(plans, stride)
        _verify_loops(plans, set(), dict.fromkeys(_edges_of(plans), -1))


def _verify_loops(plans: Sequence[Plan], numbers: set[int], owners: dict[int, int]) -> None:
    """Checks that devices agree about their loops, and the edges of these.

    Args:
      plans: those of a step, or the bodies of a loop.
      numbers: the numbers of the loops that were checked before.
      owners: by edge, the loop whose body has it; -1 for the step.
    """
    loops: dict[int, list[tuple[int, Loop]]] = {}
    for plan in plans:
        for number, stage in enumerate(plan.stages):
            for one in stage:
                if isinstance(one, Loop):
                    loops.setdefault(one.number, []).append((number, one))
    for number, parts in loops.items():
        bodies = [loop.body for _, loop in parts]
        if number in numbers or len({_shared(stage, loop) for stage, loop in parts}) > 1:
            devices = ", ".join(str(body.device) for body in bodies)
            raise InvalidArgumentError(
                f"the plans for {devices} disagree about loop {number}: where it is, its stage, "
                "iterations, window, direction or edges differ"
            )
        numbers.add(number)
        for edge in _edges_of(bodies):
            if owners.setdefault(edge, number) != number:
                raise InvalidArgumentError(
                    f"edge {edge} of loop {number} is also one of another loop or of the step"
                )
        _verify_edges(bodies)
        _verify_loops(bodies, numbers, owners)


def _verify_strides(plans: Sequence[Plan], stride: int, most: int = MAX_EDGES) -> None:
    """Checks that edges of different iterations have different numbers.

    An edge of the step or of a body is less than each stride, and each stride is a multiple of the
    least one. So edges that differ in a body differ in all iterations. The edges of all iterations
    of an inner loop are less than the stride of the outer one.

    Args:
      plans: those of a step, or the bodies of a loop.
      stride: the least stride of the step.
      most: the stride of the loop.
    """
    if (largest := max(_edges_of(plans), default=0)) >= stride:
        raise InvalidArgumentError(
            f"edge {largest} is not less than {stride}, the least stride of a loop"
        )
    for loop in (loop for plan in plans for loop in plan.loops):
        if loop.stride % stride or loop.stride * loop.cycle > most:
            raise InvalidArgumentError(
                f"the edges of loop {loop.number} in all iterations, {loop.cycle} of stride "
                f"{loop.stride}, are also those of others"
            )
        _verify_strides([loop.body], stride, loop.stride)


def _shared(stage: int, loop: Loop) -> tuple[object, ...]:
    """Returns what all devices of a loop must have in common."""
    has_predicate = loop.predicate is not None
    numbers = loop.trips, loop.window, loop.stride, loop.cycle
    return stage, numbers, loop.is_reversed, has_predicate


def _edges_of(plans: Iterable[Plan]) -> set[int]:
    return {one.edge for plan in plans for one in plan.instructions if isinstance(one, Send | Recv)}


_Edge = tuple[int, Device, Device]
"""A transfer: its number, the sending and the receiving device."""


def _verify_edges(plans: Sequence[Plan]) -> None:
    sends: dict[_Edge, tuple[int, bool]] = {}
    receives: dict[_Edge, tuple[int, bool]] = {}
    senders: dict[int, Device] = {}
    for plan in plans:
        for number, stage in enumerate(plan.stages):
            for one in stage:
                if isinstance(one, Send):
                    sends[one.edge, plan.device, one.target] = number, one.slot is None
                    if senders.setdefault(one.edge, plan.device) != plan.device:
                        raise InvalidArgumentError(
                            f"{senders[one.edge]} and {plan.device} both send as edge {one.edge}"
                        )
                elif isinstance(one, Recv):
                    receives[one.edge, one.source, plan.device] = number, one.slot is None
    for (edge, source, target), (taken, is_signal) in receives.items():
        sent = sends.pop((edge, source, target), None)
        if sent is None:
            raise InvalidArgumentError(
                f"the plan for {target} receives edge {edge} from {source}, which does not send it"
            )
        if sent[0] >= taken:
            raise InvalidArgumentError(
                f"the plan for {target} receives edge {edge} in stage {taken}, and {source} sends "
                f"it in stage {sent[0]}; expected an earlier stage"
            )
        if sent[1] != is_signal:
            raise InvalidArgumentError(
                f"edge {edge} from {source} to {target} is a signal at one end and a value at the "
                "other"
            )
    for edge, source, target in sends:
        raise InvalidArgumentError(
            f"the plan for {source} sends edge {edge} to {target}, which does not receive it"
        )

"""The order of a loop's instances: the schedules of pipelines follow from it, no deadlock does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jflow.task.execution.iterations import BodyOrder, Instance, Iterations

Edge = tuple[int, int, int, int]
"""From a device and its stage to another device and its stage, in the same iteration."""


@dataclass
class Pipeline:
    """Devices that run a loop in slots of the same length, with links that take no time.

    Attributes:
      orders: the order of the body on each device.
      edges: what they send each other.
    """

    orders: Sequence[BodyOrder]
    edges: Sequence[Edge]
    most_under_way: list[int] = field(default_factory=list)
    ran: list[list[Instance]] = field(default_factory=list)

    def n_slots(self, trips: int, window: int) -> int:
        """Runs the loop; returns the number of slots until all devices have ended."""
        devices = [Iterations(order, trips, window) for order in self.orders]
        self.most_under_way, self.ran = [0] * len(devices), [[] for _ in devices]
        sent: set[tuple[int, int, int]] = set()
        delivered: set[tuple[int, int, int]] = set()
        slots = 0
        while not all(device.is_over for device in devices):
            running: list[tuple[int, Instance]] = []
            for number, device in enumerate(devices):
                while device.may_begin:
                    device.begin()
                under_way = device.n_begun - device.n_ended
                self.most_under_way[number] = max(self.most_under_way[number], under_way)
                self._deliver(number, device, sent, delivered)
                if (instance := device.take()) is not None:
                    running.append((number, instance))
            assert running, "a deadlock"
            for number, instance in running:
                self.ran[number].append(instance)
                devices[number].end(*instance)
                sent.add((number, *instance))
            slots += 1
        return slots

    def _deliver(
        self,
        number: int,
        device: Iterations,
        sent: set[tuple[int, int, int]],
        delivered: set[tuple[int, int, int]],
    ) -> None:
        """Delivers to a device the arrivals of instances for which all has been sent."""
        for i in range(device.n_ended, device.n_begun):
            for stage, has_arrivals in enumerate(self.orders[number].has_arrivals):
                needed = {
                    (source, from_stage, i)
                    for source, from_stage, target, to_stage in self.edges
                    if (target, to_stage) == (number, stage)
                }
                if has_arrivals and needed <= sent and (number, stage, i) not in delivered:
                    delivered.add((number, stage, i))
                    device.arrive(stage, i)


def forward(p: int) -> Pipeline:
    """A scan of p stages, a device each."""
    orders = [BodyOrder(((),), ((),), (device > 0,)) for device in range(p)]
    return Pipeline(orders, [(device, 0, device + 1, 0) for device in range(p - 1)])


def forward_and_backward(p: int) -> Pipeline:
    """A scan of the gradient of p stages: each device runs one forward and one backward.

    The backward stage adds to a carry. That of the last device follows its forward stage.
    """
    orders = [
        BodyOrder(((), (0,)), ((), (1,)), (device > 0, device < p - 1)) for device in range(p)
    ]
    ahead = [(device, 0, device + 1, 0) for device in range(p - 1)]
    back = [(device + 1, 1, device, 1) for device in range(p - 1)]
    return Pipeline(orders, ahead + back)


@pytest.mark.parametrize("p", [1, 2, 4])
@pytest.mark.parametrize("m", [1, 8, 16])
def test_a_scan_takes_as_many_slots_as_iterations_and_the_way_through_the_stages(
    p: int, m: int
) -> None:
    assert forward(p).n_slots(m, window=2) == m + p - 1


@pytest.mark.parametrize("p", [2, 4])
@pytest.mark.parametrize("m", [8, 16])
def test_a_scan_of_gradients_with_a_window_of_its_stages_is_1f1b(p: int, m: int) -> None:
    pipeline = forward_and_backward(p)
    assert pipeline.n_slots(m, window=p) == 2 * (m + p - 1)
    # In the steady state the first device alternates: one forward, one backward.
    steady = [stage for stage, _ in pipeline.ran[0]][p : 2 * m - p]
    assert steady == [(i + 1) % 2 for i in range(len(steady))]
    assert max(pipeline.most_under_way) <= p


def test_instances_of_later_stages_come_first_and_then_older_iterations() -> None:
    iterations = Iterations(BodyOrder(((), (0,)), ((), ()), (False, False)), 3, 3)
    for _ in range(3):
        iterations.begin()
    order = []
    while (instance := iterations.take()) is not None:
        order.append(instance)
        iterations.end(*instance)
    assert order == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    """Bodies of random stages on random devices; a stage needs earlier ones, or their carries."""
    n_devices, n_stages = draw(st.integers(1, 3)), draw(st.integers(1, 6))
    where = [draw(st.integers(0, n_devices - 1)) for _ in range(n_stages)]
    local = [sum(w == where[i] for w in where[:i]) for i in range(n_stages)]
    after: list[list[list[int]]] = [[] for _ in range(n_devices)]
    previous: list[list[list[int]]] = [[] for _ in range(n_devices)]
    arrivals: list[list[bool]] = [[] for _ in range(n_devices)]
    edges: list[Edge] = []
    for i in range(n_stages):
        here, needed = where[i], draw(st.sets(st.integers(0, i - 1))) if i else set()
        after[here].append([local[j] for j in needed if where[j] == here])
        edges += [(where[j], local[j], here, local[i]) for j in needed if where[j] != here]
        arrivals[here].append(any(where[j] != here for j in needed))
        carried = draw(st.sets(st.integers(0, n_stages - 1)))
        previous[here].append([local[j] for j in carried if where[j] == here])
    orders = [BodyOrder(*one) for one in zip(after, previous, arrivals, strict=True) if one[0]]
    number = {d: k for k, d in enumerate(d for d in range(n_devices) if after[d])}
    return Pipeline(orders, [(number[a], s, number[b], t) for a, s, b, t in edges])


@given(pipelines(), st.integers(1, 6), st.integers(1, 4))
def test_no_loop_waits_for_itself_and_each_instance_runs_once(
    pipeline: Pipeline, trips: int, window: int
) -> None:
    pipeline.n_slots(trips, window)
    assert max(pipeline.most_under_way) <= window
    for order, ran in zip(pipeline.orders, pipeline.ran, strict=True):
        assert sorted(ran) == [(s, i) for s in range(len(order.after)) for i in range(trips)]
        at = {instance: position for position, instance in enumerate(ran)}
        for stage, i in ran:
            assert all(at[needed, i] < at[stage, i] for needed in order.after[stage])
            before = order.after_previous[stage] if i else ()
            assert all(at[needed, i - 1] < at[stage, i] for needed in before)

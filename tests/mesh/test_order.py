"""The order of programs on the devices of a process: a pure model, and threads that wait."""

import threading

import jax
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jflow.plan.xla.hardware import mesh_on
from jflow.task.execution.device_order import DeviceOrder, DeviceUse

DEVICES = jax.local_devices()[:4]
ROW = mesh_on((("m", 4),), DEVICES)
LEFT, RIGHT = mesh_on((("m", 2),), DEVICES[:2]), mesh_on((("m", 2),), DEVICES[2:])
ANY = [*DEVICES, LEFT, RIGHT, ROW]


class Model:
    """Runs programs in an order, and says which run."""

    def __init__(self) -> None:
        self.order = DeviceOrder()
        self.arrived: list[DeviceUse] = []
        self.running: list[DeviceUse] = []

    def begin(self, on) -> DeviceUse:
        use = DeviceUse(on)
        self.arrived.append(use)
        if self.order.begin(use, lambda: self.running.append(use)):
            self.running.append(use)
        return use

    def end(self, use: DeviceUse) -> None:
        self.arrived.remove(use)
        if use in self.running:
            self.running.remove(use)
        self.order.end(use)


@given(st.data())
def test_no_program_runs_beside_one_that_it_excludes_and_none_waits_without_a_reason(data):
    model = Model()
    for _ in range(data.draw(st.integers(1, 25))):
        if model.arrived and data.draw(st.booleans()):
            model.end(data.draw(st.sampled_from(model.arrived)))  # one that waits is cancelled
        else:
            model.begin(data.draw(st.sampled_from(ANY)))
        for i, use in enumerate(model.arrived):
            blocked = any(one.excludes(use) for one in model.arrived[:i])
            assert (use in model.running) == (not blocked)
    while model.running:
        model.end(model.running[0])
    assert not model.arrived


def test_programs_of_single_devices_run_together_and_a_mesh_alone():
    model = Model()
    first, second = model.begin(DEVICES[0]), model.begin(DEVICES[0])
    left, right = model.begin(LEFT), model.begin(RIGHT)
    later = model.begin(DEVICES[0])
    assert model.running == [first, second, right]
    model.end(first)
    assert left not in model.running
    model.end(second)
    assert model.running == [right, left]
    model.end(left)
    assert later in model.running


def test_what_is_cancelled_before_it_starts_has_started_on_no_device():
    model = Model()
    running, waiting, next_one = model.begin(LEFT), model.begin(ROW), model.begin(RIGHT)
    assert model.running == [running]
    model.end(waiting)
    assert model.running == [running, next_one]


def test_threads_wait_for_each_other():
    order, begun, together = DeviceOrder(), threading.Barrier(5), []

    def use(on, number):
        begun.wait()
        for _ in range(20):
            with order.using(on):
                together.append(number)
                assert together.count(number) == 1
                excluded = [i for i in together if DeviceUse(ANY[i]).excludes(DeviceUse(on))]
                assert excluded in ([], [number]) or on in DEVICES
                together.remove(number)

    threads = [threading.Thread(target=use, args=(ANY[i], i)) for i in (0, 4, 5, 6)]
    for thread in threads:
        thread.start()
    begun.wait()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert not order._uses


def test_programs_of_single_devices_are_not_ordered_before_there_is_a_mesh():
    order, calls = DeviceOrder(), []
    program = order.ordered(lambda *args: calls.append(len(order._uses)) or [], DEVICES[0])
    program(np.ones(1))
    assert calls == [0]
    order.ordered(list, ROW)()
    program(np.ones(1))
    assert calls == [0, 1]

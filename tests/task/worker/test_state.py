"""State of workers: what plans do with variables and resources."""

import asyncio
import threading

import numpy as np
import pytest

from jflow.base.cluster import Device, Task
from jflow.base.values import TensorSpec
from jflow.plan import (
    Call,
    Feed,
    Fetch,
    Plan,
    Recv,
    ResourceSpec,
    Run,
    Send,
)
from jflow.state.resources.queue import Dequeue, Enqueue, QueueSpec
from jflow.state.resources.reader import ReaderSpec, ReaderState
from tests.task.worker.two_workers import (
    A0,
    A1,
    B0,
    PATIENCE_S,
    check,
    double,
    plan_on,
    program_run,
    registered,
    set_up,
    until,
    update_on,
    value_of,
    vector,
)

ELSEWHERE = Device(Task("c", 0), "CPU", 0)


def test_an_update_leaves_the_buffer_where_it_is():
    async def use(a, *_):
        set_up(a)
        before = value_of(a).unsafe_buffer_pointer()
        handle = await registered(a, update_on())
        for step in range(3):
            await a.run_plans(step, handle, [])
        assert value_of(a).unsafe_buffer_pointer() == before
        assert value_of(a).tolist() == [8.0] * 3

    check(use)


def gradient_step(*more_reads):
    """Sends x to two other tasks, waits for a signal, and doubles x."""
    read = Run(None, before=((0, 0),))
    sends = Send(5, A0, 0), Send(6, ELSEWHERE, 0)
    update = program_run(double, 1, (0,), reads=(0,), writes=(0,))
    return plan_on(B0, read, *sends, Recv(7, A0, None), *more_reads, update)


@pytest.mark.parametrize(
    ("more_reads", "is_in_place"),
    [
        pytest.param((), True, id="only sent"),
        pytest.param((Fetch(0, 0),), False, id="fetched"),
        pytest.param((program_run(double, inputs=(0,), outputs=(1,)),), True, id="computed with"),
        pytest.param((Call("identity", (0,), (1,)),), False, id="taken by the host"),
    ],
)
def test_a_value_that_was_used_is_not_copied_by_an_update_of_the_same_step(more_reads, is_in_place):
    async def use(_, b, transport):
        set_up(b, B0, 3.0)
        taken = []

        async def took(target, step, values):
            taken.extend(tensor.copy() for tensor in values.values())
            if len(taken) == 2:
                asyncio.get_running_loop().call_later(0.01, b._context.deliver, step, 7, None)

        transport.deliver = took
        before = value_of(b, B0).unsafe_buffer_pointer()
        handle = await registered(b, gradient_step(*more_reads))
        fetched = await b.run_plans(1, handle, [])
        assert [value.tolist() for value in taken] == [[3.0] * 3] * 2
        assert value_of(b, B0).tolist() == [6.0] * 3
        assert [value.tolist() for value in fetched] == [[3.0] * 3] * len(fetched)
        assert (value_of(b, B0).unsafe_buffer_pointer() == before) == is_in_place

    check(use)


def test_a_value_is_dropped_when_the_last_program_that_takes_it_has_run():
    plan = plan_on(
        B0,
        Feed(0, 0),
        program_run(double, inputs=(0,), outputs=(1,)),
        Send(5, A0, 1),
        program_run(double, inputs=(1,), outputs=(2,)),
        Fetch(2, 0),
    )

    async def use(_, b, transport):
        handle = await registered(b, plan)
        states = []

        async def took(target, step, values):
            (run,) = b._context.plans
            states.append(run._state)

        transport.deliver = took
        (fetched,) = await b.run_plans(1, handle, [vector(1.0)])
        assert fetched.tolist() == [4.0] * 3
        (state,) = states
        assert [state[slot] is None for slot in range(3)] == [True, True, False]

    check(use)


def test_a_value_stays_as_it_is_until_the_last_that_wants_it_has_it():
    async def use(_, b, transport):
        set_up(b, B0, 3.0)
        late, taken = asyncio.Event(), []

        async def slow(target, step, values):
            if 5 in values:
                b._context.deliver(step, 7, None)
                return
            await late.wait()
            taken.extend(tensor.copy() for tensor in values.values())

        transport.deliver = slow
        running = asyncio.ensure_future(b.run_plans(1, await registered(b, gradient_step()), []))
        await until(lambda: value_of(b, B0).tolist() == [6.0] * 3)
        late.set()
        await running
        assert [value.tolist() for value in taken] == [[3.0] * 3]

    check(use)


def test_a_fetched_variable_is_not_changed_by_later_updates():
    async def use(a, *_):
        set_up(a)
        read = await registered(a, plan_on(A0, Run(None, before=((0, 0),)), Fetch(0, 0)))
        update = await registered(a, update_on())
        before = value_of(a).unsafe_buffer_pointer()
        (got,) = await a.run_plans(1, read, [])
        for step in range(2, 5):
            await a.run_plans(step, update, [])
        assert got.tolist() == [1.0] * 3
        assert value_of(a).unsafe_buffer_pointer() == before

    check(use)


def test_a_variable_on_its_way_to_another_task_is_sent_as_it_was_read():
    async def use(a, b, transport):
        set_up(a)
        send = await registered(a, plan_on(A0, Run(None, before=((0, 0),)), Send(1, B0, 0)))
        receive = await registered(b, plan_on(B0, Recv(1, A0, 0), Fetch(0, 0)))
        update = await registered(a, update_on())
        go_on, deliver = asyncio.Event(), transport.deliver

        async def slow(*args):
            transport.sent.append(args)
            await go_on.wait()
            await deliver(*args)

        transport.deliver = slow
        sending = asyncio.create_task(a.run_plans(1, send, []))
        await until(lambda: transport.sent)
        await a.run_plans(2, update, [])
        go_on.set()
        (got,), _ = await asyncio.gather(b.run_plans(1, receive, []), sending)
        assert got.tolist() == [1.0] * 3
        before = value_of(a).unsafe_buffer_pointer()
        await a.run_plans(3, update, [])
        assert value_of(a).unsafe_buffer_pointer() == before, "it is not leased any more"

    check(use)


@pytest.mark.parametrize("target", [A1, A0], ids=["another device", "the same device"])
def test_a_variable_on_its_way_to_another_plan_is_received_as_it_was_read(target):
    """The plan that read it may be done, and its lease ended, before the other one takes it."""

    async def use(a, *_):
        set_up(a)
        send = plan_on(A0, Run(None, before=((0, 0),)), Send(1, target, 0))
        late = plan_on(target, Recv(2, B0, None), Recv(1, A0, 0), Fetch(0, 0))
        step = await registered(a, send, late)
        update = await registered(a, update_on())
        running = asyncio.create_task(a.run_plans(1, step, []))
        await until(lambda: any(s.early for s in a._context.rendezvous._steps.values()))
        await asyncio.sleep(0)
        await a.run_plans(2, update, [])
        a.deliver(1, 2, None)
        (got,) = await running
        assert got.tolist() == [1.0] * 3

    check(use)


def test_a_cancelled_step_holds_no_variable():
    async def use(a, *_):
        set_up(a)
        plan = plan_on(A0, Run(None, before=((0, 0),)), Recv(1, B0, 1), Fetch(0, 0))
        running = asyncio.create_task(a.run_plans(1, await registered(a, plan), []))
        await until(lambda: any(s.waiters for s in a._context.rendezvous._steps.values()))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        before = value_of(a).unsafe_buffer_pointer()
        await a.run_plans(2, await registered(a, update_on()), [])
        assert value_of(a).unsafe_buffer_pointer() == before

    check(use)


ONE_PLACE = QueueSpec("FIFOQueue", 1, components=(TensorSpec((3,), "float32"),))
QUEUE = ResourceSpec("queue", "", "q", "", ONE_PLACE.to_bytes())


def _enqueue(index, slot):
    return Feed(index, slot), Call("queue.enqueue", (slot,), resources=(0,))


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_cancellation_that_finds_an_element_put_comes_too_late_for_that(goes_on):
    """A caller that is told that a put was cancelled may do it again."""

    async def use(a, *_):
        instructions = [*_enqueue(0, 0), *(_enqueue(1, 1) if goes_on else ())]
        plan = Plan(A0, 2, (), (tuple(instructions),), (QUEUE,))
        handle = await registered(a, plan)
        queue = a.containers.resources.get(A0, QUEUE)
        assert queue.submit(Enqueue((vector(0),)), print)
        running = asyncio.create_task(a.run_plans(1, handle, [vector(1), vector(2)][: 1 + goes_on]))
        await until(lambda: queue.query(lambda state: any(state.n_waiting)))
        first = Dequeue()
        assert queue.submit(first, print)
        running.cancel()
        if goes_on:
            with pytest.raises(asyncio.CancelledError):
                await running
        else:
            assert await running == []
        second = Dequeue()
        assert queue.submit(second, print)
        assert [each.result()[0][0] for each in (first, second)] == [0, 1]
        assert queue.query(lambda state: state.size) == 0

    check(use)


def test_a_reader_that_is_cancelled_again_while_it_reads_lets_others_read(monkeypatch):
    """A deadline cancels it, and the end of the session does so once more."""
    may_go_on = threading.Event()
    reads = []

    def read(*args):
        reads.append(args)
        assert may_go_on.wait(PATIENCE_S)
        return original(*args)

    original = ReaderState.read
    monkeypatch.setattr(ReaderState, "read", read)
    work = QueueSpec("FIFOQueue", 2, components=(TensorSpec((), "string"),))
    queue = ResourceSpec("queue", "", "work", "", work.to_bytes())
    reader = ResourceSpec("reader", "", "r", "", ReaderSpec("IdentityReader").to_bytes())
    steps = (Call("reader.read", (), (0, 1), resources=(0, 1)), Fetch(1, 0))
    plan = Plan(A0, 2, (), (steps,), (reader, queue))

    async def use(a, *_):
        handle = await registered(a, plan)
        for name in (b"one", b"two"):
            held = a.containers.resources.get(A0, queue)
            assert held.submit(Enqueue((np.array(name, object),)), print)
        running = asyncio.create_task(a.run_plans(1, handle, []))
        await until(lambda: reads)
        for _ in range(3):
            running.cancel()
            await asyncio.sleep(0)
        assert not running.done()
        may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await a.run_plans(2, handle, []) == [b"two"]

    check(use)

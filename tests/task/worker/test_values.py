"""Values that workers take, exchange and give back."""

import asyncio

import numpy as np
import pytest

from jflow import errors
from jflow.base.cluster import Device, Task
from jflow.plan import (
    Call,
    Feed,
    Fetch,
    Recv,
    Run,
    Send,
    xla,
)
from jflow.task.execution.linked import LinkedRun
from tests.task.worker.two_workers import (
    A0,
    A1,
    B0,
    add,
    check,
    double,
    plan_on,
    program_run,
    registered,
    set_up,
    until,
    vector,
)


def test_fed_and_fetched_values_go_by_the_order_of_their_indices():
    async def use(a, *_):
        plans = [
            plan_on(A1, Feed(7, 0), program_run(double, inputs=(0,), outputs=(1,)), Fetch(1, 2)),
            plan_on(A0, Feed(3, 0), Fetch(0, 9), Feed(5, 1), Fetch(1, 1)),
        ]
        handle = await registered(a, *plans)
        got = await a.run_plans(1, handle, [vector(3), vector(5), vector(7)])
        assert [value[0] for value in got] == [5, 14, 3]

    check(use)


def test_values_cross_between_tasks_and_devices_and_come_back():
    there = plan_on(
        A0,
        *(Feed(0, 0), Send(1, B0, 0), Send(2, A1, 0)),
        *(Recv(3, B0, 1), Recv(4, A1, 2)),
        program_run(add, 2, inputs=(1, 2), outputs=(3,)),
        Fetch(3, 0),
    )
    beside = plan_on(
        A1, Recv(2, A0, 0), program_run(double, inputs=(0,), outputs=(1,)), Send(4, A0, 1)
    )
    far = plan_on(
        B0, Recv(1, A0, 0), program_run(add, 2, inputs=(0, 0), outputs=(1,)), Send(3, A0, 1)
    )

    async def use(a, b, _):
        handles = await registered(a, there, beside), await registered(b, far)
        for step in range(3):
            (got,), nothing = await asyncio.gather(
                a.run_plans(step, handles[0], [vector(step)]), b.run_plans(step, handles[1], [])
            )
            assert got.tolist() == [4.0 * step] * 3
            assert nothing == []

    check(use)


def test_strings_stay_on_the_host_on_their_way_between_tasks_and_devices():
    words = np.array([b"a", b"\xff\0"], object)
    digest = xla.digest_of(words)
    there = plan_on(
        A0,
        *(Call("identity", (), (0,), (digest,)), Send(1, B0, 0), Send(2, A1, 0)),
        *(Recv(3, B0, 1), Fetch(1, 0), Fetch(0, 1)),
    )
    beside = plan_on(A1, Recv(2, A0, 0), Call("identity", (0,), (1,)), Fetch(1, 2))
    far = plan_on(B0, Recv(1, A0, 0), Send(3, A0, 0))

    async def use(a, b, _):
        assert (await a.register([there, beside], {})).missing == (digest,)
        here = (await a.register([there, beside], {digest: words})).handle
        handle = await registered(b, far)
        for step in range(2):
            got, _ = await asyncio.gather(
                a.run_plans(step, here, []), b.run_plans(step, handle, [])
            )
            assert [value.tolist() for value in got] == [words.tolist()] * 3
            got[1][0] = b"changed"

    check(use)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (Call("open", (0,), (1,)), "'open'.*identity"),
        (Call("__import__", (0,), (1,)), "identity"),
        (Call("identity", (0, 0), (1,)), "arguments of 'identity'"),
        (Call("identity", (0,), (1, 2)), "does not accept"),
    ],
    ids=str,
)
def test_a_call_that_no_function_answers_to_is_refused(call, why):
    async def use(a, *_):
        with pytest.raises(errors.InvalidArgumentError, match=why):
            await a.run_plans(
                1, await registered(a, plan_on(A0, Feed(0, 0), call)), [np.array([b"a"], object)]
            )

    check(use)


def test_a_program_does_not_take_strings():
    plan = plan_on(A0, Feed(0, 0), program_run(double, inputs=(0,), outputs=(1,)), Fetch(1, 0))

    async def use(a, *_):
        with pytest.raises(errors.InvalidArgumentError, match="does not accept its arguments"):
            await a.run_plans(1, await registered(a, plan), [np.array([b"a"] * 3, object)])

    check(use)


def test_a_bare_signal_makes_a_plan_wait():
    waiting_plan = plan_on(B0, Recv(1, A0, None), Run(None, before=((0, 0),)), Fetch(0, 0))
    signals = plan_on(A0, Send(1, B0, None))

    async def use(a, b, _):
        set_up(b, B0)
        waiting = asyncio.create_task(b.run_plans(1, await registered(b, waiting_plan), []))
        handle = await registered(a, signals)
        await until(lambda: len(b._context.rendezvous) == 1)
        set_up(b, B0, 5.0)
        assert not waiting.done()
        await a.run_plans(1, handle, [])
        assert (await waiting)[0].tolist() == [5.0] * 3

    check(use)


def test_a_value_may_come_before_its_step_begins_and_after_it_has_ended():
    async def use(a, *_):
        handle = await registered(a, plan_on(A0, Recv(1, B0, 0), Fetch(0, 0)))
        a.deliver(1, 1, vector(1))
        (got,) = await a.run_plans(1, handle, [])
        assert got.tolist() == [1.0] * 3
        a.deliver(1, 2, vector(2))

    check(use)


def test_steps_at_the_same_time_do_not_take_each_other_s_values():
    async def use(a, *_):
        handle = await registered(a, plan_on(A0, Recv(1, B0, 0), Fetch(0, 0)))
        steps = [asyncio.create_task(a.run_plans(step, handle, [])) for step in range(1, 6)]
        await until(lambda: len(a._context.rendezvous) == 5)
        for step in (3, 1, 5, 4, 2):
            a.deliver(step, 1, vector(step))
        got = [value.tolist() for (value,) in await asyncio.gather(*steps)]
        assert got == [[float(step)] * 3 for step in range(1, 6)]

    check(use)


def test_what_a_plan_sends_in_a_row_leaves_at_once_together_for_each_task():
    """Written in the call that made it: the next program of the plan begins behind that."""

    async def use(_, b, transport):
        left = []

        def deliver(target, step, values):
            left.append((str(target), {edge: value.tolist() for edge, value in values.items()}))

        def program(x):
            left.append("program")
            return [x + x]

        transport.deliver = deliver
        elsewhere = Device(Task("c", 0), "CPU", 0)
        plan = plan_on(
            *(B0, Feed(0, 0), Send(1, A0, 0), Send(2, elsewhere, 0), Send(3, A1, 0)),
            *(program_run(double, inputs=(0,), outputs=(1,)), Send(4, A0, 1), Fetch(1, 0)),
        )
        handle = await registered(b, plan)
        (linked,) = b._registered[handle].plans
        (run,) = (one for one in linked.stages[0] if isinstance(one, LinkedRun))
        object.__setattr__(run, "executable", program)
        run.latency.note(1e-6)
        await b.run_plans(1, handle, [vector(2)])
        two, four = [2.0] * 3, [4.0] * 3
        task_a, task_c = str(A0.task), "/job:c/task:0"
        assert left == [
            (task_a, {1: two, 3: two}),
            (task_c, {2: two}),
            "program",
            (task_a, {4: four}),
        ]

    check(use)

"""Steps on workers that fail or are cancelled."""

import asyncio
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from jflow import errors
from jflow.plan import (
    Feed,
    Fetch,
    Recv,
    Run,
    Send,
)
from jflow.task.worker.failures import raise_of_plan
from tests.task.worker.two_workers import (
    A0,
    A1,
    B0,
    PATIENCE_S,
    A,
    B,
    check,
    double,
    plan_on,
    program_run,
    registered,
    vector,
)

UNINITIALIZED = plan_on(A0, Run(None, before=((0, 0),)), Fetch(0, 0))


def test_the_first_error_of_a_plan_cancels_its_siblings():
    async def use(a, *_):
        waiting_plan = plan_on(A1, Recv(1, B0, 0), Fetch(0, 1))
        for plans in [(UNINITIALIZED, waiting_plan), (waiting_plan, UNINITIALIZED)]:
            handle = await registered(a, *plans)
            with pytest.raises(errors.FailedPreconditionError, match="'x'") as caught:
                await a.run_plans(1, handle, [])
            assert (caught.value.op, caught.value.task) == ("x", str(A))

    check(use)


def test_an_error_says_on_which_task_it_happened():
    async def use(a, *_):
        twice = plan_on(A0, Send(1, A1, None), Send(1, A1, None))
        with pytest.raises(errors.InternalError, match="sent twice") as caught:
            await a.run_plans(1, await registered(a, twice), [])
        assert caught.value.task == str(A)

    check(use)


def test_a_plan_that_waits_fails_when_what_it_sends_cannot_be_sent():
    """Else it waits for ever: its partner, without that value, sends nothing back."""

    async def use(a, _, transport):
        async def unreachable(target, *_):
            raise errors.UnavailableError(f"{target} cannot be reached", task=str(target))

        transport.deliver = unreachable
        plan = plan_on(A0, Feed(0, 0), Send(1, B0, 0), Recv(2, B0, 1), Fetch(1, 0))
        handle = await registered(a, plan)
        with pytest.raises(errors.UnavailableError, match="cannot be reached") as caught:
            await asyncio.wait_for(a.run_plans(1, handle, [vector(1)]), 5)
        assert caught.value.task == str(B)

    check(use)


def test_a_failed_send_is_an_error_of_the_step():
    async def use(a, _, transport):
        async def unreachable(*_):
            raise errors.UnavailableError("cannot be reached", task=str(B))

        transport.deliver = unreachable
        handle = await registered(a, plan_on(A0, Feed(0, 0), Send(1, B0, 0), Fetch(0, 0)))
        with pytest.raises(errors.UnavailableError) as caught:
            await a.run_plans(1, handle, [vector(1)])
        assert caught.value.task == str(B)

    check(use)


@pytest.mark.parametrize("more", [(), (Recv(2, B0, 0),)], ids=["at its end", "in its middle"])
def test_a_cancelled_step_stops_sending(more):
    async def use(a, _, transport):
        started, stopped = asyncio.Event(), asyncio.Event()

        async def stuck(*_):
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        transport.deliver = stuck
        plan = plan_on(A0, Feed(0, 0), Send(1, B0, 0), *more)
        handle = await registered(a, plan)
        running = asyncio.create_task(a.run_plans(1, handle, [vector(1)]))
        await asyncio.wait_for(started.wait(), PATIENCE_S)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.wait_for(stopped.wait(), PATIENCE_S)

    check(use)


@pytest.mark.parametrize("bad", [np.zeros(4, np.float32), np.zeros(3, np.int8)], ids=str)
def test_a_fed_value_that_a_program_does_not_take_is_an_error_of_jflow(bad):
    async def use(a, *_):
        plan = plan_on(A0, Feed(0, 0), program_run(double, inputs=(0,), outputs=(1,)), Fetch(1, 0))
        handle = await registered(a, plan)
        with pytest.raises(errors.OpError) as caught:
            await a.run_plans(1, handle, [bad])
        assert caught.value.task == str(A)

    check(use)


def test_the_wrong_number_of_fed_values_is_refused():
    async def use(a, *_):
        handle = await registered(a, plan_on(A0, Feed(0, 0)))
        for feeds in ([], [vector(1)] * 2):
            with pytest.raises(errors.InvalidArgumentError, match="expected 1 fed values"):
                await a.run_plans(1, handle, feeds)

    check(use)


def test_plans_that_were_never_registered_or_were_released_are_not_known():
    async def use(a, *_):
        handle = await registered(a, plan_on(A0, Feed(0, 0)))
        a.release(handle)
        a.release(handle)
        for unknown in (handle, handle + 1, 0):
            with pytest.raises(errors.AbortedError, match=r"task:0 has no registered") as caught:
                await a.run_plans(1, unknown, [])
            assert caught.value.task == str(A)

    check(use)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("RESOURCE_EXHAUSTED: Out of memory allocating 16 bytes", errors.ResourceExhaustedError),
        ("INTERNAL: something else", errors.InternalError),
    ],
)
def test_what_xla_says_of_a_failed_program_decides_the_class(said, expected):
    linked = SimpleNamespace(plan=SimpleNamespace(device=A0))
    with pytest.raises(errors.OpError, match=said) as caught:
        raise_of_plan(jax.errors.JaxRuntimeError(said), linked, A)
    assert type(caught.value) is expected
    assert caught.value.task == str(A)

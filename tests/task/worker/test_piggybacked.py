"""Values that leave with the reply of the plans that made them, instead of in their own message."""

import asyncio

import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow import errors
from jflow.base.cluster import Device, Task
from jflow.net.protocol import Peer, Piggybacked
from jflow.plan import Feed, Fetch, Plan, Run, Send
from jflow.task.execution import StepState
from jflow.task.worker import sends
from tests.clusters import in_process
from tests.task.worker.two_workers import (
    A0,
    A1,
    B0,
    A,
    B,
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

PRODUCE = plan_on(B0, Feed(0, 0), program_run(double, inputs=(0,), outputs=(1,)), Send(5, A0, 1))
READ = Run(None, before=((0, 1),))
UNORDERED = Plan(B0, 2, (), ((Feed(0, 0), Send(5, A0, 0)),), after=((),))
ELSEWHERE = Device(Task("c", 0), "CPU", 0)


async def run_piggybacked(worker, *plans, feeds=(), caller=A):
    """What is piggybacked on the reply of plans for a task."""
    piggybacked = Piggybacked(caller)
    fetched = await worker.run_plans(
        1, await registered(worker, *plans), feeds, piggybacked=piggybacked
    )
    return fetched, piggybacked.values


def test_the_last_values_for_the_caller_are_piggybacked_and_not_sent():
    async def use(_, b, transport):
        plan = plan_on(
            B0,
            *(Feed(0, 0), program_run(double, inputs=(0,), outputs=(1,))),
            *(Send(5, A0, 1), Send(6, A1, None), Fetch(1, 0)),
        )
        fetched, values = await run_piggybacked(b, plan, feeds=[vector(2)])
        np.testing.assert_array_equal(fetched[0], vector(4))
        assert [*values] == [5, 6]
        np.testing.assert_array_equal(values[5], vector(4))
        assert values[6] is None
        assert transport.sent == []

    check(use)


def test_without_a_caller_that_takes_them_all_values_are_sent():
    async def use(a, b, transport):
        await b.run_plans(1, await registered(b, PRODUCE), [vector(2)])
        assert transport.sent == [(A, 1, 5)]
        a._context.rendezvous.end_step(1)

    check(use)


@pytest.mark.parametrize(
    ("plans", "caller"),
    [
        pytest.param([PRODUCE], B, id="for another task than the caller"),
        pytest.param(
            [
                plan_on(
                    *(B0, Feed(0, 0), Send(5, A0, 0)),
                    program_run(double, inputs=(0,), outputs=(1,)),
                )
            ],
            A,
            id="something follows",
        ),
        pytest.param([UNORDERED], A, id="in any order"),
    ],
)
def test_other_values_are_sent(plans, caller):
    async def use(a, b, transport):
        _, values = await run_piggybacked(b, *plans, feeds=[vector(2)], caller=caller)
        assert values == {}
        assert transport.sent == [(A, 1, 5)]
        a._context.rendezvous.end_step(1)

    check(use)


def test_a_large_value_is_sent(monkeypatch):
    monkeypatch.setattr(sends, "MAX_PIGGYBACKED_BYTES", vector(0).nbytes - 1)

    async def use(a, b, transport):
        _, values = await run_piggybacked(b, PRODUCE, feeds=[vector(2)])
        assert values == {}
        assert transport.sent == [(A, 1, 5)]
        a._context.rendezvous.end_step(1)

    check(use)


def test_a_value_that_is_not_computed_yet_is_sent_when_it_is(monkeypatch):
    monkeypatch.setattr(StepState, "is_computed", lambda *_: False)

    async def use(a, b, transport):
        _, values = await run_piggybacked(b, PRODUCE, feeds=[vector(2)])
        assert values == {}
        assert transport.sent == [(A, 1, 5)]
        a._context.rendezvous.end_step(1)

    check(use)


def test_a_value_waits_for_no_other_send():
    async def use(_, b, transport):
        gate = asyncio.Event()

        async def slow(target, step, values):
            transport.sent += [(target, step, edge) for edge in values]
            if 4 in values:
                await gate.wait()

        transport.deliver = slow
        plan = plan_on(B0, Feed(0, 0), Send(4, ELSEWHERE, 0), Send(5, A0, 0))
        piggybacked = Piggybacked(A)
        handle = await registered(b, plan)
        running = asyncio.ensure_future(
            b.run_plans(1, handle, [vector(2)], piggybacked=piggybacked)
        )
        await until(lambda: len(transport.sent) == 2)
        assert not running.done()
        gate.set()
        await running
        assert piggybacked.values == {}

    check(use)


def test_a_piggybacked_variable_keeps_its_value():
    async def use(_, b, __):
        set_up(b, B0, 3.0)
        _, values = await run_piggybacked(b, plan_on(B0, READ, Send(5, A0, 1)))
        await b.run_plans(2, await registered(b, update_on(B0)), [])
        np.testing.assert_array_equal(values[5], vector(3))
        np.testing.assert_array_equal(value_of(b, B0), vector(6))

    check(use)


def test_what_fails_leaves_nothing_to_piggyback():
    async def use(_, b, transport):
        piggybacked = Piggybacked(A)
        handle = await registered(b, plan_on(B0, READ, Send(5, A0, 1)))
        with pytest.raises(errors.FailedPreconditionError):
            await b.run_plans(1, handle, [], piggybacked=piggybacked)
        assert piggybacked.values == {}
        assert transport.sent == []
        assert b._context.piggybacked == {}

    check(use)


def test_a_step_gets_the_bits_of_another_task_with_its_reply(monkeypatch):
    sent, deliver = [], Peer.deliver

    def noted(peer, step, values):
        sent.extend(values)
        return deliver(peer, step, values)

    monkeypatch.setattr(Peer, "deliver", noted)
    dtypes = [jnp.dtype(name) for name in ("float32", "bfloat16", "int8", "bool", "complex64")]
    with in_process() as backend, tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            far = [tf.Variable(jnp.asarray(1, dtype), name=dtype.name) for dtype in dtypes]
            many = tf.Variable(jnp.ones((256, 1024)), name="many")
        with tf.device("/job:worker/task:0"):
            near = [tf.numpy.logical_not(each) for each in far]
            first = tf.numpy.logical_not(many)[0, 0]
        with tf.Session(backend.targets[0]) as session:
            session.run(tf.global_variables_initializer())
            sent.clear()
            results = [session.run((far, near)) for _ in range(3)]
            assert sent == [], "it came with the reply"
            assert session.run(first) == np.False_
            assert len(sent) == 1, "a large value has a message of its own"
    for values, negated in results:
        assert [value.dtype for value in values] == dtypes
        assert [value.shape for value in (*values, *negated)] == [()] * 2 * len(dtypes)
        ones = [np.asarray(1, dtype).tobytes() for dtype in dtypes]
        assert [value.tobytes() for value in values] == ones
        assert not any(negated)

"""Plans of one operation on a queue, which one function runs until that has to wait."""

import asyncio

import pytest

from jflow.base.drivers.coroutines import Waited
from jflow.base.values import TensorSpec
from jflow.plan import Call, Feed, Fetch, Plan, ResourceSpec
from jflow.state.moves import MovedError
from jflow.state.resources.queue import QueueSpec
from jflow.state.watch import StatusRequest
from jflow.testing import PATIENCE_S
from tests.task.worker.two_workers import A0, check, vector

SPEC = QueueSpec("FIFOQueue", 2, components=(TensorSpec((3,), "float32"),))
QUEUE = ResourceSpec("queue", "", "q", "", SPEC.to_bytes())
PUT = Plan(A0, 1, (), ((Feed(0, 0), Call("queue.enqueue", (0,), resources=(0,))),), (QUEUE,))
DEQUEUE = Call("queue.dequeue", (), (0,), op="take", resources=(0,))
TAKE = Plan(A0, 1, (), ((DEQUEUE, Fetch(0, 0)),), (QUEUE,))


async def put_and_take(worker):
    return [(await worker.register([plan], {}, True)).handle for plan in (PUT, TAKE)]


def test_an_operation_on_a_queue_that_need_not_wait_is_run_by_a_plain_function():
    async def use(a, *_):
        put, take = await put_and_take(a)
        assert a.begin_plans(1, put, [vector(3)]).result == []
        (value,) = a.begin_plans(2, take, []).result
        assert value.tolist() == [3] * 3
        assert a.running.n_begun == 2

    check(use)


def test_an_operation_that_has_to_wait_goes_on_with_the_attempt_that_it_has_made():
    async def use(a, *_):
        put, take = await put_and_take(a)
        first, second = (asyncio.ensure_future(a.begin_plans(n, take, []).rest()) for n in (1, 2))
        await asyncio.sleep(0)
        n_steps, (step, _) = a.running.listed(StatusRequest(("steps",), 0, 10))
        assert (n_steps, step.step) == (2, "1")
        assert "to dequeue an element" in step.waiting_for[0]
        _, listed = a.running.list_waits(StatusRequest(("pending",), 0, 10))
        assert [wait.op for wait in listed] == ["take", "take"]
        for number in (5, 6):
            assert a.begin_plans(number, put, [vector(number)]).is_done
        for taken, number in ((first, 5), (second, 6)):
            (value,) = await asyncio.wait_for(taken, PATIENCE_S)
            assert value.tolist() == [number] * 3
        assert a.running.listed(StatusRequest(("steps",), 0, 10)) == (0, ())
        assert a.running.n_begun == 4

    check(use)


def test_one_that_is_cancelled_while_it_waits_takes_nothing_and_says_what_it_waited_for():
    async def use(a, *_):
        put, take = await put_and_take(a)
        rest = asyncio.ensure_future(a.begin_plans(1, take, []).rest())
        await asyncio.sleep(0)
        rest.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await rest
        assert Waited.of(caught.value).op == "take"
        assert Waited.of(caught.value).reason.startswith("/job:a/task:0 waited to dequeue")
        a.begin_plans(2, put, [vector(3)])
        (value,) = a.begin_plans(3, take, []).result
        assert value.tolist() == [3] * 3
        assert not a._context.plans

    check(use)


def test_a_wait_that_a_move_ends_leaves_the_element_where_it_is():
    async def use(a, *_):
        put, take = await put_and_take(a)
        states = a._registered[take].use.states
        rest = asyncio.ensure_future(a.begin_plans(1, take, []).rest())
        await asyncio.sleep(0)
        a._context.parked.leave(states)
        with pytest.raises(MovedError, match="is about to move"):
            await rest
        a._context.parked.stay(states)
        a.begin_plans(2, put, [vector(3)])
        assert a.begin_plans(3, take, []).is_done

    check(use)

"""`InlineFuture`: when its task goes on, and that it is cancelled and fails as other tasks are."""

import asyncio

import pytest

from jflow.errors import InternalError
from jflow.protocol.inline_future import InlineFuture, resume_after


async def _noting(future, done):
    try:
        done.append(await future)
    except asyncio.CancelledError:
        done.append("cancelled")
        raise


def _outside_of_tasks(function):
    """Calls a function from the event loop itself; a future that says when that is over."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()

    def call():
        try:
            over.set_result(function())
        except BaseException as error:
            over.set_exception(error)

    loop.call_soon(call)
    return over


def test_a_task_goes_on_inside_the_call_that_sets_its_result():
    async def check():
        done = []
        future = InlineFuture(asyncio.get_running_loop())
        task = asyncio.create_task(_noting(future, done))
        await asyncio.sleep(0)

        def complete():
            future.set_result(3)
            return list(done)

        assert await _outside_of_tasks(complete) == [3]
        await task

    asyncio.run(check())


def test_a_task_that_another_one_lets_go_on_runs_when_that_one_waits():
    async def check():
        done, loop = [], asyncio.get_running_loop()
        first, second = InlineFuture(loop), InlineFuture(loop)

        async def hand_on():
            await first
            second.set_result("second")
            done.append("first")
            await asyncio.sleep(0)
            done.append("later")

        tasks = asyncio.create_task(hand_on()), asyncio.create_task(_noting(second, done))
        await asyncio.sleep(0)

        def complete():
            first.set_result(None)
            return list(done)

        assert await _outside_of_tasks(complete) == ["first", "second"]
        await asyncio.gather(*tasks)
        assert done == ["first", "second", "later"]

    asyncio.run(check())


def test_a_task_may_set_a_result_that_another_task_waits_for():
    async def check():
        done = []
        future = InlineFuture(asyncio.get_running_loop())
        task = asyncio.create_task(_noting(future, done))
        await asyncio.sleep(0)
        future.set_result(1)
        assert done == []
        await task
        assert done == [1]

    asyncio.run(check())


def test_a_result_that_is_there_is_not_waited_for():
    async def check():
        future = InlineFuture(asyncio.get_running_loop())
        future.set_result(5)
        assert future.done()
        assert await future == 5

    asyncio.run(check())


def test_a_result_that_comes_before_its_task_has_begun_to_wait_reaches_it():
    async def check():
        done, future = [], InlineFuture(asyncio.get_running_loop())
        task = asyncio.create_task(_noting(future, done))
        future.set_result(6)
        await task
        assert done == [6]

    asyncio.run(check())


def test_an_error_is_raised_where_the_task_waits():
    async def check():
        future = InlineFuture(asyncio.get_running_loop())
        task = asyncio.create_task(_noting(future, []))
        await asyncio.sleep(0)
        await _outside_of_tasks(lambda: future.set_exception(ValueError("bad")))
        with pytest.raises(ValueError, match="bad"):
            await task

    asyncio.run(check())


def test_a_task_that_waits_can_be_cancelled_and_nothing_wakes_it_again():
    async def check():
        done, future = [], InlineFuture(asyncio.get_running_loop())
        task = asyncio.create_task(_noting(future, done))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done == ["cancelled"]
        assert future.done()
        assert not future.cancel()

    asyncio.run(check())


def test_a_timeout_ends_a_wait():
    async def check():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await InlineFuture(asyncio.get_running_loop())

    asyncio.run(check())


def test_a_result_is_set_once_and_one_task_waits_for_it():
    async def check():
        future = InlineFuture(asyncio.get_running_loop())
        tasks = [asyncio.create_task(_noting(future, [])) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(InternalError):
            await tasks[1]
        future.set_result(None)
        with pytest.raises(asyncio.InvalidStateError):
            future.set_result(None)
        await tasks[0]

    asyncio.run(check())


def test_tasks_go_on_behind_a_function_that_runs_outside_of_tasks_and_not_inside_of_it():
    async def check():
        done, loop = [], asyncio.get_running_loop()
        futures = [InlineFuture(loop) for _ in range(2)]
        tasks = [asyncio.create_task(_noting(future, done)) for future in futures]
        await asyncio.sleep(0)

        def complete():
            for number, future in enumerate(futures):
                future.set_result(number)
            done.append("function")

        def call():
            resume_after(complete)
            return list(done)

        assert await _outside_of_tasks(call) == ["function", 0, 1]
        await asyncio.gather(*tasks)

    asyncio.run(check())


def test_tasks_go_on_behind_a_function_that_fails():
    async def check():
        done, future = [], InlineFuture(asyncio.get_running_loop())
        task = asyncio.create_task(_noting(future, done))
        await asyncio.sleep(0)

        def fail():
            future.set_result(3)
            raise KeyError

        with pytest.raises(KeyError):
            await _outside_of_tasks(lambda: resume_after(fail))
        assert done == [3]
        await task

    asyncio.run(check())

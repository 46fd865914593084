"""Coroutines that begin at once: what runs when, and that the rest is as if awaited."""

import asyncio

import pytest

from jflow.base.drivers.coroutines import Started, begin, noticing, shield


async def _quick(done):
    done.append("begun")
    return 7


async def _slow(done, gate):
    done.append("begun")
    try:
        await gate.wait()
        await asyncio.sleep(0)
        done.append("went on")
    except asyncio.CancelledError:
        done.append("cancelled")
        await asyncio.sleep(0)
        done.append("cleaned up")
        raise
    return 8


async def _bad(gate=None):
    if gate is not None:
        await gate.wait()
    raise ValueError("bad")


def test_what_never_waits_is_done_when_begin_returns():
    async def check():
        done = []
        future = begin(_quick(done))
        assert done == ["begun"]
        assert future.done()
        assert await future == 7

    asyncio.run(check())


def test_what_waits_has_begun_and_goes_on_by_itself():
    async def check():
        done, gate = [], asyncio.Event()
        future = begin(_slow(done, gate))
        assert done == ["begun"]
        gate.set()
        assert await future == 8
        assert done == ["begun", "went on"]

    asyncio.run(check())


def test_a_cancellation_reaches_what_was_begun_where_it_waits():
    async def check():
        done = []
        future = begin(_slow(done, asyncio.Event()))
        await asyncio.sleep(0)
        future.cancel()
        with pytest.raises(asyncio.CancelledError):
            await future
        assert done == ["begun", "cancelled", "cleaned up"]

    asyncio.run(check())


@pytest.mark.parametrize("on_wait", [False, True])
def test_an_error_is_that_of_the_future(on_wait):
    async def check():
        gate = asyncio.Event() if on_wait else None
        future = begin(_bad(gate))
        if on_wait:
            gate.set()
        with pytest.raises(ValueError, match="bad"):
            await future

    asyncio.run(check())


def test_noticing_tells_once_of_what_waits_and_never_of_what_does_not():
    async def check():
        done, gate, told = [], asyncio.Event(), []
        assert await noticing(_quick(done), lambda: told.append(1)) == 7
        assert told == []
        task = asyncio.create_task(noticing(_slow(done, gate), lambda: told.append(1)))
        await asyncio.sleep(0)
        assert told == [1]
        gate.set()
        assert await task == 8
        assert told == [1]
        with pytest.raises(ValueError, match="bad"):
            await noticing(_bad(), lambda: told.append(1))
        assert told == [1]

    asyncio.run(check())


def test_what_notices_is_cancelled_where_the_coroutine_waits():
    async def check():
        done = []
        task = asyncio.create_task(noticing(_slow(done, asyncio.Event()), lambda: None))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done == ["begun", "cancelled", "cleaned up"]

    asyncio.run(check())


def test_what_must_be_completed_drops_cancellations():
    async def check():
        done, gate, inner = [], asyncio.Event(), []

        async def run():
            inner.append(asyncio.current_task())
            return await _slow(done, gate)

        task = asyncio.create_task(_completed(run(), lambda: True))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        gate.set()
        await asyncio.sleep(0)
        task.cancel()  # while it is about to continue
        assert await task == 8
        assert inner == [task]

    asyncio.run(check())


def test_what_need_not_be_completed_is_cancelled_where_the_coroutine_waits():
    async def check():
        done = []
        task = asyncio.create_task(_completed(_slow(done, asyncio.Event()), lambda: False))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done == ["begun", "cancelled", "cleaned up"]

    asyncio.run(check())


def test_errors_of_what_is_completed_are_raised():
    async def check():
        async def failing(future):
            await future

        with pytest.raises(ValueError, match="bad"):
            await shield(_bad(), lambda: True)
        future = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(_completed(failing(future), lambda: True))
        await asyncio.sleep(0)
        future.set_exception(ValueError("late"))
        with pytest.raises(ValueError, match="late"):
            await task
        # What it waits for may be cancelled by something else than its task.
        future = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(_completed(failing(future), lambda: True))
        await asyncio.sleep(0)
        future.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(check())


def test_what_never_waits_is_done_once_it_was_started():
    done = []
    started = Started(_quick(done))
    assert (started.is_done, started.result, done) == (True, 7, ["begun"])
    with pytest.raises(ValueError, match="bad"):
        Started(_bad())


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_what_has_started_goes_on_in_the_task_that_awaits_the_rest(is_cancelled):
    async def check():
        done, gate = [], asyncio.Event()
        started = Started(_slow(done, gate))
        assert (started.is_done, done) == (False, ["begun"])
        rest = asyncio.ensure_future(started.rest())
        await asyncio.sleep(0)
        if is_cancelled:
            rest.cancel()
            with pytest.raises(asyncio.CancelledError):
                await rest
            assert done == ["begun", "cancelled", "cleaned up"]
        else:
            gate.set()
            assert await rest == 8
            assert done == ["begun", "went on"]

    asyncio.run(check())


async def _completed(run, must_complete):
    """`shield` as a native coroutine, which tasks of Python 3.12 and later have to be."""
    return await shield(run, must_complete)

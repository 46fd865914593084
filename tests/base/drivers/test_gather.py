"""Awaiting several awaitables at once."""

import asyncio

import pytest

from jflow.base.drivers.loop import all_of


def test_all_results_come_in_order():
    async def later(value, n_rounds):
        for _ in range(n_rounds):
            await asyncio.sleep(0)
        return value

    assert asyncio.run(_all_of([later(1, 3), later(2, 0), later(3, 1)])) == [1, 2, 3]


async def _all_of(coroutines):
    return await all_of(coroutines)


@pytest.mark.parametrize("how", ["an error", "a cancellation"])
def test_an_error_or_a_cancellation_ends_all_before_it_is_raised(how):
    ended = []

    async def forever(name):
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    async def fail():
        await asyncio.sleep(0)
        raise KeyError("first")

    async def check():
        others = [fail()] if how == "an error" else []
        both = asyncio.create_task(all_of([forever(1), *others, forever(2)]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if not others:
            both.cancel()
        with pytest.raises((KeyError, asyncio.CancelledError)) as caught:
            await both
        assert caught.type is (KeyError if others else asyncio.CancelledError)
        assert sorted(ended) == [1, 2]

    asyncio.run(check())

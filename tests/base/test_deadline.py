"""The record that bounds a call: what remains, which of two clocks ends a wait, its messages."""

from __future__ import annotations

import asyncio
import threading

import pytest

import jflow.base.deadline.deadline as module
from jflow.base.deadline import FOREVER, Deadline
from jflow.errors import DeadlineExceededError, UnavailableError
from jflow.testing import VirtualClock


def test_what_remains_ends_at_zero() -> None:
    assert FOREVER.remaining() is None
    assert Deadline(None).remaining() is None
    assert 9 < (Deadline(10.0).remaining() or 0) <= 10
    assert (Deadline(10.0, remaining=2.0).remaining() or 0) <= 2
    assert Deadline(0.0).remaining() == 0
    assert Deadline(-1.0).remaining() == 0


@pytest.mark.parametrize("timeout", [1e9, 1e300, float("inf")])
def test_a_time_longer_than_threads_can_wait_is_as_long_as_they_can(timeout: float) -> None:
    lock = threading.Lock()
    with Deadline(timeout).holding(lock, "waiting"):
        assert lock.locked()


@pytest.mark.parametrize(
    ("timeout", "remaining", "connect_timeout", "kind", "seconds"),
    [
        (0.05, None, 30.0, DeadlineExceededError, "50 ms"),
        (30.0, None, 0.05, UnavailableError, "50 ms"),
        (30.0, 0.01, 0.05, DeadlineExceededError, "30 s"),
        (None, None, 1.5, UnavailableError, "1.5 s"),
    ],
)
def test_the_clock_that_runs_out_first_decides_the_class(
    timeout: float | None,
    remaining: float | None,
    connect_timeout: float,
    kind: type[Exception],
    seconds: str,
) -> None:
    limit = Deadline(timeout, remaining).while_connecting(connect_timeout)
    error = limit.error("connecting to /job:ps/task:0", "/job:ps/task:0", "start it")
    assert type(error) is kind
    assert error.task == "/job:ps/task:0"
    assert f"{seconds} " in error.message
    assert error.message.endswith("while connecting to /job:ps/task:0; start it")


def test_a_lock_that_is_not_free_in_time_is_an_error_and_is_not_taken() -> None:
    lock = threading.Lock()
    with (
        lock,
        pytest.raises(DeadlineExceededError, match=r"10 ms .* while waiting for it"),
        Deadline(0.01).holding(lock, "waiting for it"),
    ):
        pytest.fail("the lock was not free")
    assert not lock.locked()
    with pytest.raises(KeyError), FOREVER.holding(lock, "waiting for it"):
        raise KeyError
    assert not lock.locked()


def test_a_block_on_a_loop_is_cancelled_at_the_deadline_and_only_then() -> None:
    async def bounded(deadline: Deadline, error: Exception | None = None) -> None:
        async with deadline.bounding("waiting", "/job:ps/task:0"):
            if error is not None:
                raise error
            await asyncio.sleep(3600)

    clock = VirtualClock()
    begun = clock.now()
    with clock.installed(module):
        with pytest.raises(DeadlineExceededError, match="60 s") as caught:
            clock.run(bounded(Deadline(60.0)))
        assert clock.now() - begun == 60.0
        with pytest.raises(TimeoutError, match="another"):
            clock.run(bounded(Deadline(60.0), TimeoutError("another")))
    assert caught.value.task == "/job:ps/task:0"

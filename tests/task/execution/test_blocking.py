"""Fibers that run out of time, or are cancelled, in the moment when they could have gone on."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty
from typing import Any

import numpy as np
import pytest

from jflow import errors
from jflow.base.deadline import Deadline
from jflow.base.values import TensorSpec
from jflow.state.resources import Cell
from jflow.state.resources.accumulator import (
    Accumulator,
    AccumulatorSpec,
    ApplyGradient,
    TakeGradient,
)
from jflow.state.resources.kernel import wait_for
from jflow.state.resources.queue import Dequeue, Enqueue, Queue, QueueSpec
from jflow.task.execution.blocking import Woken, run_fibers

ONE_PLACE = QueueSpec("FIFOQueue", 1, components=(TensorSpec((), "int32"),))


class LastMoment(Woken):
    """Does something before it says that the waiting is over, for the first time."""

    def __init__(self, act: Callable[[], object], *, is_cancelled: bool) -> None:
        super().__init__()
        self._act = [act]
        self._is_cancelled = is_cancelled

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if not self._act:
            return super().get(block, timeout)
        self._act.pop()()
        if self._is_cancelled:
            return None
        raise Empty


def number(value: int) -> tuple[Any, ...]:
    return (np.array(value, np.int32),)


def took(cell: Cell) -> int:
    attempt = Dequeue()
    assert cell.submit(attempt, print)
    return int(attempt.result()[0])


@pytest.fixture
def queue() -> Cell:
    """A queue that is full."""
    cell = Cell(Queue(ONE_PLACE, "q", np.random.default_rng(0)), "")
    assert cell.submit(Enqueue(number(1)), print)
    return cell


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_put_that_is_done_in_the_last_moment_is_done(queue: Cell, is_cancelled: bool) -> None:
    """A caller that is told that it was not might put the element again."""

    def put() -> Any:
        yield from wait_for(queue, Enqueue(number(2)))

    woken = LastMoment(lambda: took(queue), is_cancelled=is_cancelled)
    run_fibers({"put": put()}, {"put": ()}, Deadline(0.0), woken)
    assert took(queue) == 2


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_it_does_not_wait_again_when_its_time_is_over(queue: Cell, is_cancelled: bool) -> None:
    def put() -> Any:
        yield from wait_for(queue, Enqueue(number(2)))
        yield from wait_for(queue, Enqueue(number(3)))

    woken = LastMoment(lambda: took(queue), is_cancelled=is_cancelled)
    with pytest.raises((errors.CancelledError, errors.DeadlineExceededError)):
        run_fibers({"put": put()}, {"put": ()}, Deadline(0.0), woken)
    assert took(queue) == 2
    assert queue.query(lambda state: state.size) == 0


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_an_element_that_comes_in_the_last_moment_goes_back(is_cancelled: bool) -> None:
    cell = Cell(Queue(ONE_PLACE, "q", np.random.default_rng(0)), "")

    def get() -> Any:
        yield from wait_for(cell, Dequeue())

    def put() -> None:
        assert cell.submit(Enqueue(number(1)), print)

    with pytest.raises((errors.CancelledError, errors.DeadlineExceededError)):
        run_fibers(
            {"get": get()}, {"get": ()}, Deadline(0.0), LastMoment(put, is_cancelled=is_cancelled)
        )
    assert took(cell) == 1


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_gradients_that_are_taken_in_the_last_moment_are_not_lost(is_cancelled: bool) -> None:
    cell = Cell(Accumulator(AccumulatorSpec("float32", ()), "a"), "")
    taken = []

    def take() -> Any:
        taken.append((yield from wait_for(cell, TakeGradient(1))))

    def apply() -> None:
        assert cell.submit(ApplyGradient(np.array(2, np.float32), 0), print)

    woken = LastMoment(apply, is_cancelled=is_cancelled)
    run_fibers({"take": take()}, {"take": ()}, Deadline(0.0), woken)
    assert taken == [(2,)]


def test_a_deadline_names_the_resource_the_action_and_the_operation_that_waited(
    queue: Cell,
) -> None:
    def put() -> Any:
        try:
            yield from wait_for(queue, Enqueue(number(2)))
        except errors.OpError as error:  # as `StepState.perform` does
            error.op = "push"
            raise

    with pytest.raises(
        errors.DeadlineExceededError,
        match=r"timeout of 5 ms .* while running the step; it waited to enqueue an element into "
        r"FIFOQueue 'q', which has 1 element \(capacity 1\)$",
    ) as caught:
        run_fibers({"put": put()}, {"put": ()}, Deadline(0.005), Woken())
    assert caught.value.op == "push"
    assert queue.query(lambda state: state.n_waiting) == (0, 0)

"""Steps that are started again because their state has moved."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from jflow.base.deadline import FOREVER, Deadline
from jflow.client.runtime.moving import MovingExecutable
from jflow.state.moves import MovedError, StateId
from jflow.testing import PATIENCE_S

MOVED = MovedError.of({StateId("/job:ps/task:0/device:CPU:0", "queue", "", "q"): "elsewhere"})


class Registration:
    """A registered step, of which only what `MovingExecutable.start` needs is there.

    Args:
      prepared: `prepare` waits for it.
    """

    def __init__(self, prepared: threading.Event | None = None) -> None:
        self.prepared = prepared
        self.is_preparing = threading.Event()
        self.started: list[Future[list[Any]]] = []

    def prepare(self, _: Deadline) -> None:
        self.is_preparing.set()
        if self.prepared is not None:
            assert self.prepared.wait(PATIENCE_S)

    def start(self, _: Sequence[Any], __: Deadline, **___: Any) -> Future[list[Any]]:
        self.started.append(Future())
        return self.started[-1]


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_step_that_is_cancelled_while_it_is_registered_again_is_not_started(
    is_cancelled: bool,
) -> None:
    old, new = Registration(), Registration(prepared=threading.Event())
    registrations: list[Any] = [old, new]
    step = MovingExecutable(lambda _: registrations.pop(0), lambda _: None, FOREVER)
    values = step.start((), FOREVER)
    ended = threading.Event()
    values.add_done_callback(lambda _: ended.set())
    old.started[0].set_exception(MOVED)
    assert new.is_preparing.wait(PATIENCE_S)
    if is_cancelled:
        values.cancel()
    assert new.prepared is not None
    new.prepared.set()
    if is_cancelled:
        assert ended.wait(PATIENCE_S)
        assert values.cancelled()
        assert not new.started, "it could take an element, for which nothing waits"
    else:
        while not new.started:
            ended.wait(0.01)
        new.started[0].set_result([7])
        assert values.result(PATIENCE_S) == [7]

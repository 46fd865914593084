"""Attempts of steps of a session, which the coordinator makes for users."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import Any

import jflow as tf
from jflow.base.deadline import Deadline
from jflow.state.effects import Effect
from jflow.testing import PATIENCE_S, start_servers

PS0, PS1, WORKER = "/job:ps/task:0", "/job:ps/task:1", "/job:worker"


def attempt(
    session: tf.Session, fetches: Any, effect: Effect, feeds: Mapping[Any, Any] | None = None
) -> Any:
    """Runs one attempt of a step."""
    return session._steps.run(
        None,
        fetches,
        feeds,
        Deadline(PATIENCE_S),
        lambda executable, given, deadline: executable.run(given, deadline, effect=effect),
    )


def started(session: tf.Session, fetches: Any, effect: Effect) -> Future[Any]:
    """The future of one attempt of a step, which gives a list."""
    futures: list[Future[Any]] = []

    def start(executable: Any, given: Any, deadline: Deadline) -> Any:
        futures.append(executable.start(given, deadline, effect=effect))
        raise _StartedError

    try:
        session._steps.run(None, fetches, None, Deadline(PATIENCE_S), start)
    except _StartedError:
        return futures[0]


class _StartedError(Exception):
    """Ends a call of which only the future is wanted."""


class Counters:
    """A graph with two counters, which may be on different tasks.

    Args:
      first, second: where they are.
      worker: where the value is computed that is added.

    Attributes:
      both: adds one to both counters; gives the value that was added.
      one: adds one to the first counter, in a step of its task alone; gives its new value.
      values: the values of both.
    """

    def __init__(self, first: str = PS0, second: str = PS1, worker: str = WORKER) -> None:
        with tf.device(first):
            self.a = tf.Variable(0.0, name="a")
            self.one = self.a.assign_add(1.0)
        with tf.device(second):
            self.b = tf.Variable(0.0, name="b")
        with tf.device(worker):
            self.x = tf.constant(1.0) * 2.0 - 1.0
        added = [self.a.assign_add(self.x), self.b.assign_add(self.x)]
        with tf.control_dependencies(added), tf.device(worker):
            self.both = tf.identity(self.x)
        self.values = [self.a, self.b]


@contextmanager
def servers(ps: int = 2, workers: int = 1) -> Iterator[list[tf.train.Server]]:
    """Parameter servers, then workers, in this process."""
    with ExitStack() as stack:
        yield start_servers(stack.enter_context, {"ps": ps, "worker": workers})

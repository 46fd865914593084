"""Attempts of steps of a session, which the coordinator makes for users."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import jflow as tf
from jflow.deadline import Deadline
from jflow.effects import Effect
from jflow.testing import PATIENCE_S, start_servers

PS0, PS1, WORKER = "/job:ps/task:0", "/job:ps/task:1", "/job:worker/task:0"


def attempt(
    session: tf.Session, fetches: Any, effect: Effect, feeds: Mapping[Any, Any] | None = None
) -> Any:
    """Runs one attempt of a step."""
    return session._run_new(
        None,
        fetches,
        feeds,
        Deadline(PATIENCE_S),
        lambda executable, given, deadline: executable.run(given, deadline, effect=effect),
    )


def started(session: tf.Session, fetches: Any, effect: Effect) -> Any:
    """The future of one attempt of a step."""
    futures: list[Any] = []

    def start(executable: Any, given: Any, deadline: Deadline) -> Any:
        futures.append(executable.start(given, deadline, effect=effect))
        raise _StartedError

    try:
        session._run_new(None, fetches, None, Deadline(PATIENCE_S), start)
    except _StartedError:
        return futures[0]


class _StartedError(Exception):
    """Ends a call of which only the future is wanted."""


@dataclass
class TwoCounters:
    """A graph with a counter on each of two parameter servers.

    Attributes:
      both: adds one to both of them, by a value that the worker computes; gives that value.
      one: adds one to the first one; gives its new value.
      local: as `one`, in a step of which no other task takes part.
    """

    a: Any
    b: Any
    both: Any
    one: Any

    @classmethod
    def make(cls, first: str = PS0, second: str = PS1, worker: str = WORKER) -> TwoCounters:
        with tf.device(first):
            a = tf.Variable(0.0, name="a")
        with tf.device(second):
            b = tf.Variable(0.0, name="b")
        with tf.device(worker):
            x = tf.constant(1.0) * 2.0 - 1.0
        with tf.control_dependencies([a.assign_add(x), b.assign_add(x)]), tf.device(worker):
            both = tf.identity(x)
        return cls(a, b, both, a.assign_add(1.0))


@contextmanager
def servers(ps: int = 2, workers: int = 1) -> Any:
    """Parameter servers and workers in this process."""
    with ExitStack() as stack:
        yield start_servers(stack.enter_context, {"ps": ps, "worker": workers})

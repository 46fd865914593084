"""Programs that run for minutes, beside which everything else must go on."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

import jflow as tf
from jflow.testing import PATIENCE_S, cpu_time
from jflow.testing import wait_until as until

ENDLESS = 2**31 - 1
SOON = tf.RunOptions(timeout_in_ms=400)
STARTED_S = 0.5
"""More processor time than it takes to start a step whose programs are compiled, in seconds."""


@dataclass
class Runaway:
    """A graph with programs whose length is fed, and others beside them."""

    device: str
    session: Callable[[], tf.Session]
    running: list[threading.Thread] = field(default_factory=list)

    def __post_init__(self) -> None:
        with tf.device(self.device):
            self.rounds = tf.placeholder(tf.int32, ())
            self.x = tf.Variable(1.0, name="x")
            self.y = tf.Variable(10.0, name="y")
            self.reads = self._loop(self.x + 0.0)
            self.writes = self.x.assign(self._loop(self.x + 0.0), name="long/assign")
            self.add_x, self.add_y = self.x.assign_add(1.0), self.y.assign_add(1.0)
            self.both = tf.group(self.x.assign_add(1.0), self.y.assign_add(1.0))

    def _loop(self, value: Any) -> Any:
        def more(carried: Any) -> Any:
            return carried[0] < carried[2]

        def once(carried: Any) -> Any:
            return carried[0] + 1, carried[1] * 0.5 + 1.0, carried[2]

        return tf.lax.while_loop(more, once, (0, value, self.rounds))[1]

    def initialize(self) -> None:
        """Gives the variables values, and runs each program shortly."""
        with self.session() as session:
            self.warm_up(session)

    def warm_up(self, session: tf.Session) -> None:
        """Makes all steps known to a session, so that its deadlines are for running them."""
        session.run(tf.global_variables_initializer())
        session.run(self.reads, {self.rounds: 2})
        session.run(self.writes, {self.rounds: 2})
        for step in (self.x, self.y, self.add_x, self.add_y, self.both):
            session.run(step)

    def start(self, what: Any, session: tf.Session | None = None) -> None:
        """Runs something on a thread; it is not expected to come back."""

        def run() -> None:
            used = session or self.session()
            with pytest.raises(tf.errors.OpError):
                used.run(what, {self.rounds: ENDLESS})

        self.running.append(threading.Thread(target=run, daemon=True))
        self.running[-1].start()


def is_blocked(session: tf.Session, what: Any, by: str = "'long/assign'") -> bool:
    """Whether something has to wait."""
    try:
        session.run(what, options=SOON)
    except tf.errors.DeadlineExceededError as error:
        return by in error.message
    return False


def check_beside_a_reader(runaway: Runaway) -> None:
    """Nothing waits for a step that only reads."""
    runaway.initialize()
    session = runaway.session()
    before = session.run(runaway.x)
    begun = cpu_time(os.getpid())
    runaway.start(runaway.reads, session)
    until(lambda: cpu_time(os.getpid()) - begun > STARTED_S, "a program that runs")
    for _ in range(3):
        other = runaway.session()
        assert session.run([runaway.add_y, runaway.y])[0] > 10.0
        assert other.run(runaway.add_x) > before, "also the variable that is read"
        assert other.run(runaway.x * 2 + runaway.y) > 0.0, "and a program that is new"
    assert all(thread.is_alive() for thread in runaway.running)


def check_beside_a_writer(runaway: Runaway) -> None:
    """What needs the variable that is written says so when its time is over; the rest goes on."""
    session = runaway.session()
    runaway.warm_up(session)
    runaway.start(runaway.writes, session)
    until(lambda: is_blocked(session, runaway.x))
    for what in (runaway.x, runaway.add_x, runaway.both):
        with pytest.raises(tf.errors.DeadlineExceededError) as raised:
            session.run(what, options=SOON)
        message = str(raised.value)
        assert "'x'" in message, message
        assert "'long/assign' of another step has been writing for" in message
    y = session.run(runaway.y)
    assert session.run(runaway.add_y) == y + 1, "nothing was half done"
    waiting = [
        threading.Thread(target=is_blocked, args=(session, runaway.x), daemon=True)
        for _ in range(40)
    ]
    for thread in waiting:
        thread.start()
    assert session.run(runaway.y * 5 - 1) == (y + 1) * 5 - 1, "while many wait"
    assert session.list_devices()
    for thread in waiting:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()

"""A model that counts, and hooks that note what is called."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import jflow as tf
from tests.clusters import Backend


class Model(NamedTuple):
    """A global step and a weight of which every step adds one, on the last device of a backend."""

    step: Any
    weight: Any
    train: Any


def counting_model(backend: Backend) -> Model:
    """Adds a model to the default graph."""
    with tf.device(backend.devices[-1]):
        step = tf.train.create_global_step()
        weight = tf.Variable(np.zeros(3, np.float32), name="weight")
        train = tf.group(step.assign_add(1), weight.assign_add(np.ones(3, np.float32)))
    return Model(step, weight, train)


class Recorder(tf.train.SessionRunHook):
    """Notes the calls of its methods in a list."""

    def __init__(self, calls: list[Any], name: str = "") -> None:
        self.calls = calls
        self.name = name

    def _note(self, what: str) -> None:
        self.calls.append(f"{self.name}{what}")

    def begin(self) -> None:
        self._note("begin")

    def after_create_session(self, session: Any, coord: Any) -> None:
        assert isinstance(session, tf.Session)
        assert isinstance(coord, tf.train.Coordinator)
        self._note("after_create_session")

    def before_run(self, run_context: Any) -> Any:
        self._note("before_run")

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._note("after_run")

    def end(self, session: Any) -> None:
        self._note("end")


class FailsOnce(Recorder):
    """Raises an error in one of its methods, the first time that it is called."""

    def __init__(self, calls: list[Any], method: str, error: Exception) -> None:
        super().__init__(calls)
        self.method = method
        self.error: Exception | None = error

    def _note(self, what: str) -> None:
        super()._note(what)
        if what == self.method and self.error is not None:
            error, self.error = self.error, None
            raise error


def singular(backend: Backend, *hooks: Any, **options: Any) -> Any:
    """A monitored session that does not recover."""
    return tf.train.SingularMonitoredSession(hooks, master=backend.target, **options)


def monitored(backend: Backend, *hooks: Any, **options: Any) -> Any:
    """A monitored session that recovers."""
    creator = tf.train.ChiefSessionCreator(master=backend.target, **options)
    return tf.train.MonitoredSession(creator, hooks)

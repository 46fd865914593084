"""Sessions with queue runners that are stopped in any case."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jflow as tf
from jflow.testing import PATIENCE_S as WAIT_S


@contextmanager
def feeding(target: str = "") -> Iterator[tf.Session]:
    """A session of the default graph; errors of queue runners are raised at the end."""
    with tf.Session(target) as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coord)
        try:
            yield session
        finally:
            coord.request_stop()
            coord.join(threads, stop_grace_period_secs=WAIT_S)


def drained(session: tf.Session, fetches: Any) -> list[Any]:
    """The values of consecutive steps until the end of the data."""
    values = []
    while True:
        try:
            values.append(session.run(fetches))
        except tf.errors.OutOfRangeError:
            return values


def columns(values: list[Any]) -> list[Any]:
    """As `drained` gave them, as lists."""
    return [value.tolist() for value in values]

"""Cyd runs steps, passes elements through a queue, and calls a function; and checks all of it.

`python -m tests.gameday.programs.cyd TARGET OTHER`: the masters of the two sessions. What it uses
is on parameter servers 1 and 2. It ends after the round in which its input ends; an error ends it.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import jflow as tf
from tests.gameday.programs.told import PAUSE_S, is_over, tell

PS_1, PS_2 = "/job:ps/task:1", "/job:ps/task:2"
N_STEPS, N_ELEMENTS, N_CALLS = 20, 10, 5
"""Of a round."""


class Cyd:
    """The graph, the sessions, and what has been done with them.

    Attributes:
      longest_s: how long one call took at most, in seconds.
    """

    def __init__(self, target: str, other: str) -> None:
        self.longest_s = 0.0
        with tf.container("cyd/work"):
            with tf.device(PS_1):
                first = tf.Variable(np.int32(0), name="first")
                queue = tf.FIFOQueue(64, [tf.int32], shapes=[()], shared_name="elements")
            with tf.device(PS_2):
                second = tf.Variable(np.int32(0), name="second")
        self._count = tf.group(first.assign_add(1), second.assign_add(1))
        self._counters = [first, second]
        self._element = tf.placeholder(tf.int32, ())
        self._put, self._take = queue.enqueue(self._element), queue.dequeue()
        self._size = queue.size()
        initialize = [first.initializer, second.initializer]
        graph = tf.get_default_graph()
        self._putting, self._taking = tf.Session(target, graph), tf.Session(other, graph)
        self._putting.run(initialize)
        self._connection = tf.connect(target)
        with tf.container("cyd/work"), tf.device(PS_1):
            self._total = tf.Variable(np.int32(0), name="total")

        @tf.function
        def add(n: Any) -> Any:
            return self._total.assign_add(n * n)

        self._add = add

    def round(self, number: int) -> None:
        """Does a little of everything, and checks what it gets."""
        for _ in range(N_STEPS):
            self._timed(lambda: self._putting.run(self._count))
        elements = [number * N_ELEMENTS + i for i in range(N_ELEMENTS)]
        for one in elements:
            self._timed(lambda one=one: self._putting.run(self._put, {self._element: one}))
        taken = [int(self._timed(lambda: self._taking.run(self._take))) for _ in elements]
        assert taken == elements, f"round {number}: taken {taken}, not {elements}"
        for _ in range(N_CALLS):
            self._timed(lambda: self._add(np.int32(2)))

    def results(self) -> dict[str, Any]:
        """What is on the cluster now."""
        return {
            "counters": [int(one) for one in self._taking.run(self._counters)],
            "left": int(self._taking.run(self._size)),
            "total": int(self._total.numpy()),
        }

    def _timed(self, call: Callable[[], Any]) -> Any:
        began = time.monotonic()
        result = call()
        self.longest_s = max(self.longest_s, time.monotonic() - began)
        return result


def expected(n_rounds: int) -> dict[str, Any]:
    """What has to be on the cluster after so many rounds."""
    return {
        "counters": [N_STEPS * n_rounds] * 2,
        "left": 0,
        "total": 4 * N_CALLS * n_rounds,
    }


def main(target: str, other: str) -> None:
    cyd = Cyd(target, other)
    tell(started=cyd.results())
    for number in itertools.count():
        cyd.longest_s = 0.0
        cyd.round(number)
        tell(rounds=number + 1, seconds=cyd.longest_s)
        if is_over(PAUSE_S):
            break
    tell(ended=number + 1, results=cyd.results())


if __name__ == "__main__":
    main(*sys.argv[1:])

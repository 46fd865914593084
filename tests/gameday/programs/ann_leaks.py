"""Ann makes variables, and fills a queue, without an end; and goes on when she is refused.

`python -m tests.gameday.programs.ann_leaks TARGET`. Once both have been refused it says by which
errors, and in the end how often.
"""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np

import jflow as tf
from tests.gameday.programs.told import is_over, tell

SIZE = 1 << 16
"""Of what she makes, in numbers of 4 bytes."""

REST_S = 0.3
"""How long she waits after a refusal, in seconds."""

OF_VARIABLES, OF_QUEUE = "variables", "queue"


def main(target: str) -> None:
    made: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    errors: dict[str, str] = {}
    with tf.container("ann/leak"):
        with tf.device("/job:ps/task:0"):
            queue = tf.FIFOQueue(-1, [tf.float32], shapes=[(SIZE,)], shared_name="results")
            enqueue = queue.enqueue(np.zeros(SIZE, np.float32))
        with tf.Session(target) as session:
            while not is_over(REST_S if refused else 0.0):
                with tf.device("/job:ps/task:2"):
                    one = tf.Variable(np.zeros(SIZE, np.float32), name="model")
                for what, step in ((OF_QUEUE, enqueue), (OF_VARIABLES, one.initializer)):
                    try:
                        session.run(step)
                    except tf.errors.ResourceExhaustedError as error:
                        refused[what] += 1
                        is_first = errors.setdefault(what, error.message) is error.message
                        if is_first and len(errors) == 2:
                            tell(both=errors)
                    else:
                        made[what] += 1
    tell(made=made, refused=refused)


if __name__ == "__main__":
    main(*sys.argv[1:])

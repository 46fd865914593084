"""Ann runs a program on a worker that does not end, and gives it up.

`python -m tests.gameday.programs.ann_loops TARGET DEVICE`. It says by which error the step ended
that she gave up, and then by which one the worker refuses her next step.
"""

from __future__ import annotations

import sys
from typing import Any

import jflow as tf
from tests.gameday.programs.told import is_over, tell

ENDLESS = 2**31 - 1
SOON = tf.RunOptions(timeout_in_ms=500)


def loop(rounds: Any) -> Any:
    """Adds up numbers, one at a time."""
    return tf.lax.while_loop(
        lambda carried: carried[0] < carried[2],
        lambda carried: (carried[0] + 1, carried[1] * 0.5 + 1.0, carried[2]),
        (0, tf.constant(1.0), rounds),
    )[1]


def main(target: str, device: str) -> None:
    with tf.device(device):
        rounds = tf.placeholder(tf.int32, ())
        endless = loop(rounds)
        small = tf.constant(2.0) * 3.0 + tf.cast(rounds, tf.float32)
    with tf.Session(target) as session:
        session.run(endless, {rounds: 2})
        session.run(small, {rounds: 2})
        try:
            session.run(endless, {rounds: ENDLESS}, SOON)
        except tf.errors.DeadlineExceededError as error:
            tell(given_up=error.message)
        while not is_over(0.01):
            try:
                session.run(small, {rounds: 2})
            except tf.errors.UnavailableError as error:
                tell(refused=error.message)
                return


if __name__ == "__main__":
    main(*sys.argv[1:])

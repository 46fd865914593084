"""Steps that are applied once beside the same steps at least once, on two parameter servers.

The coordinator makes attempts of steps for users; here an attempt is made of a session's own step.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

import jflow as tf
from bench.timing import alternate, tell
from jflow.base.deadline import FOREVER
from jflow.state.effects import Effect

N_STEPS = 100
PS0, PS1, WORKER = "/job:ps/task:0", "/job:ps/task:1", "/job:worker"


def once(session: tf.Session, fetch: Any, sequences: itertools.count[int]) -> Callable[[], Any]:
    """Runs a step as one that is applied once."""

    def run(executable: Any, feeds: Any, deadline: Any) -> Any:
        sequence = next(sequences)
        effect = Effect("bench", 0, sequence, acknowledged=sequence)
        return executable.run(feeds, deadline, effect=effect)

    parsed: Any = fetch
    return lambda: session._steps.run(None, parsed, None, FOREVER, run)


def main() -> None:
    """Each kind of step in both ways, in turn."""
    with tf.LocalCluster(ps=2, workers=1) as cluster, tf.Session(cluster.target()) as session:
        with tf.device(PS0):
            a = tf.Variable(np.float32(0.0))
            large = tf.Variable(np.zeros(1 << 20, np.float32))
            alone = a.assign_add(1.0)
        with tf.device(PS1):
            b = tf.Variable(np.float32(0.0))
        with tf.device(WORKER):
            x = a * 0.0 + 1.0
        steps = {
            "update of one task": alone,
            "step on a worker and one ps": a.assign_add(x),
            "step on a worker and two ps": tf.group(a.assign_add(x), b.assign_add(x)),
            "update of 4 MB by a worker": large.assign_add(tf.numpy.full((1 << 20,), x)).op,
        }
        session.run(tf.global_variables_initializer())
        sequences = itertools.count()
        calls: dict[str, Callable[[], Any]] = {}
        for name, fetch in steps.items():
            calls[name] = lambda fetch=fetch: session._steps.run(None, fetch, None, FOREVER, None)
            calls[f"{name}, applied once"] = once(session, fetch, sequences)
        tell(alternate(calls, N_STEPS))


if __name__ == "__main__":
    main()

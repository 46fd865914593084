"""TensorFlow's sessions, for the figures of `beside_peers`; in an environment of its own."""

from __future__ import annotations

import numpy as np

from bench.cases.tensorflow_parameter_servers import PS, WORKERS, step
from bench.peers import CALL, GET, N_BIG, N_SHARED, PUT, STEP, UPDATE
from bench.perceptron import BASE
from bench.tensorflow_servers import cluster, tf
from bench.timing import alternate, tell


def main() -> None:
    """Measures on a cluster of one parameter server and two workers."""
    change, value = np.ones(N_SHARED, np.float32), np.ones(N_BIG, np.float32)
    with tf.device(WORKERS[0]):
        count = tf.Variable(0.0)
        x = tf.placeholder(tf.float32, [N_BIG])
        big, sink = (tf.Variable(tf.ones([N_BIG])) for _ in range(2))
        call, put = tf.assign_add(count, 1.0), tf.assign(sink, x).op
    with tf.device(PS):
        shared = tf.Variable(tf.zeros([N_SHARED]))
        dx = tf.placeholder(tf.float32, [N_SHARED])
        update = tf.assign_add(shared, dx).op
    with cluster(2) as targets, tf.Session(targets[0]) as session:
        session.run([one.initializer for one in (count, big, sink, shared)])
        put_value, update_by = (
            session.make_callable(op, [fed]) for op, fed in ((put, x), (update, dx))
        )
        short = {
            f"TensorFlow {CALL}": session.make_callable(call),
            f"TensorFlow {UPDATE}": lambda: update_by(change),
            f"TensorFlow {STEP}": step(session, BASE),
        }
        large = {
            f"TensorFlow {PUT}": lambda: put_value(value),
            f"TensorFlow {GET}": session.make_callable(big),
        }
        tell(alternate(short, n=60))
        tell(alternate(large, n=2))


if __name__ == "__main__":
    main()

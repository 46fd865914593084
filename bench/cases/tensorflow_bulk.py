"""TensorFlow's sessions with 100 MB, for the figures of `bulk`."""

from __future__ import annotations

from collections import deque

import numpy as np

from bench.cases.tensorflow_peer import N_FLOATS
from bench.tensorflow_servers import servers, tf
from bench.timing import alternate, tell

N_KEPT = 8

if __name__ == "__main__":
    with servers() as target, tf.Session(target) as session:
        big = np.ones(N_FLOATS, np.float32)
        with tf.device("/job:worker/task:0"):
            x = tf.placeholder(tf.float32, [N_FLOATS])
            near = tf.Variable(tf.zeros([N_FLOATS]), name="near")
            put = near.assign(x).op
            near_value = near.value()
        with tf.device("/job:ps/task:0"):
            far = tf.Variable(tf.ones([N_FLOATS]), name="far")
            far_value = far.value()
        with tf.device("/job:worker/task:0"):
            element = far_value[N_FLOATS // 2]
        session.run([near.initializer, far.initializer])
        kept: deque[np.ndarray] = deque(maxlen=N_KEPT)
        calls = {
            "feed 100 MB, kept in a variable": lambda: session.run(put, {x: big}),
            "fetch 100 MB, results kept": lambda: kept.append(session.run(near_value)),
            "delivery of 100 MB to another task": lambda: session.run(element),
        }
        named = {f"TensorFlow {name}": call for name, call in calls.items()}
        tell(alternate(named, n=1, rounds=5))

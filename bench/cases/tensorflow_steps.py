"""TensorFlow's sessions, for the figures of `transports`."""

from __future__ import annotations

from bench.cases.tensorflow_peer import calls, tensors
from bench.cases.tensorflow_queues import scalar
from bench.tensorflow_servers import servers, tf

if __name__ == "__main__":
    with servers() as target:
        with tf.device("/job:worker/task:0"), tf.Session(target) as session:
            calls(session, "remote", 200)
            scalar(session, "remote", 100)
        with tf.Graph().as_default(), tf.Session(target) as session:
            tensors(session)

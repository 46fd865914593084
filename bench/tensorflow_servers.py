"""TensorFlow as graphs and sessions, and servers of it; for Pythons that have it.

`python -m bench.tensorflow_servers JOB PORT PORT` is one task of a parameter server and a worker.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import tensorflow as tensorflow2

tf = tensorflow2.compat.v1
tf.disable_eager_execution()
tf.logging.set_verbosity(tf.logging.ERROR)


@contextmanager
def servers() -> Iterator[str]:
    """A parameter server and a worker, in processes of their own; gives the worker's target."""
    ports = free_ports()
    command = [sys.executable, "-m", "bench.tensorflow_servers"]
    started = [subprocess.Popen([*command, job, *ports]) for job in ("ps", "worker")]
    try:
        yield f"grpc://localhost:{ports[1]}"
    finally:
        for server in started:
            server.kill()
            server.wait()


def free_ports() -> list[str]:
    """Two ports that are free now."""
    sockets = [socket.socket() for _ in range(2)]
    for one in sockets:
        one.bind(("localhost", 0))
    ports = [str(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def serve(job: str, ps: str, worker: str) -> None:
    """One task, until it is killed."""
    spec = tf.train.ClusterSpec({"ps": [f"localhost:{ps}"], "worker": [f"localhost:{worker}"]})
    tf.train.Server(spec, job_name=job, task_index=0).join()


if __name__ == "__main__":
    serve(*sys.argv[1:])

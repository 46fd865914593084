"""TensorFlow as graphs and sessions, and servers of it; for Pythons that have it.

`python -m bench.tensorflow_servers JOB INDEX PORT...` is one task of a cluster; the first port is
that of the parameter server, the others are those of workers.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import tensorflow as tensorflow2

from bench.peers import free_ports

tf = tensorflow2.compat.v1
tf.disable_eager_execution()
tf.logging.set_verbosity(tf.logging.ERROR)


@contextmanager
def servers() -> Iterator[str]:
    """A parameter server and a worker, in processes of their own; gives the worker's target."""
    with cluster(1) as targets:
        yield targets[0]


@contextmanager
def cluster(n_workers: int) -> Iterator[list[str]]:
    """A parameter server and workers, in processes of their own; gives the workers' targets."""
    ports = free_ports(1 + n_workers)
    tasks = [("ps", 0), *(("worker", index) for index in range(n_workers))]
    command = [sys.executable, "-m", "bench.tensorflow_servers"]
    started = [subprocess.Popen([*command, job, str(index), *ports]) for job, index in tasks]
    try:
        yield [f"grpc://localhost:{port}" for port in ports[1:]]
    finally:
        for server in started:
            server.kill()
            server.wait()


def serve(job: str, index: str, ps: str, *workers: str) -> None:
    """One task, until it is killed."""
    addresses = {"ps": [f"localhost:{ps}"], "worker": [f"localhost:{port}" for port in workers]}
    spec = tf.train.ClusterSpec(addresses)
    tf.train.Server(spec, job_name=job, task_index=int(index)).join()


if __name__ == "__main__":
    serve(*sys.argv[1:])

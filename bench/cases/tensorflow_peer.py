"""TensorFlow's sessions, for the same figures; run in an environment of its own.

With arguments it is one of its own servers: `tensorflow_peer.py JOB PORT PORT`.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import json

import numpy as np
import tensorflow as tensorflow2

tf = tensorflow2.compat.v1
tf.disable_eager_execution()

N_FLOATS = 25_000_000


def median(call, n, rounds=5):
    """Median seconds a call."""
    for _ in range(max(n // 5, 1)):
        call()
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        for _ in range(n):
            call()
        times.append((time.perf_counter() - begun) / n)
    return statistics.median(times)


def calls(session, where, n):
    """Round trips of one session."""
    constant = tf.constant(1.0) * 3
    x = tf.placeholder(tf.float32, [])
    fed = x * 3 + 1
    variable = tf.Variable(0.0, name=where)
    add = tf.assign_add(variable, 1.0)
    session.run(variable.initializer)
    return {
        f"TensorFlow {where} constant": median(lambda: session.run(constant), n),
        f"TensorFlow {where} fed scalar": median(lambda: session.run(fed, {x: 1.0}), n),
        f"TensorFlow {where} assign_add": median(lambda: session.run(add), n),
    }


def scatter(n_rows):
    """Adding 256 rows into a table of 16 columns."""
    random = np.random.default_rng(0)
    with tf.Graph().as_default(), tf.Session() as session:
        table = tf.Variable(tf.zeros([n_rows, 16]))
        at, rows = tf.placeholder(tf.int32, [256]), tf.placeholder(tf.float32, [256, 16])
        added = tf.group(tf.scatter_add(table, at, rows))
        feeds = {
            at: random.integers(0, n_rows, 256).astype(np.int32),
            rows: random.normal(size=(256, 16)).astype(np.float32),
        }
        session.run(table.initializer)
        return {
            f"TensorFlow scatter_add into {n_rows}": median(lambda: session.run(added, feeds), 50)
        }


def tensors(session):
    """100 MB to a server, back from it, and from one to another."""
    big = np.ones(N_FLOATS, np.float32)
    with tf.device("/job:worker/task:0"):
        x = tf.placeholder(tf.float32, [N_FLOATS])
        total = tf.reduce_sum(x)
        near = tf.Variable(tf.ones([N_FLOATS]), name="near")
    with tf.device("/job:ps/task:0"):
        far = tf.Variable(tf.ones([N_FLOATS]), name="far")
        scalar = tf.Variable(1.0, name="scalar")
    with tf.device("/job:worker/task:0"):
        total_far, twice = tf.reduce_sum(far), scalar * 2
    session.run([near.initializer, far.initializer, scalar.initializer])
    return {
        "TensorFlow feed 100 MB": median(lambda: session.run(total, {x: big}), 1),
        "TensorFlow fetch 100 MB": median(lambda: session.run(near.value()), 1),
        "TensorFlow 100 MB from task to task": median(lambda: session.run(total_far), 1),
        "TensorFlow remote scalar of another task": median(lambda: session.run(twice), 200),
    }


def serve(job, ports):
    """One task, until it is killed."""
    tf.train.Server(cluster(ports), job_name=job, task_index=0).join()


def cluster(ports):
    """A parameter server and a worker."""
    ps, worker = ports
    return tf.train.ClusterSpec({"ps": [f"localhost:{ps}"], "worker": [f"localhost:{worker}"]})


def free_ports():
    """Two ports nobody listens on now."""
    sockets = [socket.socket() for _ in range(2)]
    for one in sockets:
        one.bind(("localhost", 0))
    ports = [str(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def main():
    """Prints the figures as a line of JSON."""
    with tf.Session() as session:
        figures = calls(session, "local", 1000)
    figures |= scatter(10_000) | scatter(5_000_000)
    ports = free_ports()
    servers = [
        subprocess.Popen([sys.executable, __file__, job, *ports]) for job in ("ps", "worker")
    ]
    try:
        with tf.device("/job:worker/task:0"), tf.Session(f"grpc://localhost:{ports[1]}") as session:
            figures |= calls(session, "remote", 300)
        with tf.Graph().as_default(), tf.Session(f"grpc://localhost:{ports[1]}") as session:
            figures |= tensors(session)
    finally:
        for server in servers:
            server.kill()
            server.wait()
    print(json.dumps(figures))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        serve(sys.argv[1], sys.argv[2:])
    else:
        main()

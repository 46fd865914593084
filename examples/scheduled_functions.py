"""Functions scheduled onto workers: elements of a dataset, and a counter on a parameter server.

    python examples/scheduled_functions.py

It is one program for all roles. TF_CONFIG says which one a process has: tasks "ps" and "worker"
serve; any other process coordinates. Without TF_CONFIG it starts a parameter server and two workers
on this machine, as processes that are told by TF_CONFIG, and coordinates them.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from typing import Any

import jflow as tf

N_TASKS = {"ps": 1, "worker": 2}


def serve(resolver: Any) -> None:
    """Serves as a task of the cluster until the process is ended."""
    server = tf.train.Server(resolver.cluster_spec(), resolver.task_type, resolver.task_id)
    server.join()


def elements_of_a_dataset(coordinator: Any) -> Any:
    """Fetches an element of the dataset that a worker iterates over."""

    @tf.function
    def worker_fn(iterator: Any) -> Any:
        return next(iterator)

    def per_worker_dataset_fn() -> Any:
        return coordinator.strategy.distribute_datasets_from_function(
            lambda context: tf.data.from_tensor_slices([3] * 3)
        )

    per_worker_dataset = coordinator.create_per_worker_dataset(per_worker_dataset_fn)
    per_worker_iterator = iter(per_worker_dataset)
    remote_value = coordinator.schedule(worker_fn, args=(per_worker_iterator,))
    return remote_value.fetch()


def counter_on_a_parameter_server(coordinator: Any) -> Any:
    """Adds elements to a variable, one function for each; fetches what one of them has read."""
    strategy = coordinator.strategy
    with strategy.scope():
        v = tf.Variable(initial_value=0)

    @tf.function
    def worker_fn(iterator: Any) -> Any:
        def replica_fn(x: Any) -> Any:
            v.assign_add(x)
            return v.read_value()

        return strategy.run(replica_fn, args=(next(iterator),))

    dataset = tf.data.Dataset.from_tensor_slices([1, 1, 1])
    iterator = iter(coordinator.create_per_worker_dataset(lambda: dataset))
    first = coordinator.fetch(coordinator.schedule(worker_fn, args=(iterator,)))
    coordinator.schedule(worker_fn, args=(iterator,))
    coordinator.join()
    return first, v.numpy()


def coordinate(resolver: Any) -> None:
    """Runs both programs on the cluster."""
    strategy = tf.distribute.experimental.ParameterServerStrategy(resolver)
    with tf.distribute.experimental.coordinator.ClusterCoordinator(strategy) as coordinator:
        print("element:", elements_of_a_dataset(coordinator))
        first, last = counter_on_a_parameter_server(coordinator)
        print(f"counter: {first} after one function, {last} after two")
    strategy.close()


def start_cluster(stack: ExitStack) -> dict[str, list[str]]:
    """Starts the tasks as processes of this program, which end with the stack."""
    with ExitStack() as sockets:
        held = {
            job: [sockets.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(n)]
            for job, n in N_TASKS.items()
        }
        cluster = {
            job: [f"127.0.0.1:{one.getsockname()[1]}" for one in listening]
            for job, listening in held.items()
        }
    for job, addresses in cluster.items():
        for index in range(len(addresses)):
            config = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
            process = subprocess.Popen(
                [sys.executable, __file__], env=os.environ | {"TF_CONFIG": config}
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
    return cluster


def main() -> None:
    with ExitStack() as stack:
        if not os.environ.get("TF_CONFIG"):
            os.environ["TF_CONFIG"] = json.dumps({"cluster": start_cluster(stack)})
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        if resolver.task_type in N_TASKS:
            serve(resolver)
        else:
            coordinate(resolver)


if __name__ == "__main__":
    main()

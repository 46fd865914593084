"""Many small closures of TensorFlow's coordinator, for the figure of `beside_peers`."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from typing import Any

from bench.cases.tensorflow_coordinator import start_cluster, tf
from bench.peers import N_TASKS, TASKS
from bench.timing import tell


def main() -> None:
    with ExitStack() as stack:
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            start_cluster(stack), rpc_layer="grpc"
        )
        strategy = tf.distribute.ParameterServerStrategy(resolver)
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

        @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
        def add_one(x: Any) -> Any:
            return x + 1

        def run(n: int) -> None:
            numbers = [tf.constant(float(i)) for i in range(n)]
            coordinator.fetch([coordinator.schedule(add_one, args=(x,)) for x in numbers])

        run(N_TASKS // 10)
        begun = time.perf_counter()
        run(N_TASKS)
        tell({f"TensorFlow {TASKS}": (time.perf_counter() - begun) / N_TASKS})
        sys.stdout.flush()
    os._exit(0)  # its threads would wait for the cluster


if __name__ == "__main__":
    main()

"""Timed mode: a schedule of any problem, run by real processes that sleep instead of computing.

A simulated number without a measured one beside it is a claim. Here the runtime runs the schedule:
each operation sleeps on its device for its modelled time, and each tensor has its modelled size on
links of the modelled rate. So 8 to 64 processes fit on two cores, and what differs from the
simulation is what the runtime does: how it cuts a step, when it sends, what a message costs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import jax
import numpy as np

import jflow as tf
from jflow.compiler.graph.calls import call
from jflow.compiler.schedule import (
    BUFFERED,
    Costs,
    Dependency,
    OperationGraph,
    Problem,
    Schedule,
    simulate,
)
from jflow.compiler.schedule.stage_run import simulate_stages
from jflow.errors import InternalError, InvalidArgumentError
from jflow.lab.timed_server import VARIABLE, WORK, TimedLinks
from jflow.launch import LocalCluster

LINKS = TimedLinks(latency=0.0, bandwidth=1e5)
"""So slow that the bytes of a tensor are few, and that what the machine adds hardly counts."""

MESSAGE_S = 1e-3
"""What a message between two processes takes in addition, about, with many of them on two cores."""


@dataclass(frozen=True)
class TimedRun:
    """A schedule as it was simulated and run.

    Attributes:
      simulated: the makespan of the simulator, in seconds.
      staged: the same for the stages that the runtime makes of the schedule; see `simulate_stages`.
      times: of the steps that were run, in seconds.
    """

    simulated: float
    staged: float
    times: tuple[float, ...]

    @property
    def measured(self) -> float:
        """The median time of a step."""
        return median(self.times)


class TimedCluster(LocalCluster):
    """A cluster of processes that sleep instead of computing, one device each.

    Args:
      n_devices: how many.
      links: what transfers take.
    """

    _module = "jflow.lab.timed_server"

    def __init__(self, n_devices: int, links: TimedLinks = LINKS) -> None:
        self._environment = {VARIABLE: str(links)}
        self.links = links
        super().__init__(ps=0, workers=n_devices, timeout=60.0 + 10 * n_devices)


def timed_problem(problem: Problem, seconds: float, links: TimedLinks = LINKS) -> Problem:
    """Returns the problem with other units, as a timed cluster can run it.

    Transfers keep their times relative to operations. Sizes are whole numbers of bytes, at least
    one. Ports are those of the runtime: what waits for a receiver holds nothing else up. So are
    stages, so that `auto` compares what the runtime makes of schedules.

    Args:
      problem: any problem in which all links are equal.
      seconds: the mean time of an operation.
      links: of the cluster that is to run it.

    Raises:
      InvalidArgumentError: if links differ.
    """
    costs = problem.costs
    n_devices = len(problem.devices)
    different = ~np.eye(n_devices, dtype=bool)
    if n_devices > 1 and not all(
        np.allclose(values[different], values[different][0])
        for values in (costs.latency, costs.byte_seconds)
    ):
        raise InvalidArgumentError("timed mode needs equal links between all devices")
    factor = seconds / float(costs.seconds.mean())
    sent = factor * costs.mean_link[1] * links.bandwidth  # bytes now for a byte before
    edges = tuple(
        Dependency(edge.producer, edge.consumers, float(max(1, round(edge.n_bytes * sent))))
        for edge in problem.graph.edges
    )
    scaled = Costs(
        costs.seconds * factor,
        different * (links.latency + MESSAGE_S),
        different / links.bandwidth,
        BUFFERED,
        in_stages=True,  # it is jflow's runtime that runs it
    )
    graph = OperationGraph(problem.graph.operations, edges)
    return Problem(graph, problem.devices, scaled, problem.constraints).checked()


def run_timed(
    cluster: TimedCluster, problem: Problem, schedule: Schedule, *, n_steps: int = 3
) -> TimedRun:
    """Runs a schedule on a timed cluster.

    Args:
      cluster: has at least as many tasks as the problem has devices.
      problem: as `timed_problem` gives it.
      schedule: of this problem.
      n_steps: steps to run, after one that is not counted.

    Raises:
      InvalidArgumentError: if the cluster is too small.
      InternalError: if the step computed something else than its graph says.
    """
    targets = [f"/job:worker/task:{i}" for i in range(len(problem.devices))]
    if len(targets) > len(cluster.tasks):
        raise InvalidArgumentError(
            f"the problem has {len(targets)} devices, the cluster {len(cluster.tasks)} tasks"
        )
    graph, results = timed_graph(problem, schedule, targets)
    times = []
    with tf.Session(cluster.target("worker", 0), graph=graph) as session:
        for _ in range(n_steps + 1):
            start = time.perf_counter()
            computed = session.run(results)
            times.append(time.perf_counter() - start)
    _check(problem, [int(value[0]) for value in computed])
    return TimedRun(
        simulate(problem, schedule).makespan,
        simulate_stages(problem, schedule).makespan,
        tuple(times[1:]),
    )


def timed_graph(
    problem: Problem, schedule: Schedule, targets: Sequence[str]
) -> tuple[tf.Graph, list[tf.Tensor]]:
    """Returns the graph that takes the time of a problem.

    Args:
      problem: as `timed_problem` gives it.
      schedule: of this problem.
      targets: the name of each device.

    Returns:
      The graph, and u8[1] of each operation whose results nothing uses, in their order.
    """
    graph = tf.Graph()
    tensors: dict[int, tf.Tensor] = {}
    last: list[tuple[int, tf.Tensor]] = []
    outputs, edges = problem.graph.outputs, problem.graph.edges
    with graph.as_default():
        for i in schedule.order:
            device = schedule.devices[i]
            sizes = [int(edges[number].n_bytes) for number in outputs[i]] or [1]
            inputs = [tensors[number] for number in problem.graph.inputs[i]]
            seconds = float(problem.costs.seconds[i, device])
            with tf.device(targets[device]):
                op = call(
                    graph,
                    WORK,
                    inputs,
                    [jax.core.ShapedArray((size,), np.dtype(np.uint8)) for size in sizes],
                    name=f"operation_{i}",
                    attributes={"seconds": seconds, "sizes": sizes},
                )
            tensors.update(zip(outputs[i], op.outputs, strict=False))
            if not outputs[i]:
                last.append((i, op.outputs[0]))
    return graph, [tensor for _, tensor in sorted(last)]


def _check(problem: Problem, computed: Sequence[int]) -> None:
    """Raises InternalError if results are not those of the graph, in the order of its ends."""
    graph, values = problem.graph, [0] * len(problem.graph)
    for i in graph.order:
        values[i] = (1 + sum(values[graph.edges[n].producer] for n in graph.inputs[i])) % 256
    wanted = [values[i] for i in range(len(graph)) if not graph.outputs[i]]
    if [*computed] != wanted:
        raise InternalError(f"the timed step gave {[*computed]}, expected {wanted}")

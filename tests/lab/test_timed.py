"""Timed mode: the runtime runs schedules whose operations sleep."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import jflow as tf
from jflow import errors
from jflow.compiler.graph.calls import call
from jflow.compiler.schedule import Constraints, Costs, Problem, Schedule, graph_of, scheduled
from jflow.compiler.schedule.stage_run import simulate_stages
from jflow.compiler.schedule.strategies import STRATEGIES
from jflow.lab.families import random_problem
from jflow.lab.timed import LINKS, TimedCluster, run_timed, timed_problem
from jflow.lab.timed_server import VARIABLE, WORK, TimedServer
from tests.clusters import in_process


@pytest.fixture
def timed_servers(monkeypatch):
    """Three timed servers in this process, as far as `run_timed` uses a cluster."""
    monkeypatch.setenv(VARIABLE, str(LINKS))
    with ExitStack() as stack:
        servers = [
            stack.enter_context(TimedServer({"worker": {i: "127.0.0.1:0"}}, "worker", i))
            for i in range(3)
        ]
        known = {
            i: server.cluster_spec.task_address("worker", i) for i, server in enumerate(servers)
        }
        for server in servers:
            server.connect({"worker": known})
        yield SimpleNamespace(tasks=servers, target=lambda job, index: servers[index].target)


def diamond(seconds: float, n_bytes: float) -> Problem:
    """Two equal operations between a first and a last one, for two devices."""
    edges = [(0, 1, n_bytes), (0, 2, n_bytes), (1, 3, n_bytes), (2, 3, n_bytes)]
    off = 1.0 - np.eye(2)
    costs = Costs(np.full((4, 2), seconds), 0 * off, off / LINKS.bandwidth)
    return Problem(graph_of(range(4), edges), ["a", "b"], costs, Constraints()).checked()


def test_a_timed_step_takes_the_time_of_its_operations_and_transfers(timed_servers) -> None:
    problem = diamond(seconds=0.02, n_bytes=1000)
    alone = run_timed(timed_servers, problem, Schedule((0, 0, 0, 0), (0, 1, 2, 3)), n_steps=1)
    assert min(alone.times) >= 4 * 0.02
    apart = run_timed(timed_servers, problem, Schedule((0, 0, 1, 0), (0, 1, 2, 3)), n_steps=1)
    assert min(apart.times) >= 3 * 0.02 + 2 * 1000 / LINKS.bandwidth
    assert apart.simulated == pytest.approx(0.08)


def test_tensors_from_two_tasks_queue_for_one_incoming_port(timed_servers) -> None:
    n_bytes = 3000
    off = 1.0 - np.eye(3)
    costs = Costs(np.full((3, 3), 0.001), 0 * off, off / LINKS.bandwidth)
    edges = [(0, 2, float(n_bytes)), (1, 2, float(n_bytes))]
    problem = Problem(graph_of(range(3), edges), [*"abc"], costs, Constraints()).checked()
    found = run_timed(timed_servers, problem, Schedule((0, 1, 2), (0, 1, 2)), n_steps=1)
    assert min(found.times) >= 2 * n_bytes / LINKS.bandwidth


def test_a_timed_step_of_a_random_graph_computes_what_its_graph_says(timed_servers) -> None:
    problem = timed_problem(random_problem("fork_join", 15, 3, seed=1), seconds=0.001)
    run_timed(timed_servers, problem, scheduled(problem, STRATEGIES["round_robin"]), n_steps=1)


def test_a_cluster_with_too_few_tasks_is_refused(timed_servers) -> None:
    problem = timed_problem(random_problem("layered", 6, 4), seconds=0.001)
    with pytest.raises(errors.InvalidArgumentError, match="4 devices, the cluster 3 tasks"):
        run_timed(timed_servers, problem, scheduled(problem, STRATEGIES["single"]))


def test_an_ordinary_server_knows_no_work_that_only_takes_time() -> None:
    with tf.Graph().as_default() as graph, in_process({"worker": 1}) as backend:
        aval = jax.core.ShapedArray((1,), np.dtype(np.uint8))
        attributes = {"seconds": 0.0, "sizes": [1]}
        op = call(graph, WORK, [], [aval], name="work", attributes=attributes)
        with (
            backend.session(graph=graph) as session,
            pytest.raises(errors.InvalidArgumentError, match="unknown host function 'timed_work'"),
        ):
            session.run(op.outputs[0])


def test_links_that_differ_are_refused() -> None:
    problem = diamond(1.0, 1.0)
    latency = np.array([[0.0, 1.0], [2.0, 0.0]])
    costs = Costs(problem.costs.seconds, latency, problem.costs.byte_seconds)
    with pytest.raises(errors.InvalidArgumentError, match="equal links"):
        timed_problem(problem._replace(costs=costs), 0.01)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("family", ["layered", "cholesky"])
def test_auto_is_no_slower_than_one_device_in_the_stages_of_the_runtime(family, seed) -> None:
    problem = timed_problem(random_problem(family, 16, 8, seed=seed), 0.02)
    found = {
        name: simulate_stages(problem, scheduled(problem, STRATEGIES[name])).makespan
        for name in ("auto", "single", "heft")
    }
    assert found["auto"] <= min(found.values()) * (1 + 1e-9)


@pytest.mark.long
def test_the_stage_model_predicts_eight_timed_processes() -> None:
    with TimedCluster(8) as cluster:
        for seed, name in enumerate(["etf_c", "heft", "round_robin"]):
            problem = timed_problem(random_problem("layered", 40, 8, seed=seed), seconds=0.02)
            found = run_timed(cluster, problem, scheduled(problem, STRATEGIES[name]))
            # Twice what it should be, so that a busy machine does not fail it.
            assert found.staged * 0.95 <= found.measured <= found.staged * 2

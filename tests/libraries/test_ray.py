"""Clusters on a Ray of two nodes: the demo's training, tasks that are killed, what Ray refuses."""

from __future__ import annotations

import importlib
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

import jflow as tf
from jflow.base.cluster import ClusterSpec, Task
from jflow.cli.demo import demo
from jflow.cli.demo.model import build, load_digits
from jflow.launch import RayCluster
from jflow.launch.ray import RayTask, check_tf_config
from jflow.testing import free_ports, wait_until
from tests.notices import notices_after

# Ray forks to start its own processes, of which JAX warns once an earlier file has used it.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def agents() -> dict[str, int]:
    """Ports of the agents of a node; if it chose them, Ray would wait for them, at most 15 s."""
    names = ("metrics_agent", "metrics_export", "dashboard_agent_listen", "runtime_env_agent")
    return dict(zip((f"{name}_port" for name in names), free_ports(len(names)), strict=True))


@pytest.fixture(scope="module")
def nodes() -> Iterator[set[str]]:
    """The ids of the nodes of a Ray on this machine, to which this process is connected."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        patch.delenv("TF_CONFIG", raising=False)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("JFLOW_INSECURE", "1")  # nodes have this machine's address in its network
        patch.setenv("JFLOW_CHECKPOINT_ROOTS", tempfile.gettempdir())
        node = {"num_cpus": 2, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=node | agents())
        other = cluster.add_node(**node, **agents())
        ray.init(address=cluster.address, log_to_driver=False)
        yield {cluster.head_node.node_id, other.node_id}
        ray.shutdown()
        cluster.shutdown()


def test_the_demo_trains_on_two_nodes_and_a_killed_task_is_back_at_its_address(
    nodes: set[str],
) -> None:
    training, test = load_digits()
    with RayCluster(ps=1, workers=2, strategy="SPREAD") as cluster:
        places = [cluster.node(task.job, task.index) for task in cluster.tasks]
        assert {*places} == nodes
        former = cluster.wait_until_ready("worker", 1)
        accuracy = demo._train(cluster, training, test, lambda: cluster.kill("worker", 1))
        assert accuracy > 0.9
        assert cluster.wait_until_ready("worker", 1) != former, "another life"
        assert cluster.node("worker", 1) == places[2]
        with tf.Graph().as_default():
            model = build(len(test.images))
            with tf.Session(cluster.target("worker", 1)) as session:
                again = demo._accuracy(session, model, test)
        assert again == accuracy, "the variables are where they were"
    wait_until(lambda: _n_actors() == 0, "the actors to end")


def test_the_example_learns_on_ray(nodes: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    example = importlib.import_module("digits_on_ray")
    _, accuracy = example.train(60)
    assert accuracy > 0.5


def _n_actors() -> int:
    return len(ray.util.list_named_actors())


def test_what_ray_has_not_got_is_an_error_that_says_what_it_has(
    nodes: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    for options in ({"gpus": 1}, {"cpus": 3}, {"workers": 4}):
        with pytest.raises(tf.errors.ResourceExhaustedError, match=r"have .*'CPU': 2.*may_grow"):
            RayCluster(**{"ps": 1, "workers": 1} | options)
    words = r"'GPU': 1.*within 2.0 s.*'CPU': 4"
    with notices_after(0.1), pytest.raises(tf.errors.DeadlineExceededError, match=words):
        RayCluster(ps=1, workers=1, gpus=1, timeout=2.0, may_grow=True)
    assert re.search(r"waiting for .* for Ray to reserve .*'GPU': 1.*'CPU': 4", caplog.text)


TOLD = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}


def test_a_program_with_another_cluster_in_tf_config_is_told_of_both(
    nodes: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps(TOLD))
    words = r"'a:1', 'b:1'.*/job:worker/task:1, but RayCluster starts one with ps=1 and workers=2"
    with pytest.raises(ValueError, match=words):
        RayCluster()


def test_a_node_with_another_task_in_tf_config_is_told_of_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The environment of a node, which its actors have."""
    monkeypatch.setenv("TF_CONFIG", json.dumps(TOLD))
    about: dict[str, Any] = RayTask({"ps": ["127.0.0.1:0"]}, "ps", 0, {}).about()
    assert "/job:worker/task:1, but RayCluster has started /job:ps/task:0" in about["refusal"]
    assert "'a:1', 'b:1'" in about["refusal"]
    assert "'127.0.0.1:0'" in about["refusal"]
    check_tf_config("it agrees", ClusterSpec(TOLD["cluster"]), Task("worker", 1))


def test_a_cluster_without_tasks_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one task"):
        RayCluster(ps=0, workers=0)

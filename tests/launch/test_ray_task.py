"""Contradictions between TF_CONFIG and the tasks that Ray is to start; needs no Ray."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jflow.base.cluster import ClusterSpec, Task
from jflow.launch.ray import check_tf_config

CLUSTER = ClusterSpec({"ps": ["a:1"], "worker": ["b:1"]})
WORKER = Task("worker", 0)


def told(monkeypatch: pytest.MonkeyPatch, cluster: Any, task: Any = None) -> None:
    config = {"cluster": cluster} | ({} if task is None else {"task": task})
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))


def test_a_cluster_that_ray_is_not_to_start_is_refused_with_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told(monkeypatch, {"worker": ["c:1"]}, {"type": "worker", "index": 0})
    with pytest.raises(ValueError, match=r"\{'worker': \['c:1'\]\} .*Ray starts it .*'b:1'.*unset"):
        check_tf_config("Ray starts it", CLUSTER, WORKER)
    with pytest.raises(ValueError, match=r"\{'worker': \['c:1'\]\} .* /job:worker/task:0, but Ray"):
        check_tf_config("Ray starts it")


def test_another_task_of_the_same_cluster_is_refused_with_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told(monkeypatch, CLUSTER.as_dict(), {"type": "ps", "index": 0})
    with pytest.raises(ValueError, match=r"this process is /job:ps/task:0, but Ray starts /job:w"):
        check_tf_config(f"Ray starts {WORKER}", CLUSTER, WORKER)


def test_what_agrees_or_says_nothing_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    for task in (None, {"type": "worker", "index": 0}):
        told(monkeypatch, CLUSTER.as_dict(), task)
        check_tf_config("Ray starts it", CLUSTER, WORKER)
    monkeypatch.delenv("TF_CONFIG")
    check_tf_config("Ray starts it")

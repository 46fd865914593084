"""Cluster resolvers: a cluster that is given, and the one in TF_CONFIG."""

from __future__ import annotations

import json

import pytest

from jflow.base.cluster import ClusterSpec, SimpleClusterResolver, TFConfigClusterResolver

JOBS = {"ps": ["a:1"], "worker": ["b:2", "c:3"]}


def set_config(monkeypatch: pytest.MonkeyPatch, **content: object) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps(content))


def test_a_simple_resolver_says_what_it_was_given() -> None:
    resolver = SimpleClusterResolver(ClusterSpec(JOBS), "grpc://x:1", "worker", 1, rpc_layer="grpc")
    assert resolver.cluster_spec() == ClusterSpec(JOBS)
    assert (resolver.task_type, resolver.task_id) == ("worker", 1)
    assert resolver.master() == "grpc://x:1"
    assert resolver.master("worker", 1) == "grpc://c:3"
    assert resolver.master("worker", 1, "other") == "other://c:3"
    with pytest.raises(ValueError, match="no task 2"):
        resolver.master("worker", 2)


def test_tf_config_is_read_for_each_question(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = TFConfigClusterResolver()
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert resolver.cluster_spec() == ClusterSpec({})
    assert (resolver.task_type, resolver.task_id, resolver.master()) == (None, None, "")
    set_config(monkeypatch, cluster=JOBS, task={"type": "worker", "index": 1})
    assert resolver.cluster_spec() == ClusterSpec(JOBS)
    assert (resolver.task_type, resolver.task_id) == ("worker", 1)
    assert resolver.master() == "c:3"
    assert resolver.master("ps", 0) == "a:1"
    with pytest.raises(ValueError, match="no job 'chief'"):
        resolver.master("chief", 0)


def test_arguments_win_over_tf_config(monkeypatch: pytest.MonkeyPatch) -> None:
    set_config(monkeypatch, cluster=JOBS, task={"type": "ps", "index": 0}, rpc_layer="old")
    resolver = TFConfigClusterResolver("worker", 0, "grpc", "google")
    assert resolver.master() == "grpc://b:2"
    assert resolver.environment == "google"
    assert TFConfigClusterResolver().master() == "old://a:1"


def test_a_session_master_and_a_cluster_of_one_task_are_the_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_config(monkeypatch, cluster=JOBS, session_master="grpc://here:1")
    assert TFConfigClusterResolver().master("ps", 0) == "grpc://here:1"
    set_config(monkeypatch, cluster={"worker": ["b:2"]}, task={"type": "worker", "index": 0})
    assert TFConfigClusterResolver().master() == ""


def test_a_malformed_config_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", "{")
    with pytest.raises(json.JSONDecodeError):
        TFConfigClusterResolver().cluster_spec()

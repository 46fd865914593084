"""RunConfig: what a process is in its cluster, by TensorFlow's two sets of rules."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import jflow as tf

TASKS = {"ps": ["p0", "p1"], "worker": ["w0", "w1:80", "w2"]}
WITH_CHIEF = {**TASKS, "chief": ["c0"]}
WITH_MASTER = {**TASKS, "master": ["m0"]}


@pytest.fixture
def tell(monkeypatch: pytest.MonkeyPatch):
    """Sets TF_CONFIG; it is not set before."""
    monkeypatch.delenv("TF_CONFIG", raising=False)
    return lambda content: monkeypatch.setenv("TF_CONFIG", json.dumps(content))


def task(job: str, index: int | str) -> dict[str, object]:
    return {"type": job, "index": index}


def test_there_are_two_classes_under_tensorflow_s_paths() -> None:
    assert tf.contrib.learn.RunConfig is not tf.estimator.RunConfig
    assert repr(tf.contrib.learn.RunConfig).count("RunConfig") == 1


@pytest.mark.parametrize("kind", [tf.contrib.learn.RunConfig, tf.estimator.RunConfig])
def test_without_tf_config_this_process_is_the_chief_of_itself(tell, kind) -> None:
    config = kind()
    assert config.cluster_spec == tf.train.ClusterSpec({})
    assert (config.task_id, config.is_chief) == (0, True)
    assert (config.master, config.evaluation_master, config.model_dir) == ("", "", None)
    assert config.num_ps_replicas == 0


@pytest.mark.parametrize("kind", [tf.contrib.learn.RunConfig, tf.estimator.RunConfig])
def test_a_run_config_cannot_be_changed_and_equals_one_that_says_the_same(tell, kind) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        kind().task_id = 3
    assert kind() == kind()
    assert kind() != kind(model_dir="/models")
    assert repr(kind()).startswith("RunConfig(cluster_spec=")


@pytest.mark.parametrize("kind", [tf.contrib.learn.RunConfig, tf.estimator.RunConfig])
def test_the_directory_of_the_model_is_told_here_or_by_tf_config_and_not_differently(
    tell, kind
) -> None:
    assert kind(model_dir=Path("/models")).model_dir == "/models"
    tell({"model_dir": "/models"})
    assert kind().model_dir == kind(model_dir="/models").model_dir == "/models"
    with pytest.raises(ValueError, match=r"'/other' .* TF_CONFIG\[\"model_dir\"\] .* '/models'"):
        kind(model_dir="/other")
    with pytest.raises(ValueError, match="model_dir is empty"):
        kind(model_dir="")


# tf.contrib.learn.RunConfig


def test_of_contrib_learn_it_says_what_a_worker_is(tell) -> None:
    tell({"cluster": TASKS, "task": task("worker", 1)})
    config = tf.contrib.learn.RunConfig()
    assert config.cluster_spec == tf.train.ClusterSpec(TASKS)
    assert (config.task_type, config.task_id) == ("worker", 1)
    assert config.master == "grpc://w1:80"
    assert not config.is_chief
    assert (config.num_ps_replicas, config.num_worker_replicas) == (2, 3)
    assert config.environment == "local"
    assert tf.contrib.learn.RunConfig.get_task_id() == 1


def test_of_contrib_learn_without_a_cluster_it_has_no_type_and_no_workers(tell) -> None:
    config = tf.contrib.learn.RunConfig()
    assert (config.task_type, config.num_worker_replicas) == (None, 0)
    tell({"task": {"index": "2"}})
    config = tf.contrib.learn.RunConfig()
    assert (config.task_type, config.task_id, config.is_chief) == (None, 2, False)


@pytest.mark.parametrize(
    ("environment", "job", "index", "is_chief"),
    [
        ("local", "worker", 0, True),
        ("local", "worker", 1, False),
        ("local", "ps", 0, False),
        ("local", "master", 0, False),
        ("cloud", "master", 0, True),
        ("cloud", "worker", 0, False),
    ],
)
def test_of_contrib_learn_the_chief_is_worker_0_or_in_the_cloud_master_0(
    tell, environment, job, index, is_chief
) -> None:
    tell({"cluster": WITH_MASTER, "task": task(job, index), "environment": environment})
    config = tf.contrib.learn.RunConfig()
    assert (config.is_chief, config.environment) == (is_chief, environment)


def test_of_contrib_learn_a_cluster_of_one_task_is_this_process(tell) -> None:
    tell({"cluster": {"worker": ["w0"]}, "task": task("worker", 0)})
    assert tf.contrib.learn.RunConfig().master == ""
    tell({"cluster": {"worker": ["w0"], "ps": ["p0"]}, "task": task("worker", 0)})
    assert tf.contrib.learn.RunConfig().master == "grpc://w0:2222"


def test_of_contrib_learn_masters_can_be_given(tell) -> None:
    tell({"cluster": TASKS, "task": task("worker", 1)})
    config = tf.contrib.learn.RunConfig("grpc://x:1", evaluation_master="grpc://y:1")
    assert (config.master, config.evaluation_master) == ("grpc://x:1", "grpc://y:1")


@pytest.mark.parametrize(
    ("role", "words"),
    [
        (task("chief", 0), r'TF_CONFIG\["task"\]\["type"\] is \'chief\', .* jobs \[\'ps\', '),
        (task("worker", 3), r'TF_CONFIG\["task"\]\["index"\] is 3, .* tasks \[0, 1, 2\]'),
    ],
)
def test_of_contrib_learn_a_task_outside_the_cluster_is_a_value_error(tell, role, words) -> None:
    tell({"cluster": TASKS, "task": role})
    with pytest.raises(ValueError, match=words):
        tf.contrib.learn.RunConfig()


# tf.estimator.RunConfig


@pytest.mark.parametrize(
    ("role", "master", "global_id"),
    [
        (("chief", 0), "grpc://c0:2222", 0),
        (("worker", 0), "grpc://w0:2222", 1),
        (("worker", 2), "grpc://w2:2222", 3),
        (("ps", 0), "grpc://p0:2222", 4),
        (("ps", 1), "grpc://p1:2222", 5),
    ],
)
def test_of_estimator_the_chief_counts_as_a_worker_and_parameter_servers_come_last(
    tell, role, master, global_id
) -> None:
    tell({"cluster": WITH_CHIEF, "task": task(*role), "eval_session_master": "grpc://x:1"})
    config = tf.estimator.RunConfig()
    assert (config.task_type, config.task_id) == role
    assert (config.master, config.evaluation_master) == (master, "")
    assert config.global_id_in_cluster == global_id
    assert config.is_chief == (role[0] == "chief")
    assert (config.num_ps_replicas, config.num_worker_replicas) == (2, 4)
    assert config.cluster_spec == tf.train.ClusterSpec(WITH_CHIEF)


def test_of_estimator_a_master_is_a_chief_by_its_older_name(tell) -> None:
    tell({"cluster": WITH_MASTER, "task": task("master", 0)})
    config = tf.estimator.RunConfig()
    assert (config.is_chief, config.global_id_in_cluster) == (True, 0)
    assert config.num_worker_replicas == 4


def test_of_estimator_an_evaluator_is_outside_the_cluster(tell) -> None:
    tell(
        {
            "cluster": WITH_CHIEF,
            "task": task("evaluator", 7),
            "session_master": "grpc://x:1",
            "eval_session_master": "grpc://y:1",
        }
    )
    config = tf.estimator.RunConfig()
    assert config.cluster_spec == tf.train.ClusterSpec({})
    assert (config.task_type, config.task_id, config.is_chief) == ("evaluator", 7, False)
    assert (config.master, config.evaluation_master) == ("", "grpc://y:1")
    assert (config.num_ps_replicas, config.num_worker_replicas) == (0, 0)
    assert config.global_id_in_cluster is None


def test_of_estimator_without_a_cluster_this_process_is_the_only_worker(tell) -> None:
    config = tf.estimator.RunConfig()
    assert (config.task_type, config.global_id_in_cluster) == ("worker", 0)
    assert config.num_worker_replicas == 1
    tell({"session_master": "grpc://x:1", "eval_session_master": "grpc://y:1"})
    config = tf.estimator.RunConfig()
    assert (config.master, config.evaluation_master) == ("grpc://x:1", "grpc://y:1")


def test_of_estimator_the_session_master_comes_before_the_own_task(tell) -> None:
    tell({"cluster": WITH_CHIEF, "task": task("worker", 0), "session_master": "grpc://x:1"})
    assert tf.estimator.RunConfig().master == "grpc://x:1"


def test_of_estimator_a_cluster_of_one_chief_is_this_process(tell) -> None:
    tell({"cluster": {"chief": ["c0"]}, "task": task("chief", 0)})
    assert tf.estimator.RunConfig().master == ""


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"cluster": TASKS, "task": task("worker", 0)}, "exactly one task 'chief' .* it has 0"),
        ({"cluster": {"chief": ["a", "b"]}, "task": task("chief", 0)}, "exactly one .* it has 2"),
        ({"cluster": {**WITH_CHIEF, **WITH_MASTER}, "task": task("ps", 0)}, "'chief' and 'master'"),
        ({"cluster": WITH_MASTER, "task": task("evaluator", 0)}, "'evaluator' .* 'master'"),
        ({"cluster": WITH_CHIEF}, r'TF_CONFIG\["task"\]\["type"\] must be set'),
        ({"cluster": WITH_CHIEF, "task": {"index": 0}}, r'\["type"\] must be set'),
        ({"cluster": WITH_CHIEF, "task": {"type": "ps"}}, r'\["index"\] must be set'),
        ({"cluster": WITH_CHIEF, "task": task("gpu", 0)}, r'\["type"\] is \'gpu\''),
        ({"cluster": WITH_CHIEF, "task": task("ps", 2)}, r'\["index"\] is 2'),
        ({"cluster": {**WITH_CHIEF, "ps": {1: "p1"}}, "task": task("ps", 0)}, r'\["index"\] is 0'),
        ({"task": task("ps", 0)}, r'without TF_CONFIG\["cluster"\] .* \'worker\' 0, got \'ps\' 0'),
        ({"task": task("worker", 1)}, r"got 'worker' 1"),
    ],
)
def test_of_estimator_a_role_that_cannot_be_is_a_value_error(tell, content, words) -> None:
    tell(content)
    with pytest.raises(ValueError, match=words) as raised:
        tf.estimator.RunConfig()
    assert "\n" not in str(raised.value)

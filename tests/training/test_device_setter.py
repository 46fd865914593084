"""`replica_device_setter`: variables in turn on the parameter servers, all else on a worker."""

from __future__ import annotations

import pytest

import jflow as tf


def test_variables_go_to_the_servers_in_turn_and_the_rest_to_the_worker() -> None:
    setter = tf.train.replica_device_setter(ps_tasks=2, worker_device="/job:worker/task:3")
    with tf.device(setter):
        variables = [tf.Variable(1.0) for _ in range(3)]
        total = variables[0] + 1
        with tf.device("/cpu:0"):
            beside = tf.Variable(1.0)
            plain = tf.constant(1.0)
    assert [v.device for v in variables] == [f"/job:ps/task:{i}" for i in (0, 1, 0)]
    assert total.device == "/job:worker/task:3"
    assert beside.device == "/job:ps/task:1/device:CPU:0"
    assert plain.device == "/job:worker/task:3/device:CPU:0"


def test_parts_of_a_variable_go_round_robin() -> None:
    with tf.device(tf.train.replica_device_setter(ps_tasks=2)):
        pv = tf.get_variable("pv", [10, 2], partitioner=tf.fixed_size_partitioner(3))
        after = tf.get_variable("after", [1])
    assert [v.device for v in (*pv, after)] == [f"/job:ps/task:{i}" for i in (0, 1, 0, 1)]


def test_a_request_inside_wins_and_counts_as_a_turn() -> None:
    with tf.device(tf.train.replica_device_setter(ps_tasks=3)):
        with tf.device("/job:ps/task:2"):
            chosen = tf.Variable(1.0)
        with tf.device("/job:ps"):
            of_job = tf.Variable(1.0)
        with tf.device("/job:chief"):
            elsewhere = tf.Variable(1.0)
        last = tf.Variable(1.0)
    assert [v.device for v in (chosen, of_job, elsewhere, last)] == [
        *("/job:ps/task:2", "/job:ps/task:1", "/job:chief", "/job:ps/task:2")
    ]


def test_without_merging_a_request_inside_is_kept() -> None:
    with tf.device(tf.train.replica_device_setter(ps_tasks=2, merge_devices=False)):
        with tf.device("/cpu:0"):
            inside = tf.Variable(1.0)
        assert (inside.device, tf.Variable(1.0).device) == ("/device:CPU:0", "/job:ps/task:0")


def test_the_cluster_says_how_many_servers_there_are() -> None:
    cluster = {"storage": ["a:1", "b:1"], "worker": ["c:1"]}
    setter = tf.train.replica_device_setter(ps_device="/job:storage", cluster=cluster)
    with tf.device(setter):
        devices = [tf.Variable(1.0).device for _ in range(3)]
    assert devices == [f"/job:storage/task:{i}" for i in (0, 1, 0)]
    assert tf.train.replica_device_setter() is None
    with pytest.raises(ValueError, match="job"):
        tf.train.replica_device_setter(cluster=cluster)


def test_a_strategy_chooses_the_server() -> None:
    setter = tf.train.replica_device_setter(ps_tasks=4, ps_strategy=lambda op: len(op.name) % 4)
    with tf.device(setter):
        assert tf.Variable(1.0, name="abc").device == "/job:ps/task:3"

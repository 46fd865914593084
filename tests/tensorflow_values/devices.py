"""Which devices operations request; 1 stands for what is expected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.tensorflow_values.program import gives


def _requested(tf: Any, *pairs: tuple[str, str]) -> Any:
    """1 for each pair of a request and what is expected, else 0."""
    return tf.constant([float(request == expected) for request, expected in pairs])


@gives(initial=[1, 1], inside=[1, 1], outside=[1], other=[1])
def what_writes_a_variable_requests_what_the_variable_does(tf: Any) -> Mapping[str, Any]:
    with tf.Graph().as_default():
        with tf.device(tf.train.replica_device_setter(ps_tasks=2)):
            v = tf.Variable(0.0)
            w = tf.get_variable("w", [2], initializer=tf.zeros_initializer())
            assigned, added, total = v.assign(1.0), tf.assign_add(v, 1.0), v + 1
        with tf.device("/job:worker/task:1"):
            outside = v.assign(1.0)
    return {
        "initial": _requested(
            tf,
            (v.initializer.device, "/job:ps/task:0"),
            (w.initializer.device, "/job:ps/task:1"),
        ),
        "inside": _requested(
            tf, (assigned.device, "/job:ps/task:0"), (added.device, "/job:ps/task:0")
        ),
        "outside": _requested(tf, (outside.device, "/job:ps/task:0")),
        "other": _requested(tf, (total.device, "/job:worker")),
    }


@gives(plain=[1, 1], of_job=[1], of_server=[1, 1, 1])
def a_device_without_a_job_has_no_tasks(tf: Any) -> Mapping[str, Any]:
    with tf.Graph().as_default():
        with tf.device(tf.train.replica_device_setter(ps_tasks=1, ps_device="/cpu:0")):
            plain = tf.Variable(0.0)
            with tf.device("/job:moon"):
                of_job = tf.Variable(0.0)
        with tf.device(tf.train.replica_device_setter(ps_tasks=2, ps_device="/job:sun/cpu:0")):
            first = tf.Variable(0.0)
            with tf.device("/job:moon/task:1"):
                elsewhere = tf.Variable(0.0)
            with tf.device("/task:5"):
                of_task = tf.Variable(0.0)
    return {
        "plain": _requested(
            tf,
            (plain.device, "/device:CPU:0"),
            (plain.initializer.device, "/device:CPU:0"),
        ),
        "of_job": _requested(tf, (of_job.device, "/job:moon/device:CPU:0")),
        "of_server": _requested(
            tf,
            (first.device, "/job:sun/task:0/device:CPU:0"),
            (elsewhere.device, "/job:moon/task:1/device:CPU:0"),
            (of_task.device, "/job:sun/task:5/device:CPU:0"),
        ),
    }


@gives(nothing=[1, 1, 1, 1])
def without_parameter_servers_there_is_no_device_function(tf: Any) -> Mapping[str, Any]:
    workers = {"worker": ["w:1"]}
    found = [
        tf.train.replica_device_setter(),
        tf.train.replica_device_setter(cluster=workers),
        tf.train.replica_device_setter(ps_tasks=1, cluster=tf.train.ClusterSpec(workers)),
        tf.train.replica_device_setter(ps_device="/cpu:0", cluster={"ps": ["p:1"]}),
    ]
    return {"nothing": tf.constant([float(one is None) for one in found])}


PROGRAMS = [
    what_writes_a_variable_requests_what_the_variable_does,
    a_device_without_a_job_has_no_tasks,
    without_parameter_servers_there_is_no_device_function,
]

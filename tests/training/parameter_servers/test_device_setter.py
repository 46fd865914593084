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


def test_a_cluster_without_parameter_servers_needs_no_device_function() -> None:
    workers = {"worker": ["a:1"]}
    assert tf.train.replica_device_setter(cluster=workers) is None
    assert tf.train.replica_device_setter(cluster=tf.train.ClusterSpec(workers)) is None
    assert tf.train.replica_device_setter(ps_tasks=1, cluster=workers) is None
    with_servers = {"ps": ["a:1"], "worker": ["b:1"]}
    assert tf.train.replica_device_setter(ps_device="/cpu:0", cluster=with_servers) is None
    with tf.device(tf.train.replica_device_setter(cluster=workers)):
        assert tf.Variable(1.0).device == ""


def test_a_device_without_a_job_has_no_tasks() -> None:
    with tf.device(tf.train.replica_device_setter(ps_tasks=1, ps_device="/cpu:0")):
        plain = tf.Variable(1.0)
        with tf.device("/job:moon"):
            of_job = tf.Variable(1.0)
        total = plain + 1
    assert [v.device for v in (plain, of_job)] == ["/device:CPU:0", "/job:moon/device:CPU:0"]
    assert total.device == "/job:worker"


def test_a_request_for_another_job_keeps_the_rest_of_the_device() -> None:
    setter = tf.train.replica_device_setter(ps_tasks=2, ps_device="/job:ps/cpu:0")
    with tf.device(setter):
        with tf.device("/job:moon/task:1"):
            elsewhere = tf.Variable(1.0)
        with tf.device("/task:5"):
            of_task = tf.Variable(1.0)
    assert elsewhere.device == "/job:moon/task:1/device:CPU:0"
    assert of_task.device == "/job:ps/task:5/device:CPU:0"


def test_operations_on_a_variable_request_what_it_requests() -> None:
    with tf.device(tf.train.replica_device_setter(ps_tasks=2)):
        v = tf.Variable(1.0)
        rows = tf.get_variable("rows", [2])
        parts = tf.get_variable("parts", [4], partitioner=tf.fixed_size_partitioner(2))
        inside = [v.initializer, v.assign(2.0), v.value(), tf.assign_add(v, 1.0), v.read_value()]
        added = tf.scatter_add(rows, [0], [1.0])
        total = v + 1.0
    with tf.device("/job:worker/task:1/gpu:0"):
        outside = [v.assign(1.0), v.read_value(), tf.is_variable_initialized(v)]
    with tf.control_dependencies([v.initializer]), tf.device("/job:worker/task:1"):
        later = v + 0.0
    assert {op.device for op in (*inside, *outside)} == {"/job:ps/task:0"}
    assert added.device == rows.initializer.device == "/job:ps/task:1"
    assert [part.initializer.device for part in parts] == ["/job:ps/task:0", "/job:ps/task:1"]
    assert total.device == "/job:worker"
    assert later.device == "/job:worker/task:1"
    assert later.op.inputs[0].device == "/job:ps/task:0"


def test_what_is_beside_an_operation_on_a_variable_requests_what_the_variable_does() -> None:
    with tf.device("/job:ps"):
        v = tf.Variable(1.0)
    with tf.device("/job:worker"):
        assigned = v.assign(1.0)
        with tf.colocate_with(assigned.op):
            beside = tf.constant(1.0)
    assert beside.device == "/job:ps"


def test_a_strategy_that_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match="ps_strategy must be callable"):
        tf.train.replica_device_setter(ps_tasks=1, ps_strategy=3)  # type: ignore[arg-type]
    assert tf.train.replica_device_setter(ps_strategy=3) is None  # type: ignore[arg-type]


def test_a_strategy_chooses_the_server() -> None:
    setter = tf.train.replica_device_setter(ps_tasks=4, ps_strategy=lambda op: len(op.name) % 4)
    with tf.device(setter):
        assert tf.Variable(1.0, name="abc").device == "/job:ps/task:3"


def sized(name: str, n: int) -> tf.Variable:
    return tf.Variable(tf.numpy.zeros((n,), tf.float32), name=name)


def test_the_greedy_strategy_gives_a_variable_to_the_server_with_the_fewest_bytes() -> None:
    training = tf.contrib.training
    strategy = training.GreedyLoadBalancingStrategy(2, training.byte_size_load_fn)
    with tf.device(tf.train.replica_device_setter(ps_tasks=2, ps_strategy=strategy)):
        made = [sized(f"v{i}", n) for i, n in enumerate((3, 100, 2, 95, 1, 1))]
        with tf.device("/job:ps/task:1"):
            sized("pinned", 1000)
        after = sized("after", 1)
    assert [v.device for v in made] == [f"/job:ps/task:{i}" for i in (0, 1, 0, 0, 0, 1)]
    # A variable that requests a server loads the one that the strategy would have chosen.
    assert after.device == "/job:ps/task:1"
    assert repr(strategy) == "GreedyLoadBalancingStrategy(loads=[4404.0, 408.0])"


def test_the_random_strategy_chooses_by_name_as_tensorflow_does() -> None:
    training = tf.contrib.training
    for seed, servers in ((0, [1, 3, 4, 3, 2]), (1, [1, 0, 4, 2, 2])):
        strategy = training.RandomStrategy(5, seed)
        setter = tf.train.replica_device_setter(ps_tasks=5, ps_strategy=strategy)
        with tf.Graph().as_default(), tf.device(setter):
            made = [tf.Variable(1.0, name=f"r{i}") for i in range(5)]
        assert [v.device for v in made] == [f"/job:ps/task:{i}" for i in servers]


def test_eager_variables_and_parts_have_sizes_too() -> None:
    training = tf.contrib.training
    greedy = training.GreedyLoadBalancingStrategy(2, training.byte_size_load_fn)
    with tf.connect(), tf.device(lambda op: "" if op.declares is None else f"/cpu:{greedy(op)}"):
        tf.Variable([1.0, 2.0])
        tf.Variable(lambda: tf.numpy.zeros((3, 5)))
    with tf.device(tf.train.replica_device_setter(ps_tasks=2, ps_strategy=greedy)):
        tf.get_variable("pv", [10, 2], partitioner=tf.fixed_size_partitioner(2))
    assert repr(greedy) == "GreedyLoadBalancingStrategy(loads=[88.0, 60.0])"


def test_what_has_no_size_cannot_be_balanced_by_it() -> None:
    load = tf.contrib.training.byte_size_load_fn
    with pytest.raises(ValueError, match="'c' declares no variable"):
        load(tf.constant(1.0, name="c").op)
    varying = tf.Variable([1.0], validate_shape=False, name="varying")
    with pytest.raises(ValueError, match="size of variable 'varying' is not known"):
        load(varying.op)
    with pytest.raises(ValueError, match="at least one parameter server, got 0"):
        tf.contrib.training.RandomStrategy(0)

import pytest

import jflow as tf
from jflow.base.cluster import Device, Task
from jflow.compiler.placement import Inventory, assign
from tests.compiler.placement.placing import place

CPU = (("CPU", 0),)
GPU = (("GPU", 0), ("GPU", 1), ("CPU", 0))


def _inventory(master, **jobs):
    """A cluster of so many tasks a job, or of tasks with given devices, seen by one master."""
    devices = {
        Task(job, i): tuple(Device(Task(job, i), *kind) for kind in kinds)
        for job, tasks in sorted(jobs.items())
        for i, kinds in enumerate([CPU] * tasks if isinstance(tasks, int) else tasks)
    }
    return Inventory(Task.parse(master), tuple(devices), devices)


def _places(inventory, ops=None):
    """Where each operation of the default graph goes, by its name."""
    ops = tf.get_default_graph().get_operations() if ops is None else ops
    return {op.name: str(device) for op, device in place(ops, inventory).items()}


def _source(name="x"):
    """A stateless operation that, unlike a constant, has a device of its own."""
    return tf.numpy.add(tf.constant(1.0), 1.0, name=name)


WORKER = "/job:worker/task:1"


def test_a_stateless_operation_goes_to_the_masters_first_device():
    _source()
    for master in ("/job:worker/task:1", "/job:ps/task:0", "/job:worker/task:0"):
        assert _places(_inventory(master, ps=1, worker=2))["x"] == f"{master}/device:CPU:0"


def test_a_gpu_is_preferred_to_a_cpu():
    _source()
    for kinds in (GPU, GPU[::-1]):
        places = _places(_inventory("/job:worker/task:0", worker=[kinds]))
        assert places["x"] == "/job:worker/task:0/device:GPU:0"


def test_a_variable_lives_on_a_task_that_does_not_depend_on_the_master():
    x = tf.Variable(1.0, name="x")
    x.assign_add(1.0, name="add")
    for master in ("/job:worker/task:1", "/job:ps/task:1", "/job:worker/task:0"):
        places = _places(_inventory(master, ps=2, worker=2))
        used = [places[name] for name in ("x", "x/read", "x/Assign", "add")]
        assert used == ["/job:ps/task:0/device:CPU:0"] * 4


def test_without_parameter_servers_state_goes_to_the_first_job_by_name():
    tf.Variable(1.0, name="x")
    places = _places(_inventory("/job:worker/task:0", worker=2, chief=1))
    assert places["x"] == "/job:chief/task:0/device:CPU:0"


def test_state_goes_to_the_first_task_by_number_even_of_a_sparse_job():
    tf.Variable(1.0, name="x")
    tasks = tuple(Task("ps", i) for i in (2, 10))
    inventory = Inventory(tasks[1], tasks, {task: (Device(task, "CPU", 0),) for task in tasks})
    assert _places(inventory)["x"] == "/job:ps/task:2/device:CPU:0"


def test_a_variable_prefers_a_gpu_of_its_task_too():
    tf.Variable(1.0, name="x")
    with tf.device("/cpu:0"):
        tf.Variable(1.0, name="y")
    places = _places(_inventory("/job:worker/task:0", ps=[GPU], worker=1))
    assert places["x"] == "/job:ps/task:0/device:GPU:0"
    assert places["y"] == "/job:ps/task:0/device:CPU:0"


@pytest.mark.parametrize(
    ("requested", "stateless", "variable"),
    [
        ("/job:worker", "/job:worker/task:1/device:GPU:0", "/job:worker/task:0/device:GPU:0"),
        ("/job:ps", "/job:ps/task:0/device:CPU:0", "/job:ps/task:0/device:CPU:0"),
        ("/task:0", "/job:worker/task:0/device:GPU:0", "/job:ps/task:0/device:CPU:0"),
        ("/task:1", "/job:worker/task:1/device:GPU:0", "/job:ps/task:1/device:CPU:0"),
        ("/cpu:0", "/job:worker/task:1/device:CPU:0", "/job:ps/task:0/device:CPU:0"),
        ("/cpu:*", "/job:worker/task:1/device:CPU:0", "/job:ps/task:0/device:CPU:0"),
        ("/job:worker/gpu:1", "/job:worker/task:1/device:GPU:1", "/job:worker/task:0/device:GPU:1"),
        ("/job:ps/task:1", "/job:ps/task:1/device:CPU:0", "/job:ps/task:1/device:CPU:0"),
    ],
)
def test_what_a_partial_name_leaves_out_comes_from_the_default(requested, stateless, variable):
    with tf.device(requested):
        _source("x")
        tf.Variable(1.0, name="v")
    places = _places(_inventory(WORKER, ps=2, worker=[GPU, GPU]))
    assert (places["x"], places["v"]) == (stateless, variable)


def test_a_job_that_is_not_the_default_ones_means_its_first_task():
    with tf.device("/job:evaluator"):
        _source()
    inventory = _inventory(WORKER, ps=1, worker=2, evaluator=3)
    assert _places(inventory)["x"] == "/job:evaluator/task:0/device:CPU:0"


def test_operations_on_a_variable_follow_it_whatever_they_ask_for():
    with tf.device("/job:worker/task:0"):
        x = tf.Variable(1.0, name="x")
    with tf.device("/job:ps/task:1"):
        x.assign(2.0, name="set")
        x.assign_sub(1.0, name="subtract")
        read = x.read_value()
        tf.numpy.sin(read, name="sin")
    places = _places(_inventory(WORKER, ps=2, worker=2))
    device = "/job:worker/task:0/device:CPU:0"
    assert [places[name] for name in ("set", "subtract", "x/read", read.op.name)] == [device] * 4
    assert places["sin"] == "/job:ps/task:1/device:CPU:0"


def test_an_operation_follows_a_variable_that_is_not_itself_in_the_step():
    with tf.device("/job:ps/task:1"):
        x = tf.Variable(1.0, name="x")
    places = _places(_inventory(WORKER, ps=2, worker=2), [x.value().op])
    assert places == {"x/read": "/job:ps/task:1/device:CPU:0"}


def test_a_constant_goes_to_its_consumers_when_they_are_on_one_device():
    value = tf.constant(1.0, name="value")
    with tf.device("/job:ps/task:1"):
        tf.numpy.add(value, value, name="a")
        tf.numpy.sin(value, name="b")
    places = _places(_inventory(WORKER, ps=2, worker=2))
    assert places["value"] == "/job:ps/task:1/device:CPU:0"


def test_a_constant_of_consumers_on_two_devices_stays_with_the_master():
    value = tf.constant(1.0, name="value")
    for task in (0, 1):
        with tf.device(f"/job:ps/task:{task}"):
            tf.numpy.sin(value)
    places = _places(_inventory(WORKER, ps=2, worker=2))
    assert places["value"] == f"{WORKER}/device:CPU:0"


def test_a_constant_without_consumers_stays_with_the_master():
    tf.constant(1.0, name="value")
    assert _places(_inventory(WORKER, ps=1, worker=2))["value"] == f"{WORKER}/device:CPU:0"


def test_a_pinned_constant_stays_where_it_is_pinned():
    with tf.device("/cpu:0"):
        value = tf.constant(1.0, name="value")
    with tf.device("/job:ps/task:1"):
        tf.numpy.sin(value)
    places = _places(_inventory(WORKER, ps=2, worker=2))
    assert places["value"] == f"{WORKER}/device:CPU:0"


def test_an_initial_value_goes_to_its_variable():
    tf.Variable(1.0, name="x")
    places = _places(_inventory(WORKER, ps=1, worker=2))
    assert places["x/initial_value"] == "/job:ps/task:0/device:CPU:0"


def test_only_consumers_in_the_step_count_for_a_constant():
    value = tf.constant(1.0, name="value")
    with tf.device("/job:ps/task:0"):
        near = tf.numpy.sin(value, name="near")
    with tf.device("/job:ps/task:1"):
        tf.numpy.sin(value, name="far")
    places = _places(_inventory(WORKER, ps=2, worker=2), [value.op, near.op])
    assert places["value"] == places["near"] == "/job:ps/task:0/device:CPU:0"


def test_every_operation_gets_a_device():
    x = tf.Variable(1.0)
    tf.group(x.assign_add(tf.placeholder("float32", ())), tf.no_op())
    ops = tf.get_default_graph().get_operations()
    assert list(place(ops, _inventory(WORKER, ps=1, worker=2))) == ops


def test_only_tasks_that_the_step_needs_are_asked_for_their_devices():
    op = _source().op
    tasks = (Task("ps", 0), Task("worker", 0), Task("worker", 1))
    assignment = assign([op], Inventory(tasks[1], tasks))
    assert set(assignment.tasks) == {tasks[1]}
    device = Device(tasks[1], "CPU", 0)
    assert assignment.place({tasks[1]: [device]}) == {op: device}


@pytest.mark.parametrize(
    ("requested", "available"),
    [
        ("/job:chief", r"'/job:ps/task:0', '/job:worker/task:0', '/job:worker/task:1'"),
        ("/job:worker/task:2", r"'/job:ps/task:0', '/job:worker/task:0', '/job:worker/task:1'"),
        ("/task:7", r"'/job:ps/task:0', '/job:worker/task:0', '/job:worker/task:1'"),
        ("/gpu:0", r"\['/job:worker/task:1/device:CPU:0'\]"),
        ("/cpu:1", r"\['/job:worker/task:1/device:CPU:0'\]"),
        ("/job:ps/tpu:0", r"\['/job:ps/task:0/device:CPU:0'\]"),
    ],
)
def test_a_device_that_is_not_there_is_an_error_that_lists_what_is(requested, available):
    with tf.device(requested):
        op = _source("lonely").op
    inventory = _inventory(WORKER, ps=1, worker=2)
    with pytest.raises(tf.errors.InvalidArgumentError, match=available) as raised:
        place([op], inventory)
    message = str(raised.value)
    assert "Cannot assign a device for operation 'lonely'" in message
    assert f"{__file__}:" in message
    assert repr(op.device) in message
    assert raised.value.op == "lonely"


def test_a_bad_device_of_a_variable_is_an_error_for_operations_on_it():
    with tf.device("/job:chief"):
        x = tf.Variable(1.0, name="x")
    with pytest.raises(tf.errors.InvalidArgumentError, match="operation 'x'"):
        place([x.value().op], _inventory(WORKER, ps=1, worker=2))

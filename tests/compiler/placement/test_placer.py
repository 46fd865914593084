import logging

import pytest

import jflow as tf
from jflow.base.cluster import Device, Task
from jflow.compiler.placement import Inventory, Placer

TASK = Task("worker", 0)
DEVICES = tuple(Device(TASK, "CPU", i) for i in range(3))
INVENTORY = Inventory(TASK, (TASK,), {TASK: DEVICES})


def _place(placer, ops):
    """Places the operations of a step."""
    return placer.place(placer.assign(ops, INVENTORY), INVENTORY)


def test_a_variable_stays_where_the_first_step_put_it():
    placer = Placer(soft=False, log=False)
    v = tf.Variable(1.0, name="v")
    read = v.value().op
    assert _place(placer, [read]) == {read: DEVICES[0]}
    with tf.colocate_with(v), tf.device("/cpu:2"):
        late = tf.numpy.sin(tf.placeholder("float32", ()), name="late").op
    assert _place(placer, [read]) == {read: DEVICES[0]}
    with pytest.raises(tf.errors.InvalidArgumentError, match="Cannot colocate") as raised:
        _place(placer, [late])
    story = f"'v' (made at {v.op.origin}), which is a variable that lives on '{DEVICES[0]}'"
    assert story in str(raised.value)
    # A session that starts now knows of both.
    newer = Placer(soft=False, log=False)
    assert _place(newer, [read, late]) == {read: DEVICES[2], late: DEVICES[2]}


def test_a_variable_stays_when_it_comes_into_an_older_operations_group():
    placer = Placer(soft=False, log=False)
    with tf.device("/cpu:1"):
        old = tf.no_op("old")
    v = tf.Variable(1.0, name="v").op
    _place(placer, [v])
    with tf.colocate_with(v), tf.colocate_with(old):
        tf.no_op("late")
    assert _place(placer, [v]) == {v: DEVICES[0]}
    with pytest.raises(tf.errors.InvalidArgumentError, match="Cannot colocate operation 'old'"):
        _place(placer, [old])


def test_a_step_that_cannot_be_placed_leaves_nothing_behind():
    placer = Placer(soft=False, log=False)
    v = tf.Variable(1.0)
    with tf.device("/gpu:0"):
        bad = tf.numpy.sin(v).op
    with pytest.raises(tf.errors.InvalidArgumentError, match="available are"):
        _place(placer, [v.value().op, bad])
    with tf.colocate_with(v), tf.device("/cpu:2"):
        tf.no_op()
    assert _place(placer, [v.op]) == {v.op: DEVICES[2]}


@pytest.mark.parametrize("requested", ["/gpu:0", "/cpu:7", "/device:TPU:*", "/job:worker/gpu:1"])
def test_soft_placement_drops_a_type_and_number_that_are_not_there(requested):
    with tf.device(requested):
        op = tf.no_op()
    assert _place(Placer(soft=True, log=False), [op]) == {op: DEVICES[0]}


@pytest.mark.parametrize("requested", ["/job:ps", "/task:1", "/job:worker/task:3/gpu:0"])
def test_soft_placement_drops_no_job_and_no_task(requested):
    with tf.device(requested):
        op = tf.no_op()
    with pytest.raises(tf.errors.InvalidArgumentError, match="available are"):
        _place(Placer(soft=True, log=False), [op])


def test_soft_placement_obeys_what_can_be_obeyed():
    with tf.device("/cpu:1"):
        op = tf.no_op()
    assert _place(Placer(soft=True, log=False), [op]) == {op: DEVICES[1]}


def test_each_operation_is_logged_once(caplog):
    placer = Placer(soft=False, log=True)
    x = tf.constant(1.0, name="x").op
    with tf.device("/cpu:1"):
        sin = tf.numpy.sin(x.outputs[0], name="y").op
    _place(placer, [x])
    _place(placer, [x, sin])
    assert [record.getMessage() for record in caplog.records] == [
        f"x: (constant): {DEVICES[0]}",
        # It follows its only consumer.
        f"x: (constant): {DEVICES[1]}",
        f"y: (sin): {DEVICES[1]}",
    ]
    _place(placer, [x, sin])
    assert len(caplog.records) == 3
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_nothing_is_logged_unless_it_is_asked_for(caplog):
    _place(Placer(soft=False, log=False), [tf.no_op()])
    assert not caplog.records

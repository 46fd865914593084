import logging

import pytest

import jflow as tf
from jflow.cluster import Device, Task
from jflow.placement import Inventory, Placer

TASK = Task("worker", 0)
DEVICES = tuple(Device(TASK, "CPU", i) for i in range(3))
INVENTORY = Inventory(TASK, (TASK,), {TASK: DEVICES})


def test_a_variable_stays_where_the_first_step_put_it():
    placer = Placer(soft=False, log=False)
    v = tf.Variable(1.0, name="v")
    read = v.value().op
    assert placer.place([read], INVENTORY) == {read: DEVICES[0]}
    with tf.colocate_with(v), tf.device("/cpu:2"):
        late = tf.numpy.sin(tf.placeholder("float32", ()), name="late").op
    assert placer.place([read], INVENTORY) == {read: DEVICES[0]}
    with pytest.raises(tf.errors.InvalidArgumentError, match="Cannot colocate") as raised:
        placer.place([late], INVENTORY)
    home = f"'v' (made at {v.op.origin}), which is a variable that lives on '{DEVICES[0]}'"
    assert home in str(raised.value)
    # A session that starts now knows of both.
    newer = Placer(soft=False, log=False)
    assert newer.place([read, late], INVENTORY) == {read: DEVICES[2], late: DEVICES[2]}


def test_a_variable_stays_when_it_comes_into_an_older_operations_group():
    placer = Placer(soft=False, log=False)
    with tf.device("/cpu:1"):
        old = tf.no_op("old")
    v = tf.Variable(1.0, name="v").op
    placer.place([v], INVENTORY)
    with tf.colocate_with(v), tf.colocate_with(old):
        tf.no_op("late")
    assert placer.place([v], INVENTORY) == {v: DEVICES[0]}
    with pytest.raises(tf.errors.InvalidArgumentError, match="Cannot colocate operation 'old'"):
        placer.place([old], INVENTORY)


def test_a_step_that_cannot_be_placed_leaves_nothing_behind():
    placer = Placer(soft=False, log=False)
    v = tf.Variable(1.0)
    with tf.device("/gpu:0"):
        bad = tf.numpy.sin(v).op
    with pytest.raises(tf.errors.InvalidArgumentError, match="available are"):
        placer.place([v.value().op, bad], INVENTORY)
    with tf.colocate_with(v), tf.device("/cpu:2"):
        tf.no_op()
    assert placer.place([v.op], INVENTORY) == {v.op: DEVICES[2]}


@pytest.mark.parametrize("asked", ["/gpu:0", "/cpu:7", "/device:TPU:*", "/job:worker/gpu:1"])
def test_soft_placement_drops_a_type_and_number_that_are_not_there(asked):
    with tf.device(asked):
        op = tf.no_op()
    assert Placer(soft=True, log=False).place([op], INVENTORY) == {op: DEVICES[0]}


@pytest.mark.parametrize("asked", ["/job:ps", "/task:1", "/job:worker/task:3/gpu:0"])
def test_soft_placement_drops_no_job_and_no_task(asked):
    with tf.device(asked):
        op = tf.no_op()
    with pytest.raises(tf.errors.InvalidArgumentError, match="available are"):
        Placer(soft=True, log=False).place([op], INVENTORY)


def test_soft_placement_obeys_what_can_be_obeyed():
    with tf.device("/cpu:1"):
        op = tf.no_op()
    assert Placer(soft=True, log=False).place([op], INVENTORY) == {op: DEVICES[1]}


def test_each_operation_is_logged_once(caplog):
    placer = Placer(soft=False, log=True)
    x = tf.constant(1.0, name="x").op
    with tf.device("/cpu:1"):
        sin = tf.numpy.sin(x.outputs[0], name="y").op
    placer.place([x], INVENTORY)
    placer.place([x, sin], INVENTORY)
    assert [record.getMessage() for record in caplog.records] == [
        f"x: (constant): {DEVICES[0]}",
        # It follows its only consumer.
        f"x: (constant): {DEVICES[1]}",
        f"y: (sin): {DEVICES[1]}",
    ]
    placer.place([x, sin], INVENTORY)
    assert len(caplog.records) == 3
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_nothing_is_logged_unless_it_is_asked_for(caplog):
    Placer(soft=False, log=False).place([tf.no_op()], INVENTORY)
    assert not caplog.records

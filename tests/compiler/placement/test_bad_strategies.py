"""What goes wrong in a strategy is said, and nothing runs in a wrong place."""

from __future__ import annotations

import asyncio
import re
import traceback
import warnings

import numpy as np
import pytest

import jflow as tf
from jflow.compiler.schedule import Constraints, Schedule, scheduled
from jflow.compiler.schedule.strategies import STRATEGIES
from jflow.errors import InvalidArgumentError, OpError, ResourceExhaustedError
from jflow.lab.families import random_problem

SHIPPED = [name for name in STRATEGIES if name != "metis"]
"""Those that need no package that may not be there."""


def run(placement, **options):
    """Runs a step of three operations, one of them pinned, under a strategy."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, (), name="x")
        with tf.device("/device:CPU:1"):
            pinned = tf.numpy.sin(x, name="pinned")
        y = tf.numpy.multiply(pinned, 2.0, name="y")
        config = tf.ConfigProto(placement=placement, **options)
        with tf.Session(graph=graph, config=config) as sess:
            return sess.run(y, {x: 1.0})


def everywhere(graph, devices, constraints):
    """A placement that holds all constraints."""
    return {
        operation: devices[constraints.allowed.get(number, (0,))[0]]
        for operation, number in zip(graph.operations, constraints.classes, strict=True)
    }


def test_a_good_answer_runs() -> None:
    assert run(lambda g, d, costs, c: everywhere(g, d, c)) == pytest.approx(2 * np.sin(1.0))


ANSWERS = {
    "got NoneType; it has no return statement that is reached": lambda g, d, c: None,
    "got list": lambda g, d, c: [*everywhere(g, d, c)],
    "gives no device for .*": lambda g, d, c: dict([*everywhere(g, d, c).items()][1:]),
    "places .* on 'cpu', which is not one of the devices": lambda g, d, c: (
        everywhere(g, d, c) | {g.operations[-1]: "cpu"}
    ),
    r"places .* on \['cpu'\], which is not one of the devices": lambda g, d, c: (
        everywhere(g, d, c) | {g.operations[-1]: ["cpu"]}
    ),
    "places .* on 1, which is not one of the devices": lambda g, d, c: dict.fromkeys(
        g.operations, 1
    ),
    "places 'other', which is not an operation of this graph": lambda g, d, c: (
        everywhere(g, d, c) | {"other": d[0]}
    ),
    "it may go to": lambda g, d, c: dict.fromkeys(g.operations, d[0]),
    "on the unknown device 9; .* numbers from 0 to": lambda g, d, c: Schedule(
        (9,) * len(g), g.order
    ),
    r"on the unknown device Device\(": lambda g, d, c: Schedule((d[0],) * len(g), g.order),
    "one device and one position": lambda g, d, c: Schedule((0,) * len(g), g.operations),
}


@pytest.mark.parametrize("message", ANSWERS)
def test_a_wrong_answer_is_refused_with_the_strategys_name(message) -> None:
    def mine(graph, devices, costs, constraints):
        return ANSWERS[message](graph, devices, constraints)

    with pytest.raises(InvalidArgumentError, match=f"strategy mine .*{message}"):
        run(mine)


def test_an_async_function_is_refused_and_leaves_no_coroutine_behind() -> None:
    async def mine(graph, devices, costs, constraints):
        await asyncio.sleep(0)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InvalidArgumentError, match=r"got coroutine; .* async function"):
            run(mine)


@pytest.mark.parametrize("error", [ZeroDivisionError("oops"), ResourceExhaustedError("oops")])
def test_what_a_strategy_raises_keeps_its_traceback_and_names_it(error) -> None:
    def helper():
        raise error

    def mine(graph, devices, costs, constraints):
        return helper()

    with pytest.raises(type(error), match="oops") as raised:
        run(mine)
    assert "raised by the placement strategy 'mine'" in raised.value.__notes__
    names = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert names[-2:] == ["mine", "helper"]


def test_a_strategy_cannot_change_what_its_answer_is_checked_against() -> None:
    def lifts(graph, devices, costs, constraints):
        constraints.allowed.clear()
        return dict.fromkeys(graph.operations, devices[0])

    def swaps(graph, devices, costs, constraints):
        devices[0], devices[1] = devices[1], devices[0]
        return everywhere(graph, devices, constraints)

    def scales(graph, devices, costs, constraints):
        costs.seconds[:] = 0.0
        return everywhere(graph, devices, constraints)

    with pytest.raises(InvalidArgumentError, match=r"strategy lifts places .* it may go to"):
        run(lifts)
    with pytest.raises(InvalidArgumentError, match=r"strategy swaps places .* it may go to"):
        run(swaps)
    with pytest.raises(ValueError, match="read-only"):
        run(scales)


@pytest.mark.parametrize("placement", ["rules", *SHIPPED])
def test_pins_that_contradict_each_other_are_named(placement) -> None:
    with tf.Graph().as_default() as graph:
        with tf.colocate_with(tf.constant(1.0)):
            with tf.device("/device:CPU:1"):
                one = tf.numpy.sin(1.0, name="one")
            with tf.device("/device:CPU:2"):
                other = tf.numpy.cos(one, name="other")
        with tf.Session(graph=graph, config=tf.ConfigProto(placement=placement)) as sess:
            story = r"'other' .* requests '/device:CPU:2', with operation 'one' .*'/device:CPU:1'"
            with pytest.raises(InvalidArgumentError, match=f"Cannot colocate operation {story}"):
                sess.run(other)
            with pytest.raises(InvalidArgumentError, match="Cannot colocate"):
                sess.explain(other)
            assert sess.run(one) == pytest.approx(np.sin(1.0)), "the session is usable"


def test_tensors_of_another_graph_are_not_placed() -> None:
    with tf.Graph().as_default():
        foreign = tf.constant(1.0)
    with tf.Graph().as_default() as graph, tf.Session(graph=graph) as sess:
        tf.constant(2.0)
        for call in (sess.explain, sess.placement):
            with pytest.raises((TypeError, ValueError, OpError), match="graph"):
                call(foreign)


@pytest.mark.parametrize("name", SHIPPED)
def test_no_room_is_said_with_the_class_and_the_bytes(name) -> None:
    """One class of two operations keeps 30 bytes; the devices that it may go to keep 25."""
    problem = random_problem("layered", 6, 3, seed=1)
    constraints = Constraints(
        (0, 0, 2, 3, 4, 5), {0: (0, 1)}, (15.0,) * 2 + (0.0,) * 4, (25.0, 20.0, 100.0)
    )
    with pytest.raises(ResourceExhaustedError) as raised:
        scheduled(problem._replace(constraints=constraints), STRATEGIES[name])
    said = str(raised.value)
    assert re.search(r"no device has room for [01]: .* keep 30 bytes, 5 more than", said), said


def test_a_class_without_a_device_is_refused_before_a_strategy_sees_it() -> None:
    problem = random_problem("layered", 6, 3, seed=1)
    for devices in ((), (3,), (-1,)):
        constraints = Constraints(allowed={2: devices})
        with pytest.raises(InvalidArgumentError, match="expected devices 0 to 2 for class 2"):
            problem._replace(constraints=constraints).checked()

"""The steps of the clients, compiled once for each placement of what they use."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import jflow as tf
from jflow.base.cluster import Device, Task
from jflow.compiler.pipeline import CompiledStep, StepRequest, compile_step
from jflow.compiler.placement import Inventory
from jflow.state.moves import StateId
from jflow.state.saves import StateItem, StateItems
from tests.simulation.cluster import TASKS

DTYPE = "float32"
CAPACITY = 3

COUNTERS = ("x", "y")
"""Counted together, on two tasks at first."""

ALONE = "alone"
"""Counted by steps of a single write."""

REGISTER = "register"
TOTAL, MIRROR, EPOCH = "total", "mirror", "epoch"
"""What closures count on two tasks, and which life of the coordinator has written last."""

VARIABLES = (*COUNTERS, ALONE, REGISTER, TOTAL, MIRROR, EPOCH)
QUEUE = "jobs"

PLACES: Mapping[str, Task] = {
    "x": TASKS[2],
    "y": TASKS[3],
    ALONE: TASKS[2],
    REGISTER: TASKS[2],
    TOTAL: TASKS[2],
    MIRROR: TASKS[3],
    EPOCH: TASKS[3],
    QUEUE: TASKS[3],
}
"""Where state is at first."""


class Placed(NamedTuple):
    """What a step does, and where what it uses is."""

    name: str
    master: Task
    places: tuple[tuple[str, Task], ...]


USES: Mapping[str, tuple[str, ...]] = {
    "count": COUNTERS,
    "count_alone": (ALONE,),
    "write": (REGISTER,),
    "read": (REGISTER,),
    "enqueue": (QUEUE,),
    "dequeue": (QUEUE,),
    "close_over": (TOTAL, MIRROR, EPOCH),
    "read_all": VARIABLES,
}


@cache
def compiled(placed: Placed) -> CompiledStep:
    """Compiles a step."""
    places = dict(placed.places)
    with tf.Graph().as_default() as graph:
        request = _REQUESTS[placed.name](places)
        devices = {task: (Device(task, "CPU", 0),) for task in TASKS}
        platforms = {one: "cpu" for several in devices.values() for one in several}
        inventory = Inventory(placed.master, TASKS, devices, platforms)
        return compile_step(graph, request, inventory, owner="")


def _variable(name: str, places: Mapping[str, Task]) -> tf.Variable:
    with tf.device(f"{places[name]}/device:CPU:0"):
        return tf.Variable(tf.zeros((), DTYPE), name=name)


def _queue(places: Mapping[str, Task]) -> tf.FIFOQueue:
    with tf.device(f"{places[QUEUE]}/device:CPU:0"):
        return tf.FIFOQueue(CAPACITY, [DTYPE], [()], shared_name=QUEUE)


def _count(places: Mapping[str, Task]) -> StepRequest:
    added = [_variable(name, places).assign_add(1.0) for name in COUNTERS]
    return StepRequest((), tuple(map(tf.identity, added)), ())


def _count_alone(places: Mapping[str, Task]) -> StepRequest:
    with tf.device(f"{places[ALONE]}/device:CPU:0"):
        return StepRequest((), (tf.identity(_variable(ALONE, places).assign_add(1.0)),), ())


def _write(places: Mapping[str, Task]) -> StepRequest:
    with tf.device(f"{places[REGISTER]}/device:CPU:0"):
        value = tf.placeholder(DTYPE, (), name="value")
        written = _variable(REGISTER, places).assign(value)
        return StepRequest((), (tf.identity(written),), (value,))


def _read(places: Mapping[str, Task]) -> StepRequest:
    return StepRequest((), (_variable(REGISTER, places).read_value(),), ())


def _enqueue(places: Mapping[str, Task]) -> StepRequest:
    element = tf.placeholder(DTYPE, (), name="element")
    return StepRequest((_queue(places).enqueue(element),), (), (element,))


def _dequeue(places: Mapping[str, Task]) -> StepRequest:
    return StepRequest((), (_queue(places).dequeue(),), ())


def _close_over(places: Mapping[str, Task]) -> StepRequest:
    own = tf.placeholder(DTYPE, (), name="own")
    epoch = _variable(EPOCH, places)
    former = epoch.read_value()
    with tf.control_dependencies([former]):
        written = tf.identity(epoch.assign(own))
    total = tf.identity(_variable(TOTAL, places).assign_add(1.0))
    mirror = tf.identity(_variable(MIRROR, places).assign_add(1.0))
    return StepRequest((), (former, written, total, mirror), (own,))


def _read_all(places: Mapping[str, Task]) -> StepRequest:
    return StepRequest((), tuple(_variable(name, places).read_value() for name in VARIABLES), ())


_REQUESTS = {
    "count": _count,
    "count_alone": _count_alone,
    "write": _write,
    "read": _read,
    "enqueue": _enqueue,
    "dequeue": _dequeue,
    "close_over": _close_over,
    "read_all": _read_all,
}


def state_of(name: str, task: Task) -> StateId:
    """Returns the name of a variable on a task."""
    return StateId(str(Device(task, "CPU", 0)), "variable", "", name)


def items(places: Mapping[str, Task]) -> StateItems:
    """Returns all variables, as saves take them."""
    return StateItems(
        tuple(
            StateItem(
                name,
                str(Device(places[name], "CPU", 0)),
                "variable",
                "",
                name,
                dtype=DTYPE,
                shape=(),
            )
            for name in VARIABLES
        )
    )

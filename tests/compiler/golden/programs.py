"""Five programs of a few operations, which between them use all that a plan can say."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np

import jflow as tf
from jflow.base.cluster import Device, Task
from jflow.compiler.graph import Graph
from jflow.compiler.pipeline import StepRequest
from jflow.compiler.placement import Inventory

PS, WORKER = Task("ps", 0), Task("worker", 0)
DEVICES = {
    PS: (Device(PS, "CPU", 0),),
    WORKER: (Device(WORKER, "GPU", 0), Device(WORKER, "CPU", 0)),
}
INVENTORY = Inventory(WORKER, (PS, WORKER), DEVICES)

Program = Callable[[], StepRequest]


def update() -> StepRequest:
    """A fed update of a variable on one device, with its value before and after."""
    x = tf.placeholder("float32", (3,), name="x")
    with tf.device("/job:worker/cpu:0"):
        v = tf.Variable(np.zeros(3, np.float32), name="v")
        old = v.read_value()
        with tf.control_dependencies([old]):
            new = v.assign_add(x * 2.0, name="add")
    return StepRequest((), (old, new), (x,))


def parameter_server() -> StepRequest:
    """A variable on the parameter server, used and updated from a worker."""
    x = tf.placeholder("float32", (4, 3), name="x")
    with tf.device("/job:ps"):
        w = tf.Variable(np.ones((3, 2), np.float32), name="w")
    with tf.device("/job:worker/gpu:0"):
        y = tf.lax.dot(x, w.read_value())
        slope = tf.lax.dot(tf.lax.transpose(x, (1, 0)), y)
    train = w.assign_sub(slope * 0.1, name="train")
    return StepRequest((train.op,), (y,), (x,))


def queues() -> StepRequest:
    """Elements of one queue go into another; neither may hold up what does not need it."""
    with tf.device("/job:ps"):
        raw = tf.FIFOQueue(10, "float32", (2,), name="raw")
    with tf.device("/job:worker/cpu:0"):
        cooked = tf.FIFOQueue(10, "float32", (2,), name="cooked")
    put = cooked.enqueue(raw.dequeue(name="take") * 2.0, name="put")
    size = cooked.size(name="size")
    return StepRequest((put,), (size, cooked.dequeue(name="out") + 1.0), ())


def _grow(x: jax.Array) -> jax.Array:
    return x + x.shape[0]


def unknown_sizes() -> StepRequest:
    """Arrays of any number of rows on two devices, and a size that is a number."""
    x = tf.placeholder("float32", (None, 3), name="x")
    y = tf.placeholder("float32", (None, 3), name="y")
    with tf.device("/job:worker/gpu:0"):
        product = tf.lax.dot(x, tf.lax.transpose(y, (1, 0)))
    with tf.device("/job:ps"):
        scaled = tf.lax.mul(product, 0.5)
        grown = tf.get_default_graph().apply(_grow, (y,), name="grown")
    return StepRequest((), (scaled, grown), (x, y))


def strings() -> StepRequest:
    """Strings, colocation, a signal from device to device, and what only initializes."""
    with tf.device("/job:ps"):
        v = tf.Variable(np.float32(1), name="v")
    with tf.colocate_with(v.op):
        word = tf.identity(tf.constant(["a", "b"], name="letters"), name="word")
    with tf.device("/job:worker/cpu:0"), tf.control_dependencies([v.initializer]):
        beside = tf.identity(tf.constant(np.float32(2)), name="beside")
    every = tf.group(v.initializer, name="every")
    return StepRequest((every,), (word, beside), ())


PROGRAMS: dict[str, Program] = {
    program.__name__: program for program in (update, parameter_server, queues, unknown_sizes)
} | {"strings": strings}


def build(program: Program) -> tuple[Graph, StepRequest]:
    """The program in a graph of its own."""
    with tf.Graph().as_default() as graph:
        return graph, program()

"""Public classes are one class for graph code and eager code, and act through one of each."""

from __future__ import annotations

import gc
import inspect
import weakref
from collections.abc import Iterator
from contextlib import ExitStack

import jax
import pytest

import jflow as tf
from jflow.client.eager import EagerQueue, EagerVariable
from jflow.client.stateful import GraphVariable, QueueOperations, queue
from jflow.state.resources.queue.kernels import KERNELS


class Counter(tf.Variable):
    def count(self) -> object:
        return self.assign_add(1.0)


class Mailbox(tf.FIFOQueue):
    def __init__(self) -> None:
        super().__init__(4, tf.float32, ())

    def post(self, value: float) -> object:
        return self.enqueue(value)


@pytest.fixture
def connection() -> Iterator[tf.Connection]:
    with tf.connect() as connection:
        yield connection


def test_the_class_is_the_same_in_graph_code_and_in_a_connection() -> None:
    in_graph = tf.Variable(1.0), tf.FIFOQueue(1, tf.float32, ())
    with tf.connect():
        eager = tf.Variable(1.0), tf.FIFOQueue(1, tf.float32, ())
    assert [type(each) for each in in_graph] == [type(each) for each in eager]
    assert not any(each.is_eager for each in in_graph)
    assert all(each.is_eager for each in eager)


def test_each_acts_through_a_class_of_its_own() -> None:
    in_graph = tf.Variable(1.0), tf.FIFOQueue(1, tf.float32, ())
    with tf.connect():
        eager = tf.Variable(1.0), tf.FIFOQueue(1, tf.float32, ())
    assert [type(x._operations) for x in in_graph] == [GraphVariable, QueueOperations]
    assert [type(x._operations) for x in eager] == [EagerVariable, EagerQueue]


def test_a_subclass_works_in_graph_code() -> None:
    counter, mailbox = Counter(1.0), Mailbox()
    with tf.Session() as sess:
        sess.run(counter.initializer)
        assert sess.run(counter.count()) == 2.0
        sess.run(mailbox.post(3.0))
        assert sess.run(mailbox.dequeue()) == 3.0


@pytest.mark.usefixtures("connection")
def test_a_subclass_works_eagerly() -> None:
    counter, mailbox = Counter(1.0), Mailbox()
    assert counter.count() is counter
    assert float(counter) == 2.0
    mailbox.post(3.0)
    assert mailbox.get() == 3.0


@pytest.mark.usefixtures("connection")
def test_eager_state_joins_a_function_that_jax_traces() -> None:
    counter, mailbox = Counter(1.0), Mailbox()

    @tf.function
    def step(x: jax.Array) -> jax.Array:
        mailbox.post(x)
        counter.count()
        return mailbox.dequeue() + counter.value()

    assert step(5.0) == 7.0
    assert int(mailbox.size()) == 0


def test_signatures_are_those_of_the_constructors() -> None:
    assert [*inspect.signature(tf.Variable).parameters][:3] == [
        "initial_value",
        "trainable",
        "name",
    ]
    assert [*inspect.signature(tf.FIFOQueue).parameters][:3] == ["capacity", "dtypes", "shapes"]


def test_an_attribute_of_graph_code_is_missing_from_an_eager_variable() -> None:
    with tf.connect():
        variable = tf.Variable(1.0)
    for name in ("op", "graph", "initializer", "initial_value"):
        assert not hasattr(variable, name)


def test_a_connection_that_is_left_first_is_not_current_any_more() -> None:
    outer, inner = ExitStack(), ExitStack()
    outer.enter_context(tf.connect())
    inner.enter_context(tf.connect())
    outer.close()
    variable = tf.Variable(1.0)
    assert variable.is_eager
    assert float(variable) == 1.0
    inner.close()
    assert not tf.Variable(1.0).is_eager


def test_an_eager_queue_goes_with_its_last_reference(connection: tf.Connection) -> None:
    queue = tf.FIFOQueue(4, tf.float32, ())
    queue.put(1.0)
    seen = weakref.ref(queue)
    gc.disable()
    try:
        del queue
        assert seen() is None  # what it had registered is released then, not at some collection
    finally:
        gc.enable()


class Logged(tf.Variable):
    def update(self, fun: object, *operands: object, name: str = "Update") -> object:
        self.n_updates = getattr(self, "n_updates", 0) + 1
        return super().update(fun, *operands, name=name)  # type: ignore[arg-type]


def test_an_addition_is_an_update_also_of_a_subclass(connection: tf.Connection) -> None:
    v = Logged(1.0)
    v.assign_add(1.0)
    v.assign_sub(0.5)
    assert (v.n_updates, float(v)) == (2, 1.5)


def test_plain_python_does_not_take_from_a_queue_while_jax_traces(
    connection: tf.Connection,
) -> None:
    queue = tf.FIFOQueue(4, tf.float32, ())
    queue.put(1.0)
    with pytest.raises(RuntimeError, match=r"use enqueue\(\) and dequeue\(\)"):
        tf.function(lambda x: x + queue.get())(1.0)
    assert queue.size() == 1


def test_each_kernel_of_queues_has_a_row_in_the_table_of_operations() -> None:
    table = [each for each in vars(queue).values() if isinstance(each, queue.QueueOperation)]
    assert {each.kernel for each in table} == KERNELS.keys() - {"queue.selected"}

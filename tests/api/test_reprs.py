"""What notebooks show of jflow's objects, and what editors offer after a dot."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jflow as tf
from jflow.client.eager import variable as previews
from jflow.client.eager.variable import preview
from jflow.state.records import TFRecordWriter
from jflow.testing import PATIENCE_S
from tests.clusters import in_process

ROOMS = (
    *("", ".train", ".data", ".distribute", ".client.functions", ".client.ops", ".client.session"),
    ".training",
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with in_process() as backend:
        yield backend.targets[0]


@pytest.fixture
def local() -> Iterator[tf.Connection]:
    with tf.connect() as connection:
        yield connection


def public_classes() -> dict[str, type]:
    found = {}
    for room in ROOMS:
        module = importlib.import_module(f"jflow{room}")
        for name in dir(module):
            value = getattr(module, name)
            is_ours = isinstance(value, type) and value.__module__.startswith("jflow")
            if is_ours and name[0] != "_" and not getattr(value, "_is_protocol", False):
                found[value.__qualname__] = value
    return found


def test_every_public_class_has_a_repr_of_its_own() -> None:
    classes = public_classes()
    for name in ("GraphKeys", "AggregationMethod", "SaverDef"):  # have names and no instances
        del classes[name]
    assert {"Graph", "DatasetIterator", "QueueRunner", "LocalCluster", "RunOptions"} <= {*classes}
    silent = [name for name, kind in classes.items() if kind.__repr__ is object.__repr__]
    assert silent == []


def graph_objects() -> list[Any]:
    x = tf.placeholder(tf.float32, (2, None), name="x")
    queue = tf.FIFOQueue(3, [tf.float32, tf.string], [(2,), None], name="q")
    enqueue = queue.enqueue((np.ones(2, np.float32), "a"))
    with TFRecordWriter(os.devnull) as writer:
        writer.write(b"")
    return [
        tf.get_default_graph(),
        *(x, x.op, tf.Variable(1.0), queue, tf.QueueBase.from_list(0, [queue, queue])),
        tf.ConditionalAccumulator(tf.float32, (2,)),
        tf.SparseConditionalAccumulator(tf.float32),
        *(tf.TextLineReader(), tf.Session(), tf.numpy.linalg, tf.function(lambda x: x)),
        *(tf.ConfigProto(), tf.RunOptions(), tf.FixedLenFeature((), tf.float32)),
        *(tf.train.ClusterSpec({"a": ["b:1"]}), tf.train.Coordinator()),
        tf.train.QueueRunner(queue, [enqueue]),
        tf.train.LooperThread(tf.train.Coordinator(), 1.0),
        tf.train.SyncReplicasOptimizer(optax.sgd(0.1), 2),
        *(tf.data.Dataset.range(3), tf.data.Dataset.range(3).iterator()),
        writer,
        *(tf.data.FilePosition("here"), tf.data.TensorSpec((), np.dtype(np.float32))),
    ]


def test_no_object_that_users_hold_is_shown_by_its_address(local: tf.Connection) -> None:
    queue = tf.FIFOQueue(3, tf.float32, ())
    with queue.writer() as writer, queue.reader() as reader:
        live = [local, tf.Variable(1.0), queue, tf.IteratorState("p"), writer, reader]
        with tf.Graph().as_default():
            shown = [repr(each) for each in (*live, *graph_objects())]
    assert [text for text in shown if " object at 0x" in text or " at 0x" in text] == []


def test_a_graph_says_how_many_operations_it_has() -> None:
    graph = tf.Graph()
    with graph.as_default():
        _ = tf.constant(1.0) + tf.constant(2.0)
    assert repr(graph) == "<jflow.Graph of 3 operations>"


def test_a_queue_says_what_it_holds() -> None:
    queue = tf.FIFOQueue(3, [tf.float32, tf.string], [(2, None), ()], names=["a", "b"], name="q")
    assert repr(queue) == (
        "<jflow.FIFOQueue 'q' capacity=3 names=['a', 'b'] dtypes=[float32, string] "
        "shapes=[(2, None), ()]>"
    )
    assert "float32] shapes=[(), TensorShape(None)]>" in repr(tf.PriorityQueue(1, [tf.float32]))


def test_an_iterator_says_what_it_iterates() -> None:
    iterator = tf.data.Dataset.range(6).batch(2).iterator()
    assert repr(iterator).startswith("<jflow.data.DatasetIterator range(0, 6) | batch(2")
    iterator.close()
    assert "closed" in repr(iterator)


# Live variables ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (2.5, "2.5"),
        (np.float32([[1, 2], [3, 4]]), "[[1. 2.] [3. 4.]]"),
        (np.arange(100, dtype=np.int32), "[0 1 ... 98 99]"),
        (np.zeros((1000, 1000), np.float32), "[[0. 0. ... 0. 0.] [0. 0. ... 0. 0.] ... "),
        (np.ones(2, jnp.bfloat16), "[1 1]"),
        (jnp.ones(2, jnp.int4), "[1 1]"),
        (np.array([True, False]), "[True False]"),
    ],
)
def test_a_live_variable_of_this_process_shows_its_value(
    local: tf.Connection, value: Any, shown: str
) -> None:
    assert f" value={shown}" in repr(tf.Variable(value, name="x"))


def test_the_value_shown_is_the_present_one(local: tf.Connection) -> None:
    variable = tf.Variable(np.ones(2, np.float32), name="x")
    for expected in ("[2. 2.]", "[4. 4.]"):
        variable.assign_add(variable)
        assert repr(variable).endswith(f"value={expected}>")
    local.close()
    assert "value=" not in repr(variable)


def test_a_random_key_is_shown_without_its_value(local: tf.Connection) -> None:
    assert "dtype=key<fry> device=" in repr(tf.Variable(jax.random.key(0), name="key"))


def test_showing_a_value_does_not_make_the_next_update_copy() -> None:
    update = jax.jit(lambda x: x + 1, donate_argnums=0)
    array = jnp.ones(1000)
    where = array.unsafe_buffer_pointer()
    assert preview(array) == "[1. 1. ... 1. 1.]"
    assert update(array).unsafe_buffer_pointer() == where
    assert preview(array) is None  # taken by the update


def test_a_value_that_is_not_computed_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Coming:
        def is_ready(self) -> bool:
            return False

    monkeypatch.setattr(previews, "_MAX_WAIT_S", 0.01)
    assert preview(Coming()) == "(not computed yet)"  # type: ignore[arg-type]


def test_a_variable_of_a_cluster_says_where_it_is_without_asking(
    cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tf.connect(cluster) as connection:
        variable = tf.Variable(np.ones(2, np.float32), name="remote")
        backend = connection._backend

        def refused(*_: Any) -> None:
            raise AssertionError("a repr asked the server")

        with monkeypatch.context() as patch:
            patch.setattr(backend, "connection", refused)
            assert repr(variable) == (
                "<jflow.Variable eager 'remote:0' shape=(2,) dtype=float32 "
                "device=/job:ps/task:0/device:CPU:0>"
            )
            assert "Connection to grpc://" in repr(connection)
    assert "remote" in repr(variable)


def test_a_repr_needs_no_lock_that_a_step_holds(local: tf.Connection) -> None:
    variable = tf.Variable(1.0, name="x")
    queue = tf.FIFOQueue(1, tf.float32, ())
    shown: list[str] = []
    with local._backend._containers.lock:  # type: ignore[union-attr]
        thread = threading.Thread(
            target=lambda: shown.extend(repr(each) for each in (variable, queue, local))
        )
        thread.start()
        thread.join(PATIENCE_S)
        assert len(shown) == 3


# Completion -------------------------------------------------------------------------------------


def offered(value: Any) -> set[str]:
    return {name for name in dir(value) if name[0] != "_"}


def test_a_connection_offers_public_names_only(local: tf.Connection) -> None:
    assert offered(local) == {"claim", "close", "list_devices", "target"}


def test_other_objects_offer_no_internals(local: tf.Connection) -> None:
    assert offered(tf.function(lambda x: x)) == {"explain", "placement"}
    session = {
        "as_default",
        "close",
        "explain",
        "graph",
        "graph_def",
        "list_devices",
        "make_callable",
        "run_async",
        "run_many",
        "placement",
        "replace",
        "restore_state",
        "save_state",
    }
    with tf.Session() as it:
        assert offered(it) == session | {"reset", "run", "target"}
    variable = offered(tf.Variable(1.0, name="x"))
    assert {"assign", "numpy", "value"} <= variable
    assert not variable & {"check_indices", "operand", "to_tensor"}
    queue = offered(tf.FIFOQueue(1, tf.float32))
    assert {"put", "get", "enqueue", "dequeue"} <= queue
    assert not queue & {"ref"}

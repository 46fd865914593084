"""A program whose files later versions have to read: it writes them with the version that runs it.

Usage: python tests/earlier/program.py FOLDER, with that version's jflow in PYTHONPATH.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jflow as tf
from jflow.plan.trace.record import Recorder
from jflow.plan.trace.spans import CALL, PROGRAM

ROWS = np.arange(12, dtype=np.float32).reshape(4, 3) / 8


def state() -> dict[str, Any]:
    """A graph with every kind of state, which is not initialised; what is called by its name."""
    w = tf.Variable(np.full((3, 2), 0.5, np.float32), name="w")
    key = tf.Variable(jax.random.key(5), name="key", trainable=False)
    half = tf.Variable(jnp.array([1.5, -2.0], jnp.bfloat16), name="half", trainable=False)
    step = tf.train.get_or_create_global_step()
    queue = tf.FIFOQueue(4, [tf.int32, tf.string], shapes=[(), ()], shared_name="fifo")
    shuffled = tf.RandomShuffleQueue(8, 0, tf.int32, ((),), seed=3, shared_name="shuffled")
    sums = tf.ConditionalAccumulator(tf.float32, (2,), shared_name="sums")
    fill = tf.group(
        queue.enqueue_many([[7, 8], ["seven", "eight"]]),
        shuffled.enqueue_many([[1, 2, 3, 4]]),
        sums.apply_grad(tf.constant([1.0, 3.0]), step),
        name="fill",
    )
    takes = {"queue": queue.dequeue(), "shuffled": shuffled.dequeue_many(4)}
    takes |= {"sums": sums.take_grad(1), "size": queue.size()}
    reads = {"w": w, "half": half, "step": step, "key": key}
    return {"fill": fill, "takes": takes, "reads": reads}


def model() -> tf.Graph:
    """A graph that learns, with a loop, a branch, unknown sizes and a collection."""
    graph = tf.Graph()
    with graph.as_default():
        x = tf.placeholder(tf.float32, (None, 3), name="x")
        with tf.device("/cpu:0"), tf.container("models"):
            w = tf.Variable(np.full((3, 2), 0.5, np.float32), name="w")
        looped = graph.apply(halved, [tf.numpy.add(x, 1.0)])
        loss = tf.identity(tf.numpy.mean(tf.numpy.dot(looped, w) ** 2), name="loss")
        train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
        graph.add_to_collection("train", train)
        graph.add_to_collection("init", tf.global_variables_initializer())
    return graph


def halved(x: Any) -> Any:
    """A loop, which is in the file as JAX has traced it."""
    return jax.lax.fori_loop(0, 3, lambda i, a: a * 0.5 + i, x)


def trained(graph: tf.Graph) -> list[float]:
    """The losses of a few steps of `model`."""
    (train,), (init,) = graph.get_collection("train"), graph.get_collection("init")
    with graph.as_default(), tf.Session() as session:
        session.run(init)
        return [float(session.run(["loss:0", train], {"x:0": ROWS})[0]) for _ in range(3)]


def called(x: Any) -> dict[str, Any]:
    """A function that is written to a file, of an array f32[4, 3]."""
    q, r = jnp.linalg.qr(x.T @ x + jnp.eye(3))
    return {"sorted": jnp.sort(x, axis=0), "product": q @ r}


def write(folder: Path) -> None:
    """Writes every file, and what was true when it was written."""
    expected: dict[str, Any] = {}
    graph = model()
    tf.train.export_meta_graph(folder / "model.graph", graph)
    expected["losses"] = trained(graph)
    tf.export.save(called, folder / "called.function", jax.ShapeDtypeStruct((4, 3), np.float32))
    with tf.Graph().as_default(), tf.Session() as session:
        parts = state()
        session.run(tf.global_variables_initializer())
        session.run(parts["fill"])
        tf.checkpoint.save(folder / "session", session, about={"run": "first"})
        tf.train.Saver().save(session, folder / "saver", global_step=3)
        key = jax.random.key_data(session.run(parts["reads"].pop("key")))
        expected["reads"] = json_of(session.run(parts["reads"]) | {"key": key})
        expected["takes"] = json_of(session.run(parts["takes"]))
    (folder / "step.record").write_bytes(recorded())
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def recorded() -> bytes:
    """What a task noted of a traced step, in the form that travels and is kept."""
    times = iter(range(1, 10))
    recorder = Recorder("/job:ps/task:0", lambda: float(next(times)))
    first, second = object(), object()
    plan = recorder.of_plan("/job:ps/task:0/device:CPU:1", [first, second])
    recorder.arrived(7)
    plan.span(PROGRAM, second, 1.5, 1.75)
    plan.received(7, 64, 3.5)
    plan.sent(9)
    plan.span(CALL, first, 6.5)
    return recorder.record().to_bytes()


def json_of(values: Any) -> Any:
    """Results as JSON has them."""
    return json.loads(json.dumps(jax.tree.map(_listed, values)))


def _listed(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    array = np.asarray(value)
    return array.astype(float if array.dtype == jnp.bfloat16 else array.dtype).tolist()


if __name__ == "__main__":
    write(Path(sys.argv[1]))

"""Checkpoints of sharded variables: written by shard, restored on any mesh, whole after a kill."""

import json
import struct
import threading
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jflow as tf
from jflow import errors
from jflow.client.functions.current import current
from jflow.plan.xla import host_view
from jflow.testing import wait_until
from tests.mesh.clusters import cluster as cluster

SQUARE = {"a": 2, "b": 2}
W = np.arange(64 * 8, dtype=np.float32).reshape(64, 8)
KEYS = jax.random.split(jax.random.key(1), 8)


def made(mesh, specs, scale=1.0, where=""):
    """A matrix divided twice, its transpose, and random keys."""
    first, second, third = specs
    with tf.device(where, mesh=mesh):
        return {
            "w": tf.Variable(W * np.float32(scale), name="w", sharding=first),
            "v": tf.Variable(W.T * np.float32(scale), name="v", sharding=second),
            "k": tf.Variable(KEYS[:: 1 if scale else -1], name="k", sharding=third),
        }


def tensors(directory: Path) -> dict[str, list[int]]:
    """The names and shapes in the only shard of a checkpoint."""
    (path,) = directory.glob("*.safetensors")
    data = path.read_bytes()
    (n_bytes,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + n_bytes])
    return {name: field["shape"] for name, field in header.items() if not name.startswith("__")}


def check(variables) -> None:
    np.testing.assert_array_equal(variables["w"].numpy(), W)
    np.testing.assert_array_equal(variables["v"].numpy(), W.T)
    found = jax.random.key_data(variables["k"].value())
    np.testing.assert_array_equal(found, jax.random.key_data(KEYS))


@pytest.fixture
def saved(tmp_path: Path) -> str:
    with tf.connect():
        variables = made(SQUARE, (P(("a", "b"), None), P("b", "a"), P("a")))
        tf.checkpoint.save(str(tmp_path / "m"), variables)
    return str(tmp_path / "m")


def test_each_shard_is_written_once_and_nothing_is_gathered(tmp_path, monkeypatch):
    def refuse(_):
        raise AssertionError("a value was gathered")

    with tf.connect():
        variables = made(SQUARE, (P("a", None), P(), P("a")))
        monkeypatch.setattr(host_view, "_gathered", refuse)
        tf.checkpoint.save(str(tmp_path / "m"), variables)
        array = current().peek(variables["w"].operations.ref)
        before = [shard.data.unsafe_buffer_pointer() for shard in array.addressable_shards]
        del array
        variables["w"].assign_add(W)
        array = current().peek(variables["w"].operations.ref)
        after = [shard.data.unsafe_buffer_pointer() for shard in array.addressable_shards]
    assert after == before, "the save has left a lease, or a view, behind"
    shapes = tensors(tmp_path)
    assert {name: shape for name, shape in shapes.items() if name.startswith("w")} == {
        "w[0, 0]": [32, 8],
        "w[32, 0]": [32, 8],
    }
    assert shapes["v"] == [8, 64]
    assert shapes["k[0]"] == shapes["k[4]"] == [4, 2]


@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_a_checkpoint_is_restored_on_a_mesh_of_any_size(saved, n, cluster):
    where = "/job:worker/task:1"
    with tf.connect(cluster.target()):
        variables = made({"m": n}, (P(None, "m"), P("m", None), P("m")), 0.0, where)
        tf.checkpoint.restore(saved, variables)
        check(variables)
        assert variables["w"].sharding == P(None, "m")
    tf.Session.reset(cluster.target())


def test_a_checkpoint_is_restored_on_one_device_and_on_two_tasks(saved, cluster):
    with tf.connect():
        alone = tf.Variable(W * 0, name="alone")
        tf.checkpoint.restore(saved, {"w": alone})
        np.testing.assert_array_equal(alone.numpy(), W)
    with tf.connect(cluster.target()):
        with tf.device("/job:worker/task:0", mesh=SQUARE):
            w = tf.Variable(W * 0, name="w", sharding=P("a", "b"))
        with tf.device("/job:worker/task:1", mesh={"m": 2}):
            v = tf.Variable(W.T * 0, name="v", sharding=P("m"))
        tf.checkpoint.restore(saved, {"w": w, "v": v})
        np.testing.assert_array_equal(w.numpy(), W)
        np.testing.assert_array_equal(v.numpy(), W.T)
    tf.Session.reset(cluster.target())


def test_a_new_variable_is_restored_as_it_is_declared(tmp_path):
    """The variable of graph code has no value before."""
    with tf.device(mesh=SQUARE):
        w = tf.Variable(W, name="w", sharding=P("a", None))
    saver = tf.train.Saver()
    with tf.Session() as session:
        session.run(w.initializer)
        path = saver.save(session, str(tmp_path / "m"))
    with tf.Session() as session:
        saver.restore(session, path)
        np.testing.assert_array_equal(session.run(w), W)
        (array,) = (
            variable.buffer.array for variable in session._backend._containers.variables().values()
        )
        assert array.sharding.spec == P("a", None)


def test_a_task_that_is_killed_in_a_save_leaves_a_whole_checkpoint(tmp_path):
    """Of two tasks that save large shards, one dies while its file grows."""
    shape = (1024, 4096)
    resources = tf.TaskResources(cpu_devices=2)
    path = str(tmp_path / "m")

    def of_both(scale):
        variables = {}
        for task in (0, 1):
            with tf.device(f"/job:worker/task:{task}", mesh={"m": 2}):
                value = np.full(shape, scale, np.float32)
                variables[f"v{task}"] = tf.Variable(value, name=f"v{task}", sharding=P("m"))
        return variables

    with tf.LocalCluster(ps=0, workers=2, resources=resources) as cluster:
        with tf.connect(cluster.target()):
            variables = of_both(1.0)
            tf.checkpoint.save(path, variables)
            for variable in variables.values():
                variable.assign_add(np.ones(shape, np.float32))
            old = {one.name for one in tmp_path.iterdir()}

            def new_files():
                return [p for p in tmp_path.glob("*worker-1*") if p.name not in old]

            def kill_while_it_saves():
                wait_until(new_files)
                cluster.kill("worker", 1)

            thread = threading.Thread(target=kill_while_it_saves)
            thread.start()
            try:
                tf.checkpoint.save(path, variables)
                is_new = True
            except errors.OpError:
                is_new = False
            thread.join()
        cluster.restart("worker", 1)
        tf.Session.reset(cluster.target())
        with tf.connect(cluster.target()):
            restored = of_both(0.0)
            tf.checkpoint.restore(path, restored)
            found = {float(x) for v in restored.values() for x in np.unique(v.numpy())}
            assert found == {2.0} or (found == {1.0} and not is_new)

"""`init_from_checkpoint` and `warm_start` beyond what TensorFlow's values show."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest

import jflow as tf
from jflow.launch.testing.backends import BackendUnderTest
from jflow.state.checkpoint_files import Item
from tests.state.checkpoint.saving import replace, save
from tests.tensorflow_values.bundles import DTYPES, SHARDS

LATER = np.full(3, 7, np.int32)


def test_a_checkpoint_is_read_when_the_initializer_runs(
    backend: BackendUnderTest, tmp_path: Path
) -> None:
    with tf.device(backend.devices[-1]):
        v = tf.Variable(np.zeros(3, np.int32), name="v")
    replace(tmp_path / "m", [Item("w", np.arange(3, dtype=np.int32))])
    before = v.initializer
    tf.train.init_from_checkpoint(tmp_path / "m", {"w": v})
    replace(tmp_path / "m", [Item("w", LATER)])
    with backend.session() as session:
        session.run(tf.global_variables_initializer())
        np.testing.assert_array_equal(session.run(v), LATER)
        session.run(before)
        np.testing.assert_array_equal(session.run(v), np.zeros(3))
        v.load([1, 2, 3], session)
        np.testing.assert_array_equal(session.run(v), [1, 2, 3])
        np.testing.assert_array_equal(session.run(v.initialized_value()), [1, 2, 3])


def test_every_dtype_of_jflow_is_an_initial_value(tmp_path: Path) -> None:
    keys = tf.Variable(jax.random.split(jax.random.key(3), 2), name="keys")
    with tf.Session() as session:
        session.run(keys.initializer)
        tf.train.Saver().save(session, tmp_path / "m")
    names = ("bool", "int4", "uint4", "int8", "bfloat16", "float16", "float8_e5m2", "complex64")
    shapes = {"bool": (3,)}
    variables = {
        name: tf.Variable(np.zeros(shapes.get(name, (2, 3)), jax.numpy.dtype(name)))
        for name in names
    }
    again = tf.Variable(jax.random.split(jax.random.key(4), 2))
    tf.train.init_from_checkpoint(DTYPES, variables)
    tf.train.init_from_checkpoint(tmp_path / "m", {"keys": again})
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for name, value in session.run(variables).items():
            expected = [1, 0, 1] if name == "bool" else [[1, -2, 3], [-4, 5, 0]]
            expected = np.abs(expected) if name == "uint4" else np.asarray(expected)
            np.testing.assert_array_equal(np.asarray(value).astype(np.complex64), expected)
        first, second = (jax.random.key_data(one) for one in session.run([keys, again]))
        np.testing.assert_array_equal(first, second)


def test_an_exported_graph_reads_the_checkpoint_too(tmp_path: Path) -> None:
    with tf.Graph().as_default() as graph:
        whole = tf.Variable(np.zeros(3, np.int32), name="whole")
        tf.train.init_from_checkpoint(SHARDS, {"scope/whole": whole})
        tf.train.export_meta_graph(tmp_path / "graph", graph)
    tf.train.import_meta_graph(tmp_path / "graph")
    (again,) = tf.global_variables()
    double = tf.Variable(again * 2, name="double")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(again).tolist() == [0, 1, 2]
        assert session.run(double).tolist() == [0, 2, 4]


def test_what_is_computed_of_a_variable_sees_its_new_initial_value() -> None:
    whole = tf.Variable(np.zeros(3, np.int32), name="whole")
    tf.train.init_from_checkpoint(SHARDS, {"scope/whole": whole})
    double = tf.Variable(whole * 2, name="double")
    with tf.Session() as session:
        assert session.run(whole.initialized_value()).tolist() == [0, 1, 2]
        session.run(tf.global_variables_initializer())
        assert session.run(double).tolist() == [0, 2, 4]


def test_a_task_reads_below_its_checkpoint_roots_only(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    v = tf.Variable(np.zeros(3, np.int32), name="v")
    for directory in (inside, tmp_path):
        save(directory / "m", [Item("w", LATER)])
    server = tf.train.Server({"local": ["127.0.0.1:0"]}, checkpoint_roots=[inside])
    with server, tf.Session(server.target) as session:
        tf.train.init_from_checkpoint(tmp_path / "m", {"w": v})
        with pytest.raises(tf.errors.PermissionDeniedError, match="--checkpoint-root"):
            session.run(tf.global_variables_initializer())
        tf.train.init_from_checkpoint(inside / "m", {"w": v})
        session.run(tf.global_variables_initializer())
        np.testing.assert_array_equal(session.run(v), LATER)


def test_a_checkpoint_that_changes_its_form_is_refused_when_it_is_read(tmp_path: Path) -> None:
    v = tf.Variable(np.zeros(3, np.int32), name="v")
    replace(tmp_path / "m", [Item("w", LATER)])
    tf.train.init_from_checkpoint(tmp_path / "m", {"w": v})
    with tf.Session() as session:
        replace(tmp_path / "m", [Item("w", np.zeros(4, np.int32))])
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"'w'.*int32\(4,\).*int32\(3,\)"):
            session.run(v.initializer)
        replace(tmp_path / "m", [Item("u", LATER)])
        with pytest.raises(tf.errors.NotFoundError, match="'w' not found"):
            session.run(v.initializer)


def test_slots_are_initialized_by_their_names(tmp_path: Path) -> None:
    w = tf.Variable([1.0, 2.0], name="w")
    optimizer = tf.train.MomentumOptimizer(0.1, 0.9)
    optimizer.minimize(tf.reduce_sum(w * w))
    vectors = {"w": [3.0, 4.0], "w/Momentum": [5.0, 6.0]}
    save(tmp_path / "m", [Item(key, np.asarray(v, np.float32)) for key, v in vectors.items()])
    tf.train.warm_start(tmp_path / "m", ["w"])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        slot = optimizer.get_slot(w, "momentum")
        assert [one.tolist() for one in session.run([w, slot])] == [*vectors.values()]


def test_what_cannot_be_is_said() -> None:
    v = tf.get_variable("vector", (3,))
    load = tf.train.init_from_checkpoint
    with pytest.raises(ValueError, match=r"Tensor scope/rosw is not found.*'scope/rows'"):
        load(SHARDS, {"scope/rosw": v})
    with pytest.raises(
        ValueError, match=r"vector:0 \(\(3,\)\) doesn't match.*scope/rows \(\(4, 3\)\)"
    ):
        load(SHARDS, {"scope/rows": v})
    with pytest.raises(ValueError, match=r"vector:0 has dtype float32.*scope/whole.*int32"):
        load(SHARDS, {"scope/whole": v})
    with pytest.raises(ValueError, match=r"no variable 'vectro'.*did you mean 'vector'"):
        load(SHARDS, {"scope/whole": "vectro"})
    with pytest.raises(ValueError, match="expected a scope such as 'w/' for 'scope/'"):
        load(SHARDS, {"scope/": "w"})
    with pytest.raises(ValueError, match=r"Tensor scope/vector \(vector in scope/\) is not found"):
        load(SHARDS, {"scope/": "/"})
    with pytest.raises(ValueError, match="got 3"):
        load(SHARDS, {"scope/whole": 3})
    with pytest.raises(ValueError, match="Slices must all be from the same tensor"):
        load(SHARDS, {"scope/whole": [v]})
    with pytest.raises(ValueError, match="Couldn't find 'checkpoint' file"):
        load(SHARDS.parent, {"scope/whole": v})
    with pytest.raises(tf.errors.NotFoundError, match="none"):
        load(SHARDS.parent / "none", {"scope/whole": v})
    with tf.connect():
        eager = tf.Variable(np.zeros(3, np.int32))
    with pytest.raises(ValueError, match="is eager"):
        load(SHARDS, {"scope/whole": eager})
    with pytest.raises(tf.errors.UnimplementedError, match=r"vocabularies for \['v'\]"):
        tf.train.warm_start(SHARDS, "v", {"v": object()})
    with pytest.raises(ValueError, match=r"not used: \['u'\].*\['vector'\]"):
        tf.train.warm_start(SHARDS, "vector", var_name_to_prev_var_name={"u": "w"})
    with pytest.raises(ValueError, match="only regular expressions or only variables"):
        tf.train.warm_start(SHARDS, 3)


def test_a_scope_may_be_called_like_a_part(tmp_path: Path) -> None:
    one, two = tf.get_variable("x", initializer=0.0), tf.get_variable("x/part_a/w", initializer=0.0)
    values = {"x": 3, "x/part_a/w": 4}
    replace(tmp_path / "m", [Item(key, np.full((), x, np.float32)) for key, x in values.items()])
    tf.train.init_from_checkpoint(tmp_path / "m", {"/": "/"})
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run([one, two]) == [3.0, 4.0]
    with pytest.raises(TypeError, match="names of tensors as keys, got 1"):
        tf.train.init_from_checkpoint(tmp_path / "m", {1: "x/"})

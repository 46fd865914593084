"""Functions in files: called, differentiated and composed where they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from tests.scripts import run_script

START = np.full(3, 2.0, np.float32)
READER = """
import sys, numpy as np, jflow as tf
f = tf.export.load(sys.argv[1])
with tf.connect():
    (w,) = f.variables
    w.assign(np.full(3, 2.0, np.float32))
    print(f(np.ones((2, 3), np.float32), {"bias": 1.0})["y"].tolist(), w.numpy().tolist())
"""


def saved(file: Path, n: int | None = None) -> None:
    """Writes a function that updates a variable, for arguments of n rows."""
    with tf.connect():
        w = tf.Variable(START, name="w")

        @tf.function
        def predict(x: jax.Array, settings: dict[str, jax.Array]) -> Any:
            w.assign_add(jnp.ones(3))
            return {"y": jax.nn.relu(x @ w.value() + settings["bias"]), "w": [w.value(), None]}

        spec = tf.data.TensorSpec((n, 3), "float32")
        tf.export.save(predict, file, spec, {"bias": np.float32(0)})
        np.testing.assert_array_equal(w, START)  # to write it does not run it


def test_a_function_runs_in_another_process(tmp_path: Path) -> None:
    saved(tmp_path / "f")
    (tmp_path / "reader.py").write_text(READER)
    child = run_script(tmp_path / "reader.py", str(tmp_path / "f"))
    assert child.returncode == 0, child.stderr
    assert child.stdout == "[10.0, 10.0] [3.0, 3.0, 3.0]\n"


def test_it_takes_any_size_that_was_unknown_and_has_its_derivative(tmp_path: Path) -> None:
    saved(tmp_path / "f")
    predict = tf.export.load(tmp_path / "f")
    with tf.connect():
        for variable in predict.variables:
            variable.assign(START)
        for n, y in ((2, 10.0), (5, 13.0)):
            found = predict(np.ones((n, 3), np.float32), {"bias": 1.0})
            np.testing.assert_allclose(found["y"], np.full(n, y))
            assert found["w"][1] is None

        def loss(x: Any) -> Any:
            return predict(x, {"bias": 1.0})["y"].sum()

        np.testing.assert_allclose(tf.grad(loss)(np.ones((2, 3), np.float32)), np.full((2, 3), 5.0))


def test_a_variable_without_a_value_is_named(tmp_path: Path) -> None:
    saved(tmp_path / "f")
    predict = tf.export.load(tmp_path / "f")
    with tf.connect(), pytest.raises(tf.errors.FailedPreconditionError, match="variable 'w'"):
        predict(np.ones((2, 3), np.float32), {"bias": 1.0})


def test_it_uses_the_variable_that_the_connection_has(tmp_path: Path) -> None:
    saved(tmp_path / "f")
    predict = tf.export.load(tmp_path / "f")
    with tf.connect():
        w = tf.Variable(np.zeros(3, np.float32), name="w")
        predict(np.ones((1, 3), np.float32), {"bias": 0.0})
        np.testing.assert_array_equal(w, np.ones(3))


def test_sizes_that_follow_from_unknown_ones_come_back(tmp_path: Path) -> None:
    def rows(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        twice = jnp.concatenate([x, x]).reshape(-1)
        return twice * x.shape[0], jnp.mean(x[: x.shape[0] // 2 + 1])

    tf.export.save(rows, tmp_path / "f", tf.data.TensorSpec((None, 2), "float32"))
    fun = tf.export.load(tmp_path / "f")
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, (None, 2))
        in_graph = fun(x)
        for n in (2, 5):
            given = np.arange(2.0 * n, dtype=np.float32).reshape(n, 2)
            for found in (fun(given), session.run(in_graph, {x: given})):
                for one, other in zip(found, rows(given), strict=True):
                    np.testing.assert_allclose(one, other)


def test_it_becomes_part_of_a_graph(tmp_path: Path) -> None:
    tf.export.save(lambda x: (jnp.sin(x), x.sum()), tmp_path / "f", jnp.ones((2, 2)))
    fun = tf.export.load(tmp_path / "f")
    with tf.Graph().as_default(), tf.Session() as session:
        sine, total = fun(tf.constant(np.ones((2, 2), np.float32)))
        found = session.run([sine, total])
    np.testing.assert_allclose(found[0], np.full((2, 2), np.sin(1.0)), rtol=1e-6)
    assert found[1] == 4


def test_arguments_that_it_was_not_saved_for_are_refused(tmp_path: Path) -> None:
    saved(tmp_path / "f", 2)
    predict = tf.export.load(tmp_path / "f")
    bias = {"bias": 0.0}
    with tf.connect():
        with pytest.raises(TypeError, match=r"shape \(2, 3\), got \(5, 3\)"):
            predict(np.ones((5, 3), np.float32), bias)
        with pytest.raises(TypeError, match="dtype float32, got int32"):
            predict(np.ones((2, 3), np.int32), bias)
        with pytest.raises(TypeError, match="takes arguments of the structure"):
            predict(np.ones((2, 3), np.float32))


def test_a_graph_and_a_function_are_told_apart(tmp_path: Path) -> None:
    saved(tmp_path / "f")
    tf.export.save_graph(tmp_path / "g", tf.Graph())
    with pytest.raises(tf.errors.InvalidArgumentError, match="got an exported function"):
        tf.export.load_graph(tmp_path / "f")
    with pytest.raises(tf.errors.InvalidArgumentError, match="got an exported graph"):
        tf.export.load(tmp_path / "g")

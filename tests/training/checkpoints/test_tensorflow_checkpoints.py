"""Checkpoints of TensorFlow in `jflow.train`: trainings that go on, slots, readers, integers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jflow as tf
from jflow.launch.testing.backends import BackendUnderTest
from jflow.state.checkpoint_files import Item
from tests.state.checkpoint.saving import replace, save
from tests.tensorflow_values.bundles import (
    FOLDER,
    N_AFTER,
    OBJECTS,
    SHARDS,
    TRAINED,
    training,
)

AFTER = json.loads((FOLDER / "expected.json").read_text())["after"]


def check_training(session: tf.Session, train: tf.Operation, values: dict[str, Any]) -> None:
    """Checks that a training which was restored goes on as TensorFlow's."""
    assert session.run(values["global_step"]) == AFTER["global_step"] - N_AFTER
    for _ in range(N_AFTER):
        session.run(train)
    for name, value in session.run(values).items():
        np.testing.assert_allclose(value, AFTER[name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_a_training_of_tensorflow_goes_on_as_it_does_there() -> None:
    train, values = training(tf)
    assert values.keys() == AFTER.keys()
    with tf.Session() as session:
        tf.train.Saver().restore(session, TRAINED)
        check_training(session, train, values)


def test_a_training_of_tensorflow_goes_on_on_servers(shared_backend: BackendUnderTest) -> None:
    with tf.device(shared_backend.devices[-1]):
        train, values = training(tf, ["adam"])
    with shared_backend.session() as session:
        tf.checkpoint.restore(TRAINED, session)
        check_training(session, train, values)


def test_what_jflow_saves_after_it_has_the_same_names(tmp_path: Path) -> None:
    training(tf, ["adam", "scoped", "rmsprop", "dual_averaging"])
    saver = tf.train.Saver()
    with tf.Session() as session:
        saver.restore(session, TRAINED)
        path = saver.save(session, tmp_path / "own")
    own = dict(tf.train.list_variables(path))
    theirs = dict(tf.train.list_variables(TRAINED))
    counts = {"adam/w/count", "scoped/w/count"}
    assert own.keys() - theirs.keys() == counts | {
        f"scope/scoped/parts/Adam{end}" for end in ("", "_1")
    }
    assert all(own[name] == theirs[name] for name in own.keys() & theirs.keys())
    assert tf.train.load_variable(path, "adam/w/count") == 3


def test_a_partitioned_variable_is_restored_in_other_parts_or_as_a_whole() -> None:
    with tf.variable_scope("scope"):
        rows = tf.get_variable("rows", (4, 3), partitioner=tf.fixed_size_partitioner(3))
        columns = tf.get_variable("columns", (4, 3))
    with tf.Session() as session:
        tf.train.Saver([*rows, columns]).restore(session, SHARDS)
        for value in session.run([rows.as_tensor(), columns]):
            np.testing.assert_array_equal(value, np.arange(12).reshape(4, 3))


def test_what_is_missing_or_does_not_fit_is_said() -> None:
    missing, whole = tf.Variable(1.0, name="missing"), tf.Variable([1.0], name="whole")
    with tf.Session() as session:
        with pytest.raises(tf.errors.NotFoundError, match=r"'missing' not found.*'scope/rows'"):
            tf.train.Saver([missing]).restore(session, SHARDS)
        with pytest.raises(tf.errors.InvalidArgumentError, match="expected dtype float32, got int"):
            tf.train.Saver({"scope/whole": whole}).restore(session, SHARDS)
        with pytest.raises(ValueError, match="not a valid checkpoint"):
            tf.train.Saver([missing]).restore(session, FOLDER / "none")


# Slots --------------------------------------------------------------------------------------------


def adam(beta1: Any = 0.8, beta2: Any = 0.99) -> tuple[tf.Variable, tf.train.Optimizer]:
    """A variable that Adam trains."""
    w = tf.Variable([1.0, 2.0], name="w")
    optimizer = tf.train.AdamOptimizer(0.1, beta1, beta2)
    optimizer.minimize(tf.reduce_sum(w * w))
    return w, optimizer


def saved_adam(prefix: Path, beta1_power: float, beta2_power: float) -> None:
    """Saves what TensorFlow has of `adam`."""
    vectors = {"w": [3.0, 4.0], "w/Adam": [0.1, 0.2], "w/Adam_1": [0.01, 0.02]}
    powers = {"beta1_power": beta1_power, "beta2_power": beta2_power}
    items = [Item(key, np.asarray(one, np.float32)) for key, one in (vectors | powers).items()]
    replace(prefix, items)


def test_the_count_of_updates_follows_from_powers(tmp_path: Path) -> None:
    _, optimizer = adam()
    with tf.Session() as session:
        for n_updates in (0, 1, 50, 300, 5000, 9000):
            powers = np.ones(2, np.float32)
            for _ in range(n_updates + 1):
                powers *= np.array([0.8, 0.99], np.float32)
            saved_adam(tmp_path / "m", *powers.tolist())
            tf.train.Saver().restore(session, tmp_path / "m")
            count = int(session.run(optimizer.iterations))
            if n_updates == 9000:  # both powers are as good as 0, and the count corrects nothing
                assert max(powers) < 0.99**count < 2e-38
            else:
                assert abs(count - n_updates) <= (n_updates > 1000)


@pytest.mark.parametrize(
    ("powers", "message"),
    [
        ((0.9, 0.99), "beta1_power.*is 0.9, which is no power of 0.8"),
        ((float("nan"), 0.99), "no power of 0.8"),
        ((-0.5, 0.99), "no power of 0.8"),
        ((0.7, 0.99), "no power of 0.8"),
    ],
)
def test_powers_of_other_numbers_are_refused(
    powers: tuple[float, float], message: str, tmp_path: Path
) -> None:
    adam()
    saved_adam(tmp_path / "m", *powers)
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match=message):
        tf.train.Saver().restore(session, tmp_path / "m")


def test_without_numbers_there_is_no_count(tmp_path: Path) -> None:
    adam(beta2=tf.constant(0.99))
    saved_adam(tmp_path / "m", 0.8, 0.99)
    with tf.Session() as session, pytest.raises(tf.errors.NotFoundError, match="'w/count'"):
        tf.train.Saver().restore(session, tmp_path / "m")


def test_slots_of_earlier_versions_of_jflow_are_restored(tmp_path: Path) -> None:
    w = tf.get_variable("w", (4,), partitioner=tf.fixed_size_partitioner(2))
    v = tf.Variable([1.0], name="v")
    optimizers = [tf.train.AdamOptimizer(0.1), tf.train.AdamOptimizer(0.1)]
    for one in optimizers:
        one.minimize(tf.reduce_sum(w.as_tensor() ** 2) + v[0] ** 2, var_list=[*w, v])
    first, second = optimizers
    values = {"w": [1.0, 2, 3, 4], "v": [5.0]}
    for end in ("", "_1"):
        values |= {f"w/mu{end}": [6.0, 7, 8, 9], f"w/nu{end}": [1.0] * 4}
        values |= {f"v/mu{end}": [10.0 + len(end)], f"v/nu{end}": [11.0 + len(end)]}
    items = [Item(key, np.asarray(one, np.float32)) for key, one in values.items()]
    items += [Item(f"w/part_0/count{end}", np.int32(3)) for end in ("", "_1")]
    save(tmp_path / "m", items)
    with tf.Session() as session:
        tf.train.Saver().restore(session, tmp_path / "m")
        assert session.run(first.get_slot([*w][1], "m")).tolist() == [8.0, 9.0]
        slots = [one.get_slot(v, name) for one in optimizers for name in ("m", "v")]
        assert [one.item() for one in session.run(slots)] == [10.0, 11.0, 12.0, 13.0]
        assert session.run(second.iterations) == 3


def test_a_key_of_its_own_is_the_only_one(tmp_path: Path) -> None:
    w, optimizer = adam()
    slot = optimizer.get_slot(w, "m")
    save(tmp_path / "m", [Item("w/mu", np.zeros(2, np.float32))])
    with tf.Session() as session:
        tf.train.Saver({slot.op.name: slot}).restore(session, tmp_path / "m")
        with pytest.raises(tf.errors.NotFoundError, match="'slot' not found"):
            tf.train.Saver({"slot": slot}).restore(session, tmp_path / "m")


def test_slots_have_the_names_of_their_fields_too() -> None:
    w, optimizer = adam()
    assert optimizer.get_slot_names() == ["m", "v"]
    assert optimizer.get_slot(w, "m") is optimizer.get_slot(w, "mu")
    assert optimizer.get_slot(w, "trace") is None
    with tf.connect():
        eager = tf.Variable([1.0])
        again = tf.train.AdamOptimizer(0.1)
        again.apply_gradients([(np.ones(1, np.float32), eager)])
        assert again.get_slot(eager, "v") is again.get_slot(eager, "nu") is not None


# Readers ------------------------------------------------------------------------------------------


def test_the_latest_checkpoint_of_a_directory_is_found(tmp_path: Path) -> None:
    for file in FOLDER.glob("o-1.*"):
        shutil.copy(file, tmp_path)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "o-1"\n')
    assert tf.train.latest_checkpoint(tmp_path) == str(tmp_path / "o-1")
    key = "step/.ATTRIBUTES/VARIABLE_VALUE"
    assert tf.train.load_variable(tmp_path, key) == 7
    assert (key, []) in tf.train.list_variables(tmp_path)
    tf.train.remove_checkpoint(tmp_path / "o-1")
    assert [one.name for one in tmp_path.iterdir()] == ["checkpoint"]


def test_integers_of_64_bits_become_shorter_if_they_fit(tmp_path: Path) -> None:
    step = tf.train.get_or_create_global_step()
    assert step.dtype == np.int32
    saver = tf.train.Saver({"step": step})
    with tf.Session() as session:
        for value in (2**31 - 1, -(2**31)):
            replace(tmp_path / "m", [Item("step", np.int64(value))])
            saver.restore(session, tmp_path / "m")
            assert session.run(step) == value
        replace(tmp_path / "m", [Item("step", np.int64(2**31))])
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"'step'.*do not fit.*int32"):
            saver.restore(session, tmp_path / "m")


def test_a_reader_describes_a_checkpoint_of_tensorflow() -> None:
    reader = tf.train.NewCheckpointReader(OBJECTS)
    assert reader.has_tensor("_CHECKPOINTABLE_OBJECT_GRAPH")
    assert b"step/.ATTRIBUTES/VARIABLE_VALUE (DT_INT32) []" in reader.debug_string()
    assert "3 tensors" in repr(reader)

"""`train.Saver` and the list of checkpoints, by TensorFlow's rules, on every backend."""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jflow as tf
from jflow.base.values import SaveSliceInfo
from jflow.launch.testing.backends import BackendUnderTest


def two_variables(backend: BackendUnderTest) -> list[tf.Variable]:
    """A matrix and a count, on different devices, where there are tasks on different tasks."""
    with tf.device(backend.devices[0]):
        first = tf.Variable(np.arange(6, dtype=np.float32).reshape(2, 3), name="first")
    with tf.device(backend.devices[-1]):
        second = tf.Variable(7, name="second")
    return [first, second]


def lost(backend: BackendUnderTest, session: tf.Session) -> tf.Session:
    """A session that has none of the state of another one, which it closes."""
    session.close()
    backend.reset()
    return backend.session()


def slices(name: str, value: np.ndarray[Any, Any], sizes: Sequence[int]) -> list[tf.Variable]:
    """Variables that are the slices of one tensor along its first dimension."""
    parts, begin = [], 0
    for i, size in enumerate(sizes):
        part = tf.Variable(value[begin : begin + size], name=f"{name}/part_{i}")
        rest = value.shape[1:]
        offset = (begin, *[0] * len(rest))
        part.save_slice_info = SaveSliceInfo(name, value.shape, offset, (size, *rest))
        parts.append(part)
        begin += size
    return parts


def test_what_was_saved_is_restored_without_an_initializer(
    backend: BackendUnderTest, tmp_path: Path
) -> None:
    first, second = two_variables(backend)
    saver = tf.train.Saver()
    session = backend.session()
    session.run(tf.global_variables_initializer())
    path = saver.save(session, tmp_path / "model", global_step=12)
    assert path == f"{tmp_path}/model-12"
    session.run([first.assign_add(np.ones((2, 3), np.float32)), second.assign(0)])
    saver.restore(session, path)
    assert session.run(second) == 7, "an initialized variable is restored as well"
    with lost(backend, session) as session:
        saver.restore(session, path)
        value, count = session.run([first, second])
        np.testing.assert_array_equal(value, np.arange(6).reshape(2, 3))
        assert count == 7
        assert session.run(second.assign_add(1)) == 8


def test_every_dtype_is_saved_and_restored(backend: BackendUnderTest, tmp_path: Path) -> None:
    names = ["bool", "int8", "uint8", "int16", "int32", "uint32", "float16", "float32"]
    small = ["bfloat16", "int4", "uint4", "float8_e4m3fn", "complex64"]
    variables = {
        name: tf.Variable(np.array([0, 1, 1], jax.numpy.dtype(name)), name=name)
        for name in [*names, *small]
    }
    variables["empty"] = tf.Variable(np.zeros((0, 3), np.float32), name="empty")
    variables["scalar"] = tf.Variable(np.float32(2.5), name="scalar")
    variables["key"] = tf.Variable(jax.random.key(3), name="key")
    saver = tf.train.Saver()
    session = backend.session()
    session.run(tf.global_variables_initializer())
    before = session.run(variables)
    path = saver.save(session, tmp_path / "model")
    with lost(backend, session) as session:
        saver.restore(session, path)
        after = session.run(variables)
    for name, value in before.items():
        one, other = value, after[name]
        if name == "key":
            one, other = map(jax.random.key_data, (one, other))
        one, other = np.asarray(one), np.asarray(other)
        assert (one.dtype, one.shape) == (other.dtype, other.shape), name
        assert one.tobytes() == other.tobytes(), name


def test_a_dict_maps_keys_to_variables_and_a_part_can_be_restored(
    backend: BackendUnderTest, tmp_path: Path
) -> None:
    first, second = two_variables(backend)
    session = backend.session()
    session.run(tf.global_variables_initializer())
    path = tf.train.Saver({"weights": first, "count": second}).save(session, tmp_path / "model")
    assert tf.train.list_variables(path) == [("count", []), ("weights", [2, 3])]
    with lost(backend, session) as session:
        tf.train.Saver({"count": second}).restore(session, path)
        assert session.run(second) == 7
        with pytest.raises(tf.errors.FailedPreconditionError):
            session.run(first)


def test_slices_are_one_tensor_and_restored_into_another_partitioning(
    backend: BackendUnderTest, tmp_path: Path
) -> None:
    value = np.arange(20, dtype=np.float32).reshape(10, 2)
    with tf.Graph().as_default():
        with tf.device(lambda op: backend.devices[op.name.endswith("_1")]):
            parts = slices("table", value, [4, 3, 3])
        with backend.session() as session:
            session.run(tf.global_variables_initializer())
            path = tf.train.Saver(parts).save(session, tmp_path / "model")
    assert tf.train.list_variables(path) == [("table", [10, 2])]
    np.testing.assert_array_equal(tf.train.load_variable(path, "table"), value)
    backend.reset()
    with tf.Graph().as_default():
        other = slices("table", value, [5, 5])
        with backend.session() as session:
            tf.train.Saver({"table": other}).restore(session, path)
            np.testing.assert_array_equal(np.concatenate(session.run(other)), value)
    backend.reset()
    with tf.Graph().as_default():
        whole = tf.Variable(np.zeros((10, 2), np.float32), name="table")
        with backend.session() as session:
            tf.train.Saver().restore(session, path)
            np.testing.assert_array_equal(session.run(whole), value)


def test_an_uninitialized_variable_is_not_saved(backend: BackendUnderTest, tmp_path: Path) -> None:
    first, _ = two_variables(backend)
    with backend.session() as session:
        session.run(first.initializer)
        said = "Attempting to use uninitialized value.*second"
        with pytest.raises(tf.errors.FailedPreconditionError, match=said):
            tf.train.Saver().save(session, tmp_path / "model")
        assert not [*tmp_path.iterdir()], "nothing is left of it"
        tf.train.Saver([first]).save(session, tmp_path / "model")


def test_a_directory_that_cannot_be_made_is_a_value_error(
    backend: BackendUnderTest, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    two_variables(backend)
    with backend.session() as session:
        session.run(tf.global_variables_initializer())
        with pytest.raises(ValueError, match=r"Parent directory of .* doesn't exist, can't save"):
            tf.train.Saver().save(session, tmp_path / "file" / "model")
        path = tf.train.Saver().save(session, tmp_path / "missing" / "model")
        assert tf.train.latest_checkpoint(tmp_path / "missing") == path, "as in TensorFlow 2.21"


def test_what_a_checkpoint_lacks_is_named_and_nothing_is_restored(
    backend: BackendUnderTest, tmp_path: Path
) -> None:
    first, second = two_variables(backend)
    session = backend.session()
    session.run(tf.global_variables_initializer())
    path = tf.train.Saver([first]).save(session, tmp_path / "model")
    session.run(first.assign(np.zeros((2, 3), np.float32)))
    said = "Restoring from checkpoint failed.*missing from the checkpoint.*'second'.*'first'"
    with session, pytest.raises(tf.errors.NotFoundError, match=said):
        tf.train.Saver([first, second]).restore(session, path)
    with backend.session() as session:
        if backend.shared:
            assert not session.run(first).any(), "nothing is restored if anything cannot be"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (np.zeros((3, 2), np.float32), r"mismatch.*expected shape \(3, 2\), got \(2, 3\).*reshape"),
        (np.zeros((2, 3), np.int32), "mismatch.*expected dtype int32, got float32"),
    ],
)
def test_another_shape_or_dtype_is_refused(
    backend: BackendUnderTest, tmp_path: Path, wrong: np.ndarray[Any, Any], said: str
) -> None:
    with tf.Graph().as_default():
        two_variables(backend)
        with backend.session() as session:
            session.run(tf.global_variables_initializer())
            path = tf.train.Saver().save(session, tmp_path / "model")
    backend.reset()
    with tf.Graph().as_default():
        tf.Variable(wrong, name="first")
        session = backend.session()
        with session, pytest.raises(tf.errors.InvalidArgumentError, match=said):
            tf.train.Saver().restore(session, path)


def test_a_saver_that_reshapes_restores_another_shape(
    backend: BackendUnderTest, tmp_path: Path
) -> None:
    with tf.Graph().as_default():
        two_variables(backend)
        with backend.session() as session:
            session.run(tf.global_variables_initializer())
            path = tf.train.Saver().save(session, tmp_path / "model")
    backend.reset()
    with tf.Graph().as_default():
        flat = tf.Variable(np.zeros(6, np.float32), name="first")
        with backend.session() as session:
            tf.train.Saver(reshape=True).restore(session, path)
            np.testing.assert_array_equal(session.run(flat), np.arange(6))


def test_what_is_no_checkpoint_is_a_value_error(backend: BackendUnderTest, tmp_path: Path) -> None:
    two_variables(backend)
    saver = tf.train.Saver()
    with backend.session() as session:
        with pytest.raises(ValueError, match="Can't load save_path when it is None"):
            saver.restore(session, None)
        with pytest.raises(ValueError, match=r"not a valid checkpoint: .*nothing"):
            saver.restore(session, tmp_path / "nothing")


def test_a_damaged_file_is_data_loss_and_nothing_is_restored(
    backend: BackendUnderTest, tmp_path: Path
) -> None:
    first, _ = two_variables(backend)
    saver = tf.train.Saver()
    with backend.session() as session:
        session.run(tf.global_variables_initializer())
        path = saver.save(session, tmp_path / "model")
        for shard in tmp_path.glob("*.safetensors"):
            data = bytearray(shard.read_bytes())
            data[-1] ^= 1
            shard.write_bytes(data)
        session.run(first.assign_add(np.ones((2, 3), np.float32)))
        before = session.run(first)
        with pytest.raises(tf.errors.DataLossError, match=r"safetensors.*offset"):
            saver.restore(session, path)
        np.testing.assert_array_equal(session.run(first), before)


# The list of checkpoints -------------------------------------------------------------------------


@pytest.fixture
def session() -> tf.Session:
    """A local session with one initialized variable, "v"."""
    tf.Variable(1.0, name="v")
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    return session


def kept(directory: Path) -> list[str]:
    """The names of the checkpoints of a directory."""
    return sorted(path.name.removesuffix(".index") for path in directory.glob("*.index"))


def test_the_last_five_are_kept_and_listed(session: tf.Session, tmp_path: Path) -> None:
    saver = tf.train.Saver()
    for step in range(7):
        saver.save(session, tmp_path / "model", global_step=step)
    names = [f"model-{step}" for step in range(2, 7)]
    assert kept(tmp_path) == names
    assert saver.last_checkpoints == [str(tmp_path / name) for name in names]
    state = tf.train.get_checkpoint_state(tmp_path)
    assert state is not None
    assert state.model_checkpoint_path == str(tmp_path / "model-6")
    assert [*state.all_model_checkpoint_paths] == saver.last_checkpoints
    assert tf.train.latest_checkpoint(tmp_path) == str(tmp_path / "model-6")
    assert len([*tmp_path.glob("*.safetensors")]) == 5, "their data is removed with them"


@pytest.mark.parametrize("every", [0, None])
def test_all_are_kept_if_no_number_is_given(
    session: tf.Session, tmp_path: Path, every: int | None
) -> None:
    saver = tf.train.Saver(max_to_keep=every)
    for step in range(7):
        saver.save(session, tmp_path / "model", global_step=step)
    assert len(kept(tmp_path)) == 7
    assert saver.last_checkpoints == []


def test_one_is_kept_for_so_many_hours(
    session: tf.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now)
    saver = tf.train.Saver(max_to_keep=2, keep_checkpoint_every_n_hours=1)
    for step in range(6):
        saver.save(session, tmp_path / "model", global_step=step)
        now += 1800
    assert kept(tmp_path) == ["model-3", "model-4", "model-5"], "and one of the hours before"


def test_the_same_path_is_replaced_and_listed_once(session: tf.Session, tmp_path: Path) -> None:
    saver = tf.train.Saver()
    for _ in range(3):
        saver.save(session, tmp_path / "model")
    assert saver.last_checkpoints == [str(tmp_path / "model")]
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [
        "",
        ".index",
        ".meta",
        ".safetensors",
    ]


def test_a_new_saver_recovers_the_list(session: tf.Session, tmp_path: Path) -> None:
    old = tf.train.Saver(max_to_keep=2)
    paths = [old.save(session, tmp_path / "model", global_step=step) for step in range(2)]
    new = tf.train.Saver(max_to_keep=2)
    new.recover_last_checkpoints([*old.last_checkpoints, str(tmp_path / "gone")])
    assert new.last_checkpoints == paths
    new.save(session, tmp_path / "model", global_step=2)
    assert kept(tmp_path) == ["model-1", "model-2"]


def test_a_step_may_be_a_variable_and_padded(session: tf.Session, tmp_path: Path) -> None:
    step = tf.train.get_or_create_global_step()
    session.run(step.assign(34))
    saver = tf.train.Saver(pad_step_number=True)
    assert saver.save(session, tmp_path / "model", step) == f"{tmp_path}/model-00000034"


def test_paths_can_be_relative_so_that_a_directory_can_be_moved(
    session: tf.Session, tmp_path: Path
) -> None:
    (tmp_path / "here").mkdir()
    saver = tf.train.Saver(save_relative_paths=True)
    saver.save(session, tmp_path / "here" / "model", global_step=1)
    (tmp_path / "here").rename(tmp_path / "there")
    latest = tf.train.latest_checkpoint(tmp_path / "there")
    assert latest == str(tmp_path / "there" / "model-1")
    saver.restore(session, latest)


def test_the_list_has_another_name_or_none_is_written(session: tf.Session, tmp_path: Path) -> None:
    saver = tf.train.Saver()
    saver.save(session, tmp_path / "model", latest_filename="latest")
    assert tf.train.latest_checkpoint(tmp_path) is None
    assert tf.train.latest_checkpoint(tmp_path, "latest") == str(tmp_path / "model")
    with pytest.raises(ValueError, match="must not contain path components"):
        saver.save(session, tmp_path / "model", latest_filename="a/b")
    with pytest.raises(ValueError, match="collides with 'save_path'"):
        saver.save(session, tmp_path / "checkpoint")
    (tmp_path / "other").mkdir()
    saver.save(session, tmp_path / "other" / "model", write_state=False)
    assert tf.train.get_checkpoint_state(tmp_path / "other") is None


def test_a_list_that_cannot_be_read_is_none_and_one_without_a_latest_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "checkpoint"
    assert tf.train.get_checkpoint_state(tmp_path) is None
    for text in ("\xff", "model_checkpoint_path", "model_checkpoint_path: 3"):
        path.write_text(text, encoding="latin-1")
        assert tf.train.get_checkpoint_state(tmp_path) is None, text
    path.write_text('all_model_checkpoint_paths: "a"\n')
    with pytest.raises(ValueError, match="Invalid checkpoint state"):
        tf.train.get_checkpoint_state(tmp_path)
    path.write_text('model_checkpoint_path: "gone"\n')
    assert tf.train.latest_checkpoint(tmp_path) is None, "because there is no such checkpoint"
    with pytest.raises(RuntimeError, match="conflicts"):
        tf.train.update_checkpoint_state(tmp_path, str(path))


def test_a_checkpoint_is_read_without_a_session(session: tf.Session, tmp_path: Path) -> None:
    path = tf.train.Saver().save(session, tmp_path / "model", global_step=3)
    assert path is not None
    assert tf.train.checkpoint_exists(path)
    assert not tf.train.checkpoint_exists(tmp_path / "model")
    assert len(tf.train.get_checkpoint_mtimes([path, "gone"])) == 1
    assert tf.train.list_variables(tmp_path) == [("v", [])]
    assert tf.train.load_variable(tmp_path, "v:0") == 1.0
    reader = tf.train.NewCheckpointReader(path)
    assert reader.has_tensor("v")
    assert not reader.has_tensor("w")
    assert reader.get_variable_to_dtype_map() == {"v": "float32"}
    assert reader.debug_string() == b"v (DT_FLOAT) []\n"
    assert tf.train.load_checkpoint(path).get_tensor("v") == 1.0
    with pytest.raises(tf.errors.NotFoundError, match="'w' not found"):
        reader.get_tensor("w")
    with pytest.raises(tf.errors.NotFoundError):
        tf.train.NewCheckpointReader(tmp_path / "gone")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="Couldn't find"):
        tf.train.load_checkpoint(tmp_path / "empty")


def test_what_is_no_variable_is_refused() -> None:
    with pytest.raises(ValueError, match="No variables to save"):
        tf.train.Saver()
    v = tf.Variable(1.0, name="v")
    with pytest.raises(TypeError, match="Variable to save is not a Variable"):
        tf.train.Saver([v, 3])
    with pytest.raises(TypeError, match="var_list must be a list of variables or a dict"):
        tf.train.Saver(v)
    with pytest.raises(ValueError, match="At least two variables have the same name: v"):
        tf.train.Saver([v, v])
    with pytest.raises(ValueError, match="which are not slices of one tensor"):
        tf.train.Saver({"a": [v, tf.Variable(2.0)]})
    with pytest.raises(TypeError, match="'sess' must be a Session"):
        tf.train.Saver().save("session", "model")  # type: ignore[arg-type]


def test_a_saver_without_variables_does_nothing_if_that_is_allowed(tmp_path: Path) -> None:
    saver = tf.train.Saver([], allow_empty=True)
    with tf.Session() as session:
        assert saver.save(session, tmp_path / "model") is None
        saver.restore(session, "anything")
    assert os.listdir(tmp_path) == []


def test_a_deferred_saver_looks_its_variables_up_later(tmp_path: Path) -> None:
    saver = tf.train.Saver(defer_build=True)
    v = tf.Variable(1.0, name="v")
    with tf.Session() as session:
        session.run(v.initializer)
        saver.build()
        assert saver.save(session, tmp_path / "model")
    with pytest.raises(RuntimeError, match="closed Session"):
        saver.save(session, tmp_path / "model")


def test_the_graph_is_beside_each_checkpoint_and_restores_it(
    session: tf.Session, tmp_path: Path
) -> None:
    saver = tf.train.Saver(max_to_keep=2)
    tf.add_to_collection("savers", saver)
    for step in range(3):
        saver.save(session, tmp_path / "model", step)
    assert saver.save(session, tmp_path / "model", 3, write_meta_graph=False)
    tf.constant(7.0, name="later")
    saver.save(session, tmp_path / "model", 4)
    assert [path.name for path in tmp_path.glob("*.meta")] == ["model-4.meta"]
    with tf.Graph().as_default() as graph:
        imported = tf.train.import_meta_graph(tmp_path / "model-4.meta")
        assert imported is not None
        with tf.Session() as other:
            imported.restore(other, tmp_path / "model-4")
            assert other.run(["v:0", "later:0"]) == [1.0, 7.0]
        (listed,) = graph.get_collection("savers")
        assert listed.settings == saver.settings


def test_a_graph_that_cannot_be_written_is_reported_and_its_variables_are_saved(
    session: tf.Session, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def noisy(x: jax.Array) -> jax.Array:
        jax.debug.print("{}", x)
        return x

    session.graph.apply(noisy, (tf.constant(1.0),))
    path = tf.train.Saver().save(session, tmp_path / "model")
    assert "the graph is not saved" in caplog.text
    assert "calls a Python function" in caplog.text
    assert tf.train.load_variable(path, "v") == 1.0
    assert not [*tmp_path.glob("*.meta")]


def test_a_checkpoint_that_was_looked_into_is_not_kept_open(tmp_path: Path) -> None:
    v = tf.Variable(np.float32(2.0), name="v")
    saver = tf.train.Saver()
    with tf.Session() as session:
        session.run(v.initializer)
        path = saver.save(session, tmp_path / "model")

    def n_open() -> int:
        links = [os.readlink(one) for one in glob.glob("/proc/self/fd/*") if os.path.islink(one)]
        return sum(link.startswith(str(tmp_path)) for link in links)

    assert tf.train.load_variable(path, "v") == 2.0
    assert tf.train.list_variables(tmp_path) == [("v", [])]
    assert n_open() == 0
    reader = tf.train.load_checkpoint(path)
    assert n_open() > 0
    assert reader.get_tensor("v") == 2.0

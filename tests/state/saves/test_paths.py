"""What the path of a checkpoint means to tasks that run in other directories, or elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import jflow as tf
from jflow.client.runtime import saving
from jflow.launch.testing.backends import BackendUnderTest
from jflow.task.server import Server, running


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of this process, in which the tasks do not run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def saved(value: float = 1.0) -> tf.Variable:
    return tf.Variable(np.full(2, value, np.float32), name="saved")


def index_files(directory: Path) -> list[str]:
    return sorted(str(one.relative_to(directory)) for one in directory.rglob("*.index"))


def test_a_relative_path_is_the_client_s(backend: BackendUnderTest, here: Path) -> None:
    with tf.connect(backend.target):
        variable = saved()
        report = tf.checkpoint.save("model", [variable])
        assert index_files(here) == ["model.index"]
        assert report.path == str(here / "model")
        variable.assign(np.zeros(2, np.float32))
        (here / "below").mkdir()
        os.chdir(here / "below")
        tf.checkpoint.restore("../model", [variable])
        assert variable.numpy().all()
        with pytest.raises(tf.errors.NotFoundError, match="below/model"):
            tf.checkpoint.restore("model", [variable])


def test_a_saver_and_its_list_have_relative_paths_of_one_directory(
    backend: BackendUnderTest, here: Path
) -> None:
    variable = saved()
    with backend.session() as session:
        session.run(tf.global_variables_initializer())
        path = tf.train.Saver().save(session, "runs/model", global_step=3)
        assert path == "runs/model-3"
        assert index_files(here) == ["runs/model-3.index"]
        assert (here / "runs" / "model-3.meta").exists()
        assert (
            (here / "runs" / "checkpoint")
            .read_text()
            .startswith('model_checkpoint_path: "model-3"')
        )
        assert tf.train.latest_checkpoint("runs") == "runs/model-3"
        session.run(variable.assign([0.0, 0.0]))
        tf.train.Saver().restore(session, tf.train.latest_checkpoint("runs"))
        assert session.run(variable).all()
        (here / "runs").rename(here / "moved")
        tf.train.Saver().restore(session, tf.train.latest_checkpoint("moved"))


def test_a_monitored_session_saves_and_goes_on_below_the_client_s_directory(
    backend: BackendUnderTest, here: Path
) -> None:
    for expected in (1, 2):
        with tf.Graph().as_default():
            step = tf.train.get_or_create_global_step()
            count = tf.assign_add(step, 1)
            with tf.train.MonitoredTrainingSession(backend.target, checkpoint_dir="runs") as run:
                assert run.run(count) == expected
        assert (here / "runs" / f"model.ckpt-{expected}.index").exists()
        backend.reset()


def test_missing_folders_are_made_and_a_report_names_path_and_tasks(
    backend: BackendUnderTest, tmp_path: Path
) -> None:
    prefix = tmp_path / "not" / "there" / "model"
    first, second = [tf.Variable(np.ones(2), name=f"v{i}") for i in range(2)]
    with backend.session() as session:
        session.run(first.initializer)
        with pytest.raises(tf.errors.FailedPreconditionError):
            tf.checkpoint.save(prefix, session)
        assert not [*tmp_path.iterdir()], "nothing is left of a save that did not begin to write"
        session.run(second.initializer)
        report = tf.checkpoint.save(prefix, session)
        assert (report.path, report.n_bytes) == (str(prefix), 16)
        placement = session.placement([first, second])
        assert set(report.tasks) == {str(device.task) for device in placement.values()}
        restored = tf.checkpoint.restore(prefix, session)
        assert (restored.path, restored.tasks) == (report.path, report.tasks)


def test_an_error_names_the_path_and_the_task(backend: BackendUnderTest, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    prefix = tmp_path / "file" / "model"
    with tf.connect(backend.target):
        for act in (tf.checkpoint.save, tf.checkpoint.restore):
            with pytest.raises(tf.errors.OpError, match=str(tmp_path / "file")) as caught:
                act(prefix, [saved()])
            if backend.shared:
                assert caught.value.task in str(caught.value)


def test_a_relative_path_is_refused_where_a_task_is_on_another_machine(
    shared_backend: BackendUnderTest, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "file_system_id", lambda: "of another machine")
    with tf.connect(shared_backend.target):
        variable = saved()
        for act in (tf.checkpoint.save, tf.checkpoint.restore):
            with pytest.raises(tf.errors.InvalidArgumentError) as caught:
                act("runs/model", [variable])
            said = str(caught.value)
            assert "'runs/model' is relative" in said
            assert "/job:" in said
            assert "absolute path" in said
        assert not [*here.iterdir()]
        tf.checkpoint.save(here / "model", [variable])
        tf.checkpoint.restore(here / "model", [variable])


def test_one_task_elsewhere_is_enough_to_refuse_a_path_that_it_would_write_to(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        Server({"worker": ["127.0.0.1:0"]}, "worker", 0) as near,
        monkeypatch.context() as elsewhere,
    ):
        elsewhere.setattr(running, "file_system_id", lambda: "elsewhere")
        with Server({"ps": ["127.0.0.1:0"]}, "ps", 0) as far:
            cluster = near.cluster_spec.as_dict() | far.cluster_spec.as_dict()
            for server in (near, far):
                server.connect(cluster)
            with tf.connect(near.target):
                with tf.device("/job:worker"):
                    own = saved()
                with tf.device("/job:ps"):
                    other = tf.Variable(np.ones(3), name="other")
                tf.checkpoint.save("model", [own])
                with pytest.raises(
                    tf.errors.InvalidArgumentError, match="/job:ps/task:0"
                ) as caught:
                    tf.checkpoint.save("both", [own, other])
                assert "/job:worker" not in str(caught.value)
                assert index_files(here) == ["model.index"]


def test_a_relative_path_does_not_leave_the_roots_of_a_server(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "root").mkdir()
    (here / "outside").mkdir()
    (here / "root" / "out").symlink_to(here / "outside")
    monkeypatch.setenv("JFLOW_CHECKPOINT_ROOTS", str(here / "root"))
    with (
        Server({"worker": ["127.0.0.1:0"]}, "worker", 0) as server,
        tf.connect(server.target),
    ):
        variable = saved()
        for path in ("model", "root/out/new/model", "root/../new/model"):
            with pytest.raises(tf.errors.PermissionDeniedError, match="checkpoint root"):
                tf.checkpoint.save(path, [variable])
        assert sorted(one.name for one in here.rglob("*")) == ["out", "outside", "root"]
        report = tf.checkpoint.save("root/new/er/model", [variable])
        assert report.path == str(here / "root" / "new" / "er" / "model")
        os.chdir(here / "root" / "new")
        tf.checkpoint.restore("er/model", [variable])

"""`MonitoredTrainingSession`: checkpoints, the chief and other workers, and lost tasks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

import jflow as tf
from jflow.testing import ProcessCluster
from jflow.training.monitored import checkpoint_hook
from tests.clusters import Backend
from tests.training.monitored.helpers import FailsOnce, counting_model, monitored, singular


def _training(backend: Backend, folder: Path | None, **options: Any) -> Any:
    return tf.train.MonitoredTrainingSession(
        backend.target, checkpoint_dir=folder, log_step_count_steps=None, **options
    )


def _steps(folder: Path) -> list[int]:
    """The global steps of the checkpoints in a directory."""
    state = tf.train.get_checkpoint_state(folder)
    return [int(path.rpartition("-")[2]) for path in state.all_model_checkpoint_paths]


def test_a_checkpoint_is_saved_at_creation_periodically_and_at_the_end(
    backend: Backend, tmp_path: Path
) -> None:
    model = counting_model(backend)
    folder = tmp_path / "new" / "folder"
    with _training(backend, folder, save_checkpoint_steps=2) as session:
        assert _steps(folder) == [0]
        for _ in range(5):
            session.run(model.train)
        assert _steps(folder) == [0, 2, 4]
    assert _steps(folder) == [0, 2, 4, 5]


def test_training_goes_on_from_the_latest_checkpoint(backend: Backend, tmp_path: Path) -> None:
    model = counting_model(backend)
    local = tf.Variable(1.0, trainable=False, collections=["local_variables"])
    for start in (0, 3):
        with _training(backend, tmp_path, hooks=[tf.train.StopAtStepHook(num_steps=3)]) as session:
            assert session.run(model.step) == start
            assert session.run(local) == 1.0
            while not session.should_stop():
                session.run(model.train)
        backend.reset()
    saved = tf.train.latest_checkpoint(tmp_path)
    for options in ({"checkpoint_dir": tmp_path}, {"checkpoint_filename_with_path": saved}):
        with singular(backend, **options) as session:
            np.testing.assert_equal(session.run(model.weight), np.full(3, 6.0))
        backend.reset()


def test_after_an_error_of_the_step_the_end_is_not_saved(backend: Backend, tmp_path: Path) -> None:
    model = counting_model(backend)
    hook = FailsOnce([], "after_run", ValueError("a bug"))
    with (
        pytest.raises(ValueError, match="a bug"),
        _training(backend, tmp_path, hooks=[hook]) as session,
    ):
        session.run(model.train)
    assert _steps(tmp_path) == [0]


def test_after_the_loss_of_a_task_the_state_is_that_of_the_latest_checkpoint(
    backend: Backend, tmp_path: Path
) -> None:
    model = counting_model(backend)
    lost = iter([False, False, False, True, False])

    class Loses(tf.train.SessionRunHook):
        def before_run(self, run_context: Any) -> None:
            if next(lost):
                run_context.session.run(clobber)
                raise tf.errors.UnavailableError("lost")

    clobber = tf.group(model.step.assign(77), model.weight.assign([7, 7, 7]))
    options: dict[str, Any] = {"save_checkpoint_steps": 2, "hooks": [Loses()]}
    with _training(backend, tmp_path, **options) as session:
        for _ in range(3):
            session.run(model.train)
        # The third step was not saved, so it is made again, and the next one is this one.
        session.run(model.train)
    assert _steps(tmp_path) == [0, 2, 3]


def test_listeners_are_called_around_each_save_and_may_stop(
    backend: Backend, tmp_path: Path
) -> None:
    model = counting_model(backend)
    calls: list[Any] = []

    class Listener(tf.train.CheckpointSaverListener):
        def begin(self) -> None:
            calls.append("begin")

        def before_save(self, session: Any, global_step_value: int) -> None:
            calls.append(("before", global_step_value))

        def after_save(self, session: Any, global_step_value: int) -> bool:
            calls.append(("after", global_step_value, tf.train.latest_checkpoint(tmp_path)))
            return global_step_value == 2

        def end(self, session: Any, global_step_value: int) -> None:
            calls.append(("end", global_step_value))

    saver = tf.train.Saver()
    hook = tf.train.CheckpointSaverHook(
        tmp_path, save_steps=2, saver=saver, checkpoint_basename="m", listeners=[Listener()]
    )
    with monitored(backend, hook) as session:
        while not session.should_stop():
            session.run(model.train)
    paths = {step: str(tmp_path / f"m-{step}") for step in (0, 2)}
    saves = [(("before", step), ("after", step, paths[step])) for step in (0, 2)]
    assert calls == ["begin", *saves[0], *saves[1], ("end", 2)]


def test_a_checkpoint_hook_needs_one_saver(tmp_path: Path) -> None:
    tf.train.create_global_step()
    with pytest.raises(ValueError, match="cannot provide both saver and scaffold"):
        tf.train.CheckpointSaverHook("x", 1, saver=object(), scaffold=tf.train.Scaffold())
    with pytest.raises(ValueError, match="exactly one of every_secs and every_steps"):
        tf.train.CheckpointSaverHook("x")
    creator = tf.train.ChiefSessionCreator(tf.train.Scaffold(saver=tf.train.Saver()))
    hook = tf.train.CheckpointSaverHook(tmp_path, save_steps=1)
    with pytest.raises(RuntimeError, match="expected one saver in the collection 'savers', found"):
        tf.train.MonitoredSession(creator, [hook])


def test_a_checkpoint_hook_writes_the_definition_of_the_graph_once_for_each_session(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Writer:
        def add_graph(self, graph: Any) -> None:
            events.append(graph)

    events: list[Any] = []
    monkeypatch.setattr(checkpoint_hook, "can_write_events", lambda: True)
    monkeypatch.setattr(checkpoint_hook.FileWriterCache, "get", lambda folder: Writer())
    counting_model(backend)
    for folder, is_saved in ((tmp_path / "a", True), (tmp_path / "b", False)):
        saver = tf.train.Saver()
        hook = tf.train.CheckpointSaverHook(folder, 1, saver=saver, save_graph_def=is_saved)
        with monitored(backend, hook) as session:
            definition = session.graph.as_graph_def(add_shapes=True)
        assert (folder / "graph.pbtxt").exists() == is_saved
        assert events.pop() == definition
        assert not events
    text = (tmp_path / "a" / "graph.pbtxt").read_text()
    assert text_format.Parse(text, tf.GraphDef()) == definition


def test_only_the_chief_initializes_and_saves(shared_backend: Backend, tmp_path: Path) -> None:
    model = counting_model(shared_backend)
    with pytest.raises(tf.errors.DeadlineExceededError, match="see whether it runs"):
        _training(shared_backend, tmp_path, is_chief=False, max_wait_secs=0)
    chief_hook, hook = (FailsOnce([], "never", ValueError()) for _ in range(2))
    options: dict[str, Any] = {"chief_only_hooks": [chief_hook], "hooks": [hook]}
    with _training(shared_backend, tmp_path, **options) as chief:
        assert (chief_hook.calls[0], hook.calls[0]) == ("begin", "begin")
        with _training(shared_backend, tmp_path, is_chief=False, **options) as worker:
            worker.run(model.train)
            assert chief.run(model.step) == 1
        assert chief_hook.calls.count("begin") == 1
        assert hook.calls.count("begin") == 2
        assert _steps(tmp_path) == [0]
    assert _steps(tmp_path) == [0, 1]


def test_the_intervals_are_those_of_tensorflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tf.train.create_global_step()
    tf.Variable(1.0)
    given: Any

    def timers(**options: Any) -> dict[str, Any]:
        with tf.train.MonitoredTrainingSession(**options) as session:
            return {type(hook).__name__: hook._timer for hook in session._hooks}

    found = {name: repr(timer) for name, timer in timers(checkpoint_dir=tmp_path).items()}
    assert "every 600 s" in found["CheckpointSaverHook"]
    assert "every 100 steps" in found["SummarySaverHook"]
    assert "every 100 steps" in found["StepCounterHook"]
    given = {"save_checkpoint_secs": None, "save_summaries_steps": 0, "log_step_count_steps": 0}
    assert timers(checkpoint_dir=tmp_path, **given) == {}
    assert [*timers(summary_dir=tmp_path)] == ["StepCounterHook", "SummarySaverHook"]
    given = {"save_checkpoint_steps": 5, "save_summaries_secs": 7.5, "log_step_count_steps": 3}
    found = {k: repr(v) for k, v in timers(checkpoint_dir=tmp_path, **given).items()}
    assert "every 5 steps" in found["CheckpointSaverHook"]
    assert "every 7.5 s" in found["SummarySaverHook"]
    assert "every 3 steps" in found["StepCounterHook"]
    with pytest.raises(ValueError, match="exactly one of every_secs and every_steps"):
        timers(checkpoint_dir=tmp_path, save_checkpoint_steps=5, save_checkpoint_secs=5)


# Lost tasks


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProcessCluster]:
    with ProcessCluster(ps=1, workers=1) as cluster:
        yield cluster


def test_a_training_ends_with_the_exact_step_although_its_ps_is_killed_three_times(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    last, kills = 40, iter([7, 18, 29])
    with tf.device("/job:ps"):
        step = tf.train.create_global_step()
        weight = tf.Variable(np.zeros(3, np.float32), name="weight")
    train = tf.group(step.assign_add(1), weight.assign_add(np.ones(3, np.float32)))
    seen = tf.train.FinalOpsHook([step, weight])
    hooks = [tf.train.StopAtStepHook(last_step=last), seen]
    next_kill = next(kills)
    restarts: list[threading.Thread] = []
    with tf.train.MonitoredTrainingSession(
        cluster.target(), checkpoint_dir=tmp_path, hooks=hooks, save_checkpoint_steps=5
    ) as session:
        n_runs = 0
        while not session.should_stop():
            session.run(train)
            n_runs += 1
            if n_runs == next_kill:
                cluster.kill("ps")
                # The next steps run while the task starts.
                restarts.append(threading.Thread(target=cluster.restart, args=("ps",)))
                restarts[-1].start()
                next_kill = next(kills, 0)
    for thread in restarts:
        thread.join()
    assert len(restarts) == 3
    assert seen.final_ops_values[0] == last
    np.testing.assert_equal(seen.final_ops_values[1], np.full(3, float(last)))
    assert last < n_runs <= last + 3 * 5
    assert _steps(tmp_path)[-1] == last


def test_a_step_runs_again_after_its_master_was_killed(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    with tf.device("/job:ps"):
        step = tf.train.create_global_step()
    train = step.assign_add(1)
    with tf.train.MonitoredTrainingSession(
        cluster.target(), checkpoint_dir=tmp_path, save_checkpoint_steps=1
    ) as session:
        for _ in range(3):
            session.run(train)
        cluster.kill("worker")
        cluster.restart("worker")
        assert session.run(train) == 4

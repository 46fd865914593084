"""`SessionManager` and `Scaffold`: variables that are initialized, awaited and checked."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

import jflow as tf
from jflow.testing import VirtualClock
from jflow.training.monitored import session_manager
from tests.clusters import Backend
from tests.notices import notices_after
from tests.training.monitored.helpers import counting_model


def _manager(**options: Any) -> tf.train.SessionManager:
    scaffold = tf.train.Scaffold(saver=object()).finalize()
    return tf.train.SessionManager(
        local_init_op=scaffold.local_init_op,
        ready_op=scaffold.ready_op,
        ready_for_local_init_op=scaffold.ready_for_local_init_op,
        **options,
    )


def test_prepare_session_initializes_by_operation_and_function_then_locally(
    backend: Backend,
) -> None:
    model = counting_model(backend)
    start = tf.placeholder(tf.int32, ())
    local = tf.Variable(
        model.step.to_tensor() + 1, collections=["local_variables"], trainable=False
    )
    more = model.step.assign_add(1)
    init = tf.group(model.step.assign(start), model.weight.initializer)
    manager, seen = _manager(), []
    with manager.prepare_session(
        backend.target,
        init_op=init,
        init_feed_dict={start: 5},
        init_fn=lambda session: seen.append(session.run(more)),
    ) as session:
        assert seen == [6]
        assert session.run([model.step, local]) == [6, 7]


def test_prepare_session_says_what_is_not_initialized(backend: Backend) -> None:
    model = counting_model(backend)
    forgets = tf.group(model.step.initializer)
    said = "variables not initialized: weight"
    manager = _manager()
    with pytest.raises(RuntimeError, match=f"not make the model ready for local_init: {said}"):
        manager.prepare_session(backend.target, init_op=forgets)
    (ready_op,) = tf.get_default_graph().get_collection("ready_op")
    ready = tf.train.SessionManager(ready_op=ready_op)
    with pytest.raises(RuntimeError, match=f"not make the model ready: {said}"):
        ready.prepare_session(backend.target, init_op=forgets)
    with pytest.raises(RuntimeError, match="no init_op, init_fn or local_init_op was given"):
        tf.train.SessionManager().prepare_session(backend.target)


def test_a_ready_operation_may_also_fail_or_give_nothing(backend: Backend) -> None:
    model = counting_model(backend)
    reads = tf.train.SessionManager(ready_op=model.weight)
    with pytest.raises(RuntimeError, match="ready: Attempting to use uninitialized value weight"):
        reads.prepare_session(backend.target, init_op=model.step.initializer)
    nothing = tf.train.SessionManager(ready_op=tf.no_op())
    nothing.prepare_session(backend.target, init_op=model.step.initializer).close()


def test_recover_session_restores_or_says_that_it_did_not(
    backend: Backend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = counting_model(backend)
    saver, partial = tf.train.Saver(), tf.train.Saver([model.step])
    manager = _manager()
    options: dict[str, Any] = {"saver": saver, "checkpoint_dir": str(tmp_path)}
    session, is_restored = manager.recover_session(backend.target, **options)
    with session:
        assert not is_restored
        session.run([model.step.initializer, model.weight.initializer])
        session.run(model.train)
        saver.save(session, tmp_path / "model", global_step=1)
    backend.reset()
    session, is_restored = manager.recover_session(backend.target, **options)
    with session:
        assert is_restored
        assert session.run(model.step) == 1
        assert saver.last_checkpoints == [str(tmp_path / "model-1")]
    backend.reset()
    with caplog.at_level(logging.INFO, "jflow.training.monitored"):
        session, is_restored = manager.recover_session(
            backend.target, partial, checkpoint_filename_with_path=str(tmp_path / "model-1")
        )
    session.close()
    assert not is_restored
    assert "did not make the model ready: variables not initialized: weight" in caplog.text
    with pytest.raises(ValueError, match="got both"):
        manager.recover_session(
            backend.target, **options, checkpoint_filename_with_path=str(tmp_path / "model-1")
        )


def test_prepare_session_waits_for_a_checkpoint(backend: Backend, tmp_path: Path) -> None:
    model = counting_model(backend)
    saver = tf.train.Saver()
    manager = _manager()
    clock, pauses = VirtualClock(), []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock.advance(seconds)
        if len(pauses) == 2:
            with backend.session() as other:
                other.run([model.step.initializer, model.weight.initializer])
                other.run(model.train)
                saver.save(other, tmp_path / "model")
            backend.reset()

    with clock.installed(session_manager):
        session_manager.time.sleep = sleep  # type: ignore[method-assign]
        with manager.prepare_session(
            backend.target,
            saver=saver,
            checkpoint_dir=str(tmp_path),
            wait_for_checkpoint=True,
        ) as session:
            assert session.run(model.step) == 1
    assert pauses == [0.25, 0.5]


def test_wait_for_session_returns_once_the_chief_has_initialized(shared_backend: Backend) -> None:
    model = counting_model(shared_backend)
    init = tf.global_variables_initializer()
    manager = _manager(recovery_wait_secs=0.01)
    got: list[int] = []

    def wait() -> None:
        with manager.wait_for_session(shared_backend.target) as session:
            got.append(int(session.run(model.step)))

    waiter = threading.Thread(target=wait)
    waiter.start()
    with shared_backend.session() as chief:
        waiter.join(0.1)
        assert not got
        chief.run(init)
        waiter.join()
    assert got == [0]


def test_wait_for_session_tells_what_is_missing_when_that_takes_long(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    counting_model(backend)
    manager = _manager(recovery_wait_secs=0.3)
    with (
        notices_after(0.2),
        pytest.raises(tf.errors.DeadlineExceededError, match=r"not ready after waiting 0\.7 s"),
    ):
        manager.wait_for_session(backend.target, max_wait_secs=0.7)
    (said, *_) = [one.getMessage() for one in caplog.records if one.name == "jflow.waits"]
    assert "for the model to be ready: variables not initialized: " in said
    assert said.endswith("; the chief initializes the variables")


def test_wait_for_session_gives_up_after_its_time(backend: Backend) -> None:
    counting_model(backend)
    manager = _manager()
    clock, pauses = VirtualClock(), []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock.advance(seconds)

    with clock.installed(session_manager):
        session_manager.time.sleep = sleep  # type: ignore[method-assign]
        with pytest.raises(tf.errors.DeadlineExceededError, match="not ready after waiting 70 s"):
            manager.wait_for_session(backend.target, max_wait_secs=70)
    assert pauses[:3] == [0.25, 0.5, 1.0]
    assert max(pauses) == 30
    assert sum(pauses) == 70


def test_a_session_that_cannot_be_prepared_is_closed(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = counting_model(backend)
    tf.group(model.step.initializer, name="forgets")
    opened: list[tf.Session] = []
    monkeypatch.setattr(
        session_manager,
        "Session",
        lambda *args, **options: opened.append(tf.Session(*args, **options)) or opened[-1],
    )
    with pytest.raises(RuntimeError):
        _manager().prepare_session(backend.target, init_op="forgets")
    with pytest.raises(RuntimeError, match="closed"):
        opened[0].run(model.step)


def test_a_condition_of_the_local_initialization_requires_one() -> None:
    with pytest.raises(ValueError, match="pass local_init_op= too"):
        tf.train.SessionManager(ready_for_local_init_op=tf.no_op())


# Scaffold


def test_a_scaffold_takes_what_is_given_then_what_is_in_collections_then_defaults() -> None:
    tf.train.create_global_step()
    given, collected = tf.no_op("given"), tf.no_op("collected")
    tf.get_default_graph().add_to_collection("local_init_op", collected)
    summary = tf.summary.scalar("x", 1.0)
    scaffold = tf.train.Scaffold(init_op=given)
    assert scaffold.finalize() is scaffold
    assert scaffold.init_op is given
    assert scaffold.local_init_op is collected
    assert tf.get_default_graph().get_collection("summary_op") == [scaffold.summary_op]
    assert scaffold.summary_op.op.inputs == (summary,)
    assert scaffold.saver is not None
    assert scaffold.ready_op is not None
    assert tf.get_default_graph().finalized
    assert scaffold.finalize() is scaffold


def test_a_scaffold_copies_what_another_one_has() -> None:
    first = tf.train.Scaffold(init_op=tf.no_op("a"), init_fn=lambda scaffold, session: session)
    second = tf.train.Scaffold(init_op=tf.no_op("b"), copy_from_scaffold=first)
    assert second.init_op.name == "b"
    assert second.init_fn is not None
    assert second.init_fn("the session") == "the session"
    with pytest.raises(TypeError, match="must be a Scaffold, got int"):
        tf.train.Scaffold(copy_from_scaffold=1)  # type: ignore[arg-type]


def test_several_items_in_a_collection_are_ambiguous() -> None:
    for _ in range(2):
        tf.get_default_graph().add_to_collection("init_op", tf.no_op())
    with pytest.raises(RuntimeError, match=r"'init_op'; choose one with .*Scaffold\(init_op="):
        tf.train.Scaffold().finalize()

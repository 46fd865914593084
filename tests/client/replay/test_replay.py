"""What a session does on a cluster, computed again from its log."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec
from msgspec import structs

import jflow as tf
from jflow.base.deadline import FOREVER
from jflow.base.machine import this_platform
from jflow.client.run_log.records import LogResults
from jflow.launch.testing.backends import start_servers
from jflow.testing import PATIENCE_S
from tests.scripts import run_script


@pytest.fixture(scope="module")
def servers() -> Iterator[list[tf.train.Server]]:
    with ExitStack() as stack:
        yield start_servers(stack.enter_context, {"ps": 2, "worker": 1})


@pytest.fixture
def target(servers: list[tf.train.Server]) -> Iterator[str]:
    """The address of the worker of a cluster with two parameter servers."""
    yield servers[2].target
    tf.Session.reset(servers[2].target)


@pytest.fixture
def log(tmp_path: Path) -> str:
    return str(tmp_path / "run.jlog")


def replayed(*logs: str) -> tf.Replay:
    """A replay that has computed the same as the run."""
    replay = tf.Replay(*logs)
    steps = [*replay]
    assert not replay.problems
    assert not replay.doubts
    assert sum(step.n_compared for step in steps)
    assert not sum(step.n_different for step in steps)
    return replay


def test_steps_of_a_graph_over_several_tasks(target: str, log: str) -> None:
    x = tf.placeholder(tf.float32, [3])
    with tf.device("/job:ps/task:0"):
        v = tf.Variable(np.zeros(3, np.float32), name="v")
    with tf.device("/job:ps/task:1"):
        w = tf.Variable(np.ones(3, np.float32), name="w")
    with tf.device("/job:worker/task:0"):
        step = tf.group(v.assign_add(tf.numpy.sin(x) * w), w.assign(w * 1.5))
    with tf.Session(target, config=tf.ConfigProto(record=log)) as session:
        session.run(tf.global_variables_initializer())
        for n in range(5):
            session.run(step, {x: np.arange(3, dtype=np.float32) + n})
        expected = session.run([v, w])
    with replayed(log) as replay:
        np.testing.assert_array_equal(replay.value("v"), expected[0], strict=True)
        np.testing.assert_array_equal(replay.value("w"), expected[1], strict=True)


def test_functions_with_random_keys_branches_and_loops(target: str, log: str) -> None:
    with tf.connect(target, tf.ConfigProto(record=log)):
        key = tf.Variable(jax.random.key(3), name="key")
        total = tf.Variable(np.zeros(4, np.float32), name="total")

        @tf.function
        def step(x: Any) -> Any:
            own, other = jax.random.split(key.value())
            key.assign(other)
            noise = jax.random.normal(own, (4,))

            def body(carry: Any, row: Any) -> Any:
                return carry + jnp.tanh(row), row.sum()

            found, sums = jax.lax.scan(body, noise, x)
            total.assign_add(jax.lax.cond(sums[0] > 0, lambda v: v, lambda v: -v, found))
            return sums

        rng = np.random.default_rng(0)
        for _ in range(6):
            step(rng.normal(size=(3, 4)).astype(np.float32))
        expected = np.asarray(total.value())
    with replayed(log) as replay:
        np.testing.assert_array_equal(replay.value("total"), expected, strict=True)
        assert replay.value("key").dtype == np.uint32


def test_what_functions_of_the_client_return(target: str, log: str) -> None:
    calls: list[float] = []

    def noisy(x: Any) -> Any:
        calls.append(float(x))
        return np.float32(x + len(calls))

    with tf.connect(target, tf.ConfigProto(record=log)), tf.device("/job:ps/task:1"):
        v = tf.Variable(0.0, name="v")

        @tf.function
        def step(x: Any) -> None:
            v.assign_add(jax.pure_callback(noisy, jax.ShapeDtypeStruct((), np.float32), x * 2))

        for n in range(4):
            step(float(n))
        expected = v.value()
    n_calls = len(calls)
    with replayed(log) as replay:
        assert replay.value("v") == expected
    assert len(calls) == n_calls, "functions of the client are not called again"


def test_elements_of_queues_and_results_of_other_operations_of_the_host(
    target: str, log: str
) -> None:
    with tf.device("/job:ps/task:1"):
        queue = tf.FIFOQueue(10, [tf.float32, tf.string], [[], []], shared_name="q")
        v = tf.Variable(0.0, name="v")
    fed = tf.placeholder(tf.float32, [])
    enqueue = queue.enqueue([fed, tf.constant("text")])
    number, text = queue.dequeue()
    step, missing = v.assign_add(number), tf.report_uninitialized_variables([v])
    with tf.Session(target, config=tf.ConfigProto(record=log)) as session:
        assert session.run(missing).tolist() == [b"v"]
        session.run(v.initializer)
        with tf.Session(target) as other:  # which does not record
            for n in range(4):
                other.run(enqueue, {fed: float(n)})
        assert [session.run([step, text])[1] for _ in range(4)] == [b"text"] * 4
        assert session.run(missing).tolist() == []
        expected = session.run(v)
    with replayed(log) as replay:
        assert replay.value("v") == expected


def test_values_from_before_the_recording_and_from_checkpoints(
    target: str, log: str, tmp_path: Path
) -> None:
    v = tf.Variable(np.arange(3.0, dtype=np.float32), name="v")
    k = tf.Variable(jax.random.key(1), name="k")
    double = v.assign(v * 2)
    saver = tf.train.Saver([v])
    with tf.Session(target) as session:
        session.run(tf.global_variables_initializer())
        session.run(double)
        saved = saver.save(session, str(tmp_path / "model"))
    with tf.Session(target, config=tf.ConfigProto(record=log)) as session:
        session.run(double)
        saver.restore(session, saved)
        session.run([double, k.assign(tf.random.fold_in(k, 7))])
        expected = session.run(v)
        np.testing.assert_array_equal(expected, [0.0, 4.0, 8.0])
    with replayed(log) as replay:
        np.testing.assert_array_equal(replay.value("v"), expected, strict=True)


def test_initializers_of_variables_that_have_values(target: str, log: str) -> None:
    with tf.connect(target, tf.ConfigProto(record=log)):
        for value in (1.0, 2.0):
            v = tf.get_variable("shared", initializer=np.float32(value))
            v.assign_add(10.0)
        assert v.value() == 21.0
    with replayed(log) as replay:
        assert replay.value("shared") == 21.0


def test_one_log_of_several_sessions_and_a_later_one(target: str, log: str) -> None:
    v = tf.Variable(0.0, name="v")
    config = tf.ConfigProto(record=log)
    with tf.Session(target, config=config) as one, tf.Session(target, config=config) as other:
        one.run(v.initializer)
        for session in (one, other, one):
            session.run(v.assign_add(1.0))
    with tf.Session(target) as unrecorded:
        unrecorded.run(v.assign_add(100.0))
    with tf.Session(target, config=config) as session:
        assert session.run(v.assign_add(1.0)) == 104.0
    with replayed(log) as replay:
        assert replay.value("v") == 104.0


def test_threads_that_read_old_versions(target: str, log: str) -> None:
    x = tf.placeholder(tf.float32, [8])
    with tf.device("/job:ps/task:0"):
        w = tf.Variable(np.ones(8, np.float32), name="w")
    with tf.device("/job:worker/task:0"):
        step = w.assign_sub(0.1 * tf.numpy.cos(w * x))
    with tf.Session(target, config=tf.ConfigProto(record=log)) as session:
        session.run(w.initializer)

        def run(seed: int) -> None:
            rng = np.random.default_rng(seed)
            for _ in range(25):
                session.run(step, {x: rng.normal(size=8).astype(np.float32)})

        threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        expected = session.run(w)
    with tf.Replay(log) as replay:
        steps = [*replay]
        np.testing.assert_array_equal(replay.value("w"), expected, strict=True)
    assert max(step.staleness for step in steps) > 0
    assert sum(step.n_compared for step in steps) == 101
    assert not sum(step.n_different for step in steps)


def test_it_stops_at_any_step(target: str, log: str) -> None:
    v = tf.Variable(0.0, name="v")
    with tf.Session(target, config=tf.ConfigProto(record=log)) as session:
        session.run(v.initializer)
        for _ in range(5):
            session.run(v.assign_add(1.0))
    for n in range(1, 7):
        with tf.Replay(log).run(until=n) as replay:
            assert replay.value("v") == n - 1
            assert replay.n_steps == n
    replay.run(until=2)
    with pytest.raises(tf.errors.NotFoundError, match="no variable 'v' after 6 steps"):
        replay.value("v")


def test_a_program_that_did_not_record_is_noticed(target: str, log: str) -> None:
    v = tf.Variable(0.0, name="v")
    with (
        tf.Session(target, config=tf.ConfigProto(record=log)) as session,
        tf.Session(target) as other,
    ):
        session.run(v.initializer)
        other.run(v.assign_add(1.0))
        session.run(v.assign_add(1.0))
    replay = tf.Replay(log)
    with pytest.raises(
        tf.errors.FailedPreconditionError,
        match=r"lack version 1 of variable 'v'.*a program that did not record has written it",
    ):
        replay.run()
    assert replay.value("v") == 0.0


def test_a_log_that_reaches_its_limit_ends_and_the_run_goes_on(
    target: str, log: str, caplog: pytest.LogCaptureFixture
) -> None:
    x = tf.placeholder(tf.float32, [1000])
    v = tf.Variable(np.zeros(1000, np.float32), name="v")
    step = v.assign_add(x)
    config = tf.ConfigProto(record=log, record_limit_bytes=60_000)
    with tf.Session(target, config=config) as session:
        session.run(v.initializer)
        for n in range(20):
            session.run(step, {x: np.full(1000, n, np.float32)})
        assert session.run(v)[0] == sum(range(20))
    assert "the run goes on: the run log has reached its limit of 60000 bytes" in caplog.text
    with tf.Replay(log) as replay:
        replay.run()
        assert any("ends early" in problem for problem in replay.problems)
        assert 1 < replay.n_steps < 20


def test_equal_values_are_written_once(target: str, log: str) -> None:
    x = tf.placeholder(tf.float32, [1000])
    v = tf.Variable(np.zeros(1000, np.float32), name="v")
    step = v.assign_add(x)
    with tf.Session(target, config=tf.ConfigProto(record=log)) as session:
        session.run(v.initializer)
        for n in range(30):
            session.run(step, {x: np.full(1000, n % 3, np.float32)})
    assert Path(f"{log}.data").stat().st_size < 50_000
    with replayed(log) as replay:
        assert replay.value("v")[0] == 30.0


def test_a_log_is_neither_overwritten_nor_made_in_this_process(target: str, log: str) -> None:
    with open(log, "w", encoding="utf-8") as file:
        file.write("mine")
    with pytest.raises(tf.errors.AlreadyExistsError, match=r"run log .* exists"):
        tf.Session(target, config=tf.ConfigProto(record=log))
    with pytest.raises(tf.errors.InvalidArgumentError, match="record needs a cluster"):
        tf.Session(config=tf.ConfigProto(record=f"{log}2"))


def test_state_of_a_recorded_session_does_not_move(target: str, log: str) -> None:
    v = tf.Variable(0.0, name="v")
    with tf.Session(target, config=tf.ConfigProto(record=log)) as session:
        session.run(v.initializer)
        session.run(v)
        with pytest.raises(tf.errors.UnimplementedError, match="recorded session cannot move"):
            session._backend.move_state([], "/job:ps/task:1/device:CPU:0", 1.0, FOREVER)


def test_variables_and_programs_on_meshes(target: str, log: str) -> None:
    mesh = tf.device("/job:worker/task:0", mesh={"data": 2, "model": 2})
    with tf.connect(target, tf.ConfigProto(record=log)):
        first = np.arange(32, dtype=np.float32).reshape(4, 8)
        with mesh:
            w = tf.Variable(first, sharding=PartitionSpec("data", "model"), name="w")

        @tf.function
        def step(x: Any) -> Any:
            with tf.device("/job:worker/task:0", mesh={"data": 2, "model": 2}):
                w.assign(jnp.sin(w.value()) + x @ x.T @ w.value() / 100)
            return w.value().sum()

        rng = np.random.default_rng(0)
        for _ in range(3):
            step(rng.normal(size=(4, 4)).astype(np.float32))
        expected = w.numpy()
    with replayed(log) as replay:
        np.testing.assert_array_equal(replay.value("w"), expected, strict=True)


def test_another_platform_is_said(target: str, log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    v = tf.Variable(0.0, name="v")
    with tf.Session(target, config=tf.ConfigProto(record=log)) as session:
        session.run(v.initializer)
    other = structs.replace(this_platform(), jaxlib="9.9")
    monkeypatch.setattr("jflow.client.replay.replay.this_platform", lambda: other)
    (doubt,) = tf.Replay(log).doubts
    assert doubt == f"/job:ps/task:0 had jaxlib {this_platform().jaxlib} instead of 9.9"


def test_a_program_that_returns_what_a_variable_was_before_its_update(
    target: str, log: str
) -> None:
    x = tf.placeholder(tf.float32, [])
    v = tf.Variable(0.0, name="v")
    before = v.read_value()
    with tf.control_dependencies([before]):
        step = v.assign_add(x)
    with tf.Session(target, config=tf.ConfigProto(record=log)) as session:
        session.run(v.initializer)
        for n in range(4):
            session.run([before, step.op], {x: float(n)})
    with replayed(log) as replay:
        assert replay.value("v") == 6.0


def test_what_a_lost_server_has_done_last_is_missed(log: str) -> None:
    with tf.train.Server.create_local_server() as server:
        v = tf.Variable(0.0, name="v")
        session = tf.Session(server.target, config=tf.ConfigProto(record=log))
        session.run(v.initializer)
        for _ in range(20):
            session.run(v.assign_add(1.0))
    session.close()
    with tf.Replay(log).run() as replay:
        assert "may lack the last entries of /job:local/task:0" in replay.problems[0]
        if replay.n_steps < 21:
            assert "steps did is not in the logs, such as" in replay.problems[1]


def test_a_variable_that_is_freed_and_made_again_is_noticed(target: str, log: str) -> None:
    v = tf.Variable(100.0, name="v")
    with tf.Session(target) as session:
        session.run(v.initializer)
        session.run(v.assign(7.0))
    with tf.Session(target, config=tf.ConfigProto(record=log)) as session:
        assert session.run(v) == 7.0
    tf.Session.reset(target)
    config = tf.ConfigProto(record=log)
    with tf.Session(target, config=config) as session:
        session.run(v.initializer)
        session.run(v.assign(5.0))
    with tf.Replay(log) as replay:
        steps = [*replay]
        assert sum(step.n_different for step in steps) or replay.problems


def test_a_child_leaves_the_log_of_its_parent_alone(target: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(FORKING)
    log = str(tmp_path / "run.jlog")
    done = run_script(program, target, log)
    assert done.returncode == 0, done.stderr
    with replayed(log) as replay:
        assert replay.value("v")[0] == 3.0


FORKING = """
import os, subprocess, sys
import numpy as np
import jflow as tf

target, log = sys.argv[1:]
x = tf.placeholder(tf.float32, [1000])
v = tf.Variable(np.zeros(1000, np.float32), name="v")
step = v.assign_add(x)
with tf.Session(target, config=tf.ConfigProto(record=log)) as session:
    session.run(v.initializer)
    session.run(step, {x: np.full(1000, 1, np.float32)})
    if not os.fork():
        sys.exit(0)
    os.wait()
    session.run(step, {x: np.full(1000, 2, np.float32)})
"""


def test_sessions_that_the_garbage_collector_closes(target: str, log: str) -> None:
    """Closing one in the middle of a write of another one, in one thread."""
    config = tf.ConfigProto(record=log)
    v = tf.Variable(np.zeros(3, np.float32), name="v")
    with tf.Session(target, config=config) as one:
        other = tf.Session(target, config=config)
        one.run(v.initializer)
        other.run(v)
        recorder = one._backend.recording._recorder
        assert recorder.write(lambda writer: other.close() or LogResults(0, ()))
        one.run(v.assign_add(np.ones(3, np.float32)))
    with replayed(log) as replay:
        np.testing.assert_array_equal(replay.value("v"), np.ones(3, np.float32), strict=True)

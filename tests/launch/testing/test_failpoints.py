"""Failpoints: each of them is reached here, and what a failure there means for a client.

A test that comes to a failpoint says so with `@reaches`; the last test compares them with the list.
"""

from __future__ import annotations

import ast
import signal
import threading
import timeit
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest

import jflow as tf
import jflow.base.failpoints
from jflow.state.effects import Effect
from jflow.testing import (
    FAILPOINTS,
    CallFunction,
    Delay,
    FaultProxy,
    Kill,
    Pass,
    Pause,
    ProcessCluster,
    ProgramProcess,
    Raise,
    failpoints,
    run_program,
    start_servers,
    wait_until,
)
from tests.state.checkpoint.saving import save_value, saved_value
from tests.state.effects.attempts import Counters, attempt
from tests.state.moves.placing import all_on

ROOT = Path(__file__).parents[3]
PS, WORKER = "/job:ps/task:0", "/job:worker/task:0"
PATIENT = tf.ConfigProto(operation_timeout_in_ms=100_000)
REACHED: dict[str, list[str]] = {name: [] for name in FAILPOINTS}
SAVING = [name for name in FAILPOINTS if name.startswith("checkpoint.")]
LOST = tf.errors.UnavailableError("the test lost it")

T = TypeVar("T", bound=Callable[..., Any])


def reaches(*names: str) -> Callable[[T], T]:
    """Says that a test fails unless the code comes to these failpoints."""

    def note(test: T) -> T:
        for name in names:
            REACHED[name].append(test.__name__)
        return test

    return note


@pytest.fixture
def servers() -> Iterator[list[tf.train.Server]]:
    """A parameter server and a worker in this process."""
    with ExitStack() as stack:
        yield start_servers(stack.enter_context, {"ps": 1, "worker": 1})


@pytest.fixture
def target(servers: list[tf.train.Server]) -> str:
    return servers[-1].target


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def got(future: Future[Any]) -> Any:
    wait_until(future.done, "the result of a thread")
    return future.result()


# What each failpoint is for -----------------------------------------------------------------------


EFFECTS = [
    *("worker.before_effect", "worker.after_stage", "master.before_commit"),
    *("worker.before_decision", "worker.after_decision", "master.after_commit"),
]


@reaches(*EFFECTS)
@pytest.mark.parametrize("name", EFFECTS)
def test_a_step_that_fails_before_or_after_any_acknowledgement_is_applied_once(
    target: str, name: str
) -> None:
    counters, step = Counters(PS, WORKER, WORKER), Effect(f"at {name}", 0, 0)
    with tf.Session(target, config=PATIENT) as session:
        session.run(tf.global_variables_initializer())
        with failpoints({name: Raise(LOST, times=1)}) as points:
            with pytest.raises(tf.errors.UnavailableError, match="the test lost it"):
                attempt(session, counters.both, step)
            assert points.reached(name) >= 1
        assert attempt(session, counters.both, step.again()) == 1.0
        assert session.run(counters.values) == [1.0, 1.0]


@reaches("worker.after_take_over", "worker.after_effect")
@pytest.mark.parametrize(
    ("name", "n_reached"), [("worker.after_take_over", 2), ("worker.after_effect", 1)]
)
def test_a_repeat_that_fails_is_repeated_and_the_step_is_applied_once(
    target: str, name: str, n_reached: int
) -> None:
    counters, step = Counters(PS, WORKER, WORKER), Effect(f"at {name}", 0, 0)
    with tf.Session(target, config=PATIENT) as session:
        session.run(tf.global_variables_initializer())
        with failpoints({name: Raise(LOST, times=1)}) as points:
            lost = 0
            for one in (step, step.again(), step.again().again()):
                try:
                    assert attempt(session, counters.one, one) == 1.0
                except tf.errors.UnavailableError:
                    lost += 1
            # The second attempt takes over and is lost, the third one takes over again.
            assert (points.reached(name), lost) == (n_reached, 1)
        assert session.run(counters.a) == 1.0


@reaches("client.before_repeat")
def test_a_repeat_begins_after_the_connection_was_lost(target: str) -> None:
    counters = Counters(PS, WORKER, WORKER)
    with FaultProxy(target.partition("://")[2]) as proxy, tf.Session(proxy.target) as session:
        session.run(tf.global_variables_initializer())
        cut = CallFunction(lambda _: proxy.cut(), times=1)
        with failpoints({"worker.after_effect": cut, "client.before_repeat": Pass()}) as points:
            assert session.run(counters.one) == 1.0
            assert points.reached("client.before_repeat") == 1


@reaches("client.before_repeat")
def test_a_traced_step_is_repeated_like_another_one(target: str) -> None:
    counters = Counters(PS, WORKER, WORKER)
    with FaultProxy(target.partition("://")[2]) as proxy, tf.Session(proxy.target) as session:
        session.run(tf.global_variables_initializer())
        cut = CallFunction(lambda _: proxy.cut(), times=1)
        with failpoints({"worker.after_effect": cut}), tf.trace_steps() as traces:
            assert session.run(counters.one) == 1.0
        assert session.run(counters.a) == 1.0
    assert len(traces) == 1


@reaches("worker.before_compile", "master.after_register")
@pytest.mark.parametrize("name", ["worker.before_compile", "master.after_register"])
def test_a_step_whose_registering_fails_can_be_registered_again(target: str, name: str) -> None:
    a = tf.constant(1.0) + 1
    with (
        tf.Session(target, config=PATIENT) as session,
        failpoints({name: Raise(LOST, times=1)}) as points,
    ):
        with pytest.raises(tf.errors.UnavailableError, match="the test lost it"):
            session.run(a)
        assert session.run(a) == 2.0
        assert points.reached(name) == 2


@reaches("worker.before_run")
def test_a_worker_that_fails_before_its_plans_run_has_changed_nothing(target: str) -> None:
    x = tf.Variable(1.0, name="x")
    add = x.assign_add(1.0)
    with tf.Session(target, config=PATIENT) as session:
        session.run(x.initializer)
        session.run(add)
        with (
            failpoints({"worker.before_run": Raise(LOST)}) as points,
            pytest.raises(tf.errors.UnavailableError, match="the test lost it") as caught,
        ):
            session.run(add)
        assert caught.value.task in (PS, WORKER)
        assert points.reached("worker.before_run") == 1
        assert session.run(x) == 2.0


@reaches("worker.after_run", "master.after_run")
@pytest.mark.parametrize("name", ["worker.after_run", "master.after_run"])
def test_a_step_whose_answer_is_lost_has_changed_the_state(target: str, name: str) -> None:
    x = tf.Variable(1.0, name="x")
    add = x.assign_add(1.0)
    with tf.Session(target, config=PATIENT) as session:
        session.run(x.initializer)
        session.run(add)
        with (
            failpoints({name: Raise(LOST, times=1)}),
            pytest.raises(tf.errors.UnavailableError, match="the test lost it"),
        ):
            session.run(add)
        assert session.run(x) == 3.0


SAVE_POINTS = [
    "checkpoint.before_shard",
    "checkpoint.in_shard",
    "checkpoint.shard_written",
    "checkpoint.before_manifest",
    "checkpoint.manifest_written",
    "checkpoint.manifest_renamed",
    "checkpoint.committed",
]


@reaches(*SAVE_POINTS)
@pytest.mark.parametrize("name", SAVE_POINTS)
def test_a_save_that_fails_leaves_the_old_or_the_new_checkpoint_whole(
    name: str, tmp_path: Path
) -> None:
    save_value(tmp_path / "m", 1.0, "0" * 16)
    with (
        failpoints({name: Raise(LOST, times=1)}) as points,
        pytest.raises(tf.errors.UnavailableError, match="the test lost it"),
    ):
        save_value(tmp_path / "m", 2.0, "1" * 16)
    assert points.reached(name) >= 1
    is_new = name in ("checkpoint.manifest_renamed", "checkpoint.committed")
    assert saved_value(tmp_path / "m") == (2.0 if is_new else 1.0)


@reaches("worker.before_save", "worker.after_move")
@pytest.mark.parametrize("name", ["worker.before_save", "worker.after_move"])
def test_state_whose_move_fails_is_at_one_place_and_keeps_its_updates(
    target: str, name: str
) -> None:
    x = tf.Variable(1.0, name="x")
    add = x.assign_add(1.0)
    with tf.Session(target, config=PATIENT) as session:
        session.run(x.initializer)
        session.run(add)
        before = session.placement(add)[add.op]
        with (
            failpoints({name: Raise(LOST, times=1)}),
            pytest.raises(tf.errors.UnavailableError, match="the test lost it"),
        ):
            session.replace(all_on("worker"), min_gain=None)
        assert session.run(add) == 3.0
        has_moved = session.placement(add)[add.op] != before
        assert has_moved is (name == "worker.after_move")


@reaches("worker.before_snapshot", "worker.after_commit", "worker.before_restore")
@reaches(*SAVING)
@pytest.mark.parametrize("name", ["worker.before_snapshot", "worker.after_commit", *SAVING])
def test_a_save_that_fails_leaves_a_whole_checkpoint_and_steps_go_on(
    target: str, tmp_path: Path, name: str
) -> None:
    with tf.device(PS):
        x = tf.Variable(1.0, name="x")
    with tf.device(WORKER):
        y = tf.Variable(1.0, name="y")
    add = [x.assign_add(1.0), y.assign_add(1.0)]
    saver = tf.train.Saver()
    path = tmp_path / "model"
    with tf.Session(target, config=PATIENT) as session:
        session.run(tf.global_variables_initializer())
        saver.save(session, path)
        assert session.run(add) == [2.0, 2.0]
        with (
            failpoints({name: Raise(LOST, times=1)}),
            pytest.raises(tf.errors.UnavailableError, match="the test lost it"),
        ):
            saver.save(session, path)
        assert session.run(add) == [3.0, 3.0]
        saver.restore(session, path)
        assert session.run([x, y]) in ([1.0, 1.0], [2.0, 2.0])
        saver.save(session, path)
        assert len([*tmp_path.glob("*.safetensors")]) == 2, "what was left is removed"
        with (
            failpoints({"worker.before_restore": Raise(LOST, times=1)}),
            pytest.raises(tf.errors.UnavailableError, match="the test lost it"),
        ):
            saver.restore(session, path)
        saver.restore(session, path)


@reaches("worker.before_deliver")
def test_a_step_waits_for_a_value_on_its_way_and_others_go_on(
    target: str, threads: ThreadPoolExecutor
) -> None:
    with tf.device(PS):
        x = tf.placeholder(tf.float32, ())
        # Too large to come with the reply of the plan that computes it.
        sent = tf.numpy.full((1 << 16,), x + 1.0)
    with tf.device(WORKER):
        received = sent[0] * 10.0
        own = tf.constant(3.0) * 2.0
    feed = {x: 1.0}
    with tf.Session(target, config=PATIENT) as session:
        assert session.run(received, feed) == 20.0
        with failpoints({"worker.before_deliver": Pause()}) as points:
            step = threads.submit(session.run, received, feed)
            points.wait_until_reached("worker.before_deliver")
            assert session.run(own) == 6.0
            assert not step.done()
            points.release("worker.before_deliver")
            assert got(step) == 20.0


@reaches("server.before_listen")
def test_a_server_that_fails_before_it_listens_leaves_its_address_free() -> None:
    with tf.train.Server({"local": ["127.0.0.1:0"]}) as first:
        spec = first.cluster_spec
    with (
        failpoints({"server.before_listen": Raise(LOST)}),
        pytest.raises(tf.errors.UnavailableError, match="the test lost it"),
    ):
        tf.train.Server(spec)
    with tf.train.Server(spec) as second, tf.Session(second.target) as session:
        assert session.run(tf.constant(2.0)) == 2.0


@reaches("peer.before_connect")
def test_a_task_that_cannot_be_reached_once_is_tried_again(target: str) -> None:
    with tf.device(PS):
        a = tf.constant(1.0) + 1
    with (
        tf.Session(target, config=PATIENT) as session,
        failpoints({"peer.before_connect": Raise(LOST, times=1)}) as points,
    ):
        with pytest.raises(tf.errors.UnavailableError, match="the test lost it"):
            session.run(a)
        assert session.run(a) == 2.0
        assert points.reached("peer.before_connect") == 2


@reaches("client.before_reconnect")
def test_a_client_connects_again_to_the_task_that_it_lost() -> None:
    a = tf.constant(1.0) + 1
    with tf.train.Server({"local": ["127.0.0.1:0"]}) as server, tf.Session(server.target) as one:
        assert one.run(a) == 2.0
        one._backend._client.close()  # type: ignore[attr-defined]
        with failpoints({"client.before_reconnect": Pass()}) as points:
            assert one.run(a) == 2.0
            assert points.reached("client.before_reconnect") == 1


def test_every_failpoint_is_declared_and_placed_and_reached_by_a_test_of_this_file() -> None:
    placed = set()
    for path in (ROOT / "jflow").rglob("*.py"):
        source = path.read_text()
        if "failpoint(" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "").endswith("failpoint"):
                assert isinstance(node.args[0], ast.Constant), path
                placed.add(node.args[0].value)
    assert placed == set(FAILPOINTS)
    assert [name for name, tests in REACHED.items() if not tests] == []


# In other processes -------------------------------------------------------------------------------


def test_a_master_that_dies_before_it_answers_has_done_the_update_once() -> None:
    x = tf.Variable(1.0, name="x")
    add = x.assign_add(1.0)
    with ProcessCluster(points={WORKER: {"master.after_run": Kill(skip=2)}}) as cluster:
        with tf.Session(cluster.target(), config=PATIENT) as session:
            session.run(x.initializer)
            session.run(add)
            with pytest.raises(tf.errors.UnavailableError):
                session.run(add)
        assert cluster.wait_until_ended() == -signal.SIGKILL
        assert cluster.points().reached("master.after_run") == 3
        with tf.Session(cluster.target("ps"), config=PATIENT) as session:
            assert session.run(x) == 3.0
        address = cluster.address()
        cluster.restart()
        assert cluster.address() == address
        with tf.Session(cluster.target(), config=PATIENT) as session:
            for expected in (4.0, 5.0, 6.0):
                session.run(add)
                assert session.run(x) == expected


@reaches("compiler.before_compile")
def test_a_compiler_that_dies_fails_the_step_and_not_the_task() -> None:
    points = {WORKER: {"compiler.before_compile": Kill()}}
    apart = {"JFLOW_COMPILE_APART": "1"}
    with ProcessCluster(ps=0, points=points, environment=apart) as cluster:
        with tf.Session(cluster.target(), config=PATIENT) as session:
            with pytest.raises(tf.errors.InternalError, match=r"cannot be compiled: .* SIGKILL"):
                session.run(tf.constant(1.0) + 1)
            assert session.run(tf.constant(2.0) * 3) == 6.0
        assert cluster.points().reached("compiler.before_compile") == 1
        assert cluster.exit_code() is None


def test_a_pause_in_another_process_lasts_until_its_release(threads: ThreadPoolExecutor) -> None:
    with ProcessCluster(ps=0, points={WORKER: {"worker.before_run": Pause()}}) as cluster:
        a = tf.constant(1.0) + 1
        with tf.Session(cluster.target(), config=PATIENT) as session:
            step = threads.submit(session.run, a)
            cluster.points().wait_until_reached("worker.before_run")
            assert session.list_devices(), "its event loop goes on"
            assert not step.done()
            cluster.points().release("worker.before_run")
            assert got(step) == 2.0


def test_an_error_in_another_process_has_its_class_and_message() -> None:
    error = tf.errors.ResourceExhaustedError("no room")
    with (
        ProcessCluster(ps=0, points={WORKER: {"worker.before_run": Raise(error)}}) as cluster,
        tf.Session(cluster.target(), config=PATIENT) as session,
        pytest.raises(tf.errors.ResourceExhaustedError, match="no room"),
    ):
        session.run(tf.constant(1.0) + 1)


def test_a_task_that_dies_while_it_starts_is_named() -> None:
    with pytest.raises(tf.errors.UnavailableError, match=r"/job:ps/task:0 ended .* code -9"):
        ProcessCluster(points={PS: {"server.before_listen": Kill()}})


def test_a_process_without_the_variable_has_none_and_does_not_load_the_actions() -> None:
    code = (
        "import sys, jflow.base.failpoints as f; f.failpoint('worker.before_run');"
        "print(f.points.actions, 'jflow.base.failpoints.actions' in sys.modules)"
    )
    assert run_program(["-c", code]).stdout == "{} False\n"


def test_a_name_that_another_process_does_not_know_ends_it() -> None:
    text = '{"directory": "/", "points": {"no.such": {"kind": "pass", "skip": 0, "times": null}}}'
    done = run_program(
        ["-c", "import jflow.base.failpoints"], {jflow.base.failpoints.VARIABLE: text}
    )
    assert done.returncode == 1
    assert "there is no failpoint 'no.such'" in done.stderr


# The kit ------------------------------------------------------------------------------------------


def test_actions_happen_as_often_as_they_are_told() -> None:
    called: list[str] = []
    point = jflow.base.failpoints.failpoint
    with failpoints({"worker.before_run": CallFunction(called.append, skip=1, times=2)}) as points:
        for _ in range(5):
            point("worker.before_run")
            point("worker.after_run")
        assert points.reached("worker.before_run") == 5
    point("worker.before_run")
    assert called == ["worker.before_run"] * 2


def test_a_delay_lasts_its_time_and_the_end_of_the_block_ends_a_pause() -> None:
    point = jflow.base.failpoints.failpoint
    with failpoints({"worker.before_run": Delay(0.05), "worker.after_run": Pause()}) as points:
        assert timeit.timeit(lambda: point("worker.before_run"), number=1) >= 0.05
        thread = threading.Thread(target=point, args=("worker.after_run",))
        thread.start()
        points.wait_until_reached("worker.after_run")
        assert thread.is_alive()
    wait_until(lambda: not thread.is_alive())


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no failpoints \['worker.befor_run'\]"):
        failpoints({"worker.befor_run": Pass()})
    with failpoints({"worker.before_run": Pass()}) as points:
        with pytest.raises(ValueError, match=r"'worker\.after_run' is not one of"):
            points.reached("worker.after_run")
        with (
            pytest.raises(ValueError, match="on already"),
            failpoints({"worker.before_run": Pass()}),
        ):
            pytest.fail("it was entered")
    for action in (CallFunction(print), Raise(KeyError())):
        with (
            failpoints({"worker.before_run": action}, here=False) as points,
            pytest.raises(TypeError, match="process"),
        ):
            _ = points.environment
    with pytest.raises(ValueError, match=r"points are for tasks of \['/job:worker/task:0'\]"):
        ProcessCluster(ps=0, points={PS: {}})


def test_a_program_gets_failpoints_by_its_environment() -> None:
    code = (
        "from jflow.base.failpoints import failpoint\n"
        "failpoint('client.before_reconnect'); print('on')"
    )
    with (
        failpoints({"client.before_reconnect": Pause()}, here=False) as points,
        ProgramProcess(["-c", code], points.environment) as program,
    ):
        points.wait_until_reached("client.before_reconnect")
        points.release("client.before_reconnect")
        assert program.read_line() == "on"
        assert program.wait() == 0


def test_a_failpoint_that_is_off_is_free() -> None:
    """A bound that holds on a busy machine; it takes some 20 ns on one that is not."""
    point, number = jflow.base.failpoints.failpoint, 20_000
    seconds = min(timeit.repeat(lambda: point("worker.before_run"), number=number, repeat=20))
    assert seconds / number < 1e-6

"""`jflow.run`: the parts of all roles, how a program ends, and what keeps it from starting."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

import jflow as tf
from jflow.base.cluster import Task
from jflow.launch import readiness
from tests.ports import free_ports

PATIENT_S = 60.0


def cluster_of(**jobs: int) -> dict[str, list[str]]:
    """A cluster on free ports of this machine."""
    ports = iter(free_ports(sum(jobs.values())))
    return {job: [f"127.0.0.1:{next(ports)}" for _ in range(n)] for job, n in jobs.items()}


def environment(cluster: Any, job: str, index: int = 0) -> dict[str, str]:
    task = {"type": job, "index": index}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


def no_main(role: tf.ProgramRole) -> Any:
    raise AssertionError(f"main was called with {role}")


def started(
    cluster: Any, job: str, index: int = 0, main: Callable[..., Any] = no_main, **options: Any
) -> Future[Any]:
    """Runs the program as a task, on a thread."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(tf.run(main, environ=environment(cluster, job, index), **options))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "_POLL_S", 0.05)


def test_a_process_of_no_cluster_is_its_own_chief() -> None:
    role = tf.run(lambda role: role, environ={})
    assert role is not None
    assert (role.is_chief, role.master, role.task_type, role.source) == (True, "", None, "")
    assert not role.resolver.cluster_spec()


def test_the_chief_runs_the_program_on_all_others_and_ends_them() -> None:
    cluster = cluster_of(chief=1, ps=1, worker=1)

    def main(role: tf.ProgramRole) -> Any:
        with tf.Graph().as_default():
            with tf.device("/job:ps"):
                x = tf.Variable(20.0, name="x")
            with tf.device("/job:worker"):
                y = x + 1.0
            with tf.Session(role.master) as session:
                session.run(tf.global_variables_initializer())
                return session.run(y), role

    others = [started(cluster, "ps"), started(cluster, "worker")]
    value, role = started(cluster, "chief", main=main).result(PATIENT_S)
    assert value == 21.0
    assert role.is_chief
    assert (role.num_ps_replicas, role.num_worker_replicas) == (1, 2)
    assert (role.task_type, role.source) == ("chief", "TF_CONFIG")
    assert role.resolver.master("ps", 0) == f"grpc://{cluster['ps'][0]}"
    assert [other.result(PATIENT_S) for other in others] == [None, None]


def test_worker_0_is_the_chief_of_a_cluster_without_one_and_workers_run_steps() -> None:
    cluster = cluster_of(ps=1, worker=2)
    has_counted = threading.Event()

    def count(role: tf.ProgramRole) -> Any:
        with tf.Graph().as_default():
            with tf.device("/job:ps"):
                total = tf.Variable(0.0, name="total")
            add = total.assign_add(1.0)
            with tf.Session(role.master) as session:
                if role.is_chief:
                    session.run(tf.global_variables_initializer())
                    assert has_counted.wait(PATIENT_S)
                    return session.run(total)
                while True:  # until the chief has initialized it
                    try:
                        counted = session.run(add)
                    except tf.errors.FailedPreconditionError:
                        continue
                    has_counted.set()
                    return counted

    ps = started(cluster, "ps")
    worker = started(cluster, "worker", 1, worker=count)
    assert started(cluster, "worker", main=count).result(PATIENT_S) == 1.0
    assert worker.result(PATIENT_S) == 1.0
    assert ps.result(PATIENT_S) is None


def test_the_end_of_the_chief_is_no_error_of_a_worker_that_still_runs_steps() -> None:
    cluster = cluster_of(chief=1, worker=1)
    runs = threading.Event()

    def endless(role: tf.ProgramRole) -> Any:
        with tf.Graph().as_default(), tf.Session(role.master) as session:
            y = tf.constant(1.0) + 1.0
            while True:
                session.run(y)
                runs.set()

    worker = started(cluster, "worker", worker=endless)
    started(cluster, "chief", main=lambda _: runs.wait(PATIENT_S)).result(PATIENT_S)
    assert worker.result(PATIENT_S) is None


def test_an_error_of_the_chief_is_raised_and_ends_the_others() -> None:
    cluster = cluster_of(chief=1, ps=1)

    def fail(_: tf.ProgramRole) -> None:
        raise ArithmeticError("of the user")

    ps = started(cluster, "ps")
    with pytest.raises(ArithmeticError, match="of the user"):
        started(cluster, "chief", main=fail).result(PATIENT_S)
    assert ps.result(PATIENT_S) is None


def test_an_error_of_a_worker_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jflow.launch.tasks._PATIENCE_S", 0.1)
    cluster = cluster_of(chief=1, worker=1)
    runs, has_failed = threading.Event(), threading.Event()

    def fail(_: tf.ProgramRole) -> None:
        assert runs.wait(PATIENT_S)
        raise ArithmeticError("of the worker")

    def main(_: tf.ProgramRole) -> bool:
        runs.set()
        return has_failed.wait(PATIENT_S)

    worker = started(cluster, "worker", worker=fail)
    worker.add_done_callback(lambda _: has_failed.set())
    assert started(cluster, "chief", main=main).result(PATIENT_S)
    with pytest.raises(ArithmeticError, match="of the worker"):
        worker.result(PATIENT_S)


@pytest.mark.long
def test_an_evaluator_goes_on_until_the_chief_has_ended_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readiness, "CONNECT_S", 1.0)
    cluster = cluster_of(chief=1, ps=1)
    evaluated = threading.Event()

    def evaluate(role: tf.ProgramRole) -> str:
        assert not role.is_chief
        assert role.master == f"grpc://{cluster['chief'][0]}"
        evaluated.set()
        assert role.done.wait(PATIENT_S)
        return "evaluated"

    connected, is_seen = readiness.ChiefWatch._connected, threading.Event()

    def seen(watch: readiness.ChiefWatch, task: Task) -> Any:
        client = connected(watch, task)
        if watch._own.job == "evaluator":
            is_seen.set()
        return client

    monkeypatch.setattr(readiness.ChiefWatch, "_connected", seen)
    ps = started(cluster, "ps")
    evaluator = started(cluster, "evaluator", evaluator=evaluate)

    def main(_: tf.ProgramRole) -> None:
        assert evaluated.wait(PATIENT_S)
        assert is_seen.wait(PATIENT_S)

    started(cluster, "chief", main=main).result(PATIENT_S)
    assert evaluator.result(PATIENT_S) == "evaluated"
    assert ps.result(PATIENT_S) is None


def test_a_client_uses_the_cluster_and_serves_nothing() -> None:
    cluster = cluster_of(ps=1, worker=1)
    environ = {"TF_CONFIG": json.dumps({"cluster": cluster}), "JFLOW_ROLE": "client"}
    role = tf.run(lambda role: role, environ=environ)
    assert role is not None
    assert (role.task_type, role.master) == (None, f"grpc://{cluster['worker'][0]}")


def test_a_chief_that_never_comes_is_an_error_that_says_what_was_waited_for() -> None:
    cluster = cluster_of(chief=1, ps=1)
    with pytest.raises(tf.errors.DeadlineExceededError) as caught:
        started(cluster, "ps", timeout=0.3).result(PATIENT_S)
    message = caught.value.message
    assert message.startswith(
        "/job:ps/task:0 has waited 300 ms for the chief, /job:chief/task:0 at"
    )
    assert cluster["chief"][0] in message
    assert "start what is missing" in message


def test_a_task_that_never_comes_is_an_error_of_the_chief_and_ends_the_others() -> None:
    cluster = cluster_of(chief=1, ps=1, worker=1)
    ps = started(cluster, "ps")
    with pytest.raises(tf.errors.DeadlineExceededError) as caught:
        started(cluster, "chief", timeout=0.5).result(PATIENT_S)
    assert f"/job:worker/task:0 at {cluster['worker'][0]} (down" in caught.value.message
    assert ps.result(PATIENT_S) is None


def test_a_long_wait_says_what_it_is_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = readiness.Waiting(Task("ps", 0), PATIENT_S)
    waiting.goes_on("the chief")
    assert not caplog.text, "it is quiet for 10 s"
    monkeypatch.setattr(readiness, "_NOTICE_S", 0.0)
    waiting.goes_on("the chief, /job:chief/task:0 at a:1")
    assert "/job:ps/task:0 still waits for the chief, /job:chief/task:0 at a:1" in caplog.text


def test_a_chief_that_comes_back_finds_the_others() -> None:
    cluster = cluster_of(chief=1, ps=1)
    ps = started(cluster, "ps")
    former = tf.train.Server(cluster, "chief", 0)
    readiness.wait_for_tasks(readiness.connect(former.target, 5.0), PATIENT_S)
    former.stop()
    assert started(cluster, "chief", main=lambda _: "again").result(PATIENT_S) == "again"
    assert ps.result(PATIENT_S) is None


def test_a_chief_that_is_started_again_needs_the_tasks_that_ended_with_the_first_one() -> None:
    cluster = cluster_of(chief=1, worker=1)

    def fail(_: tf.ProgramRole) -> None:
        raise ValueError("the first chief fails")

    worker = started(cluster, "worker")
    with pytest.raises(ValueError, match="the first chief fails"):
        started(cluster, "chief", main=fail).result(PATIENT_S)
    assert worker.result(PATIENT_S) is None
    alone = started(cluster, "chief", main=no_main, timeout=0.5)
    with pytest.raises(tf.errors.DeadlineExceededError) as caught:
        alone.result(PATIENT_S)
    assert f"for /job:worker/task:0 at {cluster['worker'][0]} (down: " in str(caught.value)
    assert "tasks that ended with an earlier chief have to be started again" in str(caught.value)
    # With the worker it runs, in whichever order the two come.
    again = started(cluster, "chief", main=lambda _: "done")
    worker = started(cluster, "worker")
    assert again.result(PATIENT_S) == "done"
    assert worker.result(PATIENT_S) is None


@pytest.mark.parametrize(
    ("environ", "options", "text"),
    [
        (environment({"ps": ["a:1"]}, "ps"), {}, "neither a chief nor a worker"),
        (environment({"chief": ["a:1", "b:1"]}, "chief"), {}, "more than one chief"),
        (environment({"chief": ["a:1"], "master": ["b:1"]}, "chief"), {}, "more than one chief"),
        (environment({"wroker": ["a:1"], "ps": ["b:1"]}, "ps"), {}, "the job 'wroker'; the jobs"),
        (environment({"chief": ["a:1"]}, "ps"), {}, "is /job:ps/task:0 by TF_CONFIG, which is not"),
        ({"TF_CONFIG": '{"cluster": {"chief": ["a:1"]}}'}, {}, "nothing says which task of it"),
        (environment({"chief": ["a:1"]}, "evaluator"), {}, "no part for it; give jflow.run"),
        ({}, {"job_name": "ps"}, "need the cluster"),
        ({}, {"cluster": {"ps": ["a:1"]}, "task_index": 0}, "task_index needs job_name"),
        (
            environment({"chief": ["a:1"]}, "chief"),
            {"cluster": {"chief": ["b:1"]}, "job_name": "chief"},
            "the arguments and TF_CONFIG contradict each other",
        ),
    ],
)
def test_a_program_that_cannot_run_says_why_at_once(
    environ: dict[str, str], options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        tf.run(no_main, environ=environ, **options)

"""Sessions and users that would have too much of a cluster, beside others that go on."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

import jflow as tf
from jflow.cli.main import main
from jflow.errors import InvalidArgumentError, OutOfRangeError, ResourceExhaustedError
from jflow.net.protocol.tokens import TokenId
from jflow.net.wire import load_secret
from jflow.net.wire.users import make_token
from jflow.state.quotas import Quotas
from jflow.task.server.quotas import quotas_of
from jflow.task.worker import usage as step_usage
from jflow.testing import start_servers

PS = "/job:ps/task:0"
KIB = 1 << 10


@pytest.fixture
def tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, TokenId]:
    """The tokens of two users."""
    path = tmp_path / "users.json"
    monkeypatch.setenv("JFLOW_USERS_FILE", str(path))
    return {name: make_token(path, name) for name in ("ann", "bob")}


@contextmanager
def started(quotas: str) -> Iterator[list[tf.train.Server]]:
    """Context manager with a parameter server and a worker that have quotas."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("JFLOW_QUOTAS", quotas)
        yield start_servers(stack.enter_context, {"ps": 1, "worker": 1})


@contextmanager
def as_user(token_id: TokenId) -> Iterator[None]:
    """Context manager in which this process has the token of a user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JFLOW_TOKEN", load_secret().token_of(token_id))
        yield


def variable(name: str, n_kib: int) -> tf.Variable:
    """A variable of so many KiB on the parameter server."""
    with tf.device(PS):
        return tf.Variable(np.zeros(n_kib * 256, np.float32), name=name)


def usage(capsys: pytest.CaptureFixture[str], target: str, *options: str) -> list[list[str]]:
    assert main(["ls", "usage", target, *options]) == 0
    return [line.split("  ") for line in capsys.readouterr().out.splitlines()[1:]]


def test_a_session_that_would_have_too_much_is_refused_and_another_goes_on() -> None:
    with started("session=100KiB") as (_, worker):
        small, large = variable("small", 60), variable("large", 50)
        other = variable("other", 90)
        both = tf.group(large.initializer, variable("tiny", 1).initializer)
        with tf.Session(worker.target) as session, tf.Session(worker.target) as beside:
            session.run(small.initializer)
            with pytest.raises(ResourceExhaustedError) as raised:
                session.run(both)
            assert "50 KiB" in raised.value.message or "51 KiB" in raised.value.message
            assert "exceed the quota of session" in raised.value.message
            assert "has 60 KiB of 100 KiB (most: 60 KiB of session" in raised.value.message
            assert not session.run(tf.is_variable_initialized(large))
            beside.run(other.initializer)
            assert session.run(small)[0] == 0.0
            session.run(small.assign_add(np.ones(60 * 256, np.float32)))
            session.run(small.initializer)
        tf.Session.reset(worker.target)
        with tf.Session(worker.target) as session:
            session.run(both)


def test_sessions_that_begin_at_once_do_not_pass_a_quota_together() -> None:
    with started("task=95KiB") as (_, worker):
        variables = [variable(f"v{i}", 10) for i in range(24)]
        with tf.Session(worker.target) as session, ThreadPoolExecutor(8) as threads:

            def make(one: tf.Variable) -> bool:
                try:
                    session.run(one.initializer)
                except ResourceExhaustedError:
                    return False
                return True

            made = [*threads.map(make, variables)]
            assert sum(made) == 9
            present = session.run([tf.is_variable_initialized(one) for one in variables])
            assert [*map(bool, present)] == made


def test_what_a_user_has_counts_in_all_their_sessions_and_in_no_other(
    tokens: dict[str, TokenId],
) -> None:
    with started("user=100KiB") as (_, worker):
        first, second, of_bob = variable("first", 60), variable("second", 50), variable("bob", 90)
        with as_user(tokens["ann"]):
            with tf.Session(worker.target) as session:
                session.run(first.initializer)
            with (
                tf.Session(worker.target) as session,
                pytest.raises(ResourceExhaustedError, match="the quota of user ann, which has 60"),
            ):
                session.run(second.initializer)
        with as_user(tokens["bob"]), tf.Session(worker.target) as session:
            session.run(of_bob.initializer)


def test_a_queue_that_grows_past_a_quota_refuses_elements_until_some_are_taken() -> None:
    with started("session=200KiB") as (_, worker), tf.Session(worker.target) as session:
        with tf.device(PS):
            queue = tf.FIFOQueue(-1, ["float32"], [(256 * 10,)], shared_name="q")
        put, take = queue.enqueue(np.zeros(256 * 10, np.float32)), queue.dequeue()
        for _ in range(20):
            session.run(put)
        for _ in range(3):
            with pytest.raises(ResourceExhaustedError, match="has 200 KiB of 200 KiB"):
                session.run(put)
        assert session.run(queue.size()) == 20
        session.run(take)
        session.run(put)
        assert session.run(queue.size()) == 20
        for _ in range(20):
            session.run(take)
        session.run(variable("v", 60).initializer)


def test_elements_that_a_waiting_dequeue_has_taken_count_and_so_do_those_that_it_returns() -> None:
    with started("session=200KiB") as (_, worker), tf.Session(worker.target) as session:
        with tf.device(PS):
            queue = tf.FIFOQueue(-1, ["float32"], [(256 * 10,)], shared_name="q")
        put, take = queue.enqueue(np.zeros(256 * 10, np.float32)), queue.dequeue_many(100)
        with ThreadPoolExecutor(1) as threads:
            options = tf.RunOptions(timeout_in_ms=60_000)
            taken = threads.submit(session.run, take, options=options)
            try:
                for _ in range(20):
                    session.run(put)
                with pytest.raises(ResourceExhaustedError, match="has 200 KiB of 200 KiB"):
                    session.run(put)
            finally:
                session.run(queue.close())
            with pytest.raises(OutOfRangeError):
                taken.result()
        assert session.run(queue.size()) == 20
        with pytest.raises(ResourceExhaustedError, match="has 200 KiB of 200 KiB"):
            session.run(variable("v", 10).initializer)


def test_a_checkpoint_that_is_too_much_for_a_container_is_not_restored(tmp_path: Path) -> None:
    first, second = variable("first", 30), variable("second", 30)
    saver = tf.train.Saver([first, second])
    prefix = str(tmp_path / "model")
    with started("") as (_, worker), tf.Session(worker.target) as session:
        session.run([first.initializer, second.initializer])
        saver.save(session, prefix)
    with started("container=50KiB") as (_, worker), tf.Session(worker.target) as session:
        with pytest.raises(ResourceExhaustedError, match="quota of container ''"):
            saver.restore(session, prefix)
        present = session.run([tf.is_variable_initialized(one) for one in (first, second)])
        assert not any(present)
        tf.train.Saver([first]).restore(session, prefix)


def test_a_session_with_too_many_steps_is_refused_and_goes_on_with_those_that_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(step_usage, "STEPS", Quotas(session=3))
    with started("") as (_, worker), tf.Session(worker.target) as session:
        with tf.device(PS):
            steps = [tf.Variable(0.0, name="a").initializer]
            steps += [tf.constant(float(i)) * 2 for i in range(4)]
        for step in steps[:3]:
            session.run(step)
        for _ in range(2):
            with pytest.raises(ResourceExhaustedError, match=r"registered steps .* has 3 of 3 \("):
                session.run(steps[3])
        assert session.run(steps[2]) == 2.0
        with tf.Session(worker.target) as other:
            assert other.run(steps[3]) == 4.0


def test_a_program_that_no_memory_holds_is_refused_when_the_step_is_made() -> None:
    with tf.device(PS):
        large = tf.fill([1 << 30, 64], 1.0)
        total = large[0, 0]
    with started("") as (_, worker), tf.Session(worker.target) as session:
        with pytest.raises(ResourceExhaustedError, match="needs 256 GiB on /job:ps/task:0/device:"):
            session.run(large)
        assert session.run(total) == 1.0  # XLA computes the one element


def test_usage_is_listed_by_session_user_and_container(
    tokens: dict[str, TokenId], capsys: pytest.CaptureFixture[str]
) -> None:
    with started("") as (_, worker):
        with as_user(tokens["ann"]), tf.Session(worker.target) as session:
            with tf.container("box"):
                boxed = variable("boxed", 20)
            session.run([variable("v", 10).initializer, boxed.initializer])
            on_ps = [row for row in usage(capsys, worker.target) if row[0].startswith(PS)]
            text = "\n".join("  ".join(row) for row in on_ps)
            for expected in ("20 KiB", "10 KiB", "box", "ann"):
                assert expected in text
            by_user = usage(capsys, worker.target, "--by", "user")
            assert "  ".join(by_user[0]).split()[:4] == ["ann", "30", "KiB", "1"]
            by_container = usage(capsys, worker.target, "--by", "container")
            assert [row[0] for row in by_container][:2] == ["box", "(default)"]
        by_session = usage(capsys, worker.target, "--by", "session")
        assert "30 KiB" in "  ".join(by_session[0])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Quotas(900, 900, 900, 450)),
        ("user=25%", Quotas(900, 900, 900, 250)),
        ("session=2KiB, task=1MiB", Quotas(1 << 20, 900, 2048, 450)),
        ("container=12", Quotas(900, 12, 900, 450)),
    ],
)
def test_quotas_are_parts_of_the_memory_or_bytes(text: str, expected: Quotas) -> None:
    assert quotas_of(1000, {"JFLOW_QUOTAS": text}) == expected


def test_without_known_memory_nothing_is_bounded_and_parts_of_it_are_refused() -> None:
    assert quotas_of(0, {}) == Quotas()
    assert quotas_of(100, {"JFLOW_DEVICE_MEMORY": "100"}) == Quotas(100, 100, 100, 50)
    with pytest.raises(InvalidArgumentError, match="which is not known"):
        quotas_of(0, {"JFLOW_QUOTAS": "user=10%"})


@pytest.mark.parametrize("text", ["user", "user=", "user=0%", "user=101%", "user=x%", "disk=1GiB"])
def test_malformed_quotas_are_refused_with_what_is_expected(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="JFLOW_QUOTAS"):
        quotas_of(1000, {"JFLOW_QUOTAS": text})


def test_variables_of_unknown_sizes_are_refused_once_a_quota_is_full() -> None:
    size = tf.placeholder("int32", [])
    with tf.device(PS):
        several = [
            tf.Variable(tf.zeros(tf.stack([size])), validate_shape=False, name=f"v{i}")
            for i in range(3)
        ]
        keys = tf.get_variable("keys", initializer=tf.zeros([64 * 256]), validate_shape=False)
    with started("session=100KiB") as (server, worker), tf.Session(worker.target) as session:
        session.run(several[0].initializer, {size: 60 * 256})
        session.run(several[1].initializer, {size: 40 * 256})
        for one in (several[2], keys):
            with pytest.raises(ResourceExhaustedError, match="has 100 KiB of 100 KiB"):
                session.run(one.initializer, {size: 1})
        tf.Session.reset(worker.target)
        assert server.worker.containers.usage.accounts() == {}

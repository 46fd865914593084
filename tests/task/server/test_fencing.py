"""Claims: a program that another one has replaced changes nothing on any task of the cluster."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import jflow as tf
from jflow.compiler.graph import owners
from jflow.errors import FencedError, ResourceExhaustedError
from jflow.state.core import claiming
from jflow.state.fencing import MAX_NAMES, Claim
from jflow.task.server.loop import SERVERS
from jflow.testing import start_servers, wait_until

NAME = "a training run"


class Program:
    """A program that counts on two tasks."""

    def __init__(self, server: tf.train.Server, epoch: int | None = 0) -> None:
        self.connection = tf.Connection(server.target)
        self.epoch = None if epoch is None else self.connection.claim(NAME, epoch)
        with owners.owned_by(self.connection):
            self.counts = []
            for job in ("ps", "worker"):
                with tf.device(f"/job:{job}/task:0"):
                    self.counts.append(tf.Variable(np.int32(0), name=f"count_of_{job}"))

        @tf.function
        def count() -> None:
            for one in self.counts:
                one.assign_add(1)

        self._count = count

    def count(self) -> None:
        with owners.owned_by(self.connection):
            self._count()

    def take(self) -> None:
        """Waits for an element of a queue on the parameter server that never comes."""
        with owners.owned_by(self.connection), tf.device("/job:ps/task:0"):
            tf.FIFOQueue(1, [tf.float32], [()], shared_name="empty").dequeue()

    def values(self) -> list[int]:
        with owners.owned_by(self.connection):
            return [int(one.value()) for one in self.counts]

    def save(self, path: Path) -> None:
        with owners.owned_by(self.connection):
            tf.checkpoint.save(str(path), {one.name: one for one in self.counts})

    def restore(self, path: Path) -> None:
        with owners.owned_by(self.connection):
            tf.checkpoint.restore(str(path), {one.name: one for one in self.counts})


@pytest.fixture
def servers() -> Iterator[list[tf.train.Server]]:
    with ExitStack() as stack:
        yield start_servers(stack.enter_context, {"ps": 1, "worker": 1})


@pytest.fixture
def old(servers: list[tf.train.Server]) -> Iterator[Program]:
    with (program := Program(servers[1])).connection:
        yield program


@pytest.fixture
def new(old: Program, servers: list[tf.train.Server]) -> Iterator[Program]:
    """The program that takes over, on another server."""
    old.count()
    with (program := Program(servers[0])).connection:
        yield program


def refused(function: object, *args: object) -> None:
    with pytest.raises(FencedError, match="another program has claimed"):
        function(*args)  # type: ignore[operator]


def test_a_claim_that_is_fenced_off_is_an_event_on_each_task(
    old: Program, servers: list[tf.train.Server], caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.INFO, "jflow"),
        ThreadPoolExecutor(1) as threads,
    ):
        stuck = threads.submit(old.take)
        claims = servers[0].worker.claims
        wait_until(lambda: claims.n_running, "the old program to wait")
        with (new := Program(servers[0])).connection:
            refused(stuck.result)
    told = [one.fields for one in caplog.records if one.msg == "claim_fenced"]
    epochs = {"epoch": f"{old.epoch:x}", "by": f"{new.epoch:x}"}
    expected = [{"claim": NAME, **epochs, "n_steps": n} for n in (0, 1)]
    assert sorted(told, key=lambda fields: fields["n_steps"]) == expected


def test_a_session_claims_a_bounded_number_of_names(
    servers: list[tf.train.Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claiming, "MAX_NAMES", 3)
    with tf.connect(servers[1].target) as connection:
        for name in ("a", "b", "c", "a"):
            connection.claim(name)
        with pytest.raises(ResourceExhaustedError, match=r"3 names, .* cannot claim 'd'"):
            connection.claim("d")
        connection.claim("b")
    with tf.connect(servers[1].target) as connection:
        connection.claim("d")


def test_a_program_that_was_replaced_changes_nothing_on_any_task(
    old: Program, new: Program
) -> None:
    for _ in range(2):
        refused(old.count)
    new.count()
    refused(old.count)
    assert new.values() == [2, 2]
    assert new.epoch > old.epoch


def test_it_cannot_claim_again_what_it_had(
    old: Program, new: Program, servers: list[tf.train.Server]
) -> None:
    refused(old.connection.claim, NAME, old.epoch)
    for server in servers:
        with tf.Connection(server.target) as another:
            refused(another.claim, NAME, old.epoch)


def test_another_connection_of_the_program_shares_its_claim(
    old: Program, new: Program, servers: list[tf.train.Server]
) -> None:
    with (second := Program(servers[1], new.epoch)).connection:
        assert second.epoch == new.epoch
        second.count()
        new.count()
        assert new.values() == [3, 3]


def test_programs_without_the_claim_and_of_other_names_go_on(
    old: Program, new: Program, servers: list[tf.train.Server]
) -> None:
    with (program := Program(servers[1], None)).connection:
        program.count()
        program.connection.claim("another run")
        program.count()
        assert program.values() == [3, 3]


def test_what_runs_when_another_program_claims_the_name_ends(
    old: Program, servers: list[tf.train.Server]
) -> None:
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(old.take)
        wait_until(lambda: servers[0].worker.claims.n_running, "the step to run")
        with (new := Program(servers[0])).connection:
            assert not servers[0].worker.claims.n_running, "it had ended when the claim was granted"
            with pytest.raises(FencedError):
                waiting.result()
            new.count()


def test_a_replaced_program_saves_and_restores_nothing(
    old: Program, new: Program, tmp_path: Path
) -> None:
    path = tmp_path / "model"
    new.save(path)
    new.count()
    refused(old.save, path)
    refused(old.restore, path)
    assert new.values() == [2, 2]
    new.restore(path)
    assert new.values() == [1, 1]


def test_a_task_that_was_down_hears_of_a_claim_with_the_first_call_under_it(
    old: Program, servers: list[tf.train.Server]
) -> None:
    ps, worker = servers
    spec = ps.cluster_spec
    ps.stop()
    with tf.Connection(worker.target) as connection:
        epoch = connection.claim(NAME)
        with tf.train.Server(spec, "ps", 0), (new := Program(worker, epoch)).connection:
            new.count()
            with tf.Connection(f"grpc://{spec.task_address('ps', 0)}") as late:
                refused(late.claim, NAME, old.epoch)


def test_a_thousand_claims_of_others_keep_no_program_from_a_new_name(
    old: Program, servers: list[tf.train.Server]
) -> None:
    for number in range(MAX_NAMES + 10):
        claim = Claim(f"name {number}", 1 << 32)
        for server in servers:
            SERVERS.run_coroutine(server.worker.claims.learn(claim.name, claim.epoch))
    with tf.Connection(servers[0].target) as another:
        assert another.claim("a new name") > 1 << 32
    old.count()
    assert old.values() == [1, 1], "a claim that is in use is not forgotten"


def test_a_claim_outlives_all_tasks_in_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "model"
    with ExitStack() as stack:
        first = start_servers(stack.enter_context, {"ps": 1, "worker": 1})
        with (program := Program(first[1])).connection:
            program.count()
            program.save(path)
    with ExitStack() as stack:
        servers = start_servers(stack.enter_context, {"ps": 1, "worker": 1})
        with (late := Program(servers[1], program.epoch - 1)).connection:
            late.count()  # nothing here has heard of a later claim
            refused(late.restore, path)
            refused(late.count)
        with (program := Program(servers[1], program.epoch)).connection:
            program.restore(path)
            assert program.values() == [1, 1]


def test_a_program_that_is_started_on_a_new_cluster_restores_what_a_claimer_saved(
    tmp_path: Path,
) -> None:
    path = tmp_path / "model"
    with ExitStack() as stack:
        servers = start_servers(stack.enter_context, {"ps": 1, "worker": 1})
        with tf.Connection(servers[1].target) as former:
            former.claim(NAME)
        with (program := Program(servers[1])).connection:
            program.count()
            program.save(path)
    later = time.time() + 2  # two claims in one second count as two seconds
    wait_until(lambda: time.time() > later, "the clock to pass the claims")
    with ExitStack() as stack:
        servers = start_servers(stack.enter_context, {"ps": 1, "worker": 1})
        with (program := Program(servers[1])).connection:
            program.restore(path)
            assert program.values() == [1, 1]


def test_a_local_connection_has_claims_too() -> None:
    with tf.Connection() as connection:
        epoch = connection.claim(NAME)
        assert connection.claim(NAME, epoch) == epoch
        with pytest.raises(tf.errors.InvalidArgumentError, match="a name of 1 to"):
            connection.claim("")


def test_a_connection_that_was_lost_is_under_its_claim_again(
    old: Program, new: Program, servers: list[tf.train.Server]
) -> None:
    """The stream of the old program breaks, and it connects again before it acts."""
    client = old.connection._backend._client
    client._lose("a test")
    client._channel.close()
    refused(old.count)

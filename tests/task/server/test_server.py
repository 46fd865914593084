"""Servers: starting, stopping, which callers they accept, and what they answer."""

from __future__ import annotations

import gc
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import jflow as tf
from jflow.task.server.loop import exempt_from_collection
from jflow.testing import PATIENCE_S
from tests.clusters import start_servers
from tests.ports import free_hosts


@pytest.fixture
def servers() -> Iterator[list[tf.train.Server]]:
    with ExitStack() as stack:
        yield start_servers(stack.enter_context, {"ps": 1, "worker": 2})


def test_the_counter_of_the_books_counts_through_two_servers(
    servers: list[tf.train.Server],
) -> None:
    x = tf.Variable(0.0, name="x")
    increment = tf.assign(x, x + 1)
    with tf.Session(servers[1].target) as session:
        session.run(x.initializer)
        session.run(increment)
        assert x.eval() == 1.0
    with tf.Session(servers[2].target) as session:
        session.run(increment)
        assert x.eval() == 2.0


def test_an_unpinned_variable_lives_on_the_parameter_server(
    servers: list[tf.train.Server],
) -> None:
    x = tf.Variable(0.0, name="x")
    with tf.Session(servers[1].target) as session:
        session.run(x.initializer)
        where = session.placement(x + 1.0)
    (found,) = servers[0].worker.containers.variables()
    assert (found.container, found.name) == ("", "x")
    assert {op.name: str(device.task) for op, device in where.items()} == {
        "x/read": "/job:ps/task:0",
        "add": "/job:worker/task:0",
    }


def test_an_update_leaves_the_buffer_where_it_is(servers: list[tf.train.Server]) -> None:
    with tf.device("/job:ps/task:0"):
        table = tf.Variable(np.zeros((1000, 16), np.float32), name="table")
    step = tf.group(table.assign_add(np.ones((1000, 16), np.float32)))
    containers = servers[0].worker.containers

    def address() -> int:
        (variable,) = containers._variables.values()
        return variable.buffer.array.unsafe_buffer_pointer()

    with tf.Session(servers[1].target) as session:
        session.run(table.initializer)
        before = address()
        for _ in range(3):
            session.run(step)
            assert session.run(table).shape == (1000, 16)
        assert address() == before
        assert session.run(table).min() == 3.0


def test_variables_keep_their_buffers_if_they_are_written_in_another_order_than_read(
    servers: list[tf.train.Server],
) -> None:
    with tf.device("/job:ps/task:0"):
        first, second = (tf.Variable(np.zeros((1000, 16), np.float32), name=name) for name in "ab")
        total = first + 2 * second
        with tf.control_dependencies([second.assign(total + 1)]):
            step = tf.group(first.assign(total))
    containers = servers[0].worker.containers

    def addresses() -> dict[str, int]:
        return {
            key.name: variable.buffer.array.unsafe_buffer_pointer()
            for key, variable in containers._variables.items()
        }

    with tf.Session(servers[1].target) as session:
        session.run(tf.global_variables_initializer())
        before = addresses()
        session.run(step)
        assert addresses() == before
        assert [value[0, 0] for value in session.run([first, second])] == [0.0, 1.0]


def test_a_program_of_two_clients_is_compiled_once(servers: list[tf.train.Server]) -> None:
    def run(which: int) -> None:
        with tf.Graph().as_default() as graph, tf.device("/job:ps/task:0"):
            x = tf.placeholder(tf.float32, (3, 3))
            y = tf.numpy.dot(tf.nn.softmax(x), x)
            with tf.Session(servers[which].target, graph=graph) as session:
                session.run(y, {x: np.eye(3)})

    run(1)
    compiled = servers[0].worker.programs.n_compiled
    assert compiled == 1
    run(2)
    assert servers[0].worker.programs.n_compiled == compiled


def test_each_server_has_an_incarnation_of_its_own(servers: list[tf.train.Server]) -> None:
    assert len({server.incarnation for server in servers}) == 3


def test_join_returns_when_the_server_is_stopped() -> None:
    server = tf.train.Server({"local": ["127.0.0.1:0"]})
    joined = threading.Thread(target=server.join, daemon=True)
    joined.start()
    assert joined.is_alive()
    server.stop()
    server.stop()
    joined.join(PATIENCE_S)
    assert not joined.is_alive()


def test_a_stopped_server_frees_its_port() -> None:
    server = tf.train.Server({"local": ["127.0.0.1:0"]})
    spec = server.cluster_spec
    server.stop()
    with tf.train.Server(spec) as again:
        assert again.target == server.target


def test_a_port_in_use_is_an_error_that_names_it() -> None:
    with tf.train.Server({"local": ["127.0.0.1:0"]}) as server:
        address = server.target.removeprefix("grpc://")
        with pytest.raises(tf.errors.UnknownError, match=address):
            tf.train.Server({"local": [address]})


def test_a_server_listens_on_the_loopback_interface_only() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="JFLOW_INSECURE"):
        tf.train.Server({"local": ["0.0.0.0:0"]})


def test_an_address_without_a_loopback_needs_consent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JFLOW_INSECURE", "1")
    with tf.train.Server({"local": ["0.0.0.0:0"]}) as server:
        assert server.target.startswith("grpc://0.0.0.0:")


def test_tasks_without_ports_reach_each_other_at_port_2222() -> None:
    first, second = free_hosts(2)
    cluster = {"ps": [first], "worker": [f"grpc://{second}"]}
    with tf.train.Server(cluster, "ps"), tf.train.Server(cluster, "worker") as worker:
        assert worker.target == f"grpc://{second}:2222"
        with tf.device("/job:ps"):
            x = tf.Variable(3.0, name="x")
        with tf.Session(f"grpc://{second}") as session:
            session.run(x.initializer)
            assert session.run(x + 1.0) == 4.0


def test_tf_config_is_not_read_where_the_task_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", "{")
    with tf.train.Server({"a": ["127.0.0.1:0"], "b": ["127.0.0.1:0"]}, "b", 0) as server:
        assert "/job:b/task:0" in repr(server)


def test_a_role_of_tf_config_that_the_cluster_does_not_have_is_said_to_come_from_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = {"cluster": {"worker": ["a:1"]}, "task": {"type": "chief", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    words = r'TF_CONFIG\["task"\] says job \'chief\', which is not in the cluster'
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        tf.train.Server(config["cluster"])


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (({"a": ["h:1"], "b": ["h:2"]},), ValueError, "job_name must be given"),
        (({"a": ["h:1", "h:2"]}, "a"), ValueError, "task_index must be given"),
        (({"a": ["h:1"]}, "a", 3), tf.errors.InvalidArgumentError, "/job:a/task:3, which is not"),
        (({"a": ["h:1"]}, "b", 0), tf.errors.InvalidArgumentError, "job 'b', which is not in"),
        (({"a": ["h:1"]}, "b"), tf.errors.InvalidArgumentError, "it has the jobs"),
        (({"a": ["h:1"]}, "a", 0, "carrier pigeon"), tf.errors.NotFoundError, "protocol"),
        (({"a": ["h:1"]}, "a", "0"), TypeError, "task_index must be of type int, got '0'"),
        (({"a": ["h:1"]}, 0), TypeError, "job_name must be of type str, got 0"),
        ((["h:1"],), TypeError, "dict of lists"),
    ],
)
def test_a_server_says_what_is_wrong_with_its_arguments(
    arguments: tuple[object, ...], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        tf.train.Server(*arguments)


def test_tf_config_tells_which_task_a_server_is(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {
        "cluster": {"ps": ["127.0.0.1:0"], "worker": ["127.0.0.1:0", "127.0.0.1:0"]},
        "task": {"type": "worker", "index": 1},
    }
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    with tf.train.Server(config["cluster"]) as server:
        assert "/job:worker/task:1" in repr(server)


def test_a_wrong_token_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    a = tf.constant(1.0)
    with tf.train.Server({"local": ["127.0.0.1:0"]}) as server:
        monkeypatch.setenv("JFLOW_TOKEN", "another token than theirs")
        with tf.Session(server.target) as session:
            with pytest.raises(tf.errors.UnauthenticatedError, match="token"):
                session.run(a)
            monkeypatch.delenv("JFLOW_TOKEN")
            assert session.run(a) == 1.0


def test_the_token_is_made_at_first_use_and_found_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    a = tf.constant(1.0)
    with (
        tf.train.Server({"local": ["127.0.0.1:0"]}) as server,
        tf.Session(server.target) as session,
    ):
        assert session.run(a) == 1.0
    token = tmp_path / ".jflow" / "token"
    assert os.stat(token).st_mode & 0o777 == 0o600


def test_a_server_that_is_not_there_is_waited_for_until_the_deadline() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        a = tf.constant(1.0)
        config = tf.ConfigProto(connect_timeout_in_ms=300)
        with (
            tf.Session(f"grpc://{address}", config=config) as session,
            pytest.raises(
                tf.errors.UnavailableError, match=f"no answer in 300 ms while .* {address}"
            ),
        ):
            session.run(a)


def test_a_server_that_starts_late_is_found() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
    a = tf.constant(1.0)
    with tf.Session(f"grpc://{address}") as session:
        got: list[object] = []
        waiting = threading.Thread(target=lambda: got.append(session.run(a)))
        waiting.start()
        with tf.train.Server({"local": [address]}):
            waiting.join(PATIENCE_S)
            assert got == [1.0]


def test_a_step_waits_only_for_the_tasks_it_needs() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        dead = f"127.0.0.1:{unused.getsockname()[1]}"
        with tf.train.Server({"worker": ["127.0.0.1:0"], "zeta": [dead]}, "worker", 0) as server:
            a = tf.constant(1.0)
            with tf.device("/job:zeta/task:0"):
                b = a + 1
            config = tf.ConfigProto(connect_timeout_in_ms=300)
            with tf.Session(server.target, config=config) as session:
                assert session.run(a) == 1.0
                with pytest.raises(tf.errors.UnavailableError, match=r"/job:zeta/task:0 at.*") as e:
                    session.run(b)
                assert e.value.task == "/job:zeta/task:0"
                assert session.run(a + 3) == 4.0
                assert len({d.name.split("/")[1] for d in session.list_devices()}) == 1


@pytest.mark.parametrize("target", ["http://h:1", "ps", "grpc:/h"])
def test_other_targets_are_not_found(target: str) -> None:
    with pytest.raises(tf.errors.NotFoundError, match="No session factory"):
        tf.Session(target)
    with pytest.raises(tf.errors.NotFoundError, match="No session factory"):
        tf.Session.reset(target)


def test_arguments_of_the_wrong_type_are_type_errors() -> None:
    for arguments in ({"target": 3}, {"graph": "g"}, {"config": {}}):
        with pytest.raises(TypeError):
            tf.Session(**arguments)


def test_a_process_that_only_serves_keeps_what_it_has_imported_out_of_collections() -> None:
    exempt_from_collection()
    try:
        assert len(gc.get_objects()) < gc.get_freeze_count() / 10
    finally:
        gc.unfreeze()

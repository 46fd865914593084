"""Definitions of servers, their options for sessions, device filters and isolated sessions."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

import jflow as tf
from jflow.base.cluster import ClusterDeviceFilters
from jflow.base.options import SessionDefaults
from jflow.cli.main import main
from jflow.plan import owner_of
from jflow.testing import PATIENCE_S, ProcessCluster, ProgramProcess, wait_until
from tests.clusters import start_servers
from tests.state.moves.placing import all_on

ISOLATED = tf.ConfigProto(isolate_session_state=True)


@pytest.fixture
def servers() -> Iterator[list[tf.train.Server]]:
    with ExitStack() as stack:
        yield start_servers(stack.enter_context, {"ps": 1, "worker": 2})


@pytest.fixture
def dead() -> Iterator[str]:
    """An address at which nothing answers, and which nothing takes meanwhile."""
    with closing(socket.socket()) as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{unused.getsockname()[1]}"


def tasks_of(session: tf.Session) -> set[str]:
    return {device.name.rpartition("/")[0] for device in session.list_devices()}


# Definitions -----------------------------------------------------------------------------------


def test_a_local_server_is_a_cluster_of_one_task_at_a_free_port() -> None:
    with tf.train.Server.create_local_server() as one, tf.train.Server.create_local_server() as two:
        assert one.cluster_spec.jobs == ["local"]
        assert one.target != two.target
        with tf.Session(one.target) as session:
            assert session.run(tf.constant(1.0) + 2) == 3.0
            assert tasks_of(session) == {"/job:local/task:0"}
    server = tf.train.Server.create_local_server(start=False)
    with pytest.raises(RuntimeError, match="not running"):
        _ = server.incarnation


def test_a_definition_makes_the_server_that_it_came_from() -> None:
    with tf.train.Server({"ps": ["127.0.0.1:0"], "worker": ["127.0.0.1:1"]}, "ps", 0) as server:
        made = server.server_def
        assert (made.job_name, made.task_index, made.protocol) == ("ps", 0, "grpc")
        assert tf.train.ClusterSpec(made.cluster) == server.cluster_spec
    with tf.train.Server(made) as again:
        assert again.target == server.target
        assert again.server_def == made
    other = tf.train.Server(made, job_name="worker", task_index=0, start=False)
    assert other.server_def.job_name == "worker"


def test_a_definition_without_a_task_has_the_only_one() -> None:
    cluster = tf.train.ClusterDef()
    cluster.job.add(name="worker").tasks[0] = "127.0.0.1:0"
    with tf.train.Server(tf.train.ServerDef(cluster=cluster)) as server:
        assert repr(server).startswith("<jflow.train.Server /job:worker/task:0 at grpc://")


def test_tasks_that_know_different_parts_of_a_cluster_share_what_both_know() -> None:
    with tf.train.Server({"ps": ["127.0.0.1:0"]}) as ps:
        shared = {"ps": [ps.target.removeprefix("grpc://")]}
        first = {**shared, "worker": {0: "127.0.0.1:0"}}
        second = {**shared, "worker": {7: "127.0.0.1:0"}}
        with (
            tf.train.Server(first, "worker", 0) as one,
            tf.train.Server(second, "worker", 7) as other,
        ):
            x = tf.Variable(1.0, name="x")
            with tf.device("/job:worker/task:7"):
                there = x + 1
            with tf.Session(one.target) as session:
                session.run(x.initializer)
                session.run(tf.assign_add(x, 1.0))
                with pytest.raises(tf.errors.InvalidArgumentError, match=r"available are .*task:0"):
                    session.run(there)
            with tf.Session(other.target) as session:
                assert tasks_of(session) == {"/job:ps/task:0", "/job:worker/task:7"}
                assert session.run(there) == 3.0


# Options of sessions ---------------------------------------------------------------------------


def test_a_server_has_options_for_sessions_without_their_own() -> None:
    config = tf.ConfigProto(allow_soft_placement=True)
    with tf.train.Server({"worker": ["127.0.0.1:0"]}, config=config) as server:
        with tf.device("/gpu:0"):
            soft = tf.constant(1.0) + 1
        with tf.Session(server.target) as session:
            assert session.run(soft) == 2.0


def test_the_time_limit_of_a_server_holds_from_the_first_call_and_a_session_s_own_wins() -> None:
    config = tf.ConfigProto(operation_timeout_in_ms=200)
    with tf.train.Server.create_local_server(config) as server:
        queue = tf.FIFOQueue(1, tf.float32)
        for own, words in (
            (None, "200 ms"),
            (tf.ConfigProto(operation_timeout_in_ms=300), "300 ms"),
        ):
            late = pytest.raises(tf.errors.DeadlineExceededError, match=f"timeout of {words}")
            with tf.Session(server.target, config=own) as session, late:
                session.run(queue.dequeue())


def test_a_server_cannot_send_a_function_and_takes_no_other_config() -> None:
    for placement in (lambda *_: {}, "os:system"):
        config = tf.ConfigProto(placement=placement)
        with pytest.raises(tf.errors.InvalidArgumentError, match="name of a strategy"):
            tf.train.Server({"worker": ["127.0.0.1:0"]}, config=config)
    with pytest.raises(TypeError, match="config must be a ConfigProto, got dict"):
        tf.train.Server({"worker": ["127.0.0.1:0"]}, config={})  # type: ignore[arg-type]


def test_a_client_imports_nothing_because_a_server_says_so() -> None:
    told = SessionDefaults(placement="os:system")
    with pytest.raises(tf.errors.InvalidArgumentError, match="got 'os:system'"):
        told.fill(tf.ConfigProto())


# Device filters --------------------------------------------------------------------------------


def test_a_session_with_device_filters_sees_what_matches_and_its_own_server(
    servers: list[tf.train.Server],
) -> None:
    config = tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:1/device:CPU:0"])
    with tf.device("/job:worker/task:1"):
        on_1 = tf.constant(1.0) + 1
    with tf.device("/job:worker/task:1/cpu:1"):
        on_1_1 = tf.constant(1.0) + 1
    with tf.Session(servers[1].target, config=config) as session:
        names = [device.name for device in session.list_devices()]
        assert [name for name in names if "worker/task:1" in name] == [
            "/job:worker/task:1/device:CPU:0"
        ]
        assert {name.rpartition("/")[0] for name in names} == {
            *("/job:ps/task:0", "/job:worker/task:0", "/job:worker/task:1")
        }
        assert session.run(on_1) == 2.0
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"task:1/device:CPU:0'\]"):
            session.run(on_1_1)
    with tf.Session(
        servers[2].target, config=tf.ConfigProto(device_filters=["/job:ps"])
    ) as session:
        assert tasks_of(session) == {"/job:ps/task:0", "/job:worker/task:1"}
        assert session.run(on_1) == 2.0  # its own server


def test_an_operation_on_a_filtered_device_is_refused_with_those_that_are_there(
    servers: list[tf.train.Server],
) -> None:
    with tf.device("/job:worker/task:1"):
        elsewhere = tf.constant(1.0) + 1
    config = tf.ConfigProto(device_filters=["/job:ps"])
    with tf.Session(servers[1].target, config=config) as session:
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"available are \[.*worker/task:0"
        ):
            session.run(elsewhere)
        assert session.run(tf.constant(2.0)) == 2.0


def test_soft_placement_does_not_leave_the_filtered_devices_of_a_task(
    servers: list[tf.train.Server],
) -> None:
    with tf.device("/job:ps/task:0/cpu:0"):
        there = tf.constant(1.0) + 1
    for filters, fits in ((["/job:ps/cpu:1"], True), (["/job:ps/gpu:0"], False)):
        config = tf.ConfigProto(device_filters=filters, allow_soft_placement=True)
        with tf.Session(servers[1].target, config=config) as session:
            if fits:
                assert session.run(there) == 2.0
            else:
                with pytest.raises(tf.errors.InvalidArgumentError, match="Cannot assign a device"):
                    session.run(there)


def test_nothing_waits_for_a_task_that_is_filtered_out(dead: str) -> None:
    cluster = {"ps": [dead], "worker": ["127.0.0.1:0"]}
    x = tf.Variable(1.0)
    config = tf.ConfigProto(device_filters=["/job:worker"])
    with tf.train.Server(cluster, "worker", 0) as server:
        with tf.Session(server.target, config=config) as session:
            session.run(x.initializer)  # on a parameter server otherwise
            assert session.run(x) == 1.0
        tf.Session.reset(server.target, config=config)
        hasty = tf.ConfigProto(connect_timeout_in_ms=200)
        with pytest.raises(tf.errors.UnavailableError, match="/job:ps/task:0"):
            tf.Session.reset(server.target, config=hasty)


def test_a_reset_with_filters_frees_what_they_leave(servers: list[tf.train.Server]) -> None:
    with tf.device("/job:ps/task:0"):
        kept = tf.Variable(1.0, name="kept")
    with tf.device("/job:worker/task:1"):
        freed = tf.Variable(2.0, name="freed")
    with tf.Session(servers[1].target) as session:
        session.run([kept.initializer, freed.initializer])
    config = tf.ConfigProto(device_filters=["/job:worker"])
    tf.Session.reset(servers[1].target, config=config)
    with tf.Session(servers[1].target) as session:
        assert session.run(kept) == 1.0
        with pytest.raises(tf.errors.FailedPreconditionError, match="freed"):
            session.run(freed)


@pytest.mark.parametrize(
    ("filters", "error", "words"),
    [
        ("/job:ps", TypeError, r"such as \['/job:ps'\]"),
        ([3], TypeError, "got 3"),
        (["ps:0"], tf.errors.InvalidArgumentError, "device_filters: 'ps:0' is not a device name"),
    ],
)
def test_a_filter_that_cannot_be_is_refused(
    filters: object, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        tf.ConfigProto(device_filters=filters)  # type: ignore[arg-type]


def test_a_server_with_filters_knows_the_tasks_that_they_leave(dead: str) -> None:
    filters = ClusterDeviceFilters()
    filters.set_device_filters("worker", 0, ["/job:ps"])
    cluster = {"ps": ["127.0.0.1:0"], "worker": ["127.0.0.1:0", dead]}
    with tf.train.Server(cluster, "ps", 0) as ps:
        known = {**cluster, "ps": [ps.target.removeprefix("grpc://")]}
        made = tf.train.ServerDef(
            tf.train.ClusterSpec(known).as_cluster_def(),
            "worker",
            0,
            cluster_device_filters=filters,
        )
        with tf.train.Server(made) as worker, tf.Session(worker.target) as session:
            assert tasks_of(session) == {"/job:ps/task:0", "/job:worker/task:0"}
            # A reset would have to reach all tasks that the server knows.
            tf.Session.reset(worker.target)
        other = tf.train.Server(known, "worker", 1, start=False)
        assert other.cluster_spec.num_tasks("worker") == 2


# Isolated sessions -----------------------------------------------------------------------------


def test_an_isolated_session_has_variables_of_its_own(servers: list[tf.train.Server]) -> None:
    x = tf.Variable(1.0, name="x")
    with tf.Graph().as_default():
        other = tf.Variable([1.0, 2.0], name="x")
        with tf.Session(servers[1].target, config=ISOLATED) as one:
            one.run(other.initializer)
            one.run(tf.assign_add(other, [1.0, 1.0]))
            unset = pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized")
            with tf.Session(servers[2].target, config=ISOLATED) as two, unset:
                two.run(other)
            with tf.Session(servers[1].target, graph=x.graph) as shared:
                shared.run(x.initializer)  # of another shape
                assert shared.run(x) == 1.0
            assert one.run(other).tolist() == [2.0, 3.0]
    with tf.Session(servers[2].target, graph=x.graph) as shared:
        assert shared.run(x) == 1.0


def test_isolated_sessions_of_two_processes_have_nothing_in_common(
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = "tests.programs.isolated"
    x = tf.Variable(1.0, name="x")
    add = x.assign_add(1.0)

    def n_containers(target: str) -> int:
        assert main(["ls", "containers", target, "--json"]) == 0
        return len(json.loads(capsys.readouterr().out)["containers"])

    with ProcessCluster(ps=0, workers=1) as cluster:
        target = cluster.target()
        command = ["-m", program, target, "10"]
        with (
            tf.Session(target, config=ISOLATED) as session,
            ProgramProcess(command, zygote=cluster.zygote) as other,
        ):
            session.run(x.initializer)
            for n in (1.0, 2.0):
                other.write_line("")
                assert (float(other.read_line()), session.run(add)) == (10 + n, 1 + n)
            n_of_both = n_containers(target)
            other.kill()
            wait_until(lambda: n_containers(target) == n_of_both - 1, "its state to be freed")
            assert session.run(x) == 3.0


def test_queues_of_an_isolated_session_are_its_own_in_any_container(
    servers: list[tf.train.Server],
) -> None:
    with tf.container("ps"):  # another name of the default container of the ps
        queue = tf.FIFOQueue(3, tf.float32, shared_name="q")
    again = tf.FIFOQueue(3, tf.float32, shared_name="q")
    put = queue.enqueue(1.0)
    with tf.Session(servers[1].target, config=ISOLATED) as one:
        one.run(put)
        assert one.run([queue.size(), again.size()]) == [1, 1]
        with tf.Session(servers[1].target) as shared:
            assert shared.run(queue.size()) == 0


def test_the_state_of_an_isolated_session_goes_with_it(servers: list[tf.train.Server]) -> None:
    with tf.device("/job:ps/task:0"):
        x = tf.Variable(1.0, name="x")
        queue = tf.FIFOQueue(3, tf.float32, shared_name="q")
    containers = servers[0].worker.containers

    def own() -> list[str]:
        ids = (*containers.variables(), *containers.resources.cells())
        return [one.container for one in ids if owner_of(one.container)]

    with tf.Session(servers[1].target, config=ISOLATED) as session:
        session.run(x.initializer)
        session.run(queue.enqueue(1.0))
        assert len(own()) == 2
    wait_until(lambda: not own(), PATIENCE_S)


def test_an_isolated_session_saves_and_restores_what_is_its_own(
    servers: list[tf.train.Server], tmp_path: object
) -> None:
    with tf.device("/job:ps/task:0"):
        x = tf.Variable(1.0, name="x")
    saver = tf.train.Saver()
    with (
        tf.Session(servers[1].target) as shared,
        tf.Session(servers[1].target, config=ISOLATED) as s,
    ):
        shared.run(x.initializer)
        s.run(tf.assign(x, 5.0))
        path = saver.save(s, f"{tmp_path}/model")
        assert shared.run(x) == 1.0
    containers = servers[0].worker.containers
    with tf.Session(servers[2].target, config=ISOLATED) as session:
        saver.restore(session, path)
        assert session.run(x) == 5.0
    wait_until(lambda: {one.container for one in containers.variables()} == {""}, PATIENCE_S)
    with tf.Session(servers[2].target) as shared:
        assert shared.run(x) == 1.0


def test_the_state_of_an_isolated_session_does_not_move(servers: list[tf.train.Server]) -> None:
    x = tf.Variable(1.0, name="x")

    with tf.Session(servers[1].target, config=ISOLATED) as session:
        session.run(x.initializer)
        step = tf.assign_add(x, 1.0)
        for _ in range(3):
            session.run(step)
        with pytest.raises(tf.errors.UnimplementedError, match="isolate_session_state"):
            session.replace(all_on("worker/task:0"), min_gain=None)
        assert session.run(x) == 4.0


def test_a_server_may_isolate_all_of_its_sessions() -> None:
    with tf.train.Server.create_local_server(ISOLATED) as server:
        x = tf.Variable(1.0)
        with tf.Session(server.target) as one, tf.Session(server.target) as two:
            one.run(x.initializer)
            with pytest.raises(tf.errors.FailedPreconditionError):
                two.run(x)
        with tf.connect(server.target):
            assert tf.Variable(2.0, name="v").numpy() == 2.0
            with tf.connect(server.target):
                assert tf.Variable(7.0, name="v").numpy() == 7.0

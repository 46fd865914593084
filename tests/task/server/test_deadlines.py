"""One deadline a call: what it bounds, and which of two clocks ends a call that waits in vain."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import psutil
import pytest

import jflow as tf
from jflow.launch.testing.programs import pause_process
from jflow.testing import PATIENCE_S, ProcessCluster, start_servers, wait_until
from tests.clusters import BACKENDS, Backend

SHORT = tf.ConfigProto(operation_timeout_in_ms=50)
SOON_S = 25.0
"""Less than the connect timeout of 30 s that ends a call which does not look at its deadline."""

Use = Callable[[str, tf.ConfigProto], Any]


def run_in_session(target: str, config: tf.ConfigProto) -> None:
    with tf.Graph().as_default() as graph:
        a = tf.constant(1.0) + 1
        with tf.Session(target, graph, config) as session:
            session.run(a)


def run_with_options(target: str, config: tf.ConfigProto) -> None:
    milliseconds = config.operation_timeout_in_ms
    longer = tf.ConfigProto(100_000, config.connect_timeout_in_ms)
    with tf.Graph().as_default() as graph:
        a = tf.constant(1.0) + 1
        with tf.Session(target, graph, longer) as session:
            session.run(a, options=tf.RunOptions(timeout_in_ms=milliseconds))


def placement(target: str, config: tf.ConfigProto) -> None:
    with tf.Graph().as_default() as graph:
        a = tf.constant(1.0) + 1
        with tf.Session(target, graph, config) as session:
            session.placement(a)


def list_devices(target: str, config: tf.ConfigProto) -> None:
    with tf.Session(target, tf.Graph(), config) as session:
        session.list_devices()


def reset(target: str, config: tf.ConfigProto) -> None:
    tf.Session.reset(target, config=config)


def call_function(target: str, config: tf.ConfigProto) -> None:
    with tf.connect(target, config):
        tf.function(lambda x: x + 1)(1.0)


def list_devices_of_connection(target: str, config: tf.ConfigProto) -> None:
    with tf.connect(target, config) as connection:
        connection.list_devices()


def make_live_variable(target: str, config: tf.ConfigProto) -> None:
    with tf.connect(target, config):
        tf.Variable(1.0, name="live")


def put_into_queue(target: str, config: tf.ConfigProto) -> None:
    with tf.connect(target, config):
        tf.FIFOQueue(10, tf.int32, ()).put(1)


def get_with_timeout(target: str, config: tf.ConfigProto) -> None:
    longer = tf.ConfigProto(100_000, config.connect_timeout_in_ms)
    with tf.connect(target, longer):
        tf.FIFOQueue(10, tf.int32, ()).get(timeout=config.operation_timeout_in_ms / 1000)


def get_async(target: str, config: tf.ConfigProto) -> None:
    with tf.connect(target, config):
        asyncio.run(tf.FIFOQueue(10, tf.int32, ()).get_async())


USES: dict[str, Use] = {
    use.__name__: use
    for use in (
        run_in_session,
        run_with_options,
        placement,
        list_devices,
        reset,
        call_function,
        list_devices_of_connection,
        make_live_variable,
        put_into_queue,
        get_with_timeout,
        get_async,
    )
}


@contextmanager
def nothing_listens() -> Iterator[str]:
    """An address whose port is taken, so that no other program comes to listen there."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{unused.getsockname()[1]}"


@contextmanager
def never_answers() -> Iterator[str]:
    """The address of a listener that takes connections and says nothing on them."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield f"127.0.0.1:{silent.getsockname()[1]}"


SILENT = {"nothing listens": nothing_listens, "never answers": never_answers}


@pytest.fixture(params=SILENT)
def silent(request: pytest.FixtureRequest) -> Iterator[str]:
    with SILENT[request.param]() as address:
        yield address


@contextmanager
def in_short() -> Iterator[None]:
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < SOON_S


# The server of the target does not answer ---------------------------------------------------------


@pytest.mark.parametrize("use", USES)
def test_a_call_to_a_server_that_does_not_answer_ends_at_its_deadline(
    silent: str, use: str
) -> None:
    with in_short(), pytest.raises(tf.errors.DeadlineExceededError) as caught:
        USES[use](f"grpc://{silent}", SHORT)
    message = str(caught.value)
    assert "50 ms" in message, "what was waited is printed as it was given"
    assert f"connecting to the server at {silent}" in message


@pytest.mark.parametrize("milliseconds", [0, 60_000], ids=["no limit", "a longer one"])
@pytest.mark.parametrize(
    "use", [name for name in USES if name not in ("run_with_options", "get_with_timeout")]
)
def test_without_an_answer_for_the_connect_timeout_the_server_is_unavailable(
    use: str, milliseconds: int
) -> None:
    config = tf.ConfigProto(milliseconds, connect_timeout_in_ms=60)
    with (
        nothing_listens() as address,
        in_short(),
        pytest.raises(tf.errors.UnavailableError, match=r"60 ms.*start it") as caught,
    ):
        USES[use](f"grpc://{address}", config)
    assert f"connecting to the server at {address}" in str(caught.value)


def test_a_thread_that_waits_for_another_one_to_connect_has_its_own_deadline() -> None:
    a = tf.constant(1.0)
    ended = threading.Event()
    config = tf.ConfigProto(connect_timeout_in_ms=800)
    with nothing_listens() as address, tf.Session(f"grpc://{address}", config=config) as session:

        def wait_long() -> None:
            with pytest.raises(tf.errors.OpError):
                session.list_devices()
            ended.set()

        threading.Thread(target=wait_long).start()
        with in_short(), pytest.raises(tf.errors.DeadlineExceededError, match=r"50 ms"):
            session.run(a, options=tf.RunOptions(timeout_in_ms=50))
        assert not ended.is_set()
        session.close()
        assert not ended.is_set(), "closing does not wait for a thread that connects"
        assert ended.wait(PATIENCE_S)


def test_a_connection_that_was_lost_is_made_again_within_the_deadline() -> None:
    a = tf.constant(1.0) + 1
    with (
        tf.train.Server({"local": ["127.0.0.1:0"]}) as server,
        tf.Session(server.target) as session,
    ):
        assert session.run(a) == 2.0
        server.stop()
        wait_until(lambda: not session._backend._client.is_open)  # type: ignore[attr-defined]
        with in_short(), pytest.raises(tf.errors.DeadlineExceededError, match="connecting to"):
            session.run(a, options=tf.RunOptions(timeout_in_ms=50))


# Another task does not answer ---------------------------------------------------------------------


class Down(NamedTuple):
    """A cluster with a task that does not answer."""

    target: str
    task: str
    address: str

    @property
    def connecting(self) -> str:
        """What a call that needs the task is doing when it is over."""
        return f"connecting to {self.task} at {self.address}"


@contextmanager
def down_in_process() -> Iterator[Down]:
    with (
        nothing_listens() as address,
        tf.train.Server({"worker": ["127.0.0.1:0"], "zeta": [address]}, "worker", 0) as server,
    ):
        yield Down(server.target, "/job:zeta/task:0", address)


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProcessCluster]:
    """A worker, and a parameter server that has died."""
    with ProcessCluster(ps=1, workers=1) as cluster:
        cluster.kill("ps", 0)
        yield cluster


@pytest.fixture(scope="module", params=["in process", "processes"])
def down(request: pytest.FixtureRequest) -> Iterator[Down]:
    if request.param == "in process":
        with down_in_process() as found:
            yield found
    else:
        cluster: ProcessCluster = request.getfixturevalue("cluster")
        address = cluster.cluster_spec.task_address("ps", 0)
        yield Down(cluster.target("worker", 0), "/job:ps/task:0", address)


def test_a_step_whose_peer_is_down_ends_at_its_deadline_and_names_the_peer(down: Down) -> None:
    a = tf.constant(1.0) + 1
    with tf.device(down.task):
        b = a * 2
    with tf.Session(down.target) as session:
        assert session.run(a) == 2.0
        for call in (
            lambda: session.run(b, options=tf.RunOptions(timeout_in_ms=50)),
            lambda: session.run([a, b], options=tf.RunOptions(timeout_in_ms=50)),
        ):
            with in_short(), pytest.raises(tf.errors.DeadlineExceededError) as caught:
                call()
            assert f"50 ms and was cancelled while {down.connecting}" in str(caught.value)
            assert caught.value.task == down.task
        assert session.run(a) == 2.0, "the session stays usable"


def test_a_step_that_is_given_up_leaves_nothing_on_any_task() -> None:
    with ExitStack() as stack:
        running = start_servers(stack.enter_context, {"ps": 1, "worker": 2})
        tables = [server.worker._context.rendezvous for server in running]
        with tf.device("/job:ps/task:0"):
            queue = tf.FIFOQueue(1, [tf.float32], [()])
            never = queue.dequeue()
        with tf.device("/job:worker/task:1"):
            given = tf.placeholder(tf.float32, [])
            step = never + given * 2.0
        with tf.Session(running[1].target) as session:
            session.run(queue.enqueue(1.0))
            assert session.run(step, {given: 1.0}) == 3.0
            before = [table.n_opened for table in tables]
            for _ in range(20):
                with pytest.raises(tf.errors.DeadlineExceededError):
                    session.run(step, {given: 1.0}, tf.RunOptions(timeout_in_ms=100))
            assert tables[0].n_opened > before[0], "the tasks have begun some"
            assert tables[2].n_opened > before[2]
            wait_until(lambda: not any(table._steps for table in tables), "all steps to end")
            session.run(queue.enqueue(3.0))
            assert session.run(step, {given: 1.0}) == 5.0


def test_a_peer_that_does_not_answer_for_the_connect_timeout_is_unavailable(down: Down) -> None:
    with tf.device(down.task):
        b = tf.constant(1.0) * 2
    config = tf.ConfigProto(60_000, connect_timeout_in_ms=500)
    with (
        tf.Session(down.target, config=config) as session,
        in_short(),
        pytest.raises(tf.errors.UnavailableError) as caught,
    ):
        session.run(b)
    assert f"no answer in 500 ms while {down.connecting}" in str(caught.value)
    assert caught.value.task == down.task


def in_function(down: Down) -> None:
    @tf.function
    def on_peer(x: Any) -> Any:
        with tf.device(down.task):
            return x + 1

    on_peer(1.0)


def in_live_variable(down: Down) -> None:
    with tf.device(down.task):
        tf.Variable(1.0, name="there")


def in_queue(down: Down) -> None:
    with tf.device(down.task):
        queue = tf.FIFOQueue(10, tf.int32, ())
    queue.put(1, timeout=0.4)


@pytest.mark.parametrize("use", [in_function, in_live_variable, in_queue])
def test_the_family_of_calls_names_the_peer_that_is_down(
    down: Down, use: Callable[[Down], None]
) -> None:
    with (
        tf.connect(down.target, tf.ConfigProto(400)),
        in_short(),
        pytest.raises(tf.errors.DeadlineExceededError, match=r"400 ms") as caught,
    ):
        use(down)
    assert down.connecting in str(caught.value)
    assert caught.value.task == down.task


def test_reset_and_list_devices_end_at_the_deadline_when_a_peer_is_down(down: Down) -> None:
    config = tf.ConfigProto(operation_timeout_in_ms=400)
    for use in (reset, list_devices):
        with in_short(), pytest.raises(tf.errors.DeadlineExceededError, match=r"400 ms") as caught:
            use(down.target, config)
        assert down.connecting in str(caught.value)
        assert caught.value.task == down.task


def test_reset_waits_for_a_task_for_the_connect_timeout(down: Down) -> None:
    with in_short(), pytest.raises(tf.errors.UnavailableError, match=r"300 ms") as caught:
        reset(down.target, tf.ConfigProto(connect_timeout_in_ms=300))
    assert caught.value.task == down.task


def test_a_server_that_is_stopped_does_not_keep_a_call_beyond_its_deadline(
    cluster: tf.LocalCluster,
) -> None:
    a = tf.constant(1.0) + 1
    with tf.Session(cluster.target("worker", 0)) as session:
        assert session.run(a) == 2.0
        process = psutil.Process(cluster.pid("worker", 0))
        pause_process(process.pid)
        try:
            with in_short(), pytest.raises(tf.errors.DeadlineExceededError) as caught:
                session.run(a, options=tf.RunOptions(timeout_in_ms=50))
        finally:
            process.resume()
        assert "50 ms and was cancelled while running the step" in str(caught.value)
        assert caught.value.task == "/job:worker/task:0"
        assert session.run(a) == 2.0


# Registering and running --------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["local", "in_process"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    with BACKENDS[request.param]() as backend:
        yield backend


def test_compiling_counts_and_what_was_compiled_is_kept(backend: Backend) -> None:
    backend.reset()
    x = tf.Variable(1.0, name="x")
    add = x.assign_add(1.0)
    with backend.session() as session:
        session.run(x.initializer)
        with (
            in_short(),
            pytest.raises(tf.errors.DeadlineExceededError, match=r"1 ms.*the step"),
        ):
            session.run(add, options=tf.RunOptions(timeout_in_ms=1))
        assert session.run(add, options=tf.RunOptions(timeout_in_ms=60_000)) == 2.0


def test_the_time_to_trace_a_function_counts(backend: Backend) -> None:
    traced: list[Any] = []

    @tf.function
    def slow(x: Any) -> Any:
        traced.append(x)
        time.sleep(0.3)
        return x + 1

    with tf.connect(backend.targets[0], tf.ConfigProto(operation_timeout_in_ms=250)):
        with pytest.raises(tf.errors.DeadlineExceededError, match=r"250 ms"):
            slow(1.0)
        wait_until(lambda: succeeds(slow, 1.0))
    assert len(traced) == 1, "what a call that was too short has done is not done again"


def test_run_options_beat_the_config(backend: Backend) -> None:
    queue = tf.FIFOQueue(10, tf.int32, ())
    with backend.session(config=tf.ConfigProto(operation_timeout_in_ms=60_000)) as session:
        session.run(queue.enqueue(1))
        session.run(queue.dequeue())
        with in_short(), pytest.raises(tf.errors.DeadlineExceededError, match=r"200 ms"):
            session.run(queue.dequeue(), options=tf.RunOptions(timeout_in_ms=200))


def test_no_time_to_wait_for_an_element_is_time_enough_to_make_the_call_ready(
    backend: Backend,
) -> None:
    with tf.connect(backend.targets[0]):
        queue = tf.FIFOQueue(10, tf.int32, ())
        with pytest.raises(tf.errors.DeadlineExceededError, match=r"\b0 s.*running the step"):
            queue.get(timeout=0)
        queue.put(7)
        wait_until(lambda: succeeds(queue.get, 0))


def succeeds(call: Callable[..., Any], *args: Any) -> bool:
    try:
        call(*args)
    except tf.errors.DeadlineExceededError:
        return False
    return True

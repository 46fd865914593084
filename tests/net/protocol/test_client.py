"""A client of a session before a fake host: threads, deadlines, Ctrl-C and ends of all kinds."""

import asyncio
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest

from jflow import errors
from jflow.base.cluster import Device, Task
from jflow.base.deadline import FOREVER, Deadline
from jflow.net.protocol import DeviceRecord, MasterSession, Registered
from jflow.net.protocol.frame import CHUNK_BYTES, Assembler
from jflow.net.protocol.v1 import service_pb2 as pb
from jflow.net.wire import connect
from jflow.plan import Feed, Plan, VariableKey, VariableSpec
from tests.net.protocol.hosts import (
    INCARNATION,
    PATIENCE_S,
    TASK,
    TOKEN,
    Host,
    envelope_of,
    eventually,
    forever,
    large,
    met,
    on_loop,
    raw_server,
    same,
    served,
)
from tests.ports import free_ports

PLAN = Plan(
    Device(TASK, "CPU", 0),
    3,
    (VariableSpec(VariableKey("box", "x"), "float32", (2, 3)),),
    ((Feed(0, 2),),),
)


@contextmanager
def _calling(function, *args):
    """Makes a call in a thread of its own; gives its future."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(function, *args)


# Calls --------------------------------------------------------------------------------------------


def test_a_client_knows_which_server_it_talks_to(client):
    assert client.info.task == TASK
    assert client.info.incarnation == INCARNATION
    assert client.info.cluster == Host().cluster.replace(TASK, client._address)
    (device,) = client.info.devices
    assert device == DeviceRecord(Device(TASK, "CPU", 0), "cpu", INCARNATION)
    assert client.info.n_compiled == 5
    assert client.is_open


def test_the_host_is_asked_what_the_client_was(client, host):
    record = DeviceRecord(
        Device(Task("ps", 0), "GPU", 1), "cuda", 2**64 - 1, memory_limit_bytes=2**40
    )

    async def devices(*_):
        return [record]

    async def registered(*_):
        return Registered(9, ("a", "b"))

    host.script |= {"list_devices": devices, "register": registered}
    assert _listed(client, Task("ps", 0), only_up=True) == [record]
    constants = {"one": np.arange(3, dtype=np.int8), "two": np.zeros((0, 2))}
    assert client.register([PLAN, PLAN], 4, constants, 2.0) == Registered(9, ("a", "b"))
    feeds = [np.arange(4.0), np.array(True)]
    for got, fed in zip(client.run_step(9, feeds, Deadline(0.25)), feeds, strict=True):
        same(got, fed)
    client.run_step(10, [], FOREVER)
    client.call(MasterSession.reset, ["", "box"], PATIENCE_S, FOREVER)
    listed, register, run, endless, reset = host.calls
    assert listed == ("list_devices", [Task("ps", 0)], 1.5, True, FOREVER)
    assert register[:3] == ("register", [PLAN, PLAN], 4)
    assert list(register[3]) == ["one", "two"]
    for digest, constant in constants.items():
        same(register[3][digest], constant)
    assert register[4] == 2.0
    assert run[:2] == ("run", 9)
    assert run[2].timeout == 0.25
    assert run[2].remaining() <= 0.25
    assert endless[:3] == ("run", 10, FOREVER)
    assert reset == ("reset", ["", "box"], PATIENCE_S, FOREVER, [])


def _listed(client, task, deadline=FOREVER, *, only_up=False):
    return client.call(MasterSession.list_devices, [task], 1.5, only_up, deadline)


def test_every_call_takes_along_the_time_given_and_what_is_left_of_it(client, host):
    deadline = Deadline(10.0, remaining=3.0)
    _listed(client, TASK, deadline)
    client.register([PLAN], 0, {}, 1.0, deadline)
    client.run_step(1, [], deadline)
    client.start(1, [], deadline).result(PATIENCE_S)
    client.call(MasterSession.reset, [], 1.0, deadline)
    (_, *_, listed), (_, *_, registered, _), *ran, (_, *_, reset, _) = host.calls
    (_, _, run, _), (_, _, started, _) = ran
    for got in (listed, registered, run, started, reset):
        assert got.timeout == 10.0
        assert 0 < got.remaining() <= 3.0


def test_an_error_of_the_host_is_raised_where_it_was_asked(client, host):
    async def fail(*_):
        raise errors.FailedPreconditionError("not yet", op="x", task="/job:ps/task:0")

    host.script["run"] = fail
    with pytest.raises(errors.FailedPreconditionError) as caught:
        client.run_step(1, [], FOREVER)
    assert (caught.value.message, caught.value.op) == ("not yet", "x")
    assert caught.value.task == "/job:ps/task:0"
    assert client.is_open


def test_a_hundred_threads_get_their_own_answers(client):
    n_threads, n_calls = 100, 5
    gate = threading.Barrier(n_threads)

    def work(i):
        gate.wait(PATIENCE_S)
        for j in range(n_calls):
            sent = np.full(i + 1, i * n_calls + j)
            (got,) = client.run_step(1, [sent], FOREVER)
            same(got, sent)

    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(work, range(n_threads)))


def test_large_tensors_pass_both_ways(client):
    sent = [large(), np.float32(3)]
    got = client.run_step(1, sent, FOREVER)
    for one, other in zip(got, sent, strict=True):
        same(one, np.asarray(other))


def test_a_small_call_is_answered_while_a_large_answer_is_under_way(client, host):
    if client.transport == "inproc":
        pytest.skip("a large answer is there at once")
    tensor = large(256)  # under way for longer than the small call takes to begin

    async def run(handle, _, feeds):
        return [tensor] if handle == 1 else feeds

    host.script["run"] = run
    finished = []
    with _calling(client.run_step, 1, [], FOREVER) as slow:
        slow.add_done_callback(lambda _: finished.append("large"))
        eventually(lambda: host.started == 1)
        same(*client.run_step(2, [np.zeros(1)], FOREVER), np.zeros(1))
        finished.append("small")
        same(*slow.result(PATIENCE_S), tensor)
    assert finished == ["small", "large"]


@contextmanager
def _gated_server():
    """A server that reads one frame after Hello, and the others when the test allows it.

    Gives its address, a function that lets it go on, and the frames and messages that it read.
    """
    frames, messages = [], []
    gate = asyncio.Event()

    async def handle(context):
        stream = await met(context)
        await stream.send(id=1, server_info=pb.ServerInfo(task=str(TASK), incarnation=INCARNATION))
        assembler = Assembler()
        while isinstance(frame := await context.read(), bytes):
            frames.append(frame)
            message = assembler.feed(frame)
            if message is not None:
                messages.append(envelope_of(message))
                await stream.send(id=messages[-1].id)
            await gate.wait()

    with _raw(handle) as address:
        yield address, lambda: on_loop(_set(gate)), frames, messages


def test_a_small_call_passes_between_the_chunks_of_a_large_one():
    with _gated_server() as (address, go_on, frames, _):
        client = connect(address, PATIENCE_S)
        try:
            with _calling(client.run_step, 1, [large()], FOREVER) as slow:
                eventually(lambda: len(frames) == 1)
                with _calling(client.run_step, 2, [], FOREVER) as quick:
                    eventually(lambda: len(client._pending.calls) == 2)
                    go_on()
                    quick.result(PATIENCE_S)
                    assert not slow.done(), "the small one need not wait for the large one"
                slow.result(PATIENCE_S)
        finally:
            client.close()


def test_a_cancellation_does_not_overtake_its_call():
    """Else the server would begin what is not wanted any more, and nothing would stop it."""
    with _gated_server() as (address, go_on, _, messages):
        client = connect(address, PATIENCE_S)
        try:
            with pytest.raises(errors.DeadlineExceededError):
                client.run_step(1, [large()], Deadline(0.1))
            go_on()

            def received():  # the client may also ask what the call waits for
                return [one for one in messages if one.WhichOneof("body") != "find_waits"]

            eventually(lambda: len(received()) == 2)
            call, cancellation = received()
            assert call.WhichOneof("body") == "run_step"
            assert cancellation.cancel.id == call.id
        finally:
            client.close()


async def _set(event):
    event.set()


@contextmanager
def _raw(handle):
    context = raw_server(handle)
    address = on_loop(context.__aenter__())
    try:
        yield address
    finally:
        on_loop(context.__aexit__(None, None, None))


def test_a_request_that_is_too_large_is_refused_and_the_session_stays_usable(client):
    names = ["x" * CHUNK_BYTES] * 5
    with pytest.raises(errors.ResourceExhaustedError):
        client.call(MasterSession.reset, names, PATIENCE_S, FOREVER)
    assert client.run_step(1, [], FOREVER) == []
    assert client._pending.calls == {}


# Deadlines and Ctrl-C -----------------------------------------------------------------------------


def test_a_call_that_takes_too_long_is_cancelled_and_the_session_stays_usable(client, host):
    host.script["run"] = forever
    with pytest.raises(errors.DeadlineExceededError, match=r"50 ms"):
        client.run_step(1, [], Deadline(0.05))
    eventually(lambda: host.cancelled == 1)
    del host.script["run"]
    assert client.run_step(1, [], Deadline(5.0)) == []
    assert client._pending.calls == {}


def test_ctrl_c_cancels_the_call_and_the_session_stays_usable(client, host):
    host.script["run"] = forever

    def interrupt():
        eventually(lambda: host.started == 1)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        client.run_step(1, [], Deadline(PATIENCE_S))
    thread.join()
    eventually(lambda: host.cancelled == 1)
    del host.script["run"]
    assert client.run_step(1, [], Deadline(5.0)) == []


# Ends ---------------------------------------------------------------------------------------------


def test_closing_fails_the_calls_under_way_and_all_later_ones(client, host):
    host.script["run"] = forever
    with (
        _calling(client.run_step, 1, [], FOREVER) as one,
        _calling(client.run_step, 2, [], FOREVER) as other,
    ):
        eventually(lambda: host.started == 2)
        client.close()
        failures = [one.exception(PATIENCE_S), other.exception(PATIENCE_S)]
    assert [type(error) for error in failures] == [errors.CancelledError] * 2
    assert failures[0] is not failures[1], "an exception is not raised in two threads"
    with pytest.raises(errors.CancelledError, match=r"Session\.close"):
        client.run_step(1, [], FOREVER)
    assert not client.is_open
    eventually(host.sessions[0].closed.is_set)
    assert host.cancelled == 2
    client.close()


def test_what_was_started_and_not_awaited_is_answered_once(client, host, monkeypatch):
    failed = []
    monkeypatch.setattr(threading, "excepthook", failed.append)
    host.script["run"] = forever
    going, cancelled = (client.start(number, [], FOREVER) for number in (1, 2))
    eventually(lambda: host.started == 2)
    assert cancelled.cancel()
    readers = [x for x in threading.enumerate() if x.name.startswith("jflow 127.0.0.1:")]
    client.close()
    assert isinstance(going.exception(PATIENCE_S), errors.CancelledError)
    for reader in readers:
        reader.join(PATIENCE_S)
    assert failed == [], "the end of the stream comes after that of the session"


def test_when_the_server_stops_calls_under_way_and_later_ones_are_unavailable(client, host, server):
    host.script["run"] = forever
    with _calling(client.run_step, 1, [], FOREVER) as one:
        eventually(lambda: host.started == 1)
        server.stop()
        assert isinstance(one.exception(PATIENCE_S), errors.UnavailableError)
        assert server.address in str(one.exception())
    with pytest.raises(errors.UnavailableError, match=server.address):
        client.run_step(1, [], FOREVER)
    assert not client.is_open
    eventually(lambda: host.cancelled == 1)


def test_closing_one_client_leaves_the_others_alone(client, host, server):
    other = connect(server.address, PATIENCE_S)
    other.close()
    eventually(lambda: len(host.sessions) == 2)
    eventually(host.sessions[1].closed.is_set)
    assert client.run_step(1, [], FOREVER) == []
    assert not host.sessions[0].closed.is_set()


def test_an_address_where_nothing_listens_is_unavailable_in_time():
    (port,) = free_ports(1)
    begun = time.monotonic()
    with pytest.raises(errors.UnavailableError, match=rf"127\.0\.0\.1:{port}.*start it or check"):
        connect(f"127.0.0.1:{port}", 0.3)
    assert time.monotonic() - begun < PATIENCE_S


def test_a_server_that_comes_late_is_waited_for(host):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with ThreadPoolExecutor(1) as pool:
            connecting = pool.submit(connect, f"127.0.0.1:{port}", PATIENCE_S)
            # The client has found out that no server is there when it comes.
            listener.accept()[0].close()
            listener.close()
            with served(host, port):
                client = connecting.result(PATIENCE_S)
                assert client.run_step(1, [], FOREVER) == []
                client.close()


@pytest.mark.parametrize("token", ["another token than theirs", TOKEN + "!"])
def test_a_wrong_token_is_unauthenticated(server, host, monkeypatch, token):
    monkeypatch.setenv("JFLOW_TOKEN", token)
    with pytest.raises(errors.UnauthenticatedError, match="JFLOW_TOKEN"):
        connect(server.address, PATIENCE_S)
    assert host.sessions == []


def test_a_server_that_never_answers_hello_is_unavailable():
    async def silent(context):
        await context.read()
        await forever()

    with (
        _raw(silent) as address,
        pytest.raises(errors.UnavailableError, match=f"no answer in 200 ms while .* at {address}"),
    ):
        connect(address, 0.2)


@pytest.mark.parametrize(
    "answer", [b"noise", b"", b"\x01" + bytes(12) + b"\xff" * 8], ids=["noise", "empty", "huge"]
)
def test_a_server_that_answers_nonsense_is_an_error_of_jflow(answer):
    async def nonsense(context):
        await context.read()
        await context.write(answer)
        await forever()

    with _raw(nonsense) as address, pytest.raises(errors.OpError):
        connect(address, PATIENCE_S)


def test_a_server_of_no_task_is_an_error_of_jflow():
    async def nameless(context):
        stream = await met(context)
        await stream.send(id=1, server_info=pb.ServerInfo(task="nonsense"))
        await forever()

    with _raw(nameless) as address, pytest.raises(errors.OpError):
        connect(address, PATIENCE_S)


def test_an_answer_that_nothing_waits_for_is_ignored():
    async def chatty(context):
        stream = await met(context)
        await stream.send(id=1, server_info=pb.ServerInfo(task=str(TASK)))
        envelope, _ = await stream.receive()
        await stream.send(id=99)
        await stream.send([np.zeros(3)], id=98)
        await stream.send(id=envelope.id)
        await forever()

    with _raw(chatty) as address:
        client = connect(address, PATIENCE_S)
        assert client.run_step(1, [], Deadline(PATIENCE_S)) == []
        client.close()


def test_a_server_may_end_the_session_with_a_reason():
    async def ending(context):
        stream = await met(context)
        await stream.send(id=1, server_info=pb.ServerInfo(task=str(TASK)))
        await stream.receive()
        await stream.send(status={"code": errors.Code.ABORTED, "message": "all over"})
        await forever()

    with _raw(ending) as address:
        client = connect(address, PATIENCE_S)
        for _ in range(2):
            with pytest.raises(errors.AbortedError, match="all over"):
                client.run_step(1, [], Deadline(PATIENCE_S))
        assert not client.is_open
        client.close()


# Replies that cannot be read ----------------------------------------------------------------------


def test_every_call_ends_if_a_reply_cannot_be_read(client, host, monkeypatch):
    def fail(_):
        raise RuntimeError("a fault")

    monkeypatch.setattr("jflow.net.protocol.receiver.error_of", fail)

    async def failing(*_):
        raise errors.NotFoundError("nothing")

    host.script["run"] = failing
    outcome = client.start(1, [], FOREVER)
    assert isinstance(outcome.exception(PATIENCE_S), errors.InternalError)
    assert not client.is_open
    with pytest.raises(errors.InternalError, match="a fault"):
        client.run_step(2, [], FOREVER)


def test_an_error_that_shares_its_code_keeps_its_class(client, host):
    async def run(*_):
        raise errors.NotANumberError("x", np.dtype("float32"), (2, 3))

    host.script["run"] = run
    for call in (
        lambda: client.run_step(1, [], FOREVER),
        lambda: client.start(1, [], FOREVER).result(PATIENCE_S),
    ):
        with pytest.raises(errors.NotANumberError, match=r"in 'x', which gave float32\[2,3\]"):
            call()

"""Large tensors in shared memory: what is used again, what is refused, what is left behind."""

import fcntl
import gc
import os
import socket
import struct
import sys
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from jflow.base.deadline import FOREVER
from jflow.errors import InvalidArgumentError, UnavailableError
from jflow.net.protocol.codec import control_of, open_message
from jflow.net.protocol.parser import Parser, delimited
from jflow.net.protocol.segments import (
    MAX_SEGMENTS,
    MIN_SHARED_BYTES,
    InSegment,
    Shared,
    segment_frame,
)
from jflow.net.protocol.v1 import service_pb2 as pb
from jflow.net.wire import connect, segment_exchange
from jflow.net.wire.connections import SocketConnection
from jflow.net.wire.segment_exchange import SegmentExchange
from jflow.net.wire.shared_memory import make_shared
from jflow.net.wire.socket_stream import unsent
from tests.net.protocol.hosts import PATIENCE_S, TOKEN, Host, eventually, served

N = MIN_SHARED_BYTES // 4


@pytest.fixture(autouse=True)
def _own_sockets(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("JFLOW_TOKEN", TOKEN)
    monkeypatch.setenv("JFLOW_TRANSPORT", "unix")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
    # What other tests refer to until the end of their file is never collected (`gc.freeze`).
    monkeypatch.setattr(sys.modules[__name__], "_BEFORE", frozenset(_mapped()))


@contextmanager
def _client():
    """A client of a host that answers with what it is fed; both ends are in this process."""
    host = Host()
    with served(host) as server:
        client = connect(server.address, PATIENCE_S)
        try:
            yield client
        finally:
            client.close()
            for session in host.sessions:
                session.calls.clear()  # they refer to what was fed


_BEFORE: frozenset[str] = frozenset()


def _mapped():
    """The inodes of the segments that this process has mapped, one for each mapping."""
    gc.collect()
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line.split()[4] for line in lines if "memfd:jflow segment" in line]


def _n_mapped():
    """How many segments this test has mapped; each one twice, because it has both ends."""
    return sum(inode not in _BEFORE for inode in _mapped())


def _value(i, n=N):
    return np.full(n, i, np.float32)


def _run(client, *values):
    return client.run_step(1, list(values), FOREVER)


def _warm(client, n=N):
    """Runs until both directions have a segment that is free."""

    def is_warm():
        assert _run(client, _value(7, n))[0].sum() == 7 * n
        return _n_mapped() >= 4

    eventually(is_warm)


# Through a session --------------------------------------------------------------------------------


def test_large_tensors_of_a_session_come_to_lie_in_segments():
    with _client() as client:
        _run(client, _value(1))
        assert _n_mapped() == 0  # fresh ones would be slower than the socket
        _warm(client)
        (got,) = _run(client, _value(2))
        assert got.ctypes.data % 4096 == 0
        np.testing.assert_array_equal(got, _value(2))


def test_results_that_are_kept_are_never_overwritten_whatever_their_number():
    with _client() as client:
        _warm(client)
        kept = []
        for i in range(4 * MAX_SEGMENTS):
            kept += _run(client, _value(i), _value(-i, 3))
        assert _n_mapped() <= 4 * MAX_SEGMENTS
        kept[0][:] = 1000  # they are the caller's to write to
        for i in range(4 * MAX_SEGMENTS):
            np.testing.assert_array_equal(kept[2 * i], _value(i or 1000))
            np.testing.assert_array_equal(kept[2 * i + 1], _value(-i, 3))


def test_a_result_outlives_its_session():
    with _client() as client:
        _warm(client)
        (kept,) = _run(client, _value(5))
    np.testing.assert_array_equal(kept, _value(5))
    del kept
    eventually(lambda: _n_mapped() == 0)


def test_several_threads_get_their_own_results():
    def check(i):
        (got,) = _run(client, _value(i))
        np.testing.assert_array_equal(got, _value(i))
        return got

    with _client() as client, ThreadPoolExecutor(6) as pool:
        _warm(client)
        for i, got in enumerate(pool.map(check, range(60))):
            np.testing.assert_array_equal(got, _value(i))


def test_a_large_tensor_of_several_parts_arrives_whole_beside_small_ones():
    n = 3 * N * 4 + 5
    with _client() as client:
        _warm(client, n)
        value = np.arange(n, dtype=np.float32)
        small, large, empty = _run(client, np.int8(3), value, np.empty((0, 4)))
        assert (small, empty.shape) == (3, (0, 4))
        np.testing.assert_array_equal(large, value)


def test_strings_never_lie_in_segments():
    strings = np.array([b"x" * 1000] * (MIN_SHARED_BYTES // 500), object)
    with _client() as client:
        for _ in range(6):
            got, _ = _run(client, strings, _value(1))
            assert list(got) == list(strings)
        assert _n_mapped() == 0


def test_segments_that_are_not_used_are_freed_at_both_ends(monkeypatch):
    monkeypatch.setattr(segment_exchange, "IDLE_S", 0.02)
    with _client() as client:
        found = []

        def was_mapped():
            _run(client, _value(1))
            found.append(_n_mapped())
            return max(found)

        eventually(was_mapped)

        def are_freed():
            _run(client, np.float32(1))  # tells the other end
            return _n_mapped() == 0

        eventually(are_freed)
        (got,) = _run(client, _value(3))
        np.testing.assert_array_equal(got, _value(3))


def test_what_sessions_leave_behind_does_not_grow_with_their_number():
    """Of servers that have stopped: gRPC may refer to the sessions of the first ones."""
    process = psutil.Process()

    def session():
        with _client() as client:
            _warm(client)

    session()
    n_files = process.num_fds()
    for _ in range(12):  # each has at least four mappings and four files
        session()
    eventually(lambda: _n_mapped() == 0 and process.num_fds() <= n_files)


# Two ends without a session -----------------------------------------------------------------------


class End:
    """One end of a socket pair with its segments."""

    def __init__(self, connected):
        connected.setblocking(False)
        self.socket = connected
        self.connection = SocketConnection(connected)
        self.segments = SegmentExchange(lambda: None)
        self.parser = Parser(segments=self.segments)

    def send(self, *tensors, control=b"c"):
        """Sends a message; the other end has to read meanwhile if it does not fit the buffer."""
        for frame in self.segments.encode(1, control, [memoryview(one) for one in tensors]):
            if frame:
                assert self.segments.send_pending(self.connection)
                left = delimited(frame)
                while left:
                    try:
                        left = unsent(left, self.connection.send(left))
                    except BlockingIOError:
                        yield
        yield

    def received(self):
        messages = []
        while True:
            buffer = self.parser.buffer()
            try:
                n_bytes = self.connection.receive_into(buffer, self.segments.add_descriptors)
            except BlockingIOError:
                return messages
            messages += self.parser.received(n_bytes)

    def close(self):
        self.segments.close()
        self.socket.close()


@pytest.fixture
def ends():
    both = [End(one) for one in socket.socketpair()]
    yield both
    for end in both:
        end.close()


def _pass(sender, receiver, value):
    """Passes a message from one end to the other."""
    messages = []
    for _ in sender.send(value):
        messages += receiver.received()
    (message,) = messages
    assert bytes(message.payload) == bytes(value)
    return message


def test_a_segment_is_used_again_when_no_array_refers_to_it_and_only_then(ends):
    sender, receiver = ends
    value = bytearray(b"1" * MIN_SHARED_BYTES)
    eventually(lambda: _pass(sender, receiver, value).is_shared or _returned(ends))
    _returned(ends)
    first = _pass(sender, receiver, value)
    assert first.is_shared
    view = first.payload[5:10].view(np.int8)
    del first
    other = bytearray(b"2" * MIN_SHARED_BYTES)
    for _ in range(5):
        _pass(sender, receiver, other)
        _returned(ends)
    assert bytes(view) == b"11111"
    place = view.ctypes.data - 5
    del view
    gc.collect()
    _returned(ends)
    places = {_pass(sender, receiver, other).payload.ctypes.data for _ in range(3)}
    assert place in places


def _returned(ends):
    """Tells the sender which segments were given back; returns False."""
    sender, receiver = ends
    gc.collect()
    assert receiver.segments.send_pending(receiver.connection)
    sender.received()
    return False


def test_what_a_forked_child_may_read_is_not_overwritten(ends):
    sender, receiver = ends
    value = bytearray(b"1" * MIN_SHARED_BYTES)
    eventually(lambda: _pass(sender, receiver, value).is_shared or _returned(ends))
    _returned(ends)
    kept = _pass(sender, receiver, value)
    assert kept.is_shared
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about threads, which this child does not need
        child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    place = kept.payload.ctypes.data
    del kept
    for _ in range(5):
        assert not _returned(ends)
        assert _pass(sender, receiver, value).payload.ctypes.data != place


def test_an_array_is_freed_although_what_keeps_it_is_reached_from_its_stream():
    """A server that is stopped keeps what it was fed, and its streams refer to the server."""

    class Server:
        def wake(self):
            """Its stream."""

    near, far = (End(one) for one in socket.socketpair())
    server = Server()
    far.segments = SegmentExchange(server.wake)
    far.parser = Parser(segments=far.segments)
    value = bytearray(b"1" * MIN_SHARED_BYTES)
    eventually(lambda: _pass(near, far, value).is_shared or _returned((near, far)))
    _returned((near, far))
    server.fed = _pass(near, far, value)
    assert server.fed.is_shared
    found = weakref.ref(server)
    far.close(), near.close()
    del server
    gc.collect()
    assert found() is None
    eventually(lambda: _n_mapped() == 0)


def test_a_message_that_is_given_up_half_copied_gives_its_segment_back(ends):
    sender, receiver = ends
    value = bytearray(3 * (4 << 20))
    eventually(lambda: _pass(sender, receiver, value).is_shared or _returned(ends))
    _returned(ends)
    for _ in range(3 * MAX_SEGMENTS):
        frames = sender.segments.encode(1, b"", [memoryview(value)])
        assert next(frames) == []
        frames.close()
    assert _pass(sender, receiver, value).is_shared


def _shared(n_bytes=MIN_SHARED_BYTES, seals=fcntl.F_SEAL_SHRINK, file_bytes=None):
    """The frame that shares a file of one's own as segment 1, and the file."""
    descriptor = os.memfd_create("of a test", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, n_bytes if file_bytes is None else file_bytes)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return segment_frame(Shared(1, n_bytes)), descriptor


def _is_closed_at_the_other_end(descriptor):
    """Whether no other descriptor of this process is of the same file; they close in a thread."""
    own, n_open = os.fstat(descriptor), 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed meanwhile
            n_open += os.path.samestat(own, os.fstat(int(name)))
    return n_open == 1


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"seals": 0}, "not sealed"),
        ({"seals": fcntl.F_SEAL_GROW}, "not sealed"),
        ({"file_bytes": MIN_SHARED_BYTES - 1}, "has a file of 1048575"),
        ({"n_bytes": 1 << 30, "file_bytes": 0}, "the limits are"),
        ({"n_bytes": 0}, "the limits are"),
    ],
)
def test_a_file_that_could_be_cut_short_or_is_too_large_is_refused(ends, made, said):
    sender, receiver = ends
    frame, descriptor = _shared(**made)
    sender.connection.send(delimited(frame), descriptor)
    with pytest.raises(InvalidArgumentError, match=said):
        receiver.received()
    eventually(lambda: _is_closed_at_the_other_end(descriptor))
    os.close(descriptor)


def test_a_pipe_is_no_segment(ends):
    sender, receiver = ends
    reading, writing = os.pipe()
    sender.connection.send(delimited(segment_frame(Shared(1, 4096))), reading)
    with pytest.raises(InvalidArgumentError, match="not sealed"):
        receiver.received()
    os.close(reading), os.close(writing)


def test_a_segment_without_its_file_is_refused(ends):
    sender, receiver = ends
    sender.connection.send(delimited(segment_frame(Shared(1, 4096))))
    with pytest.raises(InvalidArgumentError, match="shared without its file"):
        receiver.received()


def test_more_files_than_are_ever_sent_at_once_are_refused_and_closed(ends):
    sender, receiver = ends
    _, descriptor = _shared()
    socket.send_fds(sender.socket, [b"x"], [descriptor] * 9)
    with pytest.raises(InvalidArgumentError, match="files come at once"):
        receiver.received()
    receiver.segments.close()
    eventually(lambda: _is_closed_at_the_other_end(descriptor))
    os.close(descriptor)


def test_closing_a_file_that_blocks_does_not_hold_up_the_stream(ends):
    """A socket that still has bytes to send, and SO_LINGER, takes as long as that says."""
    sender, receiver = ends
    with socket.create_server(("127.0.0.1", 0)) as listening:
        blocking = socket.create_connection(listening.getsockname())
        unread, _ = listening.accept()
        blocking.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 600))
        blocking.setblocking(False)
        with suppress(BlockingIOError):
            while blocking.send(bytes(1 << 20)):
                pass
        sender.connection.send(delimited(segment_frame(Shared(1, 4096))), blocking.fileno())
        blocking.close()  # at once, because the file is on its way
        with pytest.raises(InvalidArgumentError, match="not sealed"):
            receiver.received()
        unread.close()  # ends the wait of the thread that closes


def test_files_that_come_without_their_frames_are_refused_and_closed(ends):
    sender, receiver = ends
    _, descriptor = _shared()
    begin = struct.pack("<I", 1000)  # of a frame
    for byte in begin:
        socket.send_fds(sender.socket, [bytes([byte])], [descriptor])
        assert receiver.received() == []
    socket.send_fds(sender.socket, [b"x"], [descriptor])
    with pytest.raises(InvalidArgumentError, match="5 files wait for their frames"):
        receiver.received()
    receiver.segments.close()
    eventually(lambda: _is_closed_at_the_other_end(descriptor))
    os.close(descriptor)


def test_strings_in_a_segment_are_refused(ends):
    """Their lengths could be changed after they were checked."""
    sender, receiver = ends
    frame, descriptor = _shared()
    control = control_of(pb.Envelope(id=3), [np.array([b"abc"], object)])
    sender.connection.send(delimited(frame), descriptor)
    os.close(descriptor)
    sender.connection.send(delimited(segment_frame(InSegment(5, control, 1, 64))))
    (message,) = receiver.received()
    with pytest.raises(InvalidArgumentError, match="strings lie in a segment"):
        open_message(message)


def test_a_session_in_which_a_segment_is_refused_ends_and_others_go_on():
    with served(Host()) as server:
        client, other = (connect(server.address, PATIENCE_S) for _ in range(2))
        frame, descriptor = _shared(seals=0)
        client._channel._data._connection.send(delimited(frame), descriptor)
        os.close(descriptor)
        # The end of the socket may come before that of the session, which comes over gRPC.
        with pytest.raises(UnavailableError, match=r"cannot be reached|ended the session"):
            client.run_step(1, [], FOREVER)
        assert other.run_step(1, [], FOREVER) == []
        client.close(), other.close()


def test_memory_of_a_segment_is_sealed():
    descriptor, memory = make_shared(MIN_SHARED_BYTES)
    with pytest.raises(PermissionError):
        os.ftruncate(descriptor, 0)
    memory[-1] = 3
    os.close(descriptor)
    assert memory[-1] == 3

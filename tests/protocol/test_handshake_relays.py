"""What a relay achieves in several handshakes at once: nothing but to pass them on."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import event, given, settings
from hypothesis import strategies as st

from jflow.cluster import Target, Task
from jflow.errors import OpError
from jflow.protocol import Secret
from jflow.protocol.handshake import Caller, CallerHandshake, ServerHandshake
from jflow.protocol.rpcs import MASTER, WORKER
from tests.protocol.hosts import TOKEN

ADDRESSES = ("127.0.0.1:1", "127.0.0.1:2")
SERVICES = (MASTER.name, WORKER.name)


@dataclass
class CallerEnd:
    """A caller, what it has been sent, and what it believes."""

    handshake: CallerHandshake
    service: str
    address: str
    challenge: bytes = b""
    answer: bytes = b""


@dataclass
class ServerEnd:
    """A server's end of one stream, what it has sent, and whether it believes its caller."""

    handshake: ServerHandshake
    service: str
    address: str
    hello: bytes
    challenge: bytes
    is_proven: bool = False
    answer: bytes = b""


@dataclass
class Network:
    """Callers and servers with one token; the relay has every frame, and delivers what it likes."""

    frames: list[bytes] = field(default_factory=list)
    callers: list[CallerEnd] = field(default_factory=list)
    servers: list[ServerEnd] = field(default_factory=list)
    n_nonces: int = 0

    def nonce(self) -> bytes:
        self.n_nonces += 1
        return self.n_nonces.to_bytes(32, "little")

    def call(self, service: str, address: str) -> None:
        caller = Caller(Secret(TOKEN), service, Target(address, task=Task("ps", 0)))
        end = CallerEnd(CallerHandshake(caller, self.nonce()), service, address)
        self.callers.append(end)
        self.frames.append(end.handshake.hello)

    def accept(self, service: str, address: str, hello: bytes) -> None:
        handshake = ServerHandshake(Secret(TOKEN), service, hello)
        is_other = handshake.hello.address != address
        challenge = handshake.challenge(self.nonce(), is_other=is_other)
        self.servers.append(ServerEnd(handshake, service, address, hello, challenge))
        self.frames.append(challenge)

    def to_caller(self, end: CallerEnd, frame: bytes) -> None:
        if not end.challenge:
            self.frames.append(end.handshake.prove(frame))
            end.challenge = frame
        elif not end.answer:
            end.handshake.opened(frame)
            end.answer = frame

    def to_server(self, end: ServerEnd, frame: bytes) -> None:
        if not end.is_proven:
            end.handshake.check(frame)
            end.is_proven = True
            end.answer = end.handshake.seal(b"I am at " + end.address.encode())
            self.frames.append(end.answer)


@settings(max_examples=200)
@given(st.data())
def test_whoever_is_believed_has_the_token_and_has_said_just_that(data: st.DataObject) -> None:
    """Agreement of both ends on service, server and frames, in as many handshakes as there are."""
    network = Network()
    for _ in range(2):
        network.call(data.draw(st.sampled_from(SERVICES)), data.draw(st.sampled_from(ADDRESSES)))
    for _ in range(data.draw(st.integers(4, 16))):
        frame = data.draw(_delivered(network.frames))
        receivers = ["a new stream", *network.callers, *network.servers]
        receiver = receivers[data.draw(st.integers(0, len(receivers) - 1))]
        try:
            if isinstance(receiver, CallerEnd):
                network.to_caller(receiver, frame)
            elif isinstance(receiver, ServerEnd):
                network.to_server(receiver, frame)
            else:
                service, address = (
                    data.draw(st.sampled_from(SERVICES)),
                    data.draw(st.sampled_from(ADDRESSES)),
                )
                network.accept(service, address, frame)
        except OpError:
            continue
    _check(network)


@st.composite
def _delivered(draw: st.DrawFn, frames: Sequence[bytes]) -> bytes:
    """Mostly a frame that was sent; sometimes one put together of two."""
    first = frames[draw(st.integers(0, len(frames) - 1))]
    if draw(st.integers(0, 4)):
        return first
    second = frames[draw(st.integers(0, len(frames) - 1))]
    return first[: draw(st.integers(0, len(first)))] + second[draw(st.integers(0, len(second))) :]


def _check(network: Network) -> None:
    for server in network.servers:
        if server.is_proven:
            # The relay has passed on a handshake that this caller has begun, and nobody else's.
            matching = [
                caller
                for caller in network.callers
                if (caller.handshake.hello, caller.challenge) == (server.hello, server.challenge)
            ]
            assert len(matching) == 1
            assert matching[0].service == server.service
            event("a server believes")
    for caller in network.callers:
        if caller.challenge:
            servers = [each for each in network.servers if each.challenge == caller.challenge]
            assert len(servers) == 1
            (server,) = servers
            assert (server.hello, server.service) == (caller.handshake.hello, caller.service)
            if caller.answer:
                assert server.is_proven
                assert caller.answer == server.answer
                event("a caller believes")
            try:
                caller.handshake.check_meant()
            except OpError:
                assert server.address != caller.address
            else:
                assert server.address == caller.address

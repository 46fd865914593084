"""What a relay achieves in several handshakes at once: nothing but to pass them on."""

from dataclasses import dataclass, field

from hypothesis import event, given, settings
from hypothesis import strategies as st

from jflow.base.cluster import ClusterSpec, Target, Task
from jflow.errors import OpError
from jflow.net.protocol import Secret
from jflow.net.protocol.handshake import Caller, CallerHandshake, ServerHandshake
from jflow.net.protocol.identity import ServerIdentity, ServerLocation
from jflow.net.protocol.rpcs import MASTER, WORKER
from jflow.net.protocol.tokens import NO_USERS
from tests.net.protocol.hosts import TOKEN

PLACES = (
    ("127.0.0.1:1", "this boot:1"),
    ("127.0.0.1:2", "this boot:1"),
    ("127.0.0.1:1", "other:1"),
)
"""Addresses and machines: of servers, and of what their callers mean."""

SERVICES = (MASTER.name, WORKER.name)


@dataclass
class CallerEnd:
    """A caller, what it has been sent, and what it believes."""

    handshake: CallerHandshake
    service: str
    place: tuple[str, str]
    challenge: bytes = b""
    proof: bytes = b""
    answer: bytes = b""


@dataclass
class ServerEnd:
    """A server's end of one stream, what it has sent, and whether it believes its caller."""

    handshake: ServerHandshake
    service: str
    place: tuple[str, str]
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

    def call(self, service: str, place: tuple[str, str]) -> None:
        caller = Caller(Secret(TOKEN), service, Target(place[0], task=Task("ps", 0)))
        end = CallerEnd(CallerHandshake(caller, self.nonce()), service, place)
        self.callers.append(end)
        self.frames.append(end.handshake.first_frame(place[1]))

    def accept(self, service: str, place: tuple[str, str], hello: bytes) -> None:
        handshake = ServerHandshake(Secret(TOKEN), NO_USERS, service, hello)
        address, machine = place
        cluster, location = ClusterSpec({"ps": [address]}), ServerLocation(machine=machine)
        identity = ServerIdentity(Task("ps", 0), 1, cluster, "", location)
        is_other = identity.refusal(handshake.hello) is not None
        challenge = handshake.challenge(self.nonce(), is_other=is_other)
        self.servers.append(ServerEnd(handshake, service, place, hello, challenge))
        self.frames.append(challenge)

    def to_caller(self, end: CallerEnd, frame: bytes) -> None:
        if not end.challenge:
            end.proof = end.handshake.prove(frame)
            end.challenge = frame
            self.frames.append(end.proof)
        elif not end.answer:
            end.handshake.opened(frame)
            end.answer = frame

    def to_server(self, end: ServerEnd, frame: bytes) -> None:
        if not end.is_proven:
            end.handshake.check(frame)
            end.is_proven = True
            end.answer = end.handshake.seal(b"I am at " + repr(end.place).encode())
            self.frames.append(end.answer)


small = st.integers(0, 7)
steps = st.lists(st.tuples(st.booleans(), small, small, small, st.integers(0, 300)), max_size=16)


@settings(max_examples=100)
@given(st.tuples(small, small), steps)
def test_an_end_that_is_believed_has_the_token_and_has_said_just_that(
    calls: tuple[int, int], deliveries: list[tuple[bool, int, int, int, int]]
) -> None:
    """Agreement of both ends on service, server and frames, in two handshakes at once."""
    network = Network()
    for choice in calls:
        network.call(SERVICES[choice % 2], PLACES[choice // 2 % 3])
    for is_honest, *choices in deliveries:
        try:
            if is_honest:
                _pass_on(network, network.callers[choices[0] % 2], *choices[1:3])
            else:
                _attack(network, *choices)
        except OpError:
            continue
    _check(network)


def _pass_on(network: Network, caller: CallerEnd, where: int, which: int) -> None:
    """Delivers the next frame of one caller's handshake, to a server anywhere."""
    servers = [each for each in network.servers if each.hello == caller.handshake.hello]
    if not servers:
        place = PLACES[where % 3] if which == 0 else caller.place
        network.accept(caller.service, place, caller.handshake.hello)
    elif not caller.challenge:
        network.to_caller(caller, servers[which % len(servers)].challenge)
    else:
        (server,) = (each for each in servers if each.challenge == caller.challenge)
        if server.is_proven:
            network.to_caller(caller, server.answer)
        else:
            network.to_server(server, caller.proof)


def _attack(network: Network, first: int, second: int, to: int, cut: int) -> None:
    """Delivers any frame that was sent, or one put together of two, to any end."""
    frames, ends = network.frames, [None, *network.callers, *network.servers]
    frame = frames[first % len(frames)]
    if cut < len(frame):
        frame = frame[:cut] + frames[second % len(frames)][cut:]
    end = ends[to % len(ends)]
    if isinstance(end, CallerEnd):
        network.to_caller(end, frame)
    elif isinstance(end, ServerEnd):
        network.to_server(end, frame)
    else:
        network.accept(SERVICES[first % 2], PLACES[second % 3], frame)


def _check(network: Network) -> None:
    for server in network.servers:
        if server.is_proven:
            # The relay has passed on a handshake that this caller has begun, and no other one's.
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
                assert server.place != caller.place
            else:
                assert server.place == caller.place

"""Streams between the hosts of a simulation, with a fault drawn at every message.

A stream delivers what is written in order, and late; or it breaks. Then one end may learn of it
much later than the other, and neither knows which of the last messages have arrived. Some streams
carry frames of bytes, and others messages as a whole, as the streams of jflow's transports do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import numpy as np

from jflow.base.cluster import Task
from jflow.base.values import Array, SentArray
from jflow.errors import UnavailableError
from jflow.net.protocol.frame import NOTHING, Message, check_control
from jflow.net.protocol.framing import Framing
from jflow.net.protocol.inbox import Inbox
from jflow.net.protocol.offers import DataOffer
from jflow.net.protocol.transport import BrokenStreamError, EndedStreamError, FrameStream, Services
from tests.simulation.loop import Host, SimulatedLoop, current_host
from tests.simulation.trace import Trace

_SHORT_S = 0.002
_LONG_S = 0.5
_P_LONG = 0.03
_BLIND_S = 20.0
"""After how long an end learns of a silent break if its heartbeat does not find it: the transport
has one of its own."""
_RETRY_S = 0.05


class Network:
    """What connects the hosts.

    Args:
      loop: runs them.
      trace: notes what is sent, and what breaks.

    Attributes:
      p_fault: how probable it is that a message breaks its stream.
      listeners: those that listen, by address.
      cut: the pairs of hosts, by name, between which nothing gets through.
    """

    def __init__(self, loop: SimulatedLoop, trace: Trace) -> None:
        self.loop, self.trace = loop, trace
        self.p_fault = 0.0
        self.listeners: dict[str, SimulatedListener] = {}
        self.cut: set[frozenset[str]] = set()
        self._streams: dict[Connection, None] = {}
        self._n_streams = 0

    def delay(self) -> float:
        """Draws how long a message is under way: at times very long."""
        draw = self.loop.random.random()
        return _LONG_S * draw / _P_LONG if draw < _P_LONG else _SHORT_S * draw

    def is_cut(self, one: Host, other: Host) -> bool:
        """Whether nothing gets from one host to another."""
        return bool(self.cut) and frozenset((one.name, other.name)) in self.cut

    def separate(self, one: str, other: str) -> None:
        """Cuts two hosts off from each other: what is sent is lost without a sign."""
        self.cut.add(frozenset((one, other)))
        for stream in [*self._streams]:
            if frozenset(stream.names) in self.cut:
                stream.blind()

    def heal(self) -> None:
        """Ends all that keeps messages back."""
        self.p_fault = 0.0
        self.cut.clear()

    def died(self, host: Host) -> None:
        """The system of a host that has died ends its streams."""
        for stream in [*self._streams]:
            if host in stream.hosts:
                stream.break_soon("the process has ended")

    def open(self, caller: Host, listener: SimulatedListener, service: str) -> End:
        """Opens a stream; returns the end of the caller."""
        self._n_streams += 1
        stream = Connection(self, self._n_streams, caller, listener, service)
        self._streams[stream] = None
        return stream.ends[0]

    def forget(self, stream: Connection) -> None:
        """Forgets a stream that has broken."""
        self._streams.pop(stream, None)


class SimulatedTransport:
    """The transport of one host; see `protocol.transport.Transport`."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def open(self, *args: Any) -> Any:
        raise AssertionError("clients of a simulation have no threads")

    async def connect(
        self, service: str, task: Task, address: str, refused_s: float | None = None
    ) -> FrameStream:
        """See `Transport.connect`."""
        network, caller = self._network, current_host()
        loop = network.loop
        began = loop.time()
        while True:
            await asyncio.sleep(network.delay())
            listener = network.listeners.get(address)
            if listener is None:
                if refused_s is not None and loop.time() - began > refused_s:
                    raise UnavailableError(f"{address} refuses connections", task=str(task))
            elif not network.is_cut(caller, listener.host) and not listener.host.is_dead:
                return network.open(caller, listener, service)
            await asyncio.sleep(_RETRY_S)

    def listener(
        self, services: Services, is_serving: Callable[[], bool] = lambda: True
    ) -> SimulatedListener:
        """See `Transport.listener`."""
        return SimulatedListener(self._network, services)


class SimulatedListener:
    """What a host listens with; see `protocol.transport.Listener`."""

    def __init__(self, network: Network, services: Services) -> None:
        self.host = current_host()
        self._network, self._services = network, services
        self._address = ""

    async def start(self, hosts: Sequence[str], port: int) -> int:
        self._address = f"{hosts[0]}:{port}"
        self._network.listeners[self._address] = self
        return port

    async def stop(self) -> None:
        self._network.listeners.pop(self._address, None)

    def accept(self, service: str, end: End) -> None:
        """Serves a stream; on its host."""
        asyncio.get_running_loop().create_task(self._serve(service, end))

    async def _serve(self, service: str, end: End) -> None:
        reason = "it closed the connection"
        try:
            await self._services[service](end)
        except Exception as error:
            reason = str(error)
        finally:
            end.stream.break_soon(reason)


class Connection:
    """A stream: two ends, and what is under way between them."""

    def __init__(
        self, network: Network, number: int, caller: Host, listener: SimulatedListener, service: str
    ) -> None:
        self.network, self.number = network, number
        self.hosts = (caller, listener.host)
        self.names = (caller.name, listener.host.name)
        is_whole = network.loop.random.random() < 0.7
        self.ends = (End(self, 0, is_whole), End(self, 1, is_whole))
        self._arrives = [0.0, 0.0]
        self._is_blind = self._is_broken = False
        listener.host.call(network.delay(), listener.accept, service, self.ends[1])

    def send(self, side: int, deliver: Callable[[Any], None], frame: Any) -> None:
        """Sends a frame from one end; it arrives late, or the stream breaks."""
        network = self.network
        if self._is_blind or self._is_broken:
            return
        loop = network.loop
        if network.p_fault and loop.random.random() < network.p_fault:
            how = int(loop.random.random() * 4)
            network.trace.note(
                "break", *self.names, self.number, side, ("lost", "late", "blind", "after")[how]
            )
            if how == 2:
                self.blind()
                return
            if how == 0:
                self.break_soon("the connection was reset")
                return
            # Delivered, and the stream breaks before there is an answer, or soon after.
            self.break_soon("the connection was reset", network.delay() * (1 + how))
        at = max(self._arrives[side], loop.time() + network.delay())
        self._arrives[side] = at
        target = self.hosts[1 - side]
        loop.call_at(at, self._arrive, side, deliver, frame, context=target.context)

    def _arrive(self, side: int, deliver: Callable[[Any], None], frame: Any) -> None:
        if not self._is_blind and not self.ends[1 - side].is_over:
            trace = self.network.trace
            if trace.is_on:
                trace.note("message", self.names[side], self.names[1 - side], self.number, frame)
            deliver(frame)

    def blind(self) -> None:
        """From now on nothing gets through, and the ends are told only much later."""
        if not self._is_blind:
            self._is_blind = True
            self.break_soon("it has not answered for long", _BLIND_S)

    def break_soon(self, reason: str, after: float = 0.0) -> None:
        """Both ends learn, each at its time, that the stream has broken."""
        network = self.network
        for end, host in zip(self.ends, self.hosts, strict=True):
            if not host.is_dead:
                host.call(after + network.delay(), end.lose, reason)
        if not after:
            self._is_broken = True
            network.forget(self)


class End:
    """One end of a stream; see `protocol.transport.FrameStream`.

    Args:
      stream: the stream.
      side: 0 for the caller.
      is_whole: whether it carries messages as a whole after the handshake.
    """

    kind = "tcp"
    caller_names = None
    machine = ""
    eof: object = None
    errors: tuple[type[Exception], ...] = (BrokenStreamError,)

    def __init__(self, stream: Connection, side: int, is_whole: bool) -> None:
        self.stream, self.side, self.is_whole = stream, side, is_whole
        self.inbox = Inbox()
        self.read: Callable[[], Awaitable[Any]] = self.inbox.get
        self.is_over = False
        self.is_framed = False

    async def write(self, frame: Any) -> None:
        """See `FrameStream.write`."""
        self.put(frame)

    def put(self, frame: Any) -> None:
        """Writes a frame."""
        if self.is_over:
            raise EndedStreamError("the stream has ended")
        self.stream.send(self.side, self.stream.ends[1 - self.side].take, frame)

    def take(self, frame: Any) -> None:
        """Receives a frame, on the host of this end."""
        if self.is_framed:
            self.framing.n_received += 1
            self.inbox.put(frame)
        else:
            self.inbox.put(_Frame(frame))  # type: ignore[arg-type]

    def lose(self, reason: str) -> None:
        """Learns that the stream has broken."""
        if not self.is_over:
            self.is_over = True
            self.inbox.end(BrokenStreamError(reason))

    def broken(self, error: Exception) -> BrokenStreamError:
        """See `FrameStream.broken`."""
        return error if isinstance(error, BrokenStreamError) else BrokenStreamError(str(error))

    def offer(self) -> _Upgrade | None:
        """See `FrameStream.offer`."""
        return _Upgrade(self) if self.is_whole else None

    async def attach(self, offer: DataOffer | None) -> Any:
        """See `FrameStream.attach`."""
        return self.framed() if self.is_whole else None

    def framed(self) -> End:
        """Carries messages as a whole from now on."""
        self.framing = _WholeFraming(self)
        self.is_framed = True
        return self

    async def close(self) -> None:
        """See `FrameStream.close`."""
        if not self.is_over:
            self.is_over = True
            self.inbox.end(None)
            self.stream.break_soon("it closed the connection")


class _Frame(bytes):
    """A frame, as an inbox takes it."""

    payload = b""


class _Upgrade:
    """See `protocol.transport.Upgrade`."""

    offer = None

    def __init__(self, end: End) -> None:
        self._end = end

    async def chosen(self) -> tuple[End, Framing]:
        end = self._end.framed()
        return end, end.framing


class _WholeFraming:
    """The framing of messages that are passed as objects; see `Framing`."""

    def __init__(self, end: End) -> None:
        self._end = end
        self.offer_first, self.close = end.inbox.offer_first, end.inbox.close
        self.n_received = 0

    def frames(
        self, message_id: int, control: bytes, tensors: Sequence[SentArray]
    ) -> Iterator[Message]:
        yield _message(control, tensors)

    def write_now(
        self, message_id: int, control: bytes, tensors: Sequence[SentArray]
    ) -> bool | None:
        if self._end.is_over:
            return None  # the common way finds how it has ended
        self._end.put(_message(control, tensors))
        return True

    def feed(self, read: Message) -> Message:
        return read

    def watch_long(self, on_long: Callable[[Message], object]) -> None:
        """Does nothing: no message arrives in parts."""

    def is_sign_of_life(self, frame: Message) -> bool:
        return False


def _message(control: bytes, tensors: Sequence[SentArray]) -> Message:
    check_control(control)
    copies: list[Array] = [np.array(tensor) for tensor in tensors]
    return Message(0, control, NOTHING, tensors=copies)

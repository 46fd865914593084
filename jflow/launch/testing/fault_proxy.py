"""`FaultProxy`: a TCP proxy that delays, holds and drops bytes, and resets connections."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Literal

from jflow.base.cluster import join_address
from jflow.base.handles import Closing

_CHUNK_BYTES = 1 << 16
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with a time of 0: closing the socket sends a reset."""

Side = Literal["client", "server"]


class Direction:
    """One direction, to the server or to the client, of all connections through a proxy.

    Attributes:
      n_bytes: how many bytes have been passed on.
      n_dropped: how many bytes were read and not passed on.
    """

    def __init__(self) -> None:
        self.n_bytes = self.n_dropped = 0
        self._delay_s = 0.0
        self._to_drop: float = 0
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._call: Callable[[Callable[[], object]], None]

    def delay(self, seconds: float) -> None:
        """Delays bytes by `seconds`; keeps their order."""
        self._call(lambda: setattr(self, "_delay_s", seconds))

    def hold(self) -> None:
        """Forwards nothing, neither bytes nor the end of a connection, until `go_on`.

        The sender can send until the buffers of the system are full, as if the network had stopped.
        """
        self._call(self._is_open.clear)

    def go_on(self) -> None:
        """Forwards what was held, and everything after it; also ends `drop`."""
        self._call(self._go_on)

    def drop(self, n_bytes: int | None = None) -> None:
        """Drops the next `n_bytes` bytes; if None, all bytes until `go_on`."""
        self._call(lambda: setattr(self, "_to_drop", float("inf") if n_bytes is None else n_bytes))

    def _go_on(self) -> None:
        self._to_drop = 0
        self._is_open.set()

    def _not_dropped(self, data: bytes) -> bytes:
        n_dropped = int(min(self._to_drop, len(data)))
        self._to_drop -= n_dropped
        self.n_dropped += n_dropped
        return data[n_dropped:]

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forwards the bytes of one connection until its end. Raises OSError if it is reset."""
        loop = asyncio.get_running_loop()
        # Bytes, the empty ones at the end, with the time when they are due. Bounded, so that a
        # receiver slows a sender down as without the proxy.
        waiting: asyncio.Queue[tuple[float, bytes | OSError]] = asyncio.Queue(maxsize=64)
        reading = asyncio.create_task(self._read(reader, waiting))
        try:
            while True:
                due, data = await waiting.get()
                await asyncio.sleep(max(due - loop.time(), 0.0))
                await self._is_open.wait()
                if isinstance(data, OSError):
                    raise data
                if not data:
                    writer.write_eof()
                    return
                passed = self._not_dropped(data)
                writer.write(passed)
                await writer.drain()
                self.n_bytes += len(passed)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(
        self, reader: asyncio.StreamReader, waiting: asyncio.Queue[tuple[float, bytes | OSError]]
    ) -> None:
        loop = asyncio.get_running_loop()
        data: bytes | OSError = b""
        is_over = False
        while not is_over:
            try:
                data = await reader.read(_CHUNK_BYTES)
            except OSError as error:
                data = error
            is_over = not data or isinstance(data, OSError)
            await waiting.put((loop.time() + self._delay_s, data))


class _Connection:
    """A client's connection to the proxy, with the proxy's own connection to the server."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.writers: dict[Side, asyncio.StreamWriter] = {"client": client, "server": server}

    def cut(self, side: Side) -> None:
        """Resets one of the two connections."""
        transport = self.writers[side].transport
        connection = transport.get_extra_info("socket")
        if connection is not None and not transport.is_closing():
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        transport.abort()


class FaultProxy(Closing):
    """A TCP proxy on the loopback interface that injects the faults that a test chooses.

        with FaultProxy(cluster.address("ps")) as proxy, jflow.Session(proxy.target) as session:
            proxy.to_server.delay(0.2)
            proxy.cut()

    It runs on a thread with an event loop of its own, so that threads and coroutines can use it.
    Every method returns once it has taken effect.

    Args:
      address: where to connect to, "host:port".

    Attributes:
      to_server: what clients send.
      to_client: what the server sends.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._upstream = (host.strip("[]"), int(port))
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._refuses = False
        self._n_accepted = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name=f"fault proxy of {address}", daemon=True
        )
        self.to_server, self.to_client = Direction(), Direction()
        for direction in (self.to_server, self.to_client):
            direction._call = self._call
        self._thread.start()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self._address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        # Not asyncio.start_server: what it accepts while it is closed it leaves open.
        self._call(lambda: self._loop.add_reader(self._listener, self._accept))

    @property
    def address(self) -> str:
        """The address that clients connect to, "host:port"."""
        return self._address

    @property
    def target(self) -> str:
        """The target for sessions through the proxy; it names the server behind it."""
        return f"grpc://{self.address}?at={join_address(*self._upstream)}"

    @property
    def n_connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    @property
    def n_accepted(self) -> int:
        """The number of connections accepted so far."""
        return self._n_accepted

    def blackhole(self) -> None:
        """Forwards nothing in either direction, like a network that is down; see `heal`.

        Connections stay open, new ones are accepted, and nothing is forwarded.
        """
        self.to_server.hold()
        self.to_client.hold()

    def refuse(self) -> None:
        """Resets new connections of clients, like a port without a listener."""
        self._call(lambda: setattr(self, "_refuses", True))

    def heal(self) -> None:
        """Ends all faults; connections that were cut stay so."""
        self._call(lambda: setattr(self, "_refuses", False))
        for direction in (self.to_server, self.to_client):
            direction.delay(0.0)
            direction.go_on()

    def cut(self) -> None:
        """Resets all connections on both sides; new ones can be made."""
        self._call(lambda: self._cut("client", "server"))

    def half_open(self, side: Side) -> None:
        """Resets one side of all connections; the other side receives neither a reset nor a reply.

        Args:
          side: the one whose connections are kept, "client" or "server".
        """
        if side not in ("client", "server"):
            raise ValueError(f'side must be "client" or "server", got {side!r}')
        (self.to_client if side == "client" else self.to_server).hold()
        self._call(lambda: self._cut("server" if side == "client" else "client"))

    def close(self) -> None:
        """Closes all connections and the port, and stops the thread. May be called again."""
        if self._thread.is_alive():
            self._run(self._close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _leave(self, failed: bool) -> None:
        self.close()

    def _cut(self, *sides: Side) -> None:
        for connection in self._connections:
            for side in sides:
                connection.cut(side)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # the client is gone already
            return
        self._n_accepted += 1
        task = self._loop.create_task(self._serve(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Here and not in the task: if it is cancelled before it begins it runs no line.
        task.add_done_callback(lambda _: connection.close())

    async def _serve(self, accepted: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=accepted)
        try:
            await self._connect(reader, writer)
        except OSError:  # the server cannot be reached: the client's connection is reset
            _Connection(writer, writer).cut("client")
        finally:
            writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            raise ConnectionRefusedError
        await self.to_server._is_open.wait()
        upstream, to_upstream = await asyncio.open_connection(*self._upstream)
        connection = _Connection(writer, to_upstream)
        self._connections.add(connection)
        try:
            await asyncio.gather(
                self._pass_on(self.to_server, reader, to_upstream),
                self._pass_on(self.to_client, upstream, writer),
            )
            for one in (writer, to_upstream):
                one.close()
                with suppress(OSError):
                    await one.wait_closed()
        finally:
            self._connections.discard(connection)
            to_upstream.transport.abort()

    async def _pass_on(
        self, direction: Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            await direction._pump(reader, writer)
        except OSError:
            # A connection that was reset resets its other side, unless that is held.
            await direction._is_open.wait()
            writer.transport.abort()

    async def _close(self) -> None:
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # connections that were aborted are closed in the next round

    def _call(self, function: Callable[[], object]) -> None:
        async def call() -> None:
            function()

        self._run(call())

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

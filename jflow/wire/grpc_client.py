"""A client's gRPC stream, on threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from jflow.deadline import Deadline
from jflow.errors import UnavailableError
from jflow.protocol.transport import BrokenStreamError
from jflow.wire.grpc_channels import client_channel, method_of
from jflow.wire.grpc_stream import broken
from jflow.wire.names import looked_up, unresolved


class GrpcClientStream:
    """A client's stream to a service; see `protocol.transport.Transport.open`."""

    def __init__(
        self,
        service: str,
        address: str,
        outgoing: Iterator[bytes],
        received: Callable[[bytes], bool],
        ended: Callable[[BrokenStreamError | None], object],
    ) -> None:
        self._ended = ended
        self._channel = client_channel(address)
        # Frames are taken in gRPC's deserializer, on a thread of gRPC. So callers are woken one
        # thread switch earlier than by the thread that iterates over the stream.
        try:
            method: Any = self._channel.stream_stream(
                method_of(service), response_deserializer=received
            )
            self._stream = method(outgoing, wait_for_ready=True)
            threading.Thread(target=self._read, name=f"jflow {address}", daemon=True).start()
        except BaseException:  # for example, no thread can be started
            self.close()
            raise

    def close(self) -> None:
        self._channel.close()

    def _read(self) -> None:
        """Iterates over the stream, whose frames the deserializer has taken."""
        cause: BrokenStreamError | None = None
        try:
            for is_wanted in self._stream:
                if not is_wanted:
                    return
        except grpc.RpcError as error:
            cause = broken(error)
        finally:
            self._ended(cause)


def resolve(address: str, limit: Deadline) -> None:
    """Checks that the host of an address resolves."""
    try:
        looked_up(address).result(limit.remaining())
    except TimeoutError:
        raise limit.error(f"resolving the host name of {address}") from None
    except (OSError, UnicodeError) as error:
        raise UnavailableError(
            f"no session on 'grpc://{address}': {unresolved(address, error)}; "
            "correct the target, or make the name known to this machine"
        ) from None

"""The gRPC server: turns frames into calls on a host's sessions, and their results into frames."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import grpc

from jflow.cluster import Task
from jflow.errors import (
    AbortedError,
    CancelledError,
    InvalidArgumentError,
    OpError,
    ResourceExhaustedError,
    UnknownError,
)
from jflow.wire import settings
from jflow.wire.background import Background
from jflow.wire.codec import error_to_status, plan_from_proto
from jflow.wire.frame import Array
from jflow.wire.services import Host, MasterSession, Registered, Welcome, WorkerSession
from jflow.wire.stream import FrameStream
from jflow.wire.token import is_authorized
from jflow.wire.v1 import service_pb2 as pb

_LOG = logging.getLogger(__name__)

Reply = tuple[pb.Envelope, Sequence[Array]]
_Handle = Callable[[pb.Envelope, list[Array]], Awaitable[Reply | None]]
_Session = tuple[_Handle, Callable[[], None]]
"""How to answer the calls of a session, and how to close it."""


class GrpcServer:
    """Serves a host on an address. Every method must be called on the event loop.

    Args:
      host: what to serve.
      token: the secret that callers must show.
    """

    def __init__(self, host: Host, token: str) -> None:
        self._host = host
        self._server = grpc.aio.server(
            interceptors=[_TokenCheck(token)], options=settings.SERVER_OPTIONS
        )
        self._server.add_generic_rpc_handlers((_Methods(host),))

    async def start(self, host: str, port: int) -> int:
        """Listens; returns the port, which the system chooses if `port` is 0.

        Raises:
          UnknownError: if the address cannot be bound, for example because it is in use.
        """
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            bound = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise UnknownError(
                f"Could not start gRPC server: {address} cannot be bound; "
                "another process may be using the port"
            ) from error
        await self._server.start()
        return bound

    async def stop(self) -> None:
        """Ends every stream; calls under way are cancelled, and their callers see them end."""
        await self._server.stop(None)


class _TokenCheck(grpc.aio.ServerInterceptor):
    """Refuses every call that does not show the token, before its body is read."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        if is_authorized(details.invocation_metadata, self._token):
            return await continuation(details)
        return grpc.stream_stream_rpc_method_handler(_refuse)


async def _refuse(_: Any, context: Any) -> None:
    await context.abort(
        grpc.StatusCode.UNAUTHENTICATED,
        "the token is missing or is not this server's; both ends need the same "
        "~/.jflow/token, JFLOW_TOKEN_FILE or JFLOW_TOKEN",
    )


class _Methods(grpc.GenericRpcHandler):
    def __init__(self, host: Host) -> None:
        closing = Background()
        # gRPC looks whether a handler is a coroutine function: partials are, lambdas are not.
        self._methods = {
            method: partial(_serve_stream, host, closing, partial(opened, host))
            for method, opened in (
                (settings.SESSION_METHOD, _client_session),
                (settings.PEER_METHOD, _peer_session),
            )
        }

    def service(self, details: Any) -> Any:
        method = self._methods.get(details.method)
        return method and grpc.stream_stream_rpc_method_handler(method)


async def _serve_stream(
    host: Host, closing: Background, opened: Callable[[], _Session], _: Any, context: Any
) -> None:
    """Serves one stream: a greeting, then calls on a session of its own, until it ends."""
    stream = FrameStream(context)
    messages = aiter(stream)
    if not await _greet(host, stream, messages):
        return
    handle, close = opened()
    calls = _Calls(host, stream, handle)
    try:
        await _serve(calls, messages)
    finally:
        closing.start(calls.end(close))


def _client_session(host: Host) -> _Session:
    session = host.open_master_session()
    return partial(_call_master, session), session.close


def _peer_session(host: Host) -> _Session:
    session = host.open_worker_session()
    return partial(_call_worker, session), session.close


async def _greet(host: Host, stream: FrameStream, messages: Any) -> bool:
    """Answers the first message of a stream; False if it is not the one that has to come first."""
    async for envelope, _ in messages:
        if envelope.WhichOneof("body") != "hello":
            _LOG.warning("a stream did not begin with Hello and was closed")
            return False
        await stream.send(pb.Envelope(id=envelope.id, welcome=_welcome_to_proto(host.welcome())))
        return True
    return False


async def _serve(calls: _Calls, messages: Any) -> None:
    """Takes the messages of a stream, each call in a coroutine of its own, until it ends."""
    async for envelope, tensors in messages:
        if envelope.WhichOneof("body") == "cancel":
            calls.cancel(envelope.cancel.id)
        elif envelope.id:
            calls.start(envelope, tensors)
        else:
            await calls.push(envelope, tensors)


class _Calls:
    """The calls of one stream that have not been answered yet."""

    def __init__(self, host: Host, stream: FrameStream, handle: _Handle) -> None:
        self._host = host
        self._stream = stream
        self._handle = handle
        self._working: dict[int, asyncio.Task[None]] = {}
        self._all: set[asyncio.Task[None]] = set()

    def start(self, request: pb.Envelope, tensors: list[Array]) -> None:
        task = asyncio.create_task(self._answer(request, tensors))
        self._working[request.id] = task
        self._all.add(task)
        task.add_done_callback(self._all.discard)

    def cancel(self, key: int) -> None:
        """Cancels the work for a call; an answer that is being sent already goes on."""
        if key in self._working:
            self._working[key].cancel()

    async def push(self, message: pb.Envelope, tensors: list[Array]) -> None:
        """Takes a message that has no answer."""
        with suppress(AbortedError):
            _check_incarnation(self._host, message)
            await self._handle(message, tensors)

    async def end(self, close: Callable[[], None]) -> None:
        """Cancels what is not answered yet, then closes the session.

        In a coroutine of its own: gRPC cancels the one that serves the stream, again and again.
        """
        self._stream.end()
        tasks = list(self._all)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        close()

    async def _answer(self, request: pb.Envelope, tensors: list[Array]) -> None:
        try:
            _check_incarnation(self._host, request)
            reply, values = await self._handle(request, tensors) or (pb.Envelope(), ())
        except asyncio.CancelledError:
            reply, values = self._failed(CancelledError("the call was cancelled")), ()
        except Exception as error:  # the boundary of the process: whatever it is goes to the caller
            if not isinstance(error, OpError):
                _LOG.exception("a call failed with an error that is not jflow's own")
            reply, values = self._failed(error), ()
        self._working.pop(request.id, None)
        reply.id = request.id
        # The caller may be gone; its stream's end is noticed where the stream is read.
        with suppress(grpc.RpcError, asyncio.InvalidStateError):
            try:
                await self._stream.send(reply, values)
            except ResourceExhaustedError as error:
                await self._stream.send(
                    pb.Envelope(id=request.id, status=self._failed(error).status)
                )

    def _failed(self, error: BaseException) -> pb.Envelope:
        return pb.Envelope(status=error_to_status(error, _name(self._host)))


def _check_incarnation(host: Host, request: pb.Envelope) -> None:
    current = host.welcome().incarnation
    if request.incarnation not in (0, current):
        raise AbortedError(
            f"{_name(host)} has restarted since this call's state was made "
            f"(incarnation {request.incarnation:x} is now {current:x}): its variables and "
            "registered steps are gone; open a new session and initialize again",
            task=_name(host),
        )


def _name(host: Host) -> str:
    return str(host.welcome().task)


def _welcome_to_proto(welcome: Welcome) -> pb.Welcome:
    cluster = welcome.cluster
    return pb.Welcome(
        task=str(welcome.task),
        incarnation=welcome.incarnation,
        cluster={str(t): cluster.task_address(t.job, t.index) for t in cluster.tasks()},
        devices=[
            pb.Device(name=str(d.device), platform=d.platform, incarnation=d.incarnation)
            for d in welcome.devices
        ],
        n_compiled=welcome.n_compiled,
    )


def _registered(result: Registered) -> Reply:
    return pb.Envelope(registered=pb.Registered(handle=result.handle, missing=result.missing)), ()


async def _call_master(
    session: MasterSession, request: pb.Envelope, tensors: list[Array]
) -> Reply | None:
    match request.WhichOneof("body"):
        case "run_step":
            run = request.run_step
            timeout = run.timeout_ms / 1000 if run.timeout_ms else None
            return pb.Envelope(), await session.run(run.handle, timeout, tensors)
        case "register_step":
            register = request.register_step
            plans = [plan_from_proto(plan) for plan in register.plans]
            artifacts = _artifacts(register.artifacts, tensors)
            timeout = register.timeout_ms / 1000
            return _registered(
                await session.register(plans, register.n_fetches, artifacts, timeout)
            )
        case "list_devices":
            ask = request.list_devices
            found = await session.list_devices(
                [_task(name) for name in ask.tasks], ask.timeout_ms / 1000, ask.only_up
            )
            devices = [
                pb.Device(name=str(d.device), platform=d.platform, incarnation=d.incarnation)
                for d in found
            ]
            return pb.Envelope(device_list=pb.DeviceList(devices=devices)), ()
        case "reset":
            await session.reset(list(request.reset.containers))
            return None
        case other:
            raise InvalidArgumentError(f"a master does not answer {other!r}")


async def _call_worker(
    session: WorkerSession, request: pb.Envelope, tensors: list[Array]
) -> Reply | None:
    match request.WhichOneof("body"):
        case "run_parts":
            run = request.run_parts
            return pb.Envelope(), await session.run(run.step, run.handle, tensors)
        case "send_tensor":
            sent = request.send_tensor
            session.deliver(sent.step, sent.edge, tensors[0] if tensors else None)
            return None
        case "register_parts":
            plans = [plan_from_proto(plan) for plan in request.register_parts.plans]
            artifacts = _artifacts(request.register_parts.artifacts, tensors)
            return _registered(await session.register(plans, artifacts))
        case "release":
            for handle in request.release.handles:
                session.release(handle)
            return None
        case "reset":
            await session.reset(list(request.reset.containers))
            return None
        case other:
            raise InvalidArgumentError(f"a worker does not answer {other!r}")


def _task(name: str) -> Task:
    try:
        return Task.parse(name)
    except ValueError as error:
        raise InvalidArgumentError(str(error)) from None


def _artifacts(sent: Any, tensors: list[Array]) -> dict[str, Array]:
    if len(sent) != len(tensors):
        raise InvalidArgumentError(f"{len(sent)} artifacts came with {len(tensors)} tensors")
    return {artifact.digest: tensor for artifact, tensor in zip(sent, tensors, strict=True)}

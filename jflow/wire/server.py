"""The gRPC server: turns frames into calls on a host's sessions, and their results into frames."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import grpc

from jflow.cluster import Task
from jflow.deadline import FOREVER, Deadline
from jflow.errors import InvalidArgumentError, UnknownError
from jflow.wire import settings
from jflow.wire.background import Background
from jflow.wire.callbacks import ClientFunctions
from jflow.wire.calls import Calls, Handle, Reply
from jflow.wire.codec import plan_from_proto
from jflow.wire.frame import Array
from jflow.wire.services import Host, MasterSession, Registered, Welcome, WorkerSession
from jflow.wire.stream import FrameStream
from jflow.wire.token import is_authorized
from jflow.wire.v1 import service_pb2 as pb

_LOG = logging.getLogger(__name__)

_Session = tuple[Handle, Callable[[], None]]
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
    host: Host, closing: Background, opened: Callable[[FrameStream], _Session], _: Any, context: Any
) -> None:
    """Serves one stream: a greeting, then calls on a session of its own, until it ends."""
    stream = FrameStream(context)
    if not await _greet(host, stream):
        return
    handle, close = opened(stream)
    calls = Calls(host.welcome(), stream, handle)
    try:
        await calls.serve()
    finally:
        closing.start(calls.end(close))


def _client_session(host: Host, stream: FrameStream) -> _Session:
    session = host.open_master_session()
    return partial(_call_master, session, ClientFunctions(stream)), session.close


def _peer_session(host: Host, _: FrameStream) -> _Session:
    session = host.open_worker_session()
    return partial(_call_worker, session), session.close


async def _greet(host: Host, stream: FrameStream) -> bool:
    """Answers the first message of a stream; False if it is not the one that has to come first."""
    received = await stream.receive()
    if received is None:
        return False
    hello, _ = received
    if hello.WhichOneof("body") != "hello":
        _LOG.warning("a stream did not begin with Hello and was closed")
        return False
    await stream.send(pb.Envelope(id=hello.id, welcome=_welcome_to_proto(host.welcome())))
    return True


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
    session: MasterSession,
    functions: ClientFunctions,
    request: pb.Envelope,
    tensors: list[Array],
) -> Reply | None:
    match request.WhichOneof("body"):
        case "run_step":
            run = request.run_step
            client = (functions.of_call(request.id),) if run.calls_back else ()
            values = await session.run(run.handle, _deadline(request), tensors, *client)
            return pb.Envelope(), values
        case "called_back":
            functions.answered(request, tensors)
        case "register_step":
            register = request.register_step
            plans = [plan_from_proto(plan) for plan in register.plans]
            artifacts = _artifacts(register.artifacts, tensors)
            return _registered(
                await session.register(
                    plans,
                    register.n_fetches,
                    artifacts,
                    register.connect_timeout_s,
                    _deadline(request),
                )
            )
        case "list_devices":
            ask = request.list_devices
            found = await session.list_devices(
                [_task(name) for name in ask.tasks],
                ask.connect_timeout_s,
                ask.only_up,
                _deadline(request),
            )
            devices = [
                pb.Device(name=str(d.device), platform=d.platform, incarnation=d.incarnation)
                for d in found
            ]
            return pb.Envelope(device_list=pb.DeviceList(devices=devices)), ()
        case "release":
            for handle in request.release.handles:
                session.release(handle)
        case "reset":
            reset = request.reset
            await session.reset(list(reset.containers), reset.connect_timeout_s, _deadline(request))
        case other:
            raise InvalidArgumentError(f"a master does not answer {other!r}")
    return None


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


def _deadline(request: pb.Envelope) -> Deadline:
    """The deadline of a call, by the clock of this machine."""
    if not request.remaining_s > 0:
        return FOREVER
    return Deadline(request.timeout_s, request.remaining_s)


def _task(name: str) -> Task:
    try:
        return Task.parse(name)
    except ValueError as error:
        raise InvalidArgumentError(str(error)) from None


def _artifacts(sent: Any, tensors: list[Array]) -> dict[str, Array]:
    if len(sent) != len(tensors):
        raise InvalidArgumentError(f"{len(sent)} artifacts came with {len(tensors)} tensors")
    return {artifact.digest: tensor for artifact, tensor in zip(sent, tensors, strict=True)}

"""`MasterClient`: a client's connection to a master; thread-safe, without an event loop."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Concatenate, ParamSpec, TypeVar

from jflow.base import forks
from jflow.base.cluster import Target, Task
from jflow.base.deadline import FOREVER, Deadline
from jflow.base.deadline.clock import now
from jflow.base.deadline.notices import WaitNotice
from jflow.base.values import Array, SentArray
from jflow.base.versions import VERSION
from jflow.errors import CancelledError, InternalError, OpError, UnavailableError
from jflow.net.protocol import settings
from jflow.net.protocol.admission import admitted_info, new_nonce
from jflow.net.protocol.call_notices import CallNotices
from jflow.net.protocol.callbacks import CallbackFunction, Callbacks
from jflow.net.protocol.client_channel import ClientChannel
from jflow.net.protocol.codec import control_of
from jflow.net.protocol.frame import Message
from jflow.net.protocol.handshake import N_ANSWERS, Caller, CallerHandshake
from jflow.net.protocol.heartbeat import TICKS, Beat, Heartbeat, liveness_s, silence
from jflow.net.protocol.interrupts import Interrupts
from jflow.net.protocol.pending_calls import (
    Answers,
    Outcome,
    PendingCalls,
    answer_timeout,
    calls_back,
)
from jflow.net.protocol.receiver import Answered, CallAnswer, Receiver, Reply
from jflow.net.protocol.records import Artifacts, Registered, ServerInfo
from jflow.net.protocol.rpc import CallRequest, Rpc
from jflow.net.protocol.rpcs import (
    MASTER,
    REGISTER_STEP,
    RELEASE,
    RUN_STEP,
)
from jflow.net.protocol.run_rpcs import without_records
from jflow.net.protocol.services import MasterSession
from jflow.net.protocol.signatures import rpc_of
from jflow.net.protocol.templates import TemplateEncoder
from jflow.net.protocol.ticker import ticker
from jflow.net.protocol.tokens import Secret
from jflow.net.protocol.transport import Transport, stream_error
from jflow.net.protocol.v1 import service_pb2 as pb
from jflow.plan import Plan
from jflow.plan.trace.record import TaskRecord
from jflow.state.effects import Effect

_LEAST_S = 0.001
"""The least remaining time that a request states, in seconds: 0 would mean no limit."""

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


@forks.guarded(
    "call",
    "register",
    "run_step",
    "start",
    ignored=("close", "release"),
)
class MasterClient:
    """A client's session on a master, over one connection; thread-safe.

    Args:
      transport: carries the frames.
      secret: the token.
      target: the server that is meant.
      connect_timeout: the longest time to wait for the server to answer, in seconds.
      deadline: of the call that needs the connection.
      version: the version of the protocol to speak.

    Attributes:
      info: the server info.
      notices: logs what long calls wait for.

    Raises:
      UnavailableError: if the server does not answer within the connect timeout, its name does not
        resolve, or it is not the one that is meant.
      DeadlineExceededError: if the deadline passes first.
      OtherVersionError: if it speaks an earlier version, in which it can be called again.
      FailedPreconditionError: if it speaks a version in which it cannot.
      RestartedError: if the target names another incarnation of the server.
      UnauthenticatedError: if the server has another token.
    """

    def __init__(
        self,
        transport: Transport,
        secret: Secret,
        target: Target,
        connect_timeout: float,
        deadline: Deadline = FOREVER,
        *,
        version: int = VERSION,
    ) -> None:
        limit = deadline.while_connecting(connect_timeout)
        self._address = target.address
        caller = Caller(secret, MASTER.name, target, version=version)
        self._handshake = CallerHandshake(caller, new_nonce())
        self._ids = itertools.count(1)
        self._pending = PendingCalls()
        self._encoder = TemplateEncoder()
        self._channel = ClientChannel()
        self._receiver = Receiver(self._handshake, self._channel.put)
        self._n_received = 0
        self._heartbeat = Heartbeat()
        self._liveness = liveness_s()
        self._ticker = ticker(self._liveness / TICKS)
        self.notices = CallNotices(self._start_call, f"through the server at {self._address}")
        self._task: str | None = None
        try:
            self._channel.open(
                transport, MASTER.name, target, limit, self._receive_frame, self._on_end
            )
            self.info = self._perform_handshake(limit)
            self._channel.attach(
                self.info.data_offer, limit, self._receive_message, self._on_data_end
            )
            self._check_beside_data()
            self._task = str(self.info.task)
            self._ticker.add(self._tick)
            if not self.is_open:  # since the handshake
                self._ticker.remove(self._tick)
        except BaseException:
            self.close()
            raise

    @property
    def transport(self) -> str:
        """The transport of this session's messages: "grpc", "unix", "tcp" or "inproc"."""
        return self._channel.name

    @property
    def is_open(self) -> bool:
        """Whether the stream is open; once it has ended, it is never reopened."""
        return self._pending.end is None

    def call(
        self,
        method: Callable[Concatenate[S, P], Awaitable[R]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Calls a remote method of `MasterSession`, or of its `watch`, and waits for its result."""
        server = f"{self._task} at {self._address}"
        rpc = rpc_of(method).in_version(self._handshake.version, server)
        request, deadline = rpc.prepared(*args, **kwargs), rpc.deadline_of(args, kwargs)
        result: R = rpc.read(*self._call(rpc, request, deadline))
        return result

    def register(
        self,
        plans: Sequence[Plan],
        n_fetches: int,
        artifacts: Artifacts,
        connect_timeout: float,
        deadline: Deadline = FOREVER,
        restarted: Sequence[Task] = (),
    ) -> Registered:
        """See `MasterSession.register`."""
        request = REGISTER_STEP.prepared(plans, n_fetches, artifacts, connect_timeout, restarted)
        return REGISTER_STEP.read(*self._call(REGISTER_STEP, request, deadline))

    def run_step(
        self,
        handle: int,
        feeds: Sequence[Array],
        deadline: Deadline,
        functions: Sequence[CallbackFunction] = (),
        records: list[TaskRecord] | None = None,
        effect: Effect | None = None,
        step_id: int = 0,
    ) -> list[Array]:
        """See `MasterSession.run_step`.

        Args:
          handle, feeds, deadline: the step, its fed values and how long it may take.
          functions: the functions that the step calls, by number; they run in this thread.
          records: if given, the step is traced, and what each task notes is added to them, by this
            process's clock.
          effect: the attempt, of a step that is applied once.
          step_id: the number of a step that is recorded.

        Raises:
          DeadlineExceededError: if the deadline passes. The step is cancelled then; a function that
            is running is waited for.
          Exception: what one of the functions raises.
        """
        is_traced = records is not None
        request = RUN_STEP.prepared(
            handle,
            feeds,
            calls_back=bool(functions),
            is_traced=is_traced,
            effect=effect,
            step_id=step_id,
        )
        if not (functions or is_traced):
            return self._call(RUN_STEP, request, deadline)[1]
        callbacks = Callbacks(functions, self._send) if functions else None
        sent = now()
        reply, tensors = self._run_calling(request, deadline, callbacks)
        return tensors if records is None else without_records(reply.traced, tensors, sent, records)

    def start(
        self,
        handle: int,
        feeds: Sequence[Array],
        deadline: Deadline,
        effect: Effect | None = None,
        records: list[TaskRecord] | None = None,
        step_id: int = 0,
    ) -> Future[list[Array]]:
        """Starts a step; cancelling the future cancels it, and the server enforces the deadline."""
        is_traced = records is not None
        request = RUN_STEP.prepared(
            handle, feeds, is_traced=is_traced, effect=effect, step_id=step_id
        )
        if records is None:
            return self._start_call(request, Outcome(self._cancel), deadline)
        read = partial(_read_traced, sent=now(), records=records)
        return self._start_call(request, Outcome(self._cancel, read), deadline)

    def release(self, handle: int) -> None:
        """See `MasterSession.release`. Never blocks, so a finalizer may call it."""
        if self.is_open:
            self._send(next(self._ids), *RELEASE.envelope(handle))

    def close(self) -> None:
        """Ends the session; pending calls fail with CancelledError."""
        self._finish(CancelledError("Step was cancelled by an explicit call to Session.close()"))
        self._channel.close()

    def _perform_handshake(self, limit: Deadline) -> ServerInfo:
        """Performs the handshake together with the thread that reads frames (`_receive_frame`)."""
        replies: SimpleQueue[CallAnswer] = SimpleQueue()
        notice = WaitNotice(lambda: f"for the server at {self._address}, which does not answer")
        self._pending.add(next(self._ids), replies)
        self._channel.put(self._handshake.first_frame(self._channel.machine))
        try:
            reply = notice.get_from(replies, limit)
        except Empty:
            raise limit.error(
                f"connecting to the server at {self._address}",
                advice="start it or check the address",
            ) from None
        if isinstance(reply, OpError):
            raise reply
        return admitted_info(reply[0], self._handshake)

    def _call(
        self,
        rpc: Rpc[MasterSession, ..., Any],
        request: CallRequest,
        deadline: Deadline,
        callbacks: Callbacks | None = None,
    ) -> Reply:
        replies: SimpleQueue[CallAnswer] = SimpleQueue()
        with self._channel.interrupts() as interrupts:
            key = self._begin(request, replies, deadline)
            if rpc is not RUN_STEP:
                self.notices.add(key, partial(rpc.doing, request.body))
            try:
                reply = self._wait_for_reply(key, replies, deadline, callbacks, interrupts)
                if reply is None:
                    doing = rpc.doing(request.body)
                    reply = self._wait_for_late_reply(replies, deadline, doing, interrupts)
            except BaseException:
                # Typically Ctrl-C: the step stops and the session remains usable.
                self._cancel(key)
                raise
            finally:
                if self._pending.give_up(key):
                    self._channel.expect(1)
                self.notices.remove(key)
        if isinstance(reply, OpError):
            raise reply
        return reply

    def _run_calling(
        self, request: CallRequest, deadline: Deadline, callbacks: Callbacks | None
    ) -> Reply:
        """Runs a step and serves its callbacks; raises the user's own error if one fails."""
        try:
            return self._call(RUN_STEP, request, deadline, callbacks)
        except OpError:
            if callbacks is None or callbacks.error is None:
                raise
        # Not chained to the error of the cluster that stood for it: this is the user's own.
        raise callbacks.error

    def _start_call(self, request: CallRequest, outcome: Outcome, deadline: Deadline) -> Outcome:
        """Sends a call whose reply completes a future; no thread waits for it."""
        with self._channel.expecting():
            outcome.key = self._begin(request, outcome, deadline)
        return outcome

    def _begin(self, request: CallRequest, answers: Answers, deadline: Deadline) -> int:
        """Sends the request of a call; returns the call's id."""
        key, times = next(self._ids), (0.0, 0.0)
        if deadline.timeout is not None:
            times = deadline.timeout, max(deadline.remaining() or 0.0, _LEAST_S)
        self._pending.add(key, answers)
        try:
            control = request.control(self._encoder, key, self.info.incarnation, *times)
            self._channel.send_request(key, control, request.tensors)
        except BaseException:
            self._pending.calls.pop(key, None)
            raise
        return key

    def _wait_for_reply(
        self,
        key: int,
        replies: SimpleQueue[CallAnswer],
        deadline: Deadline,
        callbacks: Callbacks | None,
        interrupts: Interrupts,
    ) -> CallAnswer | None:
        """Waits for the reply to a call; returns None if there is none shortly after the deadline.

        Meanwhile the step's calls of functions are served in this thread.
        """
        try:
            while True:
                reply = self._channel.get(replies, answer_timeout(deadline), interrupts)
                if callbacks is None or not calls_back(reply):
                    return reply
                interrupts.waiting(callbacks.answer, *reply)
        except Empty:
            self._cancel(key)
            return None

    def _wait_for_late_reply(
        self,
        replies: SimpleQueue[CallAnswer],
        deadline: Deadline,
        doing: str,
        interrupts: Interrupts,
    ) -> CallAnswer:
        """Waits for the reply to a call that was cancelled because its deadline passed.

        The server enforces the deadline too, and its answer is preferred: it may be an element that
        was taken from a queue, which must not be lost, or an error that names the task that was
        waited for. Only if the server does not answer in time is the call given up.
        """
        reason, op = "", None
        with suppress(Empty):
            reply = self._channel.get(replies, settings.GRACE_S, interrupts)
            while calls_back(reply):
                reply = self._channel.get(replies, settings.GRACE_S, interrupts)
            if not isinstance(reply, CancelledError):
                return reply
            reason, op = reply.message.partition("; ")[2], reply.op
        through = f"{doing} through {self._task} at {self._address}"
        return deadline.error(through, self._task, reason, op)

    def _cancel(self, key: int) -> None:
        self._send(key, pb.Envelope(cancel=pb.Cancel(id=key)), ())

    def _send(self, key: int, envelope: pb.Envelope, tensors: Sequence[SentArray]) -> None:
        self._channel.send(key, control_of(envelope, tensors), tensors)

    def _receive_frame(self, frame: bytes) -> bool:
        """Receives a frame on the transport's reader thread, and wakes the caller it is for.

        Returns:
          False if the session is over.
        """
        self._n_received += 1
        self._check_beside_data()
        if self._pending.end is None:
            self._receive_or_finish(self._receiver.frame, frame)
        return self._pending.end is None

    def _check_beside_data(self) -> None:
        """Ends the session if a message came over the first stream despite the data stream.

        Messages never change their stream, so an intermediary would have inserted it.
        """
        if self._channel.has_data and self._n_received > N_ANSWERS:
            message = f"the server at {self._address} sent a message beside the data stream"
            self._finish(UnavailableError(message, task=self._task))

    def _receive_message(self, message: Message) -> None:
        """Receives a message on the thread that reads the data stream, and wakes its caller."""
        self._receive_or_finish(self._receiver.message, message)

    def _receive_or_finish(self, receive: Callable[[T], Answered | None], received: T) -> None:
        try:
            if (answered := receive(received)) is not None:
                self._pass_reply(answered)
        except OpError as error:
            self._finish(error)
        except Exception as error:  # its caller would wait forever
            self._finish(InternalError(f"a message from the server is malformed: {error!r}"))

    def _pass_reply(self, answered: Answered) -> None:
        """Passes a reply to the caller that waits for it."""
        call, reply, is_final = answered
        receiver, is_given_up = self._pending.answered(call, is_final=is_final)
        if is_given_up:
            self._channel.expect(-1)
        elif isinstance(receiver, Outcome):
            self._channel.complete(partial(receiver.put, reply))
        elif receiver is not None:
            receiver.put(reply)
        elif not call and isinstance(reply, OpError):
            self._finish(reply)

    def _on_end(self, cause: Exception | None) -> None:
        """Ends the session because its stream has ended."""
        if cause is None:
            error = f"the server at {self._address} ended the session"
            self._finish(UnavailableError(error, task=self._task))
        else:
            self._lose(cause)

    def _on_data_end(self, cause: Exception | None) -> None:
        """Ends the session because its data stream has ended."""
        if isinstance(cause, OpError):  # a message is malformed
            self._finish(cause)
        else:
            self._on_end(cause)
        self._channel.close()

    def _lose(self, cause: object) -> None:
        server = f"the server at {self._address}"
        self._finish(stream_error(cause, server, "this client", self._task))

    def _tick(self) -> None:
        """Pings a server that has been silent for long; ends the session if it stays silent."""
        self._channel.tick()
        signs = self._n_received + self._channel.n_signs
        match self._heartbeat.tick(signs, is_waiting=bool(self._pending.calls)):
            case Beat.ASK:
                key = next(self._ids)
                self._send(key, pb.Envelope(id=key, ping=pb.Ping()), ())
            case Beat.LOST:
                self._lose(silence(self._liveness))
                self._channel.close()
        self.notices.tick(self._pending.calls, now())

    def _finish(self, end: OpError) -> None:
        self._ticker.remove(self._tick)
        self._pending.finish(end)
        self._channel.end_data()


def _read_traced(reply: Reply, sent: float, records: list[TaskRecord]) -> list[Array]:
    message, tensors = reply
    return without_records(message.traced, tensors, sent, records)

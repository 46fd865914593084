"""A client's connection to the master of its session, for any thread and without an event loop."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeGuard

import grpc

from jflow import _forks
from jflow.cluster import Task
from jflow.deadline import FOREVER, Deadline
from jflow.errors import CancelledError, OpError, UnavailableError
from jflow.plan import Plan
from jflow.wire import settings
from jflow.wire.callbacks import Callbacks, Function
from jflow.wire.codec import error_of, frames, open_message, plan_to_proto
from jflow.wire.frame import Array, Assembler
from jflow.wire.names import looked_up, unresolved
from jflow.wire.peer import device_from_proto, rpc_error, welcome_from_proto
from jflow.wire.services import Artifacts, DeviceRecord, Registered, Welcome
from jflow.wire.token import credentials, load_token
from jflow.wire.v1 import service_pb2 as pb

_LOG = logging.getLogger(__name__)
_NOTICE_AFTER_S = 10.0
_RUNNING = "running the step"
_LEAST_S = 0.001
"""What a request says that it has left, in seconds, at least: 0 would mean no limit."""

_Reply = tuple[pb.Envelope, list[Array]]
_Answer = _Reply | OpError


class _Answers(Protocol):
    """Where the answer to one call comes."""

    def put(self, answer: _Answer, /) -> None:
        """Takes an answer, on any thread."""


@_forks.guarded("list_devices", "register", "run", "start", "reset", ignored=("close", "release"))
class MasterClient:
    """A session on a server. Threads may call at the same time.

    Args:
      address: "host:port" of the server.
      connect_timeout: longest time to wait until it answers, in seconds.
      deadline: of the call that needs the connection.

    Raises:
      UnavailableError: if it does not answer for the connect timeout, or its name does not resolve.
      DeadlineExceededError: if the deadline comes before.
      UnauthenticatedError: if it does not take this user's token.
    """

    def __init__(self, address: str, connect_timeout: float, deadline: Deadline = FOREVER) -> None:
        limit = deadline.while_connecting(connect_timeout)
        self._address = address
        self._ids = itertools.count(1)
        self._frame_ids = itertools.count(1)
        self._pending: dict[int, _Answers] = {}
        self._assembler = Assembler()
        self._lock = threading.Lock()
        self._end: OpError | None = None
        self._outgoing: SimpleQueue[tuple[int, Iterator[bytes]] | None] = SimpleQueue()
        self._resolve(limit)
        self._channel = grpc.insecure_channel(address, options=settings.CHANNEL_OPTIONS)
        try:
            method: Any = self._channel.stream_stream(
                settings.SESSION_METHOD, response_deserializer=self._take
            )
            self._stream = method(
                self._frames(), metadata=credentials(load_token()), wait_for_ready=True
            )
            threading.Thread(target=self._read, name=f"jflow {address}", daemon=True).start()
            self.welcome: Welcome = welcome_from_proto(self._greet(limit))
        except BaseException:
            self.close()
            raise

    @property
    def is_open(self) -> bool:
        """Whether the stream is there; once it has ended it stays so."""
        return self._end is None

    def list_devices(
        self,
        tasks: Sequence[Task],
        connect_timeout: float,
        deadline: Deadline = FOREVER,
        *,
        only_up: bool = False,
    ) -> list[DeviceRecord]:
        """See `MasterSession.list_devices`."""
        names = [str(task) for task in tasks]
        ask = pb.ListDevices(tasks=names, connect_timeout_s=connect_timeout, only_up=only_up)
        message = pb.Envelope(list_devices=ask)
        reply, _ = self._call(message, (), deadline, "listing the devices of " + ", ".join(names))
        return [device_from_proto(device) for device in reply.device_list.devices]

    def register(
        self,
        plans: Sequence[Plan],
        n_fetches: int,
        artifacts: Artifacts,
        connect_timeout: float,
        deadline: Deadline = FOREVER,
    ) -> Registered:
        """See `MasterSession.register`."""
        body = pb.RegisterStep(
            plans=[plan_to_proto(plan) for plan in plans],
            n_fetches=n_fetches,
            artifacts=[pb.Artifact(digest=digest) for digest in artifacts],
            connect_timeout_s=connect_timeout,
        )
        tasks = ", ".join(dict.fromkeys(str(plan.device.task) for plan in plans))
        message = pb.Envelope(register_step=body)
        tensors = list(artifacts.values())
        reply, _ = self._call(message, tensors, deadline, f"registering the step on {tasks}")
        return Registered(reply.registered.handle, tuple(reply.registered.missing))

    def run(
        self,
        handle: int,
        feeds: Sequence[Array],
        deadline: Deadline,
        functions: Sequence[Function] = (),
    ) -> list[Array]:
        """See `MasterSession.run`.

        Args:
          handle, feeds, deadline: the step, its fed values and how long it may take.
          functions: those that the step calls back, by number; they are called in this thread.

        Raises:
          DeadlineExceededError: if the deadline passes; the step is cancelled then, and a function
            that runs is waited for.
          Exception: what one of the functions raises.
        """
        if functions:
            callbacks = Callbacks(functions, self._send)
            return self._run_calling(handle, feeds, deadline, callbacks)
        _, values = self._call(_run_step(handle), feeds, deadline, _RUNNING)
        return values

    def start(
        self,
        handle: int,
        feeds: Sequence[Array],
        deadline: Deadline,
        functions: Sequence[Function] = (),
    ) -> Future[list[Array]]:
        """As `run`, and waits for nothing; cancelling the future cancels the step.

        The server watches the time. Functions are called in threads of their own.
        """
        outcome = _Outcome(self._cancel, Callbacks(functions, self._send))
        envelope = _run_step(handle, calls_back=bool(functions))
        outcome.key = self._begin(envelope, feeds, outcome, deadline)
        return outcome

    def release(self, handle: int) -> None:
        """See `MasterSession.release`. Waits for nothing, so that any thread may call it."""
        if self.is_open:
            self._send(next(self._ids), pb.Envelope(release=pb.Release(handles=[handle])), ())

    def reset(
        self, containers: Sequence[str], connect_timeout: float, deadline: Deadline = FOREVER
    ) -> None:
        """See `MasterSession.reset`."""
        body = pb.Reset(containers=containers, connect_timeout_s=connect_timeout)
        self._call(pb.Envelope(reset=body), (), deadline, "resetting containers")

    def close(self) -> None:
        """Ends the session; calls under way fail with CancelledError."""
        self._finish(CancelledError("Step was cancelled by an explicit call to Session.close()"))
        self._outgoing.put(None)
        self._channel.close()

    def _resolve(self, limit: Deadline) -> None:
        """Makes sure that the host of the address is known."""
        try:
            looked_up(self._address).result(limit.remaining())
        except TimeoutError:
            raise limit.error(f"resolving the host name of {self._address}") from None
        except (OSError, UnicodeError) as error:
            raise UnavailableError(
                f"no session on 'grpc://{self._address}': {unresolved(self._address, error)}; "
                "correct the target, or make the name known to this machine"
            ) from None

    def _greet(self, limit: Deadline) -> pb.Welcome:
        notice = threading.Timer(
            _NOTICE_AFTER_S,
            lambda: _LOG.warning("still waiting for the server at %s", self._address),
        )
        notice.start()
        answers: SimpleQueue[_Answer] = SimpleQueue()
        try:
            self._begin(pb.Envelope(hello=pb.Hello()), (), answers, FOREVER)
            answer = answers.get(timeout=limit.remaining())
        except Empty:
            raise limit.error(
                f"connecting to the server at {self._address}",
                advice="start it or check the address",
            ) from None
        finally:
            notice.cancel()
        if isinstance(answer, OpError):
            raise answer
        return answer[0].welcome

    def _call(
        self,
        envelope: pb.Envelope,
        tensors: Sequence[Array],
        deadline: Deadline,
        doing: str,
        callbacks: Callbacks | None = None,
    ) -> _Reply:
        answers: SimpleQueue[_Answer] = SimpleQueue()
        key = self._begin(envelope, tensors, answers, deadline)
        try:
            answer = self._answer(key, answers, deadline, doing, callbacks)
        except BaseException:
            # Ctrl-C, above all: the step stops and the session stays usable.
            self._cancel(key)
            raise
        finally:
            self._pending.pop(key, None)
        if isinstance(answer, OpError):
            raise answer
        return answer

    def _run_calling(
        self, handle: int, feeds: Sequence[Array], deadline: Deadline, callbacks: Callbacks
    ) -> list[Array]:
        """Runs a step that calls functions of this client."""
        envelope = _run_step(handle, calls_back=True)
        try:
            return self._call(envelope, feeds, deadline, _RUNNING, callbacks)[1]
        except OpError:
            if callbacks.error is None:
                raise
        # Not from the error that the cluster gave in its place: the exception is the user's own.
        raise callbacks.error

    def _begin(
        self,
        envelope: pb.Envelope,
        tensors: Sequence[Array],
        answers: _Answers,
        deadline: Deadline,
    ) -> int:
        """Sends a call; returns what it is known by."""
        key = envelope.id = next(self._ids)
        if deadline.timeout is not None:
            envelope.timeout_s = deadline.timeout
            envelope.remaining_s = max(deadline.remaining() or 0.0, _LEAST_S)
        if envelope.WhichOneof("body") != "hello":
            envelope.incarnation = self.welcome.incarnation
        with self._lock:
            if self._end is not None:
                raise _again(self._end)
            self._pending[key] = answers
        try:
            self._send(key, envelope, tensors)
        except BaseException:
            self._pending.pop(key, None)
            raise
        return key

    def _answer(
        self,
        key: int,
        answers: SimpleQueue[_Answer],
        deadline: Deadline,
        doing: str,
        callbacks: Callbacks | None,
    ) -> _Answer:
        """The answer to a call.

        The server watches the time too, and what it answers when the time is over is preferred: it
        may be an element that was taken from a queue, which must not be lost, or an error that
        knows which task was waited for. Only a server that does not answer then is given up.
        """
        with suppress(Empty):
            return _final_answer(answers, deadline, callbacks)
        self._cancel(key)
        reason = ""
        with suppress(Empty):
            answer = answers.get(timeout=settings.GRACE_S)
            while _asks(answer):
                answer = answers.get(timeout=settings.GRACE_S)
            if not isinstance(answer, CancelledError):
                return answer
            reason = answer.message.partition("; ")[2]
        task = str(self.welcome.task)
        return deadline.error(f"{doing} through {task} at {self._address}", task, reason)

    def _cancel(self, key: int) -> None:
        self._send(key, pb.Envelope(cancel=pb.Cancel(id=key)), ())

    def _send(self, key: int, envelope: pb.Envelope, tensors: Sequence[Array]) -> None:
        """Hands over a message; those of one key are sent in their order."""
        message = frames(next(self._frame_ids), envelope, tensors)
        # The first frame is made here: if the message cannot be sent, its caller is told.
        self._outgoing.put((key, itertools.chain([next(message)], message)))

    def _frames(self) -> Iterator[bytes]:
        """The frames to send; messages take turns, so that small ones pass large ones."""
        sending: OrderedDict[int, Iterator[bytes]] = OrderedDict()
        while True:
            if not sending or not self._outgoing.empty():
                item = self._outgoing.get()
                if item is None:
                    return
                key, message = item
                sending[key] = itertools.chain(sending.get(key, ()), message)
            key, message = sending.popitem(last=False)
            frame = next(message, None)
            if frame is not None:
                sending[key] = message
                yield frame

    def _read(self) -> None:
        """Asks gRPC for frame after frame; `_take` has seen each of them before."""
        end: OpError = UnavailableError(f"the server at {self._address} ended the session")
        try:
            for _ in self._stream:
                if self._end is not None:
                    return
        except grpc.RpcError as error:
            end = rpc_error(error, f"the server at {self._address}", "this client", None)
        finally:
            self._finish(end)

    def _take(self, frame: bytes) -> bool:
        """Takes a frame where gRPC reads it, on a thread of gRPC's own.

        The caller is woken from there, and need not wait until the thread that asks for frames
        has its turn.
        """
        try:
            message = self._assembler.feed(frame)
            if message is not None:
                self._receive(*open_message(message))
        except OpError as error:
            self._finish(error)
        return True

    def _receive(self, envelope: pb.Envelope, tensors: list[Array]) -> None:
        with self._lock:
            answers = self._pending.pop(envelope.id, None)
            if answers is not None and envelope.HasField("call_back"):
                self._pending[envelope.id] = answers
        if answers is not None:
            failed = envelope.status.code
            answers.put(error_of(envelope.status) if failed else (envelope, tensors))
        elif not envelope.id and envelope.status.code:
            self._finish(error_of(envelope.status))

    def _finish(self, end: OpError) -> None:
        with self._lock:
            if self._end is None:
                self._end = end
            pending = list(self._pending.values())
            # The stream ends after `close`, too, and nobody is answered twice.
            self._pending.clear()
        for answers in pending:
            answers.put(_again(self._end))


class _Outcome(Future[list[Array]]):
    """The values of a step that nobody waits for on a thread."""

    def __init__(self, stop: Callable[[int], None], callbacks: Callbacks) -> None:
        super().__init__()
        self._stop = stop
        self._callbacks = callbacks
        self.key = 0

    def put(self, answer: _Answer) -> None:
        if _asks(answer):
            # Not on gRPC's thread, on which the answers to all calls come.
            work = threading.Thread(target=self._callbacks.answer, args=answer, daemon=True)
            work.start()
            return
        if not self.set_running_or_notify_cancel():
            return
        if isinstance(answer, OpError):
            self.set_exception(self._callbacks.error or answer)
        else:
            self.set_result(answer[1])

    def cancel(self) -> bool:
        is_cancelled = super().cancel()
        if is_cancelled:
            self._stop(self.key)
        return is_cancelled


def _run_step(handle: int, *, calls_back: bool = False) -> pb.Envelope:
    return pb.Envelope(run_step=pb.RunStep(handle=handle, calls_back=calls_back))


def _final_answer(
    answers: SimpleQueue[_Answer], deadline: Deadline, callbacks: Callbacks | None
) -> _Answer:
    """The final answer to a call; until it comes, functions are called in this thread.

    Raises:
      Empty: if none comes by the deadline and a little later.
    """
    while True:
        left = deadline.remaining()
        answer = answers.get(timeout=None if left is None else left + settings.GRACE_S)
        if callbacks is None or not _asks(answer):
            return answer
        callbacks.answer(*answer)


def _asks(answer: _Answer) -> TypeGuard[_Reply]:
    """Whether an answer is none yet, but asks for a function of this client."""
    return isinstance(answer, tuple) and answer[0].HasField("call_back")


def _again(error: OpError) -> OpError:
    """A fresh error of the same kind: one exception must not be raised in several threads."""
    return type(error)(error.message, op=error.op, task=error.task)

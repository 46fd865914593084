"""A client's connection to the master of its session, for any thread and without an event loop."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeGuard

import grpc

from jflow.cluster import Task
from jflow.errors import CancelledError, DeadlineExceededError, OpError, UnavailableError
from jflow.plan import Plan
from jflow.wire import settings
from jflow.wire.callbacks import Callbacks, Function
from jflow.wire.codec import error_of, frames, open_message, plan_to_proto
from jflow.wire.frame import Array, Assembler
from jflow.wire.peer import device_from_proto, rpc_error, welcome_from_proto
from jflow.wire.services import Artifacts, DeviceRecord, Registered, Welcome
from jflow.wire.token import credentials, load_token
from jflow.wire.v1 import service_pb2 as pb

_LOG = logging.getLogger(__name__)
_NOTICE_AFTER_S = 10.0
_GRACE_S = 2 * settings.GRACE_S  # the server may have to ask another one

_Reply = tuple[pb.Envelope, list[Array]]
_Answer = _Reply | OpError


class _Answers(Protocol):
    """Where the answer to one call comes."""

    def put(self, answer: _Answer, /) -> None:
        """Takes an answer, on any thread."""


class MasterClient:
    """A session on a server. Threads may call at the same time.

    Args:
      address: "host:port" of the server.
      timeout: longest time to wait until it answers, in seconds.

    Raises:
      UnavailableError: if it does not answer in time.
      UnauthenticatedError: if it does not take this user's token.
    """

    def __init__(self, address: str, timeout: float) -> None:
        self._address = address
        self._ids = itertools.count(1)
        self._frame_ids = itertools.count(1)
        self._pending: dict[int, _Answers] = {}
        self._assembler = Assembler()
        self._lock = threading.Lock()
        self._end: OpError | None = None
        self._outgoing: SimpleQueue[tuple[int, Iterator[bytes]] | None] = SimpleQueue()
        self._channel = grpc.insecure_channel(address, options=settings.CHANNEL_OPTIONS)
        try:
            method: Any = self._channel.stream_stream(
                settings.SESSION_METHOD, response_deserializer=self._take
            )
            self._stream = method(
                self._frames(), metadata=credentials(load_token()), wait_for_ready=True
            )
            threading.Thread(target=self._read, name=f"jflow {address}", daemon=True).start()
            self.welcome: Welcome = welcome_from_proto(self._greet(timeout))
        except DeadlineExceededError:
            self.close()
            raise self._no_answer(timeout) from None
        except BaseException:
            self.close()
            raise

    @property
    def is_open(self) -> bool:
        """Whether the stream is there; once it has ended it stays so."""
        return self._end is None

    def list_devices(
        self, tasks: Sequence[Task], timeout: float, *, only_up: bool = False
    ) -> list[DeviceRecord]:
        """See `MasterSession.list_devices`."""
        ask = pb.ListDevices(
            tasks=[str(task) for task in tasks], timeout_ms=int(timeout * 1000), only_up=only_up
        )
        reply, _ = self._call(pb.Envelope(list_devices=ask), (), None)
        return [device_from_proto(device) for device in reply.device_list.devices]

    def register(
        self, plans: Sequence[Plan], n_fetches: int, artifacts: Artifacts, timeout: float
    ) -> Registered:
        """See `MasterSession.register`."""
        body = pb.RegisterStep(
            plans=[plan_to_proto(plan) for plan in plans],
            n_fetches=n_fetches,
            artifacts=[pb.Artifact(digest=digest) for digest in artifacts],
            timeout_ms=int(timeout * 1000),
        )
        reply, _ = self._call(pb.Envelope(register_step=body), list(artifacts.values()), None)
        return Registered(reply.registered.handle, tuple(reply.registered.missing))

    def run(
        self,
        handle: int,
        feeds: Sequence[Array],
        timeout: float | None,
        functions: Sequence[Function] = (),
    ) -> list[Array]:
        """See `MasterSession.run`.

        Args:
          handle, feeds, timeout: the step, its fed values and how long it may take, in seconds.
          functions: those that the step calls back, by number; they are called in this thread.

        Raises:
          DeadlineExceededError: if it takes longer than `timeout` seconds; it is cancelled then,
            and a function that runs is waited for.
          Exception: what one of the functions raises.
        """
        if functions:
            return self._run_calling(handle, feeds, timeout, Callbacks(functions, self._send))
        _, values = self._call(_run_step(handle, timeout), feeds, timeout)
        return values

    def start(
        self,
        handle: int,
        feeds: Sequence[Array],
        timeout: float | None,
        functions: Sequence[Function] = (),
    ) -> Future[list[Array]]:
        """As `run`, and waits for nothing; cancelling the future cancels the step.

        The server watches the time. Functions are called in threads of their own.
        """
        outcome = _Outcome(self._cancel, Callbacks(functions, self._send))
        envelope = _run_step(handle, timeout, calls_back=bool(functions))
        outcome.key = self._begin(envelope, feeds, outcome)
        return outcome

    def release(self, handle: int) -> None:
        """See `MasterSession.release`. Waits for nothing, so that any thread may call it."""
        if self.is_open:
            self._send(next(self._ids), pb.Envelope(release=pb.Release(handles=[handle])), ())

    def reset(self, containers: Sequence[str]) -> None:
        """See `MasterSession.reset`."""
        self._call(pb.Envelope(reset=pb.Reset(containers=containers)), (), None)

    def close(self) -> None:
        """Ends the session; calls under way fail with CancelledError."""
        self._finish(CancelledError("Step was cancelled by an explicit call to Session.close()"))
        self._outgoing.put(None)
        self._channel.close()

    def _greet(self, timeout: float) -> pb.Welcome:
        notice = threading.Timer(
            _NOTICE_AFTER_S,
            lambda: _LOG.warning("still waiting for the server at %s", self._address),
        )
        notice.start()
        try:
            reply, _ = self._call(pb.Envelope(hello=pb.Hello()), (), timeout)
        finally:
            notice.cancel()
        return reply.welcome

    def _call(
        self,
        envelope: pb.Envelope,
        tensors: Sequence[Array],
        timeout: float | None,
        callbacks: Callbacks | None = None,
    ) -> _Reply:
        answers: SimpleQueue[_Answer] = SimpleQueue()
        key = self._begin(envelope, tensors, answers)
        try:
            if callbacks is None:
                answer = answers.get(timeout=timeout)
            else:
                answer = _answer_between_callbacks(answers, timeout, callbacks)
        except Empty:
            answer = self._answer_after_all(key, answers, timeout)
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
        self, handle: int, feeds: Sequence[Array], timeout: float | None, callbacks: Callbacks
    ) -> list[Array]:
        """Runs a step that calls functions of this client."""
        envelope = _run_step(handle, timeout, calls_back=True)
        try:
            return self._call(envelope, feeds, timeout, callbacks)[1]
        except OpError:
            if callbacks.error is None:
                raise
        # Not from the error that the cluster gave in its place: the exception is the user's own.
        raise callbacks.error

    def _begin(self, envelope: pb.Envelope, tensors: Sequence[Array], answers: _Answers) -> int:
        """Sends a call; returns what it is known by."""
        key = envelope.id = next(self._ids)
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

    def _answer_after_all(
        self, key: int, answers: SimpleQueue[_Answer], timeout: float | None
    ) -> _Answer:
        """The answer to a call whose time is over, if it was on its way already.

        It may be an element that was taken from a queue, which must not be lost.
        """
        self._cancel(key)
        with suppress(Empty):
            answer = answers.get(timeout=_GRACE_S)
            while _asks(answer):
                answer = answers.get(timeout=_GRACE_S)
            if not isinstance(answer, CancelledError):
                return answer
        return DeadlineExceededError(f"the call took longer than its {timeout} s and was cancelled")

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
            end = rpc_error(error, f"the server at {self._address} cannot be reached", None)
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

    def _no_answer(self, timeout: float) -> UnavailableError:
        return UnavailableError(
            f"waited {timeout:.0f} s for the server at {self._address}, but nobody answers there; "
            "start it or check the address"
        )


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


def _run_step(handle: int, timeout: float | None, *, calls_back: bool = False) -> pb.Envelope:
    milliseconds = 0 if timeout is None else max(int(timeout * 1000), 1)
    run = pb.RunStep(handle=handle, timeout_ms=milliseconds, calls_back=calls_back)
    return pb.Envelope(run_step=run)


def _answer_between_callbacks(
    answers: SimpleQueue[_Answer], timeout: float | None, callbacks: Callbacks
) -> _Answer:
    """The final answer to a call; until it comes, functions are called in this thread."""
    deadline = None if timeout is None else time.monotonic() + timeout
    answer = answers.get(timeout=timeout)
    while _asks(answer):
        callbacks.answer(*answer)
        left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        answer = answers.get(timeout=left)
    return answer


def _asks(answer: _Answer) -> TypeGuard[_Reply]:
    """Whether an answer is none yet, but asks for a function of this client."""
    return isinstance(answer, tuple) and answer[0].HasField("call_back")


def _again(error: OpError) -> OpError:
    """A fresh error of the same kind: one exception must not be raised in several threads."""
    return type(error)(error.message, op=error.op, task=error.task)

"""`PendingCalls`: the calls of a client that wait for replies; `Outcome`: the future of one."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from concurrent.futures import Future
from operator import itemgetter
from typing import Protocol, TypeGuard

from jflow.base.deadline import Deadline
from jflow.base.values import Array
from jflow.errors import OpError
from jflow.net.protocol import settings
from jflow.net.protocol.receiver import CallAnswer, Reply


class Answers(Protocol):
    """Receives the reply to one call."""

    def put(self, answer: CallAnswer, /) -> None:
        """Receives a reply; may be called on any thread."""


def calls_back(answer: CallAnswer) -> TypeGuard[Reply]:
    """Whether a reply is a callback, a call of a function of this client, and not the final one."""
    return isinstance(answer, tuple) and answer[0].HasField("call_back")


def answer_timeout(deadline: Deadline) -> float | None:
    """Returns how long to wait for the reply to a call, in seconds; None for no limit."""
    return None if deadline.timeout is None else (deadline.remaining() or 0.0) + settings.GRACE_S


class Outcome(Future[list[Array]]):
    """The future of a step's values, for which no thread waits.

    Args:
      cancel_call: cancels the call of this id.
      read: takes the values from the reply, for a reply that has more; it may raise OpError.
    """

    def __init__(
        self,
        cancel_call: Callable[[int], None],
        read: Callable[[Reply], list[Array]] = itemgetter(1),
    ) -> None:
        super().__init__()
        self._cancel_call = cancel_call
        self._read = read
        self.key = 0

    def put(self, answer: CallAnswer) -> None:
        if not self.set_running_or_notify_cancel():
            return
        try:
            if isinstance(answer, OpError):
                raise answer
            values = self._read(answer)
        except OpError as error:
            self.set_exception(error)
        else:
            self.set_result(values)

    def stop(self) -> None:  # see `stop_step`
        self._cancel_call(self.key)

    def cancel(self) -> bool:
        if is_cancelled := super().cancel():
            self._cancel_call(self.key)
        return is_cancelled


class PendingCalls:
    """The calls of a client that wait for their replies; thread-safe.

    Invariant: a call is in `calls` from before its request is sent until its final answer, its
    caller or the end of the session removes it. Calls are added only while `end` is None, which the
    same lock guards, and the end of the session answers every call that is left. So each call gets
    exactly one final answer or is given up by its caller, and none waits for an ended session.

    Attributes:
      calls: the receivers of answers, by the ids of the calls.
      given_up: calls that were given up, whose answers may still come.
      end: the error with which the session has ended; None if it has not.
    """

    def __init__(self) -> None:
        self.calls: dict[int, Answers] = {}
        self.given_up: set[int] = set()
        self.end: OpError | None = None
        self._lock = threading.Lock()

    def add(self, call: int, answers: Answers) -> None:
        """Adds a call. Raises OpError if the session is over."""
        with self._lock:
            if self.end is not None:
                raise copy.copy(self.end)
            self.calls[call] = answers

    def give_up(self, call: int) -> bool:
        """Ends the wait for a reply; returns whether the reply may still come."""
        with self._lock:
            is_expected = self.calls.pop(call, None) is not None and self.end is None
            if is_expected:
                self.given_up.add(call)
        return is_expected

    def answered(self, call: int, *, is_final: bool) -> tuple[Answers | None, bool]:
        """Returns the receiver of a reply, or None, and whether the call was given up."""
        with self._lock:
            receiver = self.calls.pop(call, None)
            if receiver is not None and not is_final:
                self.calls[call] = receiver
            is_given_up = call in self.given_up
            self.given_up.discard(call)
        return receiver, is_given_up

    def finish(self, end: OpError) -> None:
        """Ends the session: all calls that are left fail with the first error that ended it."""
        with self._lock:
            if self.end is None:
                self.end = end
            pending = list(self.calls.values())
            self.calls.clear()
        for receiver in pending:
            # A new error for each: one exception must not be raised in several threads.
            receiver.put(copy.copy(self.end))

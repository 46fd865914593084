"""`RemoteValue`: the result of a closure, there once it has run."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from enum import Enum
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any, NoReturn, Protocol

import jax

from jflow.base.cards import MAX_ROWS, Card, Carded
from jflow.base.deadline import Deadline
from jflow.base.deadline.notices import WaitNotice
from jflow.base.handles import Uncopyable
from jflow.base.values import Conversions, is_key
from jflow.errors import OpError, UnavailableError
from jflow.plan.xla import internals
from jflow.training.coordinator.losses import ClosureInputError
from jflow.training.coordinator.metrics import Meter


class RemoteValueStatus(Enum):
    """The status of a `RemoteValue`."""

    NOT_READY = "NOT_READY"
    """The closure has not ended."""
    ABORTED = "ABORTED"
    """It was on a worker that was lost; it is made again when it is wanted or that returns."""
    READY = "READY"
    """The closure has ended: with a value, an error, or by being cancelled."""


class Results(Protocol):
    """The interface by which a `RemoteValue` calls its coordinator.

    Attributes:
      meter: records how long `fetch` and `get` have waited.
    """

    meter: Meter

    def cancel(self, number: int) -> None:
        """Cancels the closure, unless it has ended."""

    def fetch(self, number: int) -> None:
        """Brings a result that a worker has; without waiting."""

    def is_lost(self, number: int) -> bool:
        """Returns whether a result was lost with its worker."""


class RemoteValue(Conversions, Carded, Uncopyable):
    """The result of a scheduled function; made by `ClusterCoordinator.schedule`.

    The value is copied to the coordinator's process when the function ends, so that it can be read
    after its worker was lost. A value of 64 KiB or more of a function that uses no variables stays
    on its worker until it is fetched; if the worker is lost, the function runs once more. In an
    `async` function, `await remote_value` is as `fetch()`.

    Args:
      number: that of the closure.
      owner: what belongs to one coordinator only.
      name: that of the function.
      out_tree: the structure of the result.
      out_avals: the types of its leaves.
      engine: cancels the closure, and brings its result.
      depth: how many closures may have to run again for it, one after another.

    Attributes:
      number, owner, name, depth: as given.
    """

    __slots__ = (
        *(
            "__weakref__",
            "_answer",
            "_engine",
            "_is_on_worker",
            "_is_wanted",
            "_lock",
            "_out_avals",
        ),
        *("_out_tree", "_callbacks", "depth", "name", "number", "owner"),
    )  # there are many, and each object of which it consists costs time of the garbage collector

    _instead_of_copy = "fetch() it, and copy or send the result"

    def __init__(
        self,
        number: int,
        owner: object,
        name: str,
        out_tree: Any,
        out_avals: tuple[Any, ...],
        engine: Results,
        depth: int = 0,
    ) -> None:
        self.number = number
        self.owner = owner
        self.name = name
        self._out_tree = out_tree
        self._out_avals = out_avals
        self._engine = engine
        self.depth = depth
        self._answer: list[Any] | BaseException | None = None
        self._callbacks: Sequence[Callable[[None], object]] = ()
        self._lock = threading.Lock()
        self._is_on_worker = False
        self._is_wanted = False

    @property
    def status(self) -> RemoteValueStatus:
        """Whether the closure has ended."""
        if not self.done():
            return RemoteValueStatus.NOT_READY
        is_lost = not self.is_here and self._engine.is_lost(self.number)
        return RemoteValueStatus.ABORTED if is_lost else RemoteValueStatus.READY

    def fetch(self, timeout: float | None = None) -> Any:
        """Waits for the result and returns it as NumPy arrays in the structure it was returned in.

        Args:
          timeout: the longest time to wait in seconds, None for no limit.

        Raises:
          CancelledError: if the closure was cancelled.
          DeadlineExceededError: if the timeout passes; the closure goes on.
          Exception: the error of the closure, each time.
        """
        return self._out_tree.unflatten(self._leaves(timeout))

    def get(self, timeout: float | None = None) -> Any:
        """Like `fetch`, but returns JAX arrays."""
        leaves = self._leaves(timeout)
        return self._out_tree.unflatten(
            [x if is_key(getattr(x, "dtype", None)) else jax.numpy.asarray(x) for x in leaves]
        )

    def cancel(self) -> bool:
        """Cancels the closure, if it has not ended.

        One that is running is stopped where that is possible; its writes so far stay, unless it is
        in exactly-once mode. What is cancelled so is no error for `join`.

        Returns:
          False if the closure had ended.
        """
        if self.done():
            return False
        self._engine.cancel(self.number)
        return True

    def done(self) -> bool:
        """Returns whether the closure has ended, with a value or an error."""
        return self._is_on_worker or self.is_here

    def _value_for(self, use: str) -> NoReturn:
        raise TypeError(
            f"{self!r} is not an array but the result of a function that a worker runs; fetch() "
            "it, or pass it as an argument of another function that you schedule"
        )

    def __await__(self) -> Generator[Any, None, Any]:
        return self._awaited().__await__()

    def __repr__(self) -> str:
        return f"<jflow.RemoteValue of {self.name} {self.status.value}>"

    def _card(self) -> Card:
        where = "in this process" if self.is_here else "on its worker" if self.done() else ""
        facts = (
            ("function", self.name),
            ("status", self.status.value),
            ("error", self.error),
            ("result", ", ".join(aval.str_short() for aval in self.avals[:MAX_ROWS])),
            ("where", where),
        )
        return Card("RemoteValue", "", facts)

    # For the coordinator ------------------------------------------------------------------------

    @property
    def avals(self) -> tuple[Any, ...]:
        """The types of the leaves."""
        return self._out_avals

    @property
    def structure(self) -> Any:
        """The structure of the result."""
        return self._out_tree

    @property
    def error(self) -> BaseException | None:
        """The error of a closure that has ended."""
        answer = self._answer
        return answer if isinstance(answer, BaseException) else None

    @property
    def is_here(self) -> bool:
        """Whether this process has the result, or an error in its place."""
        return self._answer is not None

    def leaves(self) -> list[Any]:
        """Returns the leaves of the result, for a closure that takes it.

        Raises:
          ClosureInputError: if the closure failed while the other one was scheduled.
        """
        answer = self._answer
        if isinstance(answer, BaseException):
            raise self.input_error()
        assert answer is not None, "closures run when their inputs are there"
        return answer

    def input_error(self) -> ClosureInputError:
        """Returns the error for a closure that takes this result, which failed."""
        lost = UnavailableError(f"the result of {self.name} was lost with its worker")
        return ClosureInputError(self.error or lost)  # it was read just before it was lost

    def succeed(self, leaves: list[Any]) -> None:
        """Takes the result, unless it is here: one that runs again may have been read meanwhile."""
        self._resolve(leaves)

    def keep(self) -> None:
        """Records that the closure has ended and that its worker stores the result."""
        with self._lock:
            self._is_on_worker, is_wanted = True, self._is_wanted
        if is_wanted:
            self._engine.fetch(self.number)

    def fail(self, error: BaseException) -> None:
        """Stores the error, unless there is a result."""
        self._resolve(error)

    def _resolve(self, answer: list[Any] | BaseException) -> None:
        """Stores the outcome and wakes those that wait, unless there is one."""
        with self._lock:
            if self._answer is not None:
                return
            self._answer = answer
            callbacks, self._callbacks = self._callbacks, ()
        for callback in callbacks:
            callback(None)

    def _want(self) -> None:
        """Requests the result, now or when the closure ends."""
        with self._lock:
            is_first, self._is_wanted = not self._is_wanted, True
            is_on_worker = self._is_on_worker
        if is_first and is_on_worker:
            self._engine.fetch(self.number)

    def _add_callback(self, callback: Callable[[None], object]) -> None:
        """Calls a function once when the result is available, or now if it is."""
        with self._lock:
            is_here = self._answer is not None
            if not is_here:
                self._callbacks = (*self._callbacks, callback)
        if is_here:
            callback(None)

    async def _awaited(self) -> Any:
        self._want()
        here: Future[None] = Future()  # of its own, because a task that is cancelled cancels it

        def callback(_: None) -> None:
            if here.set_running_or_notify_cancel():
                here.set_result(None)

        self._add_callback(callback)
        await asyncio.wrap_future(here)
        return self._out_tree.unflatten(self._leaves_or_raise())

    def _leaves(self, timeout: float | None) -> list[Any]:
        if internals.is_tracing():
            raise RuntimeError(
                f"{self!r} cannot be fetched inside a function that JAX traces; pass it as an "
                "argument of the function that you schedule"
            )
        if not self.is_here:
            self._want()
            self._wait(timeout)
        return self._leaves_or_raise()

    def _leaves_or_raise(self) -> list[Any]:
        """Returns the leaves, or raises the error."""
        answer = self._answer
        assert answer is not None, "it has come"
        if not isinstance(answer, BaseException):
            return answer
        # One for each caller: a raised exception collects the traceback of its thread.
        raise copy.copy(answer) if isinstance(answer, OpError) else answer

    def _wait(self, timeout: float | None) -> None:
        start, deadline = perf_counter(), Deadline(timeout)
        here: SimpleQueue[None] = SimpleQueue()
        self._add_callback(here.put)
        try:
            WaitNotice(lambda: f"for {self!r}").get_from(here, deadline)
        except Empty:
            raise deadline.error(f"waiting for {self!r}") from None
        finally:
            with self._lock:
                self._callbacks = tuple(one for one in self._callbacks if one != here.put)
        self._engine.meter.note("remote_value_fetch", perf_counter() - start)

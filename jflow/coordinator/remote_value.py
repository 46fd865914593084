"""`RemoteValue`: the result of a closure, there once it has run."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Generator
from concurrent.futures import Future
from enum import Enum
from time import perf_counter
from typing import Any, Protocol

import jax

from jflow.coordinator.metrics import Meter
from jflow.deadline import Deadline
from jflow.errors import OpError
from jflow.values import is_key
from jflow.xla import internals


class RemoteValueStatus(Enum):
    """What is known of a `RemoteValue`."""

    NOT_READY = "NOT_READY"
    """The closure has not ended."""
    ABORTED = "ABORTED"
    """The value was on a worker that was lost; only iterators of workers can be so."""
    READY = "READY"
    """The closure has ended: with a value, an error, or by being cancelled."""


class Cancels(Protocol):
    """What cancels closures, and counts.

    Attributes:
      meter: is told how long `fetch` and `get` have waited.
    """

    meter: Meter

    def cancel(self, number: int) -> None:
        """Cancels a closure."""


class RemoteValue:
    """The result of a scheduled function; made by `ClusterCoordinator.schedule`.

    The value is copied to the coordinator's process when the function ends, so that it can be read
    after its worker was lost. In an `async` function, `await remote_value` is as `fetch()`.

    Args:
      number: that of the closure.
      owner: what belongs to one coordinator only.
      name: that of the function.
      out_tree: the structure of the result.
      out_avals: the types of its leaves.
      engine: cancels the closure.

    Attributes:
      number, owner, name: as given.
    """

    def __init__(
        self,
        number: int,
        owner: object,
        name: str,
        out_tree: Any,
        out_avals: tuple[Any, ...],
        engine: Cancels,
    ) -> None:
        self.number = number
        self.owner = owner
        self.name = name
        self._out_tree = out_tree
        self._out_avals = out_avals
        self._engine = engine
        self._future: Future[list[Any]] = Future()

    @property
    def status(self) -> RemoteValueStatus:
        """Whether the closure has ended."""
        return RemoteValueStatus.READY if self._future.done() else RemoteValueStatus.NOT_READY

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
        """As `fetch`, but returns JAX arrays."""
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
        if self._future.done():
            return False
        self._engine.cancel(self.number)
        return True

    def done(self) -> bool:
        """Whether the closure has ended, with a value or an error."""
        return self._future.done()

    def __await__(self) -> Generator[Any, None, Any]:
        return self._awaited().__await__()

    def __repr__(self) -> str:
        return f"<jflow.RemoteValue of {self.name} {self.status.value}>"

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
        return self._future.exception() if self._future.done() else None

    def leaves(self) -> list[Any]:
        """The leaves of the result of a closure that has succeeded."""
        return self._future.result(0)

    def succeed(self, leaves: list[Any]) -> None:
        """Takes the result."""
        self._future.set_result(leaves)

    def fail(self, error: BaseException) -> None:
        """Takes the error."""
        self._future.set_exception(error)

    async def _awaited(self) -> Any:
        return self._out_tree.unflatten(await asyncio.wrap_future(self._future))

    def _leaves(self, timeout: float | None) -> list[Any]:
        if internals.is_tracing():
            raise RuntimeError(
                f"{self!r} cannot be fetched inside a function that JAX traces; pass it as an "
                "argument of the function that you schedule"
            )
        if not self._future.done():
            self._wait(timeout)
        error = self._future.exception()
        if error is None:
            return self._future.result()
        # One for each caller: a raised exception collects the traceback of its thread.
        raise copy.copy(error) if isinstance(error, OpError) else error

    def _wait(self, timeout: float | None) -> None:
        begun = perf_counter()
        try:
            self._future.exception(timeout)
        except TimeoutError:
            raise Deadline(timeout).error(f"waiting for {self!r}") from None
        self._engine.meter.note("remote_value_fetch", perf_counter() - begun)

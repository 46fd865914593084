"""Steps that are registered again when what they use, state or a task, has moved elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import jax

from jflow.base.deadline import Deadline
from jflow.base.values import Array
from jflow.client.runtime.backend import Executable, stop_step
from jflow.errors import AbortedError
from jflow.plan import Plan
from jflow.plan.trace.measured import StepNames
from jflow.plan.trace.record import TaskRecord
from jflow.state.effects import Effect
from jflow.state.moves import MovedError

T = TypeVar("T")

PAUSE_S = 0.005
"""How long to wait before retrying a step whose state is being moved, in seconds."""

MAX_TRIES = 1000
"""How often one call retries a step; each retry means that its state has moved again."""


def retry_while_moved(
    act: Callable[[], T], learn: Callable[[MovedError], object], deadline: Deadline
) -> T:
    """Returns the result of `act`, retrying it while it fails because state has moved.

    Args:
      act: does nothing if it raises MovedError.
      learn: called with the error, which has the new place of the state, before each retry.
      deadline: the deadline of the call.

    Raises:
      AbortedError: if it was called `MAX_TRIES` times.
    """
    for _ in range(MAX_TRIES):
        try:
            return act()
        except MovedError as error:
            learn(error)
            if not error.moved:
                time.sleep(PAUSE_S)
        deadline.check("finding state that has moved")
    raise AbortedError("the state is moved by other sessions all the time; try again later")


class MovingExecutable:
    """A step that is registered again, and then run, if its state has moved or its task has left.

    Args:
      register: places, compiles and registers the step.
      learn: called with the error, which has the new place of the state, before registering again.
      deadline: the deadline of the call that makes it.

    Attributes:
      n_runs: how often it was run, for predictions of what a move changes.
    """

    def __init__(
        self,
        register: Callable[[Deadline], Executable],
        learn: Callable[[MovedError], None],
        deadline: Deadline,
    ) -> None:
        self._register = register
        self._learn = learn
        self._lock = threading.Lock()
        self.n_runs = 0
        self._executable = self._register_again(deadline)

    def prepare(self, deadline: Deadline) -> None:
        """See `Executable.prepare`."""
        self._retry_while_moved(lambda executable: executable.prepare(deadline), deadline)

    def run(
        self,
        feeds: Sequence[Array],
        deadline: Deadline,
        *,
        effect: Effect | None = None,
        records: list[TaskRecord] | None = None,
    ) -> list[Array]:
        """See `Executable.run`."""
        self.n_runs += 1
        executable = self._executable
        try:
            return executable.run(feeds, deadline, effect=effect, records=records)
        except MovedError as error:
            self.find(executable, error, deadline)
        return self._retry_while_moved(
            lambda executable: executable.run(feeds, deadline, effect=effect, records=records),
            deadline,
        )

    def run_steps(
        self, feeds: Sequence[Array], deadline: Deadline, n_steps: int, is_stacked: bool
    ) -> tuple[int, list[Array]]:
        """See `Executable.run_steps`."""
        n_done, values = self._retry_while_moved(
            lambda executable: executable.run_steps(feeds, deadline, n_steps, is_stacked), deadline
        )
        self.n_runs += n_done
        return n_done, values

    def compute(
        self, feeds: Sequence[Any], deadline: Deadline, *, records: list[TaskRecord] | None = None
    ) -> list[jax.Array]:
        """See `Executable.compute`."""
        self.n_runs += 1
        executable = self._executable
        try:
            return executable.compute(feeds, deadline, records=records)
        except MovedError as error:
            self.find(executable, error, deadline)
        return self._retry_while_moved(
            lambda executable: executable.compute(feeds, deadline, records=records), deadline
        )

    def single_program(self, n_feeds: int) -> None:
        """Returns None: a step that uses state, or a task, is never a single program."""

    @property
    def plans(self) -> Sequence[Plan]:
        """See `Executable.plans`; those of the current registration."""
        return self._executable.plans

    @property
    def names(self) -> StepNames:
        """See `Executable.names`."""
        return self._executable.names

    def start(
        self,
        feeds: Sequence[Array],
        deadline: Deadline,
        *,
        effect: Effect | None = None,
        records: list[TaskRecord] | None = None,
    ) -> Future[list[Array]]:
        """See `Executable.start`."""
        self.n_runs += 1

        def start(executable: Executable) -> tuple[Executable, Future[list[Array]]]:
            return executable, executable.start(feeds, deadline, effect=effect, records=records)

        return _MovingFuture(self, lambda: self._retry_while_moved(start, deadline), deadline)

    def find(self, stale: Executable, error: MovedError, deadline: Deadline) -> None:
        """Registers the step again after its state has moved, unless another thread has done so.

        Args:
          stale: the executable that failed.
          error: its error.
          deadline: the deadline of the call.
        """
        if not error.moved:
            deadline.check("waiting for state that moves")
            time.sleep(PAUSE_S)
            return
        with deadline.holding(self._lock, "waiting for the step to be registered"):
            if self._executable is stale:
                self._learn(error)
                self._executable = self._register_again(deadline)
        deadline.check("registering the step again, because state has moved")

    def _retry_while_moved(self, act: Callable[[Executable], T], deadline: Deadline) -> T:
        for _ in range(MAX_TRIES):
            executable = self._executable
            try:
                return act(executable)
            except MovedError as error:
                latest = error
                self.find(executable, error, deadline)
        raise latest

    def _register_again(self, deadline: Deadline) -> Executable:
        return retry_while_moved(lambda: self._register(deadline), self._learn, deadline)


class _MovingFuture(Future[list[Array]]):
    """The future of a step, which starts the step again if its state has moved.

    Args:
      step: the step.
      start: starts it as it is registered now; what it returns may fail with a MovedError.
      deadline: the deadline of the call.
    """

    def __init__(
        self,
        step: MovingExecutable,
        start: Callable[[], tuple[Executable, Future[list[Array]]]],
        deadline: Deadline,
    ) -> None:
        super().__init__()
        self._step, self._start, self._deadline = step, start, deadline
        self._is_wanted = True
        self._inner: Future[list[Array]] | None = None
        self._begin()

    def cancel(self) -> bool:
        self._is_wanted = False
        inner = self._inner
        if inner is not None:
            inner.cancel()  # which calls `_on_end`
        return self.cancelled()

    def stop(self) -> None:
        """Cancels the step; the future completes when the step has ended."""
        self._is_wanted = False
        inner = self._inner
        if inner is not None:
            stop_step(inner)

    def _begin(self) -> None:
        executable, inner = self._start()
        self._inner = inner
        inner.add_done_callback(lambda done: self._on_end(executable, done))
        if not self._is_wanted:
            inner.cancel()

    def _on_end(self, executable: Executable, inner: Future[list[Array]]) -> None:
        self._inner = None  # it refers to this future, and nothing is to be left in a cycle
        if inner.cancelled():
            self._end_cancelled()
            return
        error = inner.exception()
        if isinstance(error, MovedError):
            # Not on this thread, which may be the one that receives replies.
            again = (executable, error)
            threading.Thread(target=self._again, args=again, name="jflow move", daemon=True).start()
        elif error is not None:
            self.set_exception(error)
        else:
            self.set_result(inner.result())

    def _again(self, executable: Executable, error: MovedError) -> None:
        try:
            self._step.find(executable, error, self._deadline)
            self._step.prepare(self._deadline)
            if self._is_wanted:
                self._begin()
            else:
                # Not started, because a step that is cancelled then may have taken an element.
                self._end_cancelled()
        except BaseException as failure:  # of any class: the future reports it
            self.set_exception(failure)

    def _end_cancelled(self) -> None:
        super().cancel()
        self.set_running_or_notify_cancel()

"""`StepRunner`: executes a step that is registered on several tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from jflow.base.cluster import Task
from jflow.base.drivers.coroutines import Waited, begin
from jflow.base.values import Array
from jflow.errors import (
    CancelledError,
    InternalError,
    InvalidArgumentError,
    OpError,
    UnavailableError,
)
from jflow.net.protocol import Registered, ReplySize, TaskProxy
from jflow.plan import Call, Plan
from jflow.state.core import Staging
from jflow.state.effects import Effect, writes_once
from jflow.state.moves import Use
from jflow.task.master.step import Action, Fail, StartTask, Step, StopTask


@dataclass(frozen=True)
class TaskPlans:
    """One task's plans of a registered step.

    Attributes:
      proxy: reaches the task.
      feeds, fetches: the indices of the values that they are fed and fetch.
      is_writing: whether they write variables.
      plans: the plans, which are registered again over a new connection.
      is_restartable: whether the step can be run again if it ends while it waits for a queue.
      connection: the number of the connection over which they were registered.
      n_bytes: see `Registered`.
    """

    task: Task
    proxy: TaskProxy
    incarnation: int
    handle: int
    feeds: tuple[int, ...]
    fetches: tuple[int, ...]
    is_writing: bool
    plans: tuple[Plan, ...]
    is_restartable: bool
    connection: int
    n_bytes: int = 0

    def registered_as(self, registered: Registered) -> TaskPlans:
        """Returns a copy with the handle and the reply size from their registration."""
        return replace(self, handle=registered.handle, n_bytes=registered.n_bytes)

    def feeds_of(self, feeds: Sequence[Array]) -> Sequence[Array]:
        """Selects the fed values of these plans; InvalidArgumentError if there are too few."""
        wanted = self.feeds
        if not wanted:
            return ()
        if wanted[-1] >= len(feeds):
            raise InvalidArgumentError(
                f"the step requires {wanted[-1] + 1} fed values, got {len(feeds)}"
            )
        return [feeds[index] for index in wanted]


def reply_of(entries: Iterable[TaskPlans]) -> ReplySize:
    """Estimates the size of a step's first reply from the plans of its tasks."""
    return ReplySize(max(ReplySize().n_bytes, sum(entry.n_bytes for entry in entries)))


@dataclass(eq=False)
class RegisteredStep:
    """A registered step: the plans of each task, and the state that they use.

    An entry is replaced when its plans were registered again.

    Attributes:
      reply: the size of its last reply; None if it may wait for other steps.
      is_released: whether its plans are released, or about to be.
    """

    entries: dict[Task, TaskPlans]
    n_fetches: int
    use: Use
    reply: ReplySize | None = None
    is_released: bool = False

    @property
    def only(self) -> TaskPlans | None:
        """The plans of the only task that takes part; None if there are several."""
        entries = self.entries
        return next(iter(entries.values())) if len(entries) == 1 else None

    @property
    def plans(self) -> list[Plan]:
        """The plans of all tasks."""
        return [plan for entry in self.entries.values() for plan in entry.plans]

    @cached_property
    def writer(self) -> str | None:
        """The name of the step's only task, if that only writes variables, in one program."""
        only = self.only
        return str(only.task) if only is not None and writes_once(only.plans) else None


def single_write_staging(step: RegisteredStep, effect: Effect) -> Staging | None:
    """Returns the staging of a first attempt that one program of one task applies, or None.

    Nothing needs to be committed, aborted or taken over then. Other steps, and later attempts,
    need an `EffectRunner`.
    """
    writer = step.writer
    return None if writer is None or effect.attempt > 1 else Staging(effect, True, (writer,))


def check_values(values: Sequence[Array], entry: TaskPlans) -> Sequence[Array]:
    """Returns the fetched values. Raises InternalError if there are too few or too many."""
    if len(values) != len(entry.fetches):
        raise InternalError(
            f"expected {len(entry.fetches)} values from {entry.task}, got {len(values)}",
            task=str(entry.task),
        )
    return values


def is_blocking(plans: Iterable[Plan]) -> bool:
    """Whether a step may wait for another step of its client, at a queue or in a callback."""
    return any(
        plan.resources or any(isinstance(one, Call) for one in plan.all_instructions)
        for plan in plans
    )


class StepRunner:
    """Executes the actions of the `Step` state machine on the event loop.

    Invariant: each started call reports its end to the state machine exactly once, at the end of
    its coroutine, whether it finished, failed or was cancelled. So the outcome is set exactly when
    no call runs any more.
    """

    def __init__(
        self,
        entries: Mapping[Task, TaskPlans],
        run_plans: Callable[[TaskPlans], Coroutine[Any, Any, Sequence[Array]]],
    ) -> None:
        self._entries = entries
        self._run_on_task = run_plans
        self._step = Step(entries)
        self._calls: dict[Task, asyncio.Future[None]] = {}
        self._waited = Waited()
        self._failed: list[OpError] = []
        self._values: dict[int, Array] = {}
        self._loop = asyncio.get_running_loop()
        self._outcome: asyncio.Future[None] = self._loop.create_future()
        self._is_starting = False

    async def run_tasks(self) -> dict[int, Array]:
        # Before any task begins: what others had applied would stay.
        for entry in self._entries.values():
            entry.proxy.check_devices(entry.handle)
        self._is_starting = True
        self._act(self._step.begin())
        self._is_starting = False
        try:
            await self._outcome
        except asyncio.CancelledError:
            self._act(self._step.cancelled(CancelledError("Step was cancelled")))
            await asyncio.gather(*self._calls.values(), return_exceptions=True)
            if self._waited.reason:
                raise asyncio.CancelledError(self._waited) from None
            raise
        return self._values

    def _act(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case StartTask(task):
                    # It has begun when it can be cancelled, so it always reports its end.
                    self._calls[task] = begin(self._reporting(task))
                case StopTask(task):
                    self._calls[task].cancel()
                case Fail(error):
                    if isinstance(error, UnavailableError) and (more := self._of_others(error)):
                        error.add(more)
                    if not self._outcome.done():
                        self._outcome.set_exception(error)
                case _:
                    if not self._outcome.done():
                        self._outcome.set_result(None)

    def _of_others(self, error: OpError) -> str:
        """Returns what other tasks did when the step failed with an error, such as an iteration."""
        if self._waited.reason:
            return f"the step {self._waited.reason}"
        return next((one.message for one in self._failed if one is not error), "")

    async def _reporting(self, task: Task) -> None:
        """Runs the plans of a task, and reports their end to the state machine."""
        error: OpError | None = None
        try:
            values = await self._run_on_task(self._entries[task])
            self._values |= zip(self._entries[task].fetches, values, strict=True)
        except asyncio.CancelledError as cancelled:
            # What one call was waiting for, of several one that names an operation.
            waited = Waited.of(cancelled)
            if not self._waited.reason or (waited.op and not self._waited.op):
                self._waited = waited
            error = CancelledError("the plans were cancelled")
        except OpError as failed:
            error = failed
            self._failed.append(failed)
        except Exception as other:
            error = InternalError(f"{type(other).__name__}: {other}", task=str(task))
        if self._is_starting:  # others may have to be stopped that have not begun
            self._loop.call_soon(self._report_end, task, error)
        else:
            self._report_end(task, error)

    def _report_end(self, task: Task, error: OpError | None) -> None:
        if error is None:
            self._act(self._step.task_finished(task))
        else:
            self._act(self._step.task_failed(task, error))

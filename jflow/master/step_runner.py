"""`StepRunner`: acts out a step that is registered on several tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from jflow.cluster import Task
from jflow.errors import CancelledError, InternalError, OpError
from jflow.master.step import Action, Fail, StartTask, Step, StopTask
from jflow.moves import Use
from jflow.plan import Plan
from jflow.protocol import Array, ReplySize, Waited, begin


@dataclass(frozen=True)
class TaskPlans:
    """One task's plans of a registered step.

    Attributes:
      is_own: whether it is the master's own task, to which there is no connection.
      feeds, fetches: the indices of the values that they are fed and give.
      is_writing: whether they write variables.
      plans: the plans, which are registered again over a new connection.
      is_restartable: whether the step can be run again if it ends while it waits for a queue.
      connection: the number of the connection over which they were registered; 0 for the task of
        the master.
    """

    task: Task
    is_own: bool
    incarnation: int
    handle: int
    feeds: tuple[int, ...]
    fetches: tuple[int, ...]
    is_writing: bool
    plans: tuple[Plan, ...]
    is_restartable: bool
    connection: int


@dataclass(frozen=True)
class RegisteredStep:
    """A registered step: the plans of each task, and the state that they use.

    An entry is replaced when its plans were registered again.

    Attributes:
      reply: the size of its last reply; None if it may wait for other steps.
    """

    entries: dict[Task, TaskPlans]
    n_fetches: int
    use: Use
    reply: ReplySize | None = None


class StepRunner:
    """Executes the actions of the `Step` state machine on the event loop.

    Invariant: each started call reports its end to the state machine exactly once, through its done
    callback, whether it finished, failed or was cancelled. So the outcome is set exactly when no
    call runs any more.
    """

    def __init__(
        self,
        entries: Mapping[Task, TaskPlans],
        run_plans: Callable[[TaskPlans], Coroutine[Any, Any, Sequence[Array]]],
    ) -> None:
        self._entries = entries
        self._run_on_task = run_plans
        self._step = Step(entries)
        self._calls: dict[Task, asyncio.Future[Sequence[Array]]] = {}
        self._waited = Waited()
        self._values: dict[int, Array] = {}
        self._outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> dict[int, Array]:
        self._act(self._step.begin())
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
                    call = begin(self._noting(self._run_on_task(self._entries[task])))
                    # Not in the coroutine: one that is cancelled before it begins never runs.
                    call.add_done_callback(partial(self._ended, task))
                    self._calls[task] = call
                case StopTask(task):
                    self._calls[task].cancel()
                case Fail(error):
                    if not self._outcome.done():
                        self._outcome.set_exception(error)
                case _:
                    if not self._outcome.done():
                        self._outcome.set_result(None)

    async def _noting(self, call: Awaitable[Sequence[Array]]) -> Sequence[Array]:
        """Awaits a call, and notes what the first one that is cancelled was waiting for.

        Here, because a future that was cancelled does not keep the exception that ended it.
        """
        try:
            return await call
        except asyncio.CancelledError as error:
            if not self._waited.reason:
                self._waited = Waited.of(error)
            raise

    def _ended(self, task: Task, call: asyncio.Future[Sequence[Array]]) -> None:
        error = CancelledError("the plans were cancelled") if call.cancelled() else call.exception()
        if error is None:
            self._values |= zip(self._entries[task].fetches, call.result(), strict=True)
            self._act(self._step.task_finished(task))
            return
        if not isinstance(error, OpError):
            error = InternalError(f"{type(error).__name__}: {error}", task=str(task))
        self._act(self._step.task_failed(task, error))

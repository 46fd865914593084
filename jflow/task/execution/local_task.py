"""`LocalTask`: the only task of a local session; callers' threads run its core."""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from jflow.base.cluster import LOCAL_TASK, Task
from jflow.base.deadline import FOREVER, Deadline
from jflow.base.drivers import ThreadDriver
from jflow.base.drivers.driver import Mutex
from jflow.base.values import Array
from jflow.plan.xla.hardware import DeviceOrMesh
from jflow.state.core import (
    ClaimedRuns,
    ClusterState,
    ClusterView,
    SessionClaim,
    StateMoves,
    StateSaves,
    StepEffect,
    TaskCore,
    TaskEffects,
    WritesOfTask,
    is_of,
)
from jflow.state.effects import Effect
from jflow.state.fencing import Fences
from jflow.state.moves import Change, StateId, Use
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.resources import Containers
from jflow.task.execution.parked import ParkedAttempts

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")


class LocalTask:
    """The state of a local session, as a cluster of one task; thread-safe.

    Args:
      containers: the state.
      devices: the devices, by their full names.

    Attributes:
      parked: attempts that a move may cancel.
    """

    task = LOCAL_TASK
    incarnation = 0
    tasks = (LOCAL_TASK,)

    def __init__(self, containers: Containers, devices: Mapping[str, DeviceOrMesh]) -> None:
        self.parked = ParkedAttempts()
        self.device_names = devices.keys()
        self._driver = driver = ThreadDriver()
        self._lock = driver.lock
        # Not in a cycle: a session that nothing refers to any more frees its state at once.
        this: LocalTask = weakref.proxy(self)
        state = TaskCore(LOCAL_TASK, containers, driver, devices, self.parked, this)
        self._moves, self._effects = StateMoves(state), TaskEffects(state)
        self._gate, claims = self._moves.steps, ClaimedRuns(driver)
        # Nothing else reaches this state, so checkpoints neither keep its claims nor bring others.
        roots, no_claims = AllowedDirectories.anywhere(), Fences()
        # What belongs to the session is in use until the session ends.
        saves = StateSaves(state, self._moves, roots, lambda _: True, no_claims)
        self._services = (self._moves, saves, self._effects, claims)
        view = ClusterView(lambda: this, this, driver, self._gate, Fences(), float)
        self._state = ClusterState(view, None, SessionClaim(view), set(), moving=Mutex(driver))

    # Steps ------------------------------------------------------------------------------------

    def add(self, states: frozenset[StateId], changes: Sequence[Change] = ()) -> Use:
        """Registers the state that a step uses and changes. Raises MovedError if any has moved."""
        with self._lock:
            return self._gate.directory.add(states, changes)

    def enter(self, use: Use, deadline: Deadline) -> None:
        """Begins a step; blocks while the state that it uses is held.

        Raises:
          MovedError: if that has moved.
          DeadlineExceededError: if the deadline passes first.
        """
        with self._lock:
            if self._gate.directory.enter(use):
                return
        waiting, what = self._gate.enter(use, object()), partial(self._obstacle, use)
        self._driver.run(waiting, deadline, "waiting for state that moves", what)

    def leave(self, use: Use) -> None:
        """Ends a step that has begun."""
        with self._lock:
            self._gate.leave(use)

    def _obstacle(self, use: Use) -> str:
        with self._lock:
            return f"a step waits {self._gate.directory.obstacle(use)}"

    def apply(
        self,
        effect: Effect,
        writes: WritesOfTask,
        run: Callable[[StepEffect], list[Array]],
        deadline: Deadline,
    ) -> list[Array]:
        """Runs an attempt of a step, or returns the results of an attempt that was applied.

        Args:
          effect: the attempt.
          writes: what the step writes.
          run: runs the step; its argument stages the writes.
          deadline: of the call.

        Raises:
          OpError: as `TaskEffects.apply_alone`.
        """

        def performed(writer: StepEffect) -> Coroutine[Any, Any, list[Array]]:
            return self._driver.work(run, writer)

        applied = self._effects.apply_alone(effect, writes, performed)
        return self._driver.run(applied, deadline, "waiting for another such step")

    # State ------------------------------------------------------------------------------------

    def call_state(
        self,
        method: Callable[Concatenate[ClusterState, P], Coroutine[Any, Any, R]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Calls a method of the session's `ClusterState`."""
        return self._driver.run(method(self._state, *args, **kwargs))

    # As a task of a cluster -------------------------------------------------------------------

    def __getitem__(self, task: Task) -> LocalTask:
        """See `TasksOfCluster`."""
        return self

    async def connect(self, connect_timeout: float, deadline: Deadline = FOREVER) -> LocalTask:
        """See `TaskCalls.connect`."""
        return self

    async def call(
        self,
        method: Callable[Concatenate[S, P], Awaitable[R]],
        incarnation: int,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """See `TaskCalls.call`."""
        service: Any = next(one for one in self._services if is_of(one, method))
        return await method(service, *args, **kwargs)

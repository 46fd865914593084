"""`AttemptReplay`: computes again what one attempt of a step did.

The plans run as in a session of this process, but that each program waits for the versions of its
variables (`gate.py`). What the host and the client computed is taken from the log. An attempt that
was cut off in the run, because a task was lost or it gave way to another one, ends where the tasks
have noted nothing more.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from jflow.base.values import Array, raw_bytes
from jflow.client.replay.gate import Version, VersionGate, VersionUse
from jflow.client.run_log.reader import RecordedAttempt
from jflow.errors import OpError
from jflow.plan import CALLBACK, Call, CallbackAttributes, Instruction
from jflow.state.records.crc32c import checksum
from jflow.state.resources import Containers, VariableId, VariableSnapshot
from jflow.task.execution.blocking import BlockingDriver, loops_of
from jflow.task.execution.callback import ClientFunction
from jflow.task.execution.fibers import FiberName, fibers_of
from jflow.task.execution.interpreter import interpret
from jflow.task.execution.linked import LinkedCall, LinkedKernel, LinkedPlan, LinkedRun
from jflow.task.execution.step_state import StepState
from jflow.task.execution.variables import VariableAccess

_Fiber = Generator[Any, None, None]


class _CutOffError(Exception):
    """The attempt did not do more in the run."""


@dataclass(frozen=True)
class ReplayState:
    """What the attempts of a replay have in common.

    Attributes:
      gate: the order.
      containers: the variables.
      former: returns a former version of a variable.
      device_of: returns the device of a variable.
    """

    gate: VersionGate
    containers: Containers
    former: Callable[[VariableId, Version], Array]
    device_of: Callable[[VariableId], Any]

    def prepare(self, linked: LinkedRun, uses: Sequence[VersionUse]) -> None:
        """Gives variables the former versions that a program uses."""
        for use in [*self.gate.changes(uses)]:
            self.containers.discard([use.variable])
            if use.version.n_updates >= 0:
                value = self.former(use.variable, use.version)
                snapshot = VariableSnapshot(linked.specs[use.number], value)
                restoring = self.containers.restoring({use.variable: snapshot}, self.device_of)
                self.containers.begin_access(restoring)
                restoring.result()
            self.gate.changed(use)


def uses_of(attempt: RecordedAttempt) -> dict[int, list[VersionUse]]:
    """Returns the uses of variables by the programs of an attempt, by the ids of these."""
    found: dict[int, list[VersionUse]] = {}
    for (device, position), touched in attempt.touched.items():
        plan = attempt.run.step.by_device[device]
        life = attempt.lives[str(device.task)]
        # A program that returns what a variable was before its own update uses it once.
        uses: dict[VariableId, VersionUse] = {}
        for number, n_updates, is_written in touched:
            variable = VariableId.of(device, plan.variables[number].key)
            written = is_written or (variable in uses and uses[variable].is_written)
            uses[variable] = VersionUse(variable, number, Version(life, n_updates), written)
        found[id(plan.instructions[position])] = [*uses.values()]
    return found


class AttemptReplay:
    """An attempt that is computed again.

    Args:
      attempt: the attempt.
      plans: its plans, linked to devices of this process.
      state: what it has in common with others.

    Attributes:
      attempt: as given.
      uses: the uses of variables by its programs, by the ids of their instructions.
      n_left: how many of these programs have not run.
      error: the error that it failed with.
    """

    def __init__(
        self, attempt: RecordedAttempt, plans: Sequence[LinkedPlan], state: ReplayState
    ) -> None:
        self.attempt = attempt
        self.uses = uses_of(attempt)
        self.n_left = len(self.uses)
        self._gate = state.gate
        self.error: OpError | None = None
        self._values = {
            id(attempt.run.step.by_device[device].instructions[position]): partial(
                attempt.results_at, (device, position)
            )
            for device, position in attempt.values
        }
        self._plans = plans
        self._states = [_AttemptState(plan, state, self) for plan in plans]
        feeds = attempt.run.feeds()
        for plan, own in zip(plans, self._states, strict=True):
            for feed in plan.feeds:
                own[feed.slot] = feeds[feed.index]
        driver = _ReplayDriver(self._functions(), loops_of(plans), self._states)
        work, self._before = fibers_of(plans, is_sequential=False)
        self._fibers: dict[FiberName, _Fiber] = {
            name: interpret(instructions, self._states, driver)
            for name, instructions in work.items()
        }
        self._ended: set[FiberName] = set()
        self._cut_off: set[FiberName] = set()
        self._waiting: dict[int, list[VersionUse]] = {}

    @property
    def wanted(self) -> list[VersionUse]:
        """The versions for which its programs wait."""
        return [use for uses in self._waiting.values() for use in uses]

    @property
    def has_ended(self) -> bool:
        """Whether none of its programs waits."""
        return not self._may_go_on()

    def advance(self) -> bool:
        """Runs what may run; returns whether there was anything."""
        has_advanced = False
        ready = deque(self._may_go_on())
        while ready:
            name = ready.popleft()
            before = self.n_left
            if self._run_until_wait(name):
                ready = deque(self._may_go_on())
                has_advanced = True
            has_advanced |= before != self.n_left
        return has_advanced

    def close(self) -> None:
        """Ends it, so that its values are freed."""
        for fiber in self._fibers.values():
            fiber.close()
        for state in self._states:
            state.close()

    def checksums(self) -> list[int] | None:
        """Returns the checksums of the fetched values; None if the attempt was cut off."""
        if self._cut_off or len(self._ended) < len(self._fibers):
            return None
        values: dict[int, Array] = {}
        for plan, state in zip(self._plans, self._states, strict=True):
            for fetch in plan.fetches:
                values[fetch.index] = state.host_value(fetch.slot, copy=True)
        return [checksum(raw_bytes(np.asarray(values[i]))) for i in range(len(values))]

    def begins(self, instruction: Instruction) -> list[VersionUse] | None:
        """Returns the uses of variables by a program; None if it may not run yet."""
        uses = self.uses.get(id(instruction))
        if uses is None:
            raise _CutOffError
        if not self._gate.may_run(uses):
            self._waiting[id(instruction)] = uses
            return None
        self._waiting.pop(id(instruction), None)
        return uses

    def has_run(self, instruction: Instruction) -> None:
        """Notes that a program has run."""
        self._gate.has_run(self.uses[id(instruction)])
        self.n_left -= 1

    def results_of(self, instruction: Instruction) -> Sequence[Array]:
        """Returns what a call of the host returned in the run."""
        load = self._values.get(id(instruction))
        results = None if load is None else load()
        if results is None:
            raise _CutOffError
        return results

    def _may_go_on(self) -> list[FiberName]:
        return [
            name
            for name in self._fibers
            if name not in self._ended
            and name not in self._cut_off
            and self._before[name] <= self._ended
        ]

    def _run_until_wait(self, name: FiberName) -> bool:
        """Runs a fiber until it ends or has to wait; returns whether it ended."""
        try:
            for _ in self._fibers[name]:
                return False
        except _CutOffError:
            self._cut_off.add(name)
        except OpError as error:
            self._cut_off.add(name)
            self.error = self.error or error
        else:
            self._ended.add(name)
        return True

    def _functions(self) -> Sequence[ClientFunction]:
        results = self.attempt.run.results_of_calls()
        numbers = [
            CallbackAttributes.from_bytes(one.attributes).number
            for plan in self._plans
            for one in plan.plan.all_instructions
            if isinstance(one, Call) and one.function == CALLBACK
        ]
        return [_Answers(results.get(n, [])) for n in range(max(numbers, default=-1) + 1)]


class _Answers:
    """A function of the client, which returns what it returned in the run, in order."""

    def __init__(self, results: Sequence[Sequence[Array]]) -> None:
        self._results = iter(results)

    def __call__(self, operands: Sequence[Array]) -> Sequence[Array]:
        results = next(self._results, None)
        if results is None:
            raise _CutOffError
        return results


class _AttemptState(StepState):
    """The state of a plan of an attempt, whose programs wait for the versions of variables."""

    __slots__ = ("_attempt", "_replay")

    def __init__(self, linked: LinkedPlan, replay: ReplayState, attempt: AttemptReplay) -> None:
        super().__init__(linked, replay.containers, math.inf)
        self._replay, self._attempt = replay, attempt

    def begin_access(self, linked: LinkedRun) -> VariableAccess | None:
        uses = self._attempt.begins(linked.instruction)
        if uses is None:
            return None
        self._replay.prepare(linked, uses)
        return super().begin_access(linked)

    def wait(self, linked: LinkedRun) -> Generator[Any, None, VariableAccess]:
        while (access := self.begin_access(linked)) is None:
            yield
        return access

    def finish(self, access: VariableAccess, *, until_computed: bool = False) -> None:
        super().finish(access, until_computed=True)
        self._attempt.has_run(access.linked.instruction)

    def call(self, linked: LinkedCall) -> None:
        if linked.variables:
            self.fill(linked.instruction, self._attempt.results_of(linked.instruction))
        else:
            super().call(linked)

    def perform(self, linked: LinkedKernel) -> Generator[Any, None, None]:
        self.fill(linked.instruction, self._attempt.results_of(linked.instruction))
        yield from ()


class _ReplayDriver(BlockingDriver):
    """Performs the instructions of an attempt by the methods of its states, which are its own."""

    def finish(  # type: ignore[override]  # static there, for speed
        self, state: StepState, access: VariableAccess, /
    ) -> None:
        state.finish(access)

    def call(self, state: StepState, call: LinkedCall, /) -> None:
        state.call(call)

    def perform(self, state: StepState, kernel: LinkedKernel, /) -> Generator[Any, None, None]:
        return state.perform(kernel)

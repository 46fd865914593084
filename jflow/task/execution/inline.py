"""`LocalExecutable`: runs all plans of a step in the caller's thread, without a cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack
from functools import partial
from typing import Any

import jax
import numpy as np

from jflow.base import forks
from jflow.base.deadline import FOREVER, Deadline
from jflow.base.deadline.clock import now
from jflow.base.values import Array
from jflow.errors import CancelledError
from jflow.plan import Plan, Send, Slot
from jflow.plan.trace.measured import NO_NAMES, StepNames
from jflow.plan.trace.record import Recorder, TaskRecord
from jflow.plan.xla import internals
from jflow.plan.xla.compile import CompiledProgram
from jflow.state.core import StepEffect
from jflow.state.effects import Effect, unsupported
from jflow.state.moves import changes_of, is_restartable, states_of, writes_often
from jflow.state.resources import Containers, Writing
from jflow.state.resources.kernel import Wanted
from jflow.task.execution.blocking import BlockingDriver, Fiber, Woken, loops_of, run_fibers
from jflow.task.execution.callback import ClientFunction
from jflow.task.execution.classes import SingleProgram, classify, writes_of
from jflow.task.execution.device_order import DEVICE_ORDER
from jflow.task.execution.fibers import ONE_FIBER, fibers_of
from jflow.task.execution.interpreter import interpret
from jflow.task.execution.linked import LinkedPlan
from jflow.task.execution.local_task import LocalTask
from jflow.task.execution.repeated import run_repeatedly
from jflow.task.execution.step_state import StepState
from jflow.task.execution.tracing import traced, traced_state
from jflow.task.execution.variables import QUEUED_S


@forks.guarded("run", "start", "compute")
class LocalExecutable:
    """All plans of a step, run together in the caller's thread.

    Plans never wait for each other, because earlier stages have sent what a stage receives. Devices
    still compute concurrently, because JAX computes asynchronously. Only operations on resources
    may have to wait, for other threads.

    Args:
      plans: one for each device.
      n_fetches: the number of fetched values.
      containers: the state.
      functions: the functions of the client that plans call, by number.
      names: the names of its instructions in traces.
      task: keeps the state that the step uses; None if it uses none.

    Attributes:
      names: as given.

    Raises:
      MovedError: if state has moved that it uses.
    """

    def __init__(
        self,
        plans: Sequence[LinkedPlan],
        n_fetches: int,
        containers: Containers,
        functions: Sequence[ClientFunction] = (),
        names: StepNames = NO_NAMES,
        task: LocalTask | None = None,
    ) -> None:
        self.names = names
        self._task, self._watch = task, None
        own = [linked.plan for linked in plans]
        self._writes_often = writes_often(own)
        if task is not None:
            self._use = task.add(states_of(own), changes_of(own))
            if is_restartable(own):
                self._watch = partial(task.parked.watched, states=self._use.states)
        self._plans = plans
        self._n_fetches = n_fetches
        self._containers = containers
        self._functions = functions
        self._keeps_feeds = any(linked.keeps_feeds for linked in plans)
        self._outlives_results = any(linked.outlives_results for linked in plans)
        self._is_blocking = any(linked.plan.resources for linked in plans)
        self._writes = writes_of(plans)
        self._refusal = unsupported(own)
        # Computed here, so that a step does no more than necessary.
        self._feeds = [(n, feed) for n, linked in enumerate(plans) for feed in linked.feeds]
        self._fetches = [(n, fetch) for n, linked in enumerate(plans) for fetch in linked.fetches]
        is_sequential = not any(linked.plan.after for linked in plans)
        self._work, self._predecessors = fibers_of(plans, is_sequential=is_sequential)
        # A driver has state only for values that are sent between plans, and only for one run.
        self._loops = loops_of(plans)
        sends = any(isinstance(one, Send) for work in self._work.values() for _, one in work)
        self._driver = None if sends or self._loops else BlockingDriver(functions)
        plan_class = classify(plans)
        self._single = plan_class if isinstance(plan_class, SingleProgram) else None
        # The number of fed values if the program takes these in order and returns the fetched ones.
        self._n_in_order = -1 if self._single is None else self._single.n_in_order
        self._moves_feeds = False

    def prepare(self, deadline: Deadline) -> None:
        """Does nothing: the step was compiled when it was made."""

    def run(
        self,
        feeds: Sequence[Array],
        deadline: Deadline = FOREVER,
        *,
        effect: Effect | None = None,
        records: list[TaskRecord] | None = None,
    ) -> list[Array]:
        """Runs the step and returns the fetched values.

        Args:
          feeds: the fed values.
          deadline: limits the wait for resources; programs are not interrupted.
          effect: the attempt, of a step that is to be applied once.
          records: if given, the step is traced, and its record is appended once it has succeeded.

        Raises:
          DeadlineExceededError: if the deadline passes.
          MovedError: if state has moved that the step uses; nothing was done.
          UnimplementedError: if it has an effect, and does more than to write variables.
          OpError: as the instructions do.
        """
        if self._single is not None and records is None and not _is_limited(deadline):
            return list(map(np.asarray, self.compute(feeds)))
        # What `run` returns has been computed, so the programs that compute it have ended.
        fed = self._own_feeds(feeds) if self._outlives_results else feeds
        return self._run(fed, _copy_value, deadline, records, effect)

    def run_steps(
        self, feeds: Sequence[Array], deadline: Deadline, n_steps: int, is_stacked: bool
    ) -> tuple[int, list[Array]]:
        """Runs the step several times; see `run_repeatedly`."""

        fed = self._own_feeds(feeds) if self._outlives_results else feeds

        def run(n_now: int) -> list[Array]:
            # Programs do not look at the deadline, so a slice begins only before it.
            deadline.check("running several steps")
            return self._run(fed, _copy_value, deadline, n_steps=n_now)

        return run_repeatedly(run, n_steps, is_stacked, self.plans)

    def start(
        self,
        feeds: Sequence[Array],
        deadline: Deadline = FOREVER,
        *,
        effect: Effect | None = None,
        records: list[TaskRecord] | None = None,
    ) -> Future[list[Array]]:
        """Like `run`, on a new thread; cancelling the future cancels the step's waits."""
        outcome = _Outcome()
        fed = [np.array(x) for x in feeds]

        def run() -> None:
            try:
                values = self._run(fed, _copy_value, deadline, records, effect, outcome.woken)
            except BaseException as error:  # of any class: the future reports it
                if outcome.set_running_or_notify_cancel():
                    outcome.set_exception(error)
            else:
                if outcome.set_running_or_notify_cancel():
                    outcome.set_result(values)

        threading.Thread(target=run, name="jflow step", daemon=True).start()
        return outcome

    def compute(
        self,
        feeds: Sequence[Any],
        deadline: Deadline = FOREVER,
        *,
        records: list[TaskRecord] | None = None,
    ) -> list[jax.Array]:
        """Like `run`, but returns JAX arrays, whose computation may not have ended."""
        single = self._single
        if single is not None and records is None and not _is_limited(deadline):
            try:
                if len(feeds) == self._n_in_order:
                    return single.program(*feeds, *single.constants)
                return single.results(
                    [*map(self._move_feed, feeds)] if self._moves_feeds else feeds
                )
            except internals.ARGUMENT_ERRORS:
                # JAX does not move arrays from another device, and the interpreter does. Later
                # feeds are moved from the start, because they are probably on that device, too.
                self._n_in_order, self._moves_feeds = -1, True
        return self._run(self._own_feeds(feeds), StepState.array, deadline, records)

    def single_program(self, n_feeds: int) -> CompiledProgram | None:
        """See `Executable.single_program`."""
        single = self._single
        return None if single is None or n_feeds != self._n_in_order else single.in_order()

    @property
    def plans(self) -> Sequence[Plan]:
        """The plans, one for each device."""
        return [linked.plan for linked in self._plans]

    def _own_feeds(self, feeds: Sequence[Any]) -> Sequence[Any]:
        """Copies fed NumPy arrays if the step may read them after it has returned."""
        if not self._keeps_feeds:
            return feeds
        # The caller may then write to their memory.
        return [np.array(x) if isinstance(x, np.ndarray) else x for x in feeds]

    def _run(
        self,
        feeds: Sequence[Any],
        fetch: Callable[[StepState, Slot], Any],
        deadline: Deadline,
        records: list[TaskRecord] | None = None,
        effect: Effect | None = None,
        woken: Woken | None = None,
        n_steps: int = 1,
    ) -> list[Any]:
        """Runs the step; one that is applied once returns the results of its applied attempt."""
        recorder = None if records is None else self._recorder()
        admitted = partial(self._run_admitted, feeds, fetch, deadline, woken, recorder, n_steps)
        run = partial(self._run_once, admitted, deadline)
        if effect is not None and self._refusal is not None:
            raise self._refusal
        if effect is None or self._task is None or not self._writes.n_programs:
            values = run(None)
        else:
            values = self._task.apply(effect, self._writes, run, deadline)
        if records is not None and recorder is not None:
            records.append(recorder.record())
        return values

    def _recorder(self) -> Recorder:
        return Recorder(str(self._plans[0].plan.device.task) if self._plans else "", now)

    def _run_once(
        self,
        run: Callable[[StepEffect | None], list[Any]],
        deadline: Deadline,
        effect: StepEffect | None,
    ) -> list[Any]:
        """Runs the step while no state that it uses is held."""
        task = self._task
        if task is None:
            return run(effect)
        task.enter(self._use, deadline)
        try:
            return run(effect)
        finally:
            task.leave(self._use)

    def _run_admitted(
        self,
        feeds: Sequence[Any],
        fetch: Callable[[StepState, Slot], Any],
        deadline: Deadline,
        woken: Woken | None,
        recorder: Recorder | None,
        n_steps: int,
        effect: StepEffect | None,
    ) -> list[Any]:
        # A step with a deadline must not wait for values that may not be computed by then.
        queued_s = QUEUED_S if deadline.timeout is None else 0.0
        writing = Writing() if self._writes_often else None
        if effect is not None:
            writing = effect.writing
        go, states = interpret, self._states(queued_s, recorder, writing, effect)
        if recorder is not None:
            go = traced
        for state in states:
            state.n_steps = n_steps
        waiting = ExitStack()
        try:
            for number, feed in self._feeds:
                states[number][feed.slot] = self._move_feed(feeds[feed.index], number)
            woken = Woken() if woken is None else woken
            check = partial(_check, deadline, woken)
            waiting.enter_context(DEVICE_ORDER.checking(check))
            driver = self._driver or BlockingDriver(self._functions, self._loops, states, check, go)
            if self._is_blocking:
                fibers = {name: go(work, states, driver) for name, work in self._work.items()}
                run_fibers(fibers, self._predecessors, deadline, woken, self.names)
            else:
                for work in self._work.values():
                    fiber = go(work, states, driver)
                    first = next(fiber, None)
                    if first is not None:  # variables that another step writes
                        rest = {ONE_FIBER: _resume_fiber(first, fiber)}
                        run_fibers(rest, {ONE_FIBER: ()}, deadline, woken, self.names)
            # Read last, so that no device is kept waiting while another one computes.
            values: list[Any] = [None] * self._n_fetches
            for number, wanted in self._fetches:
                values[wanted.index] = fetch(states[number], wanted.slot)
            return values
        finally:
            waiting.close()
            for state in states:
                state.close()
            if writing is not None and effect is None:
                self._containers.leave(writing)

    def _states(
        self,
        queued_s: float,
        recorder: Recorder | None,
        writing: Writing | None,
        effect: StepEffect | None,
    ) -> Sequence[StepState]:
        make = StepState if recorder is None else partial(traced_state, recorder)
        containers, watch = self._containers, self._watch
        return [
            make(one, containers, queued_s=queued_s, watch=watch, writing=writing, effect=effect)
            for one in self._plans
        ]

    def _move_feed(self, value: Any, number: int = 0) -> Any:
        """Moves a fed value to the device of a plan, if it is a JAX array on another one.

        JAX itself moves other values only.
        """
        device = self._plans[number].device
        if isinstance(device, jax.sharding.Mesh):
            return value  # its program distributes what it takes
        if isinstance(value, jax.Array) and value.devices() != {device}:
            # With a device only, the type of the array would keep the mesh it was sharded over.
            return jax.device_put(value, jax.sharding.SingleDeviceSharding(device))
        return value


class _Outcome(Future[list[Array]]):
    """The future of the values of a step that runs on its own thread."""

    def __init__(self) -> None:
        super().__init__()
        self.woken = Woken()

    def cancel(self) -> bool:
        """Cancels the step, and returns when the attempts for which it waited are cancelled."""
        self.woken.cancel()
        is_cancelled = super().cancel()
        wait([self])
        return is_cancelled


def _is_limited(deadline: Deadline) -> bool:
    """Whether a program has a deadline, and perhaps not its device."""
    return DEVICE_ORDER.has_meshes and deadline.timeout is not None


def _check(deadline: Deadline, woken: Woken, doing: str) -> None:
    """Raises an error if a step has no time left, or was cancelled."""
    if woken.is_cancelled:
        raise CancelledError("Step was cancelled")
    deadline.check(doing)


def _resume_fiber(first: Wanted, fiber: Fiber) -> Fiber:
    """Continues a fiber that has been started, beginning with the attempt for which it waits."""
    try:
        yield first
        yield from fiber
    finally:
        fiber.close()


def _copy_value(state: StepState, slot: Slot) -> Array:
    return state.host_value(slot, copy=True)

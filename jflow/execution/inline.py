"""Steps that stay in this process: all their plans run in the caller's thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Any

import jax
import numpy as np

from jflow import _forks
from jflow.deadline import FOREVER, Deadline
from jflow.execution.blocking import BlockingDriver, Fiber, Woken, run_fibers
from jflow.execution.callback import ClientFunction
from jflow.execution.interpreter import interpret
from jflow.execution.link import LinkedInstruction, LinkedPlan, LinkedRun
from jflow.execution.step_state import StepState
from jflow.execution.variables import QUEUED_S
from jflow.plan import Recv, Send, Slot
from jflow.resources import Containers
from jflow.resources.kernel import Wanted
from jflow.values import Array
from jflow.xla.compile import CompiledProgram

_Numbered = tuple[int, LinkedInstruction]
"""An instruction and the number of its plan."""

_Name = tuple[int, int]
"""A fiber: the numbers of its plan and stage."""

_ALL: _Name = (0, 0)


class _LoneProgram:
    """A program that is the whole of a step, and how it takes and gives the step's values.

    Attributes:
      plan: the number of its plan.
      taken: the number of the fed value that each argument is.
      n_in_order: how many values are fed if the arguments are just those; else -1.
      given: the number of the result that each fetched value is; None if they are just those.
    """

    def __init__(
        self,
        plan: int,
        executable: CompiledProgram,
        constants: tuple[jax.Array, ...],
        taken: list[int],
        given: list[int] | None,
    ) -> None:
        self.plan = plan
        self.executable = executable
        self.constants = constants
        self.taken = taken
        self.n_in_order = len(taken) if taken == list(range(len(taken))) else -1
        self.given = given


@_forks.guarded("run", "start", "compute")
class LocalExecutable:
    """All plans of a step, to be run together in the caller's thread.

    Plans never wait for each other: what a stage receives was sent by stages before it. Devices
    still work side by side, because JAX computes in the background. Only operations on resources
    may have to wait, for what other threads do.

    Args:
      plans: one for each device.
      n_fetches: how many values the step gives back.
      containers: the state.
      functions: those of the client that plans call, by their numbers.
    """

    def __init__(
        self,
        plans: Sequence[LinkedPlan],
        n_fetches: int,
        containers: Containers,
        functions: Sequence[ClientFunction] = (),
    ) -> None:
        self._plans = plans
        self._n_fetches = n_fetches
        self._containers = containers
        self._functions = functions
        self._keeps_feeds = any(linked.keeps_feeds for linked in plans)
        self._is_blocking = any(linked.plan.resources for linked in plans)
        # Sorted out here, so that a step does nothing but its work.
        self._feeds = [(n, feed) for n, linked in enumerate(plans) for feed in linked.feeds]
        self._fetches = [(n, fetch) for n, linked in enumerate(plans) for fetch in linked.fetches]
        is_sequential = not any(linked.plan.after for linked in plans)
        self._work = _fibers(plans, is_sequential)
        # Only what is sent between plans is kept by a driver, for one run.
        sends = any(isinstance(one, Send) for work in self._work.values() for _, one in work)
        self._driver = None if sends else BlockingDriver(functions)
        self._after = {_ALL: set()} if is_sequential else _order(plans, self._work)
        self._lone = lone = self._lone_program()
        # How many values are fed if the program takes just those and gives what is fetched.
        self._n_direct = lone.n_in_order if lone and lone.given is None else -1
        self._moves_feeds = False
        self._program = lone.executable if lone else None
        self._constants = lone.constants if lone else ()

    def _lone_program(self) -> _LoneProgram | None:
        """The step's program, if running it on what is fed and fetching its results is all."""
        match [*self._work.values()]:
            case [[(number, LinkedRun() as run)]] if run.executable and not run.uses_variables:
                fed = {feed.slot: feed.index for _, feed in self._feeds}
                fetched = [slot for _, slot in sorted((f.index, f.slot) for _, f in self._fetches)]
                inputs, outputs = run.instruction.inputs, run.instruction.outputs
                position = {slot: i for i, slot in enumerate(outputs)}
                if fed.keys() >= set(inputs) and position.keys() >= set(fetched):
                    taken = [fed[slot] for slot in inputs]
                    given = [position[slot] for slot in fetched]
                    is_ordered = given == list(range(len(outputs)))
                    return _LoneProgram(
                        number, run.executable, run.constants, taken, None if is_ordered else given
                    )
        return None

    def prepare(self, deadline: Deadline) -> None:
        """Does nothing: it was compiled when it was made."""

    def run(self, feeds: Sequence[Array], deadline: Deadline = FOREVER) -> list[Array]:
        """Runs the step and returns the fetched values.

        Args:
          feeds: the fed values.
          deadline: how long to wait for resources; programs are not interrupted.

        Raises:
          DeadlineExceededError: if the deadline passes.
          OpError: as the steps do.
        """
        if self._lone is not None:
            return list(map(np.asarray, self.compute(feeds)))
        return self._run(self._kept(feeds), _copied, deadline)

    def start(self, feeds: Sequence[Array], deadline: Deadline = FOREVER) -> Future[list[Array]]:
        """As `run`, on a thread of its own; cancelling the future ends its waiting."""
        outcome = _Outcome()
        fed = [np.array(x) for x in feeds]

        def run() -> None:
            try:
                values = self._run(fed, _copied, deadline, outcome.woken)
            except BaseException as error:  # of any kind: the future reports it
                if outcome.set_running_or_notify_cancel():
                    outcome.set_exception(error)
            else:
                if outcome.set_running_or_notify_cancel():
                    outcome.set_result(values)

        threading.Thread(target=run, name="jflow step", daemon=True).start()
        return outcome

    def compute(self, feeds: Sequence[Any], deadline: Deadline = FOREVER) -> list[jax.Array]:
        """As `run`, with JAX arrays, which may not be computed yet."""
        program = self._program
        if program is None or len(feeds) != self._n_direct:
            return self._compute(feeds, deadline)
        try:
            return program(*feeds, *self._constants)
        except (TypeError, ValueError):
            return self._moved(feeds, deadline)

    def _compute(self, feeds: Sequence[Any], deadline: Deadline) -> list[jax.Array]:
        """As `compute`, for feeds of any kind on any device."""
        lone = self._lone
        if lone is None:
            return self._run(self._kept(feeds), StepState.array, deadline)
        taken = [feeds[i] for i in lone.taken]
        if self._moves_feeds:
            taken = [self._fed(value, lone.plan) for value in taken]
        try:
            results = lone.executable(*taken, *lone.constants)
        except (TypeError, ValueError):
            return self._moved(feeds, deadline)
        return results if lone.given is None else [results[i] for i in lone.given]

    def _moved(self, feeds: Sequence[Any], deadline: Deadline) -> list[jax.Array]:
        """As `compute`, for feeds that its program does not take as they are.

        JAX does not move an array from another device; the next ones are likely there too.
        """
        self._n_direct, self._moves_feeds = -1, True
        return self._run(self._kept(feeds), StepState.array, deadline)

    def _kept(self, feeds: Sequence[Any]) -> Sequence[Any]:
        """The fed values as they may still be read when the step is done."""
        if not self._keeps_feeds:
            return feeds
        # The caller may write to its memory then.
        return [np.array(x) if isinstance(x, np.ndarray) else x for x in feeds]

    def _run(
        self,
        feeds: Sequence[Any],
        fetch: Callable[[StepState, Slot], Any],
        deadline: Deadline,
        woken: Woken | None = None,
    ) -> list[Any]:
        # A step with a deadline must not take what may not be computed by then.
        queued_s = QUEUED_S if deadline.timeout is None else 0.0
        states = [StepState(linked, self._containers, queued_s) for linked in self._plans]
        try:
            for number, feed in self._feeds:
                states[number][feed.slot] = self._fed(feeds[feed.index], number)
            driver = self._driver or BlockingDriver(self._functions)
            if self._is_blocking:
                fibers = {
                    name: interpret(work, states, driver) for name, work in self._work.items()
                }
                run_fibers(fibers, self._after, deadline, woken or SimpleQueue())
            else:
                for work in self._work.values():
                    fiber = interpret(work, states, driver)
                    first = next(fiber, None)
                    if first is not None:  # variables that another step writes
                        rest = {_ALL: _resumed(first, fiber)}
                        run_fibers(rest, {_ALL: ()}, deadline, woken or SimpleQueue())
            # Read last, so that no device waits for another one's results.
            values: list[Any] = [None] * self._n_fetches
            for number, wanted in self._fetches:
                values[wanted.index] = fetch(states[number], wanted.slot)
            return values
        finally:
            for state in states:
                state.close()

    def _fed(self, value: Any, number: int) -> Any:
        """A fed value where the device takes it: JAX itself moves only what is not a JAX array."""
        device = self._plans[number].device
        if isinstance(value, jax.Array) and value.devices() != {device}:
            # A device alone would leave the mesh that the array was divided over in its type.
            return jax.device_put(value, jax.sharding.SingleDeviceSharding(device))
        return value


class _Outcome(Future[list[Array]]):
    """The values of a step that runs on a thread of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.woken: Woken = SimpleQueue()

    def cancel(self) -> bool:
        """Ends its waiting; when this returns, what it waited for has been given up."""
        self.woken.put(None)
        is_cancelled = super().cancel()
        wait([self])
        return is_cancelled


def _fibers(plans: Sequence[LinkedPlan], is_sequential: bool) -> dict[_Name, list[_Numbered]]:
    """The work of each fiber: all of a step, or a stage of a plan, which may have to wait alone."""
    fibers: dict[_Name, list[_Numbered]] = {}
    for stage in range(max((len(linked.stages) for linked in plans), default=0)):
        for number, linked in enumerate(plans):
            work = fibers.setdefault(_ALL if is_sequential else (number, stage), [])
            if stage < len(linked.stages):
                work.extend((number, instruction) for instruction in linked.stages[stage])
    return fibers


def _resumed(first: Wanted, fiber: Fiber) -> Fiber:
    """A fiber that has begun, from what it waits for."""
    try:
        yield first
        yield from fiber
    finally:
        fiber.close()


def _copied(state: StepState, slot: Slot) -> Array:
    return state.host(slot, copy=True)


def _order(
    plans: Sequence[LinkedPlan], fibers: Mapping[_Name, Collection[_Numbered]]
) -> dict[_Name, set[_Name]]:
    """For each fiber those before it: in its own plan, and those that send what it receives."""
    senders = {
        instruction.edge: name
        for name, work in fibers.items()
        for _, instruction in work
        if isinstance(instruction, Send)
    }
    order: dict[_Name, set[_Name]] = {}
    for (number, stage), work in fibers.items():
        after = plans[number].plan.after
        own = {(number, one) for one in after[stage]} if stage < len(after) else set()
        order[number, stage] = own | {senders[s.edge] for _, s in work if isinstance(s, Recv)}
    return order

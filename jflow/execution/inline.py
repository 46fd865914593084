"""Runs the plans of a step that stays in this process, in the caller's thread."""

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
from jflow.execution.bound import BoundCall, BoundOperation, BoundPlan, BoundRun
from jflow.execution.devices import put
from jflow.execution.frame import Frame
from jflow.execution.strands import Strand, Woken, run_strands
from jflow.execution.variables import QUEUED_S
from jflow.plan import Feed, Fetch, Recv, Send, Slot
from jflow.resources import Containers
from jflow.resources.kernel import Wanted
from jflow.values import Array
from jflow.xla.compile import Executable

_Work = tuple[int, BoundRun | BoundCall | BoundOperation | Send | Recv]
"""A step and the number of the plan that it is of."""

_Name = tuple[int, int]
"""A strand of work: the numbers of its plan and stage."""

_ALL: _Name = (0, 0)


class _LoneProgram:
    """A program that is all of a step, and how it takes and gives the step's values.

    Attributes:
      plan: the number of its plan.
      taken: the number of the fed value that each argument is.
      n_in_order: how many values are fed if the arguments are just those; else -1.
      given: the number of the result that each fetched value is; None if they are just those.
    """

    def __init__(
        self,
        plan: int,
        executable: Executable,
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
class InlineStep:
    """All plans of a step, to be run together in the caller's thread.

    Plans never wait for each other: what a stage receives was sent by stages before it. Devices
    still work side by side, for JAX computes in the background. Only operations on resources may
    have to wait, for what other threads do.

    Args:
      plans: one for each device.
      n_fetches: how many values the step gives back.
      store: the state.
    """

    def __init__(self, plans: Sequence[BoundPlan], n_fetches: int, store: Containers) -> None:
        self._plans = plans
        self._n_fetches = n_fetches
        self._store = store
        self._keeps_feeds = any(bound.keeps_feeds for bound in plans)
        self._may_wait = any(bound.plan.resources for bound in plans)
        # Sorted out here, so that a step does nothing but its work.
        self._feeds: list[tuple[int, Feed]] = []
        self._fetches: list[tuple[int, Fetch]] = []
        self._strands: dict[_Name, list[_Work]] = {}
        in_a_row = not any(bound.plan.after for bound in plans)
        for stage in range(max((len(bound.stages) for bound in plans), default=0)):
            for number, bound in enumerate(plans):
                work = self._strands.setdefault(_ALL if in_a_row else (number, stage), [])
                if stage < len(bound.stages):
                    self._sort(number, bound, stage, work)
        self._after = {_ALL: set()} if in_a_row else _order(plans, self._strands)
        self._lone = lone = self._lone_program()
        # How many values are fed if the program takes just those and gives what is fetched.
        self._n_direct = lone.n_in_order if lone and lone.given is None else -1
        self._moves_feeds = False
        self._program = lone.executable if lone else None
        self._constants = lone.constants if lone else ()

    def _sort(self, number: int, bound: BoundPlan, stage: int, work: list[_Work]) -> None:
        for step in bound.stages[stage]:
            match step:
                case Feed():
                    self._feeds.append((number, step))
                case Fetch():
                    self._fetches.append((number, step))
                case BoundRun() | BoundCall() | BoundOperation() | Send() | Recv():
                    work.append((number, step))

    def _lone_program(self) -> _LoneProgram | None:
        """The step's program, if running it on what is fed and fetching its results is all."""
        match [*self._strands.values()]:
            case [[(number, BoundRun() as run)]] if run.executable and not run.uses_variables:
                fed = {feed.slot: feed.index for _, feed in self._feeds}
                fetched = [slot for _, slot in sorted((f.index, f.slot) for _, f in self._fetches)]
                position = {slot: i for i, slot in enumerate(run.step.outputs)}
                if fed.keys() >= set(run.step.inputs) and position.keys() >= set(fetched):
                    taken = [fed[slot] for slot in run.step.inputs]
                    given = [position[slot] for slot in fetched]
                    is_ordered = given == list(range(len(run.step.outputs)))
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
            except BaseException as error:  # whatever it is, the caller is told
                if outcome.set_running_or_notify_cancel():
                    outcome.set_exception(error)
            else:
                if outcome.set_running_or_notify_cancel():
                    outcome.set_result(values)

        threading.Thread(target=run, name="jflow step", daemon=True).start()
        return outcome

    def compute(self, feeds: Sequence[Any], deadline: Deadline = FOREVER) -> list[jax.Array]:
        """As `run`, with JAX arrays, which may still be on their way."""
        program = self._program
        if program is None or len(feeds) != self._n_direct:
            return self._compute(feeds, deadline)
        try:
            return program(*feeds, *self._constants)
        except (TypeError, ValueError):
            return self._moved(feeds, deadline)

    def _compute(self, feeds: Sequence[Any], deadline: Deadline) -> list[jax.Array]:
        """As `compute`, for whatever is fed, wherever it is."""
        lone = self._lone
        if lone is None:
            return self._run(self._kept(feeds), Frame.array, deadline)
        taken = [feeds[i] for i in lone.taken]
        if self._moves_feeds:
            taken = [self._fed(value, lone.plan) for value in taken]
        try:
            results = lone.executable(*taken, *lone.constants)
        except (TypeError, ValueError):
            return self._moved(feeds, deadline)
        return results if lone.given is None else [results[i] for i in lone.given]

    def _moved(self, feeds: Sequence[Any], deadline: Deadline) -> list[jax.Array]:
        """As `compute`, for what its program does not take as it is.

        JAX does not move an array that is elsewhere; it likely is there the next time too.
        """
        self._n_direct, self._moves_feeds = -1, True
        return self._run(self._kept(feeds), Frame.array, deadline)

    def _kept(self, feeds: Sequence[Any]) -> Sequence[Any]:
        """The fed values as they may be looked at when the step is done."""
        if not self._keeps_feeds:
            return feeds
        # The caller may change his memory then.
        return [np.array(x) if isinstance(x, np.ndarray) else x for x in feeds]

    def _run(
        self,
        feeds: Sequence[Any],
        fetch: Callable[[Frame, Slot], Any],
        deadline: Deadline,
        woken: Woken | None = None,
    ) -> list[Any]:
        # A step with a deadline must not take what may not be computed by then.
        queued_s = QUEUED_S if deadline.timeout is None else 0.0
        frames = [Frame(bound, self._store, queued_s) for bound in self._plans]
        try:
            for number, feed in self._feeds:
                frames[number][feed.slot] = self._fed(feeds[feed.index], number)
            wires: dict[int, Any] = {}
            if self._may_wait:
                strands = {
                    name: self._strand(work, frames, wires) for name, work in self._strands.items()
                }
                run_strands(strands, self._after, deadline, woken or SimpleQueue())
            else:
                for work in self._strands.values():
                    strand = self._strand(work, frames, wires)
                    first = next(strand, None)
                    if first is not None:  # variables that another step writes
                        rest = {_ALL: _resumed(first, strand)}
                        run_strands(rest, {_ALL: ()}, deadline, woken or SimpleQueue())
            # Read last, so that no device waits for another one's results.
            values: list[Any] = [None] * self._n_fetches
            for number, wanted in self._fetches:
                values[wanted.index] = fetch(frames[number], wanted.slot)
            return values
        finally:
            for frame in frames:
                frame.close()

    def _strand(
        self, work: Sequence[_Work], frames: Sequence[Frame], wires: dict[int, Any]
    ) -> Strand:
        for number, step in work:
            if isinstance(step, BoundRun):
                frame = frames[number]
                if step.uses_variables:
                    frame.finish(frame.begin(step) or (yield from frame.wait(step)))
                else:
                    frame.compute(step)
            elif isinstance(step, BoundOperation):
                yield from frames[number].perform(step)
            elif isinstance(step, BoundCall):
                frames[number].call(step)
            elif isinstance(step, Send):
                wires[step.edge] = None if step.slot is None else frames[number][step.slot]
            else:
                self._receive(step, number, frames[number], wires)

    def _fed(self, value: Any, number: int) -> Any:
        """A fed value as the device takes it: JAX itself moves only what is not an array of its."""
        device = self._plans[number].device
        if isinstance(value, jax.Array) and value.devices() != {device}:
            # A device alone would leave the mesh that the array was divided over in its type.
            return jax.device_put(value, jax.sharding.SingleDeviceSharding(device))
        return value

    def _receive(self, step: Recv, number: int, frame: Frame, wires: dict[int, Any]) -> None:
        value = wires.pop(step.edge)
        if step.slot is not None:
            frame[step.slot] = put(value, self._plans[number].device)


class _Outcome(Future[list[Array]]):
    """The values of a step that runs on a thread of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.woken: Woken = SimpleQueue()

    def cancel(self) -> bool:
        """Ends its waiting; what it waited for has been given up when this returns."""
        self.woken.put(None)
        is_cancelled = super().cancel()
        wait([self])
        return is_cancelled


def _resumed(first: Wanted, strand: Strand) -> Strand:
    """A strand that has begun, from what it waits for."""
    try:
        yield first
        yield from strand
    finally:
        strand.close()


def _copied(frame: Frame, slot: Slot) -> Array:
    return frame.host(slot, copy=True)


def _order(
    plans: Sequence[BoundPlan], strands: Mapping[_Name, Collection[_Work]]
) -> dict[_Name, set[_Name]]:
    """For each strand those before it: in its own plan, and those that send what it receives."""
    senders = {
        step.edge: name
        for name, work in strands.items()
        for _, step in work
        if isinstance(step, Send)
    }
    order: dict[_Name, set[_Name]] = {}
    for (number, stage), work in strands.items():
        after = plans[number].plan.after
        own = {(number, one) for one in after[stage]} if stage < len(after) else set()
        order[number, stage] = own | {senders[s.edge] for _, s in work if isinstance(s, Recv)}
    return order

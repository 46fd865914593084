"""Classes of plans: which step needs the interpreter, and which one a driver runs without it.

Most small steps are one instruction between feeds and fetches. `classify` says so once, when plans
are linked, to the executable of a local session and to a worker alike:

* `SingleProgram`, `SeveralPrograms`: programs of fed values and constants. They use no state, so
  there is nothing to hold, to lease or to roll back, and nothing waits but for the device. A single
  program is called as a function.
* `SingleAccess`: one program that reads or writes variables. It waits only if these are not free.
* `SingleOperation`: one operation on a queue, or on another resource that is no variable. It waits
  only if its attempt does.
* `General`: everything else, which the interpreter runs (`jflow.task.execution.interpreter`).

Several plans are always general: they send each other values, or are on several devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import jax

from jflow.plan.xla.compile import CompiledProgram
from jflow.state.core import WritesOfTask
from jflow.task.execution.link import LinkedKernel, LinkedPlan, LinkedRun


@dataclass(frozen=True)
class SingleProgram:
    """One program of fed values, of which the step fetches results.

    Attributes:
      linked: its plan.
      run: its instruction.
      program, constants: the program, and its last arguments.
      taken: for each argument, the index of the fed value.
      given: for each fetched value, the index of the result; None if they are the results in order.
      n_in_order: the number of fed values if a call of the program with them is the whole step; -1
        if it takes them, or the step fetches its results, in another order.
    """

    linked: LinkedPlan
    run: LinkedRun
    program: CompiledProgram
    constants: tuple[jax.Array, ...]
    taken: tuple[int, ...]
    given: tuple[int, ...] | None
    n_in_order: int

    @property
    def runs(self) -> tuple[LinkedRun, ...]:
        """Its only instruction, as `SeveralPrograms` has them."""
        return (self.run,)

    def results(self, feeds: Sequence[Any]) -> list[jax.Array]:
        """The fetched values.

        Raises:
          TypeError, ValueError: if the program cannot take a value as it is; nothing was done.
        """
        results = self.program(*[feeds[i] for i in self.taken], *self.constants)
        return results if self.given is None else [results[i] for i in self.given]

    def in_order(self) -> CompiledProgram:
        """`results` with the fed values as arguments, if they are in order."""
        program, constants = self.program, self.constants
        return (lambda *feeds: program(*feeds, *constants)) if constants else program


@dataclass(frozen=True)
class SeveralPrograms:
    """Programs of fed values, constants and each other's results, which are all that is fetched."""

    linked: LinkedPlan
    runs: tuple[LinkedRun, ...]


@dataclass(frozen=True)
class SingleAccess:
    """One program that reads or writes variables, or an access to them without a program."""

    linked: LinkedPlan
    run: LinkedRun


@dataclass(frozen=True)
class SingleOperation:
    """One operation on a resource, which reads no files."""

    linked: LinkedPlan
    kernel: LinkedKernel


@dataclass(frozen=True)
class General:
    """Whatever the interpreter has to run."""


PlanClass = SingleProgram | SeveralPrograms | SingleAccess | SingleOperation | General


def classify(plans: Sequence[LinkedPlan]) -> PlanClass:
    """The class of the plans of a step that are run together, in one process."""
    if len(plans) != 1:
        return General()
    (linked,) = plans
    match instructions := [*chain.from_iterable(linked.stages)]:
        case [LinkedKernel() as kernel] if not kernel.reads_files:
            return SingleOperation(linked, kernel)
        case [LinkedRun() as run] if run.uses_variables:
            return SingleAccess(linked, run)
    runs = tuple(one for one in instructions if isinstance(one, LinkedRun) and _is_pure(one))
    computed = {slot for run in runs for slot in run.instruction.outputs}
    if len(runs) < len(instructions) or any(one.slot not in computed for one in linked.fetches):
        return General()
    single = _single_program(linked, runs[0]) if len(runs) == 1 else None
    return single or SeveralPrograms(linked, runs)


def _is_pure(run: LinkedRun) -> bool:
    return run.executable is not None and not run.uses_variables


def _single_program(linked: LinkedPlan, run: LinkedRun) -> SingleProgram | None:
    """The only program of a plan, unless one of its arguments is no fed value."""
    fed = {feed.slot: feed.index for feed in linked.feeds}
    inputs, outputs = run.instruction.inputs, run.instruction.outputs
    if run.executable is None or not fed.keys() >= set(inputs):
        return None
    position = {slot: i for i, slot in enumerate(outputs)}
    fetched = sorted(linked.fetches, key=lambda one: one.index)
    arguments = tuple(fed[slot] for slot in inputs)
    positions = tuple(position[one.slot] for one in fetched)
    gives_all = positions == tuple(range(len(outputs)))
    is_in_order = gives_all and arguments == tuple(range(len(arguments)))
    return SingleProgram(
        *(linked, run, run.executable, run.constants, arguments),
        given=None if gives_all else positions,
        n_in_order=len(arguments) if is_in_order else -1,
    )


def writes_of(plans: Sequence[LinkedPlan]) -> WritesOfTask:
    """What linked plans of one task write."""
    writing = [
        one.written
        for plan in plans
        for stage in plan.stages
        for one in stage
        if isinstance(one, LinkedRun) and one.written
    ]
    return WritesOfTask(frozenset(key for keys in writing for key in keys), len(writing))

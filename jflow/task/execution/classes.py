"""Classes of plans: decides which plans need the interpreter and which run without it.

Most small steps are one instruction between feeds and fetches. `classify` says so once, when plans
are linked, to the executable of a local session and to a worker alike:

* `SingleProgram`, `SeveralPrograms`: programs of fed values and constants. They use no state, so
  there is nothing to hold, to lease or to roll back, and nothing waits but for the device. A single
  program is called as a function.
* `SingleAccess`: one program that reads or writes variables. It waits only if these are not free.
* `SingleOperation`: one operation on a queue, or on another resource that is no variable. It waits
  only if its attempt does.
* `General`: everything else, which the interpreter runs (`jflow.task.execution.interpreter`).

Several plans are always general: they send each other values, or are on several devices. So is a
plan on a mesh, whose programs wait for all devices of the mesh.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import jax
from jax.sharding import Mesh

from jflow.plan.xla.compile import CompiledProgram
from jflow.state.core import WritesOfTask
from jflow.task.execution.linked import LinkedKernel, LinkedPlan, LinkedRun


@dataclass(frozen=True)
class SingleProgram:
    """A step of one program, whose arguments are fed values and whose results are fetched.

    Attributes:
      linked: its plan.
      run: its instruction.
      program, constants: the program, and its last arguments.
      feed_indices: for each argument, the index of the fed value.
      fetch_indices: for each fetched value, the index of the result; None if all are fetched in
        order.
      n_in_order: the number of fed values if a call of the program with them is the whole step; -1
        if it takes them, or the step fetches its results, in another order.
    """

    linked: LinkedPlan
    run: LinkedRun
    program: CompiledProgram
    constants: tuple[jax.Array, ...]
    feed_indices: tuple[int, ...]
    fetch_indices: tuple[int, ...] | None
    n_in_order: int

    @property
    def runs(self) -> tuple[LinkedRun, ...]:
        """The only instruction, in the form of `SeveralPrograms.runs`."""
        return (self.run,)

    def results(self, feeds: Sequence[Any]) -> list[jax.Array]:
        """Runs the program on fed values; returns the fetched values.

        Raises:
          TypeError, ValueError: if the program cannot take a value as it is; nothing was done.
        """
        results = self.program(*[feeds[i] for i in self.feed_indices], *self.constants)
        return results if self.fetch_indices is None else [results[i] for i in self.fetch_indices]

    def in_order(self) -> CompiledProgram:
        """Returns `results` as a function of fed values in order; `n_in_order` must not be -1."""
        program, constants = self.program, self.constants
        return (lambda *feeds: program(*feeds, *constants)) if constants else program


@dataclass(frozen=True)
class SeveralPrograms:
    """Programs of fed values, constants and each other's results; only results are fetched."""

    linked: LinkedPlan
    runs: tuple[LinkedRun, ...]


@dataclass(frozen=True)
class SingleAccess:
    """One program that reads or writes variables, or an access to them without a program."""

    linked: LinkedPlan
    run: LinkedRun


@dataclass(frozen=True)
class SingleOperation:
    """One operation on a resource that reads no files."""

    linked: LinkedPlan
    kernel: LinkedKernel


@dataclass(frozen=True)
class General:
    """A plan or plans that the interpreter has to run."""


PlanClass = SingleProgram | SeveralPrograms | SingleAccess | SingleOperation | General


def classify(plans: Sequence[LinkedPlan]) -> PlanClass:
    """Returns the class of the plans that one process runs together in a step."""
    if len(plans) != 1 or isinstance(plans[0].device, Mesh):
        return General()
    (linked,) = plans
    match instructions := [*chain.from_iterable(linked.stages)]:
        case [LinkedKernel() as kernel] if not kernel.is_slow:
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
    """Returns the only program of a plan; None if one of its arguments is not a fed value."""
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
        fetch_indices=None if gives_all else positions,
        n_in_order=len(arguments) if is_in_order else -1,
    )


def writes_of(plans: Sequence[LinkedPlan]) -> WritesOfTask:
    """Returns the variables that linked plans of one task write, and how many programs do."""
    writing = [
        one.written
        for plan in plans
        for stage in plan.stages
        for one in stage
        if isinstance(one, LinkedRun) and one.written
    ]
    return WritesOfTask(frozenset(key for keys in writing for key in keys), len(writing))

"""Plans with everything they name looked up: executables, constants and the device itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from jflow.execution.functions import HostFunction, host_function
from jflow.lowering import Executable
from jflow.plan import Call, Plan, Program, Run, Step


@dataclass
class Pace:
    """How long the last dispatch of a program took, in seconds; for ever before the first one."""

    last_s: float = math.inf


@dataclass(frozen=True)
class BoundRun:
    """A `Run` step with its executable, the constants that it takes last, and its pace."""

    step: Run
    executable: Executable | None
    constants: tuple[jax.Array, ...]
    pace: Pace

    @property
    def uses_variables(self) -> bool:
        """Whether other steps could come between its reading and its setting of variables."""
        return bool(self.step.reads or self.step.writes or self.step.before)


@dataclass(frozen=True)
class BoundCall:
    """A `Call` step with its function and the constants that it takes last."""

    step: Call
    function: HostFunction
    constants: tuple[Any, ...]


BoundStep = Step | BoundRun | BoundCall


@dataclass(frozen=True)
class BoundPlan:
    """A plan ready to run on a device of this process."""

    plan: Plan
    device: jax.Device
    stages: tuple[tuple[BoundStep, ...], ...]

    @property
    def writes_state(self) -> bool:
        """Whether it sets variables, which may go on when its last step has been taken."""
        return any(isinstance(step, Run) and step.writes for step in self.plan.steps)


def bind(
    plan: Plan,
    device: jax.Device,
    executable: Callable[[Program], Executable],
    constant: Callable[[str], Any],
) -> BoundPlan:
    """Looks up what a plan names.

    Args:
      plan: what to run.
      device: where.
      executable: compiles a program, or finds it compiled.
      constant: finds a constant by its digest, on the device unless it is a host tensor.

    Raises:
      InvalidArgumentError: if the plan calls a function that does not exist.
    """

    def bound(step: Step) -> BoundStep:
        if isinstance(step, Call):
            constants = tuple(constant(digest) for digest in step.constants)
            return BoundCall(step, host_function(step.function), constants)
        if not isinstance(step, Run):
            return step
        if step.program is None:
            return BoundRun(step, None, (), Pace(0.0))
        constants = tuple(constant(digest) for digest in step.program.constants)
        return BoundRun(step, executable(step.program), constants, Pace())

    return BoundPlan(plan, device, tuple(tuple(map(bound, stage)) for stage in plan.stages))

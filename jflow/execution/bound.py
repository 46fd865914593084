"""Plans with everything they name looked up: executables, constants and the device itself."""

from __future__ import annotations

import inspect
import json
import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeGuard

import jax
import numpy as np

from jflow.errors import InvalidArgumentError
from jflow.execution.callback import BoundCallback, bound_callback, called_here
from jflow.execution.functions import HostFunction, host_function, host_kernel
from jflow.graph.callbacks import Callback
from jflow.plan import CALLBACK, Call, Plan, Program, ResourceSpec, Run, Step, VariableSpec
from jflow.resources import Kernel, VariableId
from jflow.resources.kinds import kind_of
from jflow.xla.compile import Executable, is_bounded

_PACES: weakref.WeakKeyDictionary[Executable, Pace] = weakref.WeakKeyDictionary()


@dataclass
class Pace:
    """How long a program's last dispatch, or a function's last call, took in seconds.

    For ever before the first one.
    """

    last_s: float = math.inf


@dataclass(frozen=True)
class BoundRun:
    """A `Run` step with its executable, the constants that it takes last, and its pace.

    `may_be_quick` says whether it takes as long as the last time, as far as that can be known.
    """

    step: Run
    executable: Executable | None
    constants: tuple[jax.Array, ...]
    pace: Pace
    specs: tuple[VariableSpec, ...] = ()
    places: tuple[VariableId, ...] = ()
    may_be_quick: bool = True

    # Decided once, so that a step does nothing but its work. Numbers are those of the plan.

    @cached_property
    def uses_variables(self) -> bool:
        """Whether other steps could come between its reading and its setting of variables."""
        return bool(self.step.reads or self.step.writes or self.step.before)

    @cached_property
    def used(self) -> tuple[int, ...]:
        """The variables whose old values it needs."""
        return tuple(dict.fromkeys((*self.step.reads, *(i for i, _ in self.step.before))))

    @cached_property
    def leased(self) -> tuple[int, ...]:
        """The variables whose old values must stay as they are while the program runs."""
        return tuple(i for i in self.step.reads if i not in self.step.writes)

    @cached_property
    def only_written(self) -> tuple[int, ...]:
        """The variables that it writes without need of their old values."""
        return tuple(i for i in self.step.writes if i not in self.used)

    @cached_property
    def written(self) -> tuple[VariableId, ...]:
        """Where the variables are that it writes."""
        return tuple(dict.fromkeys(self.places[i] for i in self.step.writes))

    @cached_property
    def only_read(self) -> tuple[VariableId, ...]:
        """Where the variables are that it only reads."""
        places = dict.fromkeys(self.places[i] for i in self.used)
        return tuple(place for place in places if place not in self.written)


@dataclass(frozen=True)
class BoundCall:
    """A `Call` step of a function, with the constants that it takes last, attributes and pace."""

    step: Call
    function: HostFunction
    constants: tuple[Any, ...]
    attributes: dict[str, Any]
    pace: Pace


@dataclass(frozen=True)
class BoundOperation:
    """A `Call` step of an operation, likewise, with the resources that it works on."""

    step: Call
    operation: Kernel
    constants: tuple[Any, ...]
    attributes: dict[str, Any]
    resources: tuple[ResourceSpec, ...]

    @property
    def reads_files(self) -> bool:
        """Whether it may keep whoever goes on with it waiting for a disk."""
        return kind_of(self.resources[0]).reads_files


BoundStep = Step | BoundRun | BoundCall | BoundOperation | BoundCallback


@dataclass(frozen=True)
class BoundPlan:
    """A plan ready to run on a device of this process.

    Attributes:
      plan: what it was.
      device: where it runs.
      stages: its steps, but for those that only pass a constant on.
      slots: what the slots hold before the first step: these constants.
    """

    plan: Plan
    device: jax.Device
    stages: tuple[tuple[BoundStep, ...], ...]
    slots: tuple[Any, ...]

    @property
    def keeps_feeds(self) -> bool:
        """Whether what it is fed may be looked at when its last step has been taken.

        An update of variables may go on then, and a queue or a callback keeps what it is given.
        """
        return bool(self.plan.resources) or any(map(_keeps_inputs, self.plan.steps))


def _keeps_inputs(step: Step) -> bool:
    if isinstance(step, Call):
        return step.function == CALLBACK
    return isinstance(step, Run) and bool(step.writes)


def bind(
    plan: Plan,
    device: jax.Device,
    executable: Callable[[Program], Executable],
    constant: Callable[[str], Any],
    callbacks: Sequence[Callback] | None = None,
) -> BoundPlan:
    """Looks up what a plan names.

    Args:
      plan: what to run.
      device: where.
      executable: compiles a program, or finds it compiled.
      constant: finds a constant by its digest, on the device unless it is a host tensor.
      callbacks: the functions of the client by number, if this is its own process.

    Raises:
      InvalidArgumentError: if the plan calls what does not exist, or not as it can be called.
    """

    slots: list[Any] = [None] * plan.n_slots
    places = tuple(VariableId.of(plan.device, spec.key) for spec in plan.variables)
    checks_nans = plan.checks_nans

    def bound(step: Step) -> Iterator[BoundStep]:
        if _is_constant(step):
            slots[step.outputs[0]] = np.asarray(constant(step.constants[0]))
        elif isinstance(step, Call):
            constants = tuple(constant(digest) for digest in step.constants)
            yield _bound_call(step, plan, constants, callbacks)
        elif not isinstance(step, Run):
            yield step
        elif step.program is None:
            yield BoundRun(step, None, (), Pace(0.0), plan.variables, places)
        else:
            constants = tuple(constant(digest) for digest in step.program.constants)
            found = executable(step.program)
            # Whichever session runs it: it takes as long as it took for another one.
            pace = _PACES.setdefault(found, Pace())
            run = _unchecked(found) if checks_nans else found
            yield BoundRun(
                step, run, constants, pace, plan.variables, places, may_be_quick=is_bounded(found)
            )

    stages = tuple(tuple(one for step in stage for one in bound(step)) for stage in plan.stages)
    return BoundPlan(plan, device, stages, tuple(slots))


def _unchecked(executable: Executable) -> Executable:
    """The program without JAX's own search for NaN, which gives up the values of variables."""

    def run(*args: Any) -> list[jax.Array]:
        with jax.debug_nans(False):
            return executable(*args)

    return run


def _is_constant(step: Step) -> TypeGuard[Call]:
    """Whether all that a step does is to pass a constant on."""
    if not isinstance(step, Call) or step.function != "identity" or step.inputs:
        return False
    return len(step.outputs) == len(step.constants) == 1


def _bound_call(
    step: Call,
    plan: Plan,
    constants: tuple[Any, ...],
    callbacks: Sequence[Callback] | None,
) -> BoundStep:
    try:
        attributes = json.loads(step.attributes)
    except ValueError as error:
        raise InvalidArgumentError(f"attributes of {step.function!r}: {error}") from None
    if not isinstance(attributes, dict):
        raise InvalidArgumentError(f"attributes of {step.function!r} are no JSON object")
    if step.function == CALLBACK:
        bound = bound_callback(step, attributes)
        if callbacks is None:
            return bound
        return BoundCall(step, called_here(bound, callbacks[bound.number]), (), {}, Pace())
    function = None if step.resources else host_function(step.function)
    if function is not None:
        _check_arguments(step, function, (*step.inputs, *constants), attributes)
        return BoundCall(step, function, constants, attributes, Pace())
    operation = host_kernel(step.function)
    _check_arguments(step, operation, (), attributes)
    resources = tuple(plan.resources[number] for number in step.resources)
    kind = step.function.partition(".")[0]
    if not resources or resources[0].kind != kind:
        works_on = ", ".join(map(str, resources)) or "nothing"
        raise InvalidArgumentError(
            f"{step.function!r} works on a resource of the kind {kind!r}, got {works_on}"
        )
    return BoundOperation(step, operation, constants, attributes, resources)


def _check_arguments(
    step: Call,
    function: Callable[..., Any],
    inputs: tuple[Any, ...],
    attributes: Mapping[str, Any],
) -> None:
    """Refuses what the function cannot be called with; how many arrays an operation takes it says.

    Raises:
      InvalidArgumentError: if there are too many or too few arrays, or unknown attributes.
    """
    signature = inspect.signature(function)
    bind_arguments = signature.bind if inputs else signature.bind_partial
    try:
        bind_arguments(*inputs, **attributes)
    except TypeError as error:
        raise InvalidArgumentError(f"arguments of {step.function!r}: {error}") from None

"""Linked plans: plans with everything they name looked up: programs, constants and the device."""

from __future__ import annotations

import inspect
import math
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np

from jflow.errors import InvalidArgumentError
from jflow.execution.callback import LinkedCallback, link_callback
from jflow.execution.functions import HostFunction, host_function, host_kernel
from jflow.packing import Keywords
from jflow.plan import (
    CALLBACK,
    Call,
    Feed,
    Fetch,
    Instruction,
    Plan,
    Program,
    Recv,
    ResourceSpec,
    Run,
    Send,
    VariableSpec,
)
from jflow.resources import VariableId
from jflow.resources.kernel import Kernel
from jflow.resources.kinds import kind_of
from jflow.xla.compile import CompiledProgram, is_bounded

_LATENCIES: weakref.WeakKeyDictionary[CompiledProgram, LastLatency] = weakref.WeakKeyDictionary()


@dataclass
class LastLatency:
    """How long a program's last dispatch, or a function's last call, took in seconds.

    Infinite before the first one.
    """

    seconds: float = math.inf


@dataclass(frozen=True)
class LinkedRun:
    """A `Run` with its executable, the constants that it takes last, and its last latency.

    `may_be_quick` says whether it takes as long as the last time, as far as that can be known.
    """

    instruction: Run
    executable: CompiledProgram | None
    constants: tuple[jax.Array, ...]
    latency: LastLatency
    specs: tuple[VariableSpec, ...] = ()
    keys: tuple[VariableId, ...] = ()
    may_be_quick: bool = True

    # Decided once, so that a step does nothing but its work. Numbers are those of the plan.

    @cached_property
    def uses_variables(self) -> bool:
        """Whether other steps could come between its reading and its setting of variables."""
        run = self.instruction
        return bool(run.reads or run.writes or run.before)

    @cached_property
    def used(self) -> tuple[int, ...]:
        """The variables whose old values it needs."""
        run = self.instruction
        return tuple(dict.fromkeys((*run.reads, *(i for i, _ in run.before))))

    @cached_property
    def leased(self) -> tuple[int, ...]:
        """The variables whose old values must stay as they are while the program runs."""
        run = self.instruction
        return tuple(i for i in run.reads if i not in run.writes)

    @cached_property
    def only_written(self) -> tuple[int, ...]:
        """The variables that it writes without need of their old values."""
        return tuple(i for i in self.instruction.writes if i not in self.used)

    @cached_property
    def written(self) -> tuple[VariableId, ...]:
        """Keys of the variables that it writes."""
        return tuple(dict.fromkeys(self.keys[i] for i in self.instruction.writes))

    @cached_property
    def only_read(self) -> tuple[VariableId, ...]:
        """Keys of the variables that it only reads."""
        keys = dict.fromkeys(self.keys[i] for i in self.used)
        return tuple(key for key in keys if key not in self.written)


@dataclass(frozen=True)
class LinkedCall:
    """A `Call` of a function, with the constants that it takes last, attributes and latency."""

    instruction: Call
    function: HostFunction
    constants: tuple[Any, ...]
    attributes: dict[str, Any]
    latency: LastLatency


@dataclass(frozen=True)
class LinkedKernel:
    """A `Call` of a kernel, likewise, with the resources that it works on."""

    instruction: Call
    kernel: Kernel
    constants: tuple[Any, ...]
    attributes: dict[str, Any]
    resources: tuple[ResourceSpec, ...]

    @property
    def reads_files(self) -> bool:
        """Whether the thread that runs it may have to wait for a disk."""
        return kind_of(self.resources[0]).reads_files


LinkedInstruction = LinkedRun | LinkedKernel | LinkedCall | LinkedCallback | Send | Recv
"""What the interpreter performs; feeds and fetches are the border of a step."""


@dataclass(frozen=True)
class LinkedPlan:
    """A plan ready to run on a device of this process.

    Attributes:
      plan: what was linked.
      device: where it runs.
      feeds, fetches: the slots to fill before a step and to read after it.
      stages: its other instructions, except those that only pass a constant on.
      slots: what the slots hold before the first instruction: these constants.
    """

    plan: Plan
    device: jax.Device
    feeds: tuple[Feed, ...]
    fetches: tuple[Fetch, ...]
    stages: tuple[tuple[LinkedInstruction, ...], ...]
    slots: tuple[Any, ...]

    @property
    def keeps_feeds(self) -> bool:
        """Whether it may look at what it is fed after its last instruction is done.

        An update of variables may still run then, and a queue or a callback keeps what it is given.
        """
        return bool(self.plan.resources) or any(map(_keeps_inputs, self.plan.instructions))


def _keeps_inputs(instruction: Instruction) -> bool:
    if isinstance(instruction, Call):
        return instruction.function == CALLBACK
    return isinstance(instruction, Run) and bool(instruction.writes)


def link(
    plan: Plan,
    device: jax.Device,
    executable: Callable[[Program], CompiledProgram],
    constant: Callable[[str], Any],
) -> LinkedPlan:
    """Looks up what a plan names.

    Args:
      plan: what to run.
      device: where.
      executable: compiles a program, or finds it compiled.
      constant: finds a constant by its digest, on the device unless it is a host tensor.

    Raises:
      InvalidArgumentError: if the plan calls what does not exist, or not as it can be called.
    """
    slots: list[Any] = [None] * plan.n_slots
    keys = tuple(VariableId.of(plan.device, spec.key) for spec in plan.variables)
    checks_nans = plan.checks_nans

    def linked(instruction: Instruction) -> Iterator[LinkedInstruction]:
        match instruction:
            case Send() | Recv():
                yield instruction
            case Call():
                if _is_constant(instruction):
                    slots[instruction.outputs[0]] = np.asarray(constant(instruction.constants[0]))
                else:
                    yield _link_call(instruction, plan, constant)
            case Run(program=None):
                yield LinkedRun(instruction, None, (), LastLatency(0.0), plan.variables, keys)
            case Run(program=Program() as program):
                constants = tuple(constant(digest) for digest in program.constants)
                found = executable(program)
                # Shared by all sessions: it takes as long as it took for another one.
                latency = _LATENCIES.setdefault(found, LastLatency())
                run = _unchecked(found) if checks_nans else found
                is_quick = is_bounded(found)
                yield LinkedRun(
                    instruction, run, constants, latency, plan.variables, keys, is_quick
                )

    return LinkedPlan(
        plan,
        device,
        tuple(one for one in plan.instructions if isinstance(one, Feed)),
        tuple(one for one in plan.instructions if isinstance(one, Fetch)),
        tuple(tuple(each for one in stage for each in linked(one)) for stage in plan.stages),
        tuple(slots),
    )


def _unchecked(executable: CompiledProgram) -> CompiledProgram:
    """The program without JAX's own search for NaN, which gives up the values of variables."""

    def run(*args: Any) -> list[jax.Array]:
        with jax.debug_nans(False):
            return executable(*args)

    return run


def _is_constant(call: Call) -> bool:
    """Whether all that a call does is to pass a constant on."""
    if call.function != "identity" or call.inputs:
        return False
    return len(call.outputs) == len(call.constants) == 1


def _link_call(
    call: Call, plan: Plan, constant: Callable[[str], Any]
) -> LinkedCall | LinkedKernel | LinkedCallback:
    if call.function == CALLBACK:
        return link_callback(call)
    constants = tuple(constant(digest) for digest in call.constants)
    function = None if call.resources else host_function(call.function)
    if function is not None:
        attributes = Keywords(function, call.function).unpack(call.attributes)
        _check_arguments(call, function, (*call.inputs, *constants), attributes)
        return LinkedCall(call, function, constants, attributes, LastLatency())
    kernel = host_kernel(call.function)
    attributes = Keywords(kernel, call.function).unpack(call.attributes)
    resources = tuple(plan.resources[number] for number in call.resources)
    kind = call.function.partition(".")[0]
    if not resources or resources[0].kind != kind:
        works_on = ", ".join(map(str, resources)) or "nothing"
        raise InvalidArgumentError(
            f"{call.function!r} works on a resource of the kind {kind!r}, got {works_on}"
        )
    return LinkedKernel(call, kernel, constants, attributes, resources)


def _check_arguments(
    call: Call,
    function: Callable[..., Any],
    inputs: tuple[Any, ...],
    attributes: Mapping[str, Any],
) -> None:
    """Refuses a number of arrays that the function does not take. Kernels check it themselves.

    Raises:
      InvalidArgumentError: if there are too many or too few.
    """
    try:
        inspect.signature(function).bind(*inputs, **attributes)
    except TypeError as error:
        raise InvalidArgumentError(f"arguments of {call.function!r}: {error}") from None

"""Linking of plans: looks up their programs, constants, resources and device by name."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from jflow.base.packing import unpack_keywords
from jflow.base.text import bytes_text
from jflow.errors import (
    DeadlineExceededError,
    InternalError,
    InvalidArgumentError,
    ResourceExhaustedError,
)
from jflow.plan import (
    CALLBACK,
    Call,
    Feed,
    Fetch,
    Instruction,
    Loop,
    Plan,
    Program,
    Recv,
    Run,
    Send,
    Slot,
    slots_read,
)
from jflow.plan.xla.compile import CompiledProgram, is_bounded, memory_of, result_bytes
from jflow.plan.xla.hardware import DeviceOrMesh
from jflow.state.quotas import UNKNOWN, ChargedSession
from jflow.state.resources import VariableId
from jflow.task.execution.callback import LinkedCallback, link_callback
from jflow.task.execution.functions import (
    UNPREDICTABLE,
    HostFunction,
    host_function,
    host_kernel,
)
from jflow.task.execution.link_loop import carry_slots, link_loop
from jflow.task.execution.linked import (
    Latency,
    LinkedCall,
    LinkedInstruction,
    LinkedKernel,
    LinkedPlan,
    LinkedRun,
)
from jflow.task.execution.sizes import with_checks

_LATENCIES: weakref.WeakKeyDictionary[CompiledProgram, Latency] = weakref.WeakKeyDictionary()

Wrap = Callable[[Program, CompiledProgram], CompiledProgram]

NO_FUNCTIONS: Mapping[str, HostFunction] = MappingProxyType({})
"""No host functions in addition to those that every task has."""


def _last_uses(plan: Plan) -> Mapping[int, tuple[Slot, ...]]:
    """Returns, by the id of a program or loop, the slots that it is the last one to read.

    Sends do not count. In dataflow order no instruction is certain to be the last.
    """
    if plan.after:
        return {}
    last: dict[Slot, Instruction] = {}
    for one in plan.instructions:
        if not isinstance(one, Send):
            last.update(dict.fromkeys(slots_read(one), one))
    ended: dict[int, tuple[Slot, ...]] = {}
    fetched = {one.slot for one in plan.instructions if isinstance(one, Fetch)}
    for slot, one in last.items():
        if isinstance(one, Run | Loop) and slot not in fetched:
            ended[id(one)] = (*ended.get(id(one), ()), slot)
    return ended


def link(
    plan: Plan,
    device: DeviceOrMesh,
    executable: Callable[[Program], CompiledProgram],
    constant: Callable[[str], Any],
    functions: Mapping[str, HostFunction] = NO_FUNCTIONS,
    wrap: Wrap = lambda _, executable: executable,
    creator: ChargedSession = UNKNOWN,
    memory_bytes: int = 0,
) -> LinkedPlan:
    """Links a plan to a device of this process.

    Args:
      plan: the plan.
      device: the device, or the mesh, to run it on.
      executable: returns the compiled form of a program.
      constant: returns a constant by its digest, on the device unless it is a host tensor.
      functions: host functions by name that this task has in addition to those of every task.
      wrap: given a program and its compiled form, returns what is called in place of that.
      creator: the session whose step it is of.
      memory_bytes: the memory of the device; 0 if that is not known.

    Raises:
      ResourceExhaustedError: if a program needs more than this memory.
      InvalidArgumentError: if the plan calls an unknown function or passes invalid arguments.
    """
    return _Linker(
        plan, device, executable, constant, functions, wrap, creator, memory_bytes
    ).linked()


@dataclass(frozen=True)
class _Linker:
    """The arguments of `link`."""

    plan: Plan
    device: DeviceOrMesh
    executable: Callable[[Program], CompiledProgram]
    constant: Callable[[str], Any]
    functions: Mapping[str, HostFunction]
    wrap: Wrap
    creator: ChargedSession
    memory_bytes: int
    kept: frozenset[Slot] = frozenset()
    outer: Plan | None = None

    @property
    def _of_state(self) -> Plan:
        """The plan that names the variables and resources."""
        return self.outer or self.plan

    def linked(self) -> LinkedPlan:
        plan, last_uses = self.plan, _last_uses(self.plan)
        slots: list[Any] = [None] * plan.n_slots

        def linked(instruction: Instruction) -> Iterator[LinkedInstruction]:
            match instruction:
                case Send() | Recv():
                    yield instruction
                case Run():
                    yield self._run(instruction, last_uses.get(id(instruction), ()))
                case Loop():
                    kept = carry_slots(instruction) if instruction.predicate is not None else ()
                    inner = replace(
                        self, plan=instruction.body, kept=frozenset(kept), outer=self._of_state
                    )
                    body = inner.linked()
                    last = last_uses.get(id(instruction), ())
                    yield link_loop(instruction, plan, body, last)
                case Call():
                    if _is_constant(instruction):
                        value = self.constant(instruction.constants[0])
                        slots[instruction.outputs[0]] = np.asarray(value)
                    else:
                        yield _link_call(instruction, self._of_state, self.constant, self.functions)

        return LinkedPlan(
            plan,
            self.device,
            tuple(one for one in plan.instructions if isinstance(one, Feed)),
            tuple(one for one in plan.instructions if isinstance(one, Fetch)),
            tuple(tuple(each for one in stage for each in linked(one)) for stage in plan.stages),
            tuple(slots),
            self.kept,
            self.creator,
        )

    @cached_property
    def _keys(self) -> tuple[VariableId, ...]:
        plan = self._of_state
        return tuple(VariableId.of(plan.device, spec.key) for spec in plan.variables)

    @cached_property
    def _checks_nans(self) -> bool:
        return self.plan.checks_nans

    def _run(self, run: Run, last_uses: tuple[Slot, ...]) -> LinkedRun:
        program, variables = run.program, self._of_state.variables
        if program is None:
            return LinkedRun(
                run, None, (), Latency(0.0), variables, self._keys, creator=self.creator
            )
        constants = tuple(self.constant(digest) for digest in program.constants)
        try:
            compiled = self.executable(program)
        except (DeadlineExceededError, InternalError) as error:
            error.with_context(op=run.op, doing=f"{run.op!r} cannot be compiled")
            raise
        self._check_memory(run, compiled)
        call = _without_nan_check(compiled) if self._checks_nans else compiled
        call = self.wrap(program, call)
        return LinkedRun(
            run,
            with_checks(call, run) if run.sizes else call,
            constants,
            # Shared by all sessions: the time does not depend on which of them runs it.
            _LATENCIES.setdefault(compiled, Latency()),
            variables,
            self._keys,
            is_bounded(compiled),
            dict(zip(run.outputs, result_bytes(compiled)[len(run.writes) :], strict=False)),
            last_uses,
            self.device if isinstance(self.device, Mesh) else None,
            self.creator,
        )

    def _check_memory(self, run: Run, program: CompiledProgram) -> None:
        """Raises ResourceExhaustedError if a program needs more than the memory of the device."""
        needed = memory_of(program) if self.memory_bytes else None
        if needed is None or needed.total <= self.memory_bytes:
            return
        raise ResourceExhaustedError(
            f"the program of {run.op!r} needs {bytes_text(needed.total)} on {self.plan.device}, "
            f"which has {bytes_text(self.memory_bytes)}: arguments of "
            f"{bytes_text(needed.arguments)}, results of {bytes_text(needed.results)}, and "
            f"{bytes_text(needed.temporary)} meanwhile; use smaller tensors, or divide the work "
            "over more steps or devices",
            op=run.op,
            task=str(self.plan.device.task),
        )


def _without_nan_check(executable: CompiledProgram) -> CompiledProgram:
    """Wraps a program without JAX's own NaN check, which would lose the values of variables."""

    def run(*args: Any, **options: Any) -> list[jax.Array]:
        with jax.debug_nans(False):
            return executable(*args, **options)

    return run


def _is_constant(call: Call) -> bool:
    """Whether a call only copies a constant to a slot."""
    if call.function != "identity" or call.inputs:
        return False
    return len(call.outputs) == len(call.constants) == 1


def _link_call(
    call: Call,
    plan: Plan,
    constant: Callable[[str], Any],
    functions: Mapping[str, HostFunction],
) -> LinkedCall | LinkedKernel | LinkedCallback:
    if call.function == CALLBACK:
        return link_callback(call)
    constants = tuple(constant(digest) for digest in call.constants)
    function = None
    if not call.resources:
        function = functions.get(call.function) or host_function(call.function)
    if function is not None:
        attributes = unpack_keywords(call.attributes, function, call.function)
        _check_arguments(call, function, (*call.variables, *call.inputs, *constants), attributes)
        specs = [plan.variables[number] for number in call.variables]
        variables = tuple((VariableId.of(plan.device, spec.key), spec) for spec in specs)
        may_be_quick = call.function not in UNPREDICTABLE
        return LinkedCall(call, function, constants, attributes, Latency(), variables, may_be_quick)
    kernel = host_kernel(call.function)
    attributes = unpack_keywords(call.attributes, kernel, call.function)
    resources = tuple(plan.resources[number] for number in call.resources)
    kind = call.function.partition(".")[0]
    if not resources or resources[0].kind != kind:
        works_on = ", ".join(map(str, resources)) or "nothing"
        raise InvalidArgumentError(
            f"{call.function!r} requires a resource of kind {kind!r}, got {works_on}"
        )
    return LinkedKernel(call, kernel, constants, attributes, resources)


def _check_arguments(
    call: Call,
    function: Callable[..., Any],
    inputs: tuple[Any, ...],
    attributes: Mapping[str, Any],
) -> None:
    """Checks that a function accepts this number of arguments.

    Kernels check the number of arrays themselves.

    Raises:
      InvalidArgumentError: if there are too many or too few.
    """
    try:
        inspect.signature(function).bind(*inputs, **attributes)
    except TypeError as error:
        raise InvalidArgumentError(f"arguments of {call.function!r}: {error}") from None

"""Linking of plans: looks up their programs, constants, resources and device by name."""

from __future__ import annotations

import inspect
import math
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, dropwhile, pairwise, takewhile
from types import MappingProxyType
from typing import Any, TypeGuard

import jax
import numpy as np

from jflow.base.packing import Keywords
from jflow.errors import InvalidArgumentError
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
    Slot,
    VariableSpec,
)
from jflow.plan.xla.compile import CompiledProgram, is_bounded, result_bytes
from jflow.state.resources import VariableId
from jflow.state.resources.kernel import Kernel
from jflow.state.resources.kinds import kind_of
from jflow.task.execution.callback import LinkedCallback, link_callback
from jflow.task.execution.functions import HostFunction, host_function, host_kernel
from jflow.task.execution.sizes import with_checks

_LATENCIES: weakref.WeakKeyDictionary[CompiledProgram, Latency] = weakref.WeakKeyDictionary()

N_LATENCIES = 3
"""The number of recent times from which a latency is estimated."""

DISTURBED_S = 0.02
"""The longest time, in seconds, that quick work may take when other work disturbs it."""

NO_FUNCTIONS: Mapping[str, HostFunction] = MappingProxyType({})
"""No host functions in addition to those that every task has."""


class Latency:
    """The expected time of the next dispatch of a program, or of the next call of a function.

    It is the least of the last few times: when the processor is busy with other work, single times
    are longer. One that is too long to be such a disturbance counts alone, until the next.

    Args:
      seconds: the first estimate; infinite if nothing is known.
    """

    __slots__ = ("_recent", "seconds")

    def __init__(self, seconds: float = math.inf) -> None:
        self.seconds = seconds
        self._recent: tuple[float, ...] = ()

    def note(self, seconds: float) -> None:
        """Records the time of a dispatch or call, in seconds; may be called on any thread."""
        earlier = () if seconds > DISTURBED_S else self._recent[1 - N_LATENCIES :]
        self._recent = recent = (*earlier, seconds)
        self.seconds = min(recent)


@dataclass(frozen=True)
class LinkedRun:
    """A linked `Run`, with its compiled program.

    Attributes:
      instruction: the instruction.
      executable: the compiled program; None if the instruction only accesses variables.
      constants: the last arguments of the program.
      latency: the expected time of a run, shared by all steps that run the program.
      specs, keys: the variables of the plan.
      may_be_quick: False if the time of a run cannot be predicted from earlier ones.
      result_bytes: the sizes of its outputs by slot, if they are known before a run.
      last_uses: the slots that nothing but sends reads after it.
    """

    instruction: Run
    executable: CompiledProgram | None
    constants: tuple[jax.Array, ...]
    latency: Latency
    specs: tuple[VariableSpec, ...] = ()
    keys: tuple[VariableId, ...] = ()
    may_be_quick: bool = True
    result_bytes: Mapping[Slot, int] = field(default_factory=dict)
    last_uses: tuple[Slot, ...] = ()

    # Computed once, so that a step does no more than necessary. Variables are indices into `keys`.

    @cached_property
    def uses_variables(self) -> bool:
        """Whether it reads or writes variables, and so needs an access to them."""
        run = self.instruction
        return bool(run.reads or run.writes or run.before or run.defaults)

    @cached_property
    def used(self) -> tuple[int, ...]:
        """Indices of the variables whose old values it reads, which must be initialized."""
        run = self.instruction
        return tuple(dict.fromkeys((*run.reads, *(i for i, _ in run.before))))

    @cached_property
    def leased(self) -> tuple[int, ...]:
        """Indices of the variables that it reads and does not write."""
        run = self.instruction
        return tuple(i for i in run.reads if i not in run.writes)

    @cached_property
    def only_written(self) -> tuple[int, ...]:
        """Indices of the variables that it writes without reading them."""
        return tuple(i for i in self.instruction.writes if i not in self.used)

    @cached_property
    def written(self) -> Mapping[VariableId, None]:
        """The keys of the variables that it writes, in order."""
        return dict.fromkeys(self.keys[i] for i in self.instruction.writes)

    @cached_property
    def only_read(self) -> tuple[VariableId, ...]:
        """The keys of the variables that it only reads."""
        default_variables = (i for i, _, _ in self.instruction.defaults)
        keys = dict.fromkeys(self.keys[i] for i in (*self.used, *default_variables))
        return tuple(key for key in keys if key not in self.written)


@dataclass(frozen=True)
class LinkedCall:
    """A linked `Call` of a host function.

    Attributes:
      instruction: the instruction.
      function: the function.
      constants: its last arguments.
      attributes: its arguments by name.
      latency: the expected time of a call.
      variables: variables whose presence is passed as its first arguments.
    """

    instruction: Call
    function: HostFunction
    constants: tuple[Any, ...]
    attributes: dict[str, Any]
    latency: Latency
    variables: tuple[tuple[VariableId, VariableSpec], ...] = ()


@dataclass(frozen=True)
class LinkedKernel:
    """A linked `Call` of a kernel; `constants` are its last arguments."""

    instruction: Call
    kernel: Kernel
    constants: tuple[Any, ...]
    attributes: dict[str, Any]
    resources: tuple[ResourceSpec, ...]

    @property
    def reads_files(self) -> bool:
        """Whether it may have to wait for a disk."""
        return kind_of(self.resources[0]).reads_files


LinkedInstruction = LinkedRun | LinkedKernel | LinkedCall | LinkedCallback | Send | Recv
"""An instruction for the interpreter; feeds and fetches are the boundary of a step."""


@dataclass(frozen=True)
class LinkedPlan:
    """A plan that is ready to run on a device of this process.

    Attributes:
      plan: the plan.
      device: the device it runs on.
      feeds, fetches: the slots to fill before a step and to read after it.
      stages: its other instructions, except those that only copy a constant to a slot.
      slots: the initial contents of the slots, with these constants.
    """

    plan: Plan
    device: jax.Device
    feeds: tuple[Feed, ...]
    fetches: tuple[Fetch, ...]
    stages: tuple[tuple[LinkedInstruction, ...], ...]
    slots: tuple[Any, ...]

    @property
    def fetched_bytes(self) -> int:
        """The total size of the program results that it fetches, in bytes.

        Results whose sizes are unknown until a step count as nothing.
        """
        runs = [one for stage in self.stages for one in stage if isinstance(one, LinkedRun)]
        sizes = {slot: n_bytes for run in runs for slot, n_bytes in run.result_bytes.items()}
        return sum(sizes.get(one.slot, 0) for one in self.fetches)

    @cached_property
    def last_sends(self) -> frozenset[int]:
        """Edges of the trailing sends, after which the plan only sends."""
        if self.plan.after:
            return frozenset()
        ordered = [one for stage in self.stages for one in stage]
        last = takewhile(lambda one: isinstance(one, Send), reversed(ordered))
        return frozenset(one.edge for one in last if isinstance(one, Send))

    @cached_property
    def ends_of_sends(self) -> frozenset[int]:
        """Edges of the sends that end a run of consecutive sends."""
        following = [(one, after) for s in self.stages for one, after in pairwise((*s, None))]
        return frozenset(
            one.edge
            for one, after in following
            if isinstance(one, Send) and not isinstance(after, Send)
        )

    @cached_property
    def n_uses(self) -> Mapping[Slot, int]:
        """After how many uses the value of a slot is not needed any more.

        The uses are its sends, which end in any order, and the last program that takes it. Slots
        that something else reads are missing: they are needed until the step ends.
        """
        sent = Counter(one.slot for one in self.plan.instructions if isinstance(one, Send))
        read = {slot for one in self.plan.instructions for slot in _read_here(one)}
        runs = (one for one in chain(*self.stages) if isinstance(one, LinkedRun))
        ended = {slot for run in runs for slot in run.last_uses}
        return {
            slot: sent[slot] + (slot in ended)
            for slot in sent.keys() | ended
            if slot is not None and (slot in ended or slot not in read)
        }

    @cached_property
    def early(self) -> tuple[tuple[LinkedRun, Sequence[int]], ...]:
        """Programs after an operation on a resource, with the variables to check before that.

        These are the variables that they read and the plan does not set without reading. If one
        has no value the operation must not take place: what it takes out of a queue would be lost.
        """
        ordered = [one for stage in self.stages for one in stage]
        # Not what the plan itself gives a value, which a transaction may hold back until its end.
        written_variables = {
            i for run in ordered if isinstance(run, LinkedRun) for i in run.only_written
        }
        if not self.plan.after:  # one after another
            ordered = [*dropwhile(lambda one: not isinstance(one, LinkedKernel), ordered)]
        elif not any(isinstance(one, LinkedKernel) for one in ordered):
            return ()
        runs = [one for one in ordered if isinstance(one, LinkedRun)]
        needed = [(run, tuple(i for i in run.used if i not in written_variables)) for run in runs]
        return tuple((run, variables) for run, variables in needed if variables)

    @property
    def keeps_feeds(self) -> bool:
        """Whether the plan may read fed values after its last instruction has ended.

        An update of variables may still be running, and queues and callbacks keep their arguments.
        """
        return bool(self.plan.resources) or any(map(_keeps_inputs, self.plan.instructions))

    @property
    def outlives_results(self) -> bool:
        """Whether the plan may read fed values after its fetched values are computed.

        All results of a program are there when it has ended, so one that is fetched tells that.
        """
        fetched = {one.slot for one in self.fetches}
        return bool(self.plan.resources) or any(
            _keeps_inputs(one) and not (_is_program(one) and fetched.intersection(one.outputs))
            for one in self.plan.instructions
        )


def _read_here(instruction: Instruction) -> Iterable[Slot]:
    """Returns the slots that an instruction reads, except a send."""
    match instruction:
        case Run():
            return (*instruction.inputs, *(default for _, _, default in instruction.defaults))
        case Call():
            return instruction.inputs
        case Fetch():
            return (instruction.slot,)
        case _:
            return ()


def _last_uses(plan: Plan) -> Mapping[int, tuple[Slot, ...]]:
    """Returns, by the id of a program's instruction, the slots that it is the last one to read.

    Sends do not count. In dataflow order no instruction is certain to be the last.
    """
    if plan.after:
        return {}
    last: dict[Slot, Instruction] = {}
    for one in plan.instructions:
        last.update(dict.fromkeys(_read_here(one), one))
    ended: dict[int, tuple[Slot, ...]] = {}
    fetched = {one.slot for one in plan.instructions if isinstance(one, Fetch)}
    for slot, one in last.items():
        if isinstance(one, Run) and slot not in fetched:
            ended[id(one)] = (*ended.get(id(one), ()), slot)
    return ended


def _keeps_inputs(instruction: Instruction) -> bool:
    if isinstance(instruction, Call):
        return instruction.function == CALLBACK
    return isinstance(instruction, Run) and bool(instruction.writes)


def _is_program(instruction: Instruction) -> TypeGuard[Run]:
    return isinstance(instruction, Run) and instruction.program is not None


def link(
    plan: Plan,
    device: jax.Device,
    executable: Callable[[Program], CompiledProgram],
    constant: Callable[[str], Any],
    functions: Mapping[str, HostFunction] = NO_FUNCTIONS,
) -> LinkedPlan:
    """Links a plan to a device of this process.

    Args:
      plan: the plan.
      device: the device to run it on.
      executable: returns the compiled form of a program.
      constant: returns a constant by its digest, on the device unless it is a host tensor.
      functions: host functions by name that this task has in addition to those of every task.

    Raises:
      InvalidArgumentError: if the plan calls an unknown function or passes invalid arguments.
    """
    slots: list[Any] = [None] * plan.n_slots
    keys = tuple(VariableId.of(plan.device, spec.key) for spec in plan.variables)
    checks_nans = plan.checks_nans
    last_uses = _last_uses(plan)

    def linked(instruction: Instruction) -> Iterator[LinkedInstruction]:
        match instruction:
            case Send() | Recv():
                yield instruction
            case Call():
                if _is_constant(instruction):
                    slots[instruction.outputs[0]] = np.asarray(constant(instruction.constants[0]))
                else:
                    yield _link_call(instruction, plan, constant, functions)
            case Run(program=None):
                yield LinkedRun(instruction, None, (), Latency(0.0), plan.variables, keys)
            case Run(program=Program() as program):
                constants = tuple(constant(digest) for digest in program.constants)
                compiled = executable(program)
                # Shared by all sessions: the time does not depend on which of them runs it.
                latency = _LATENCIES.setdefault(compiled, Latency())
                run = _without_nan_check(compiled) if checks_nans else compiled
                run = with_checks(run, instruction) if instruction.sizes else run
                is_quick = is_bounded(compiled)
                sizes = result_bytes(compiled)[len(instruction.writes) :]
                by_slot = dict(zip(instruction.outputs, sizes, strict=False))
                yield LinkedRun(
                    *(instruction, run, constants, latency, plan.variables, keys, is_quick),
                    result_bytes=by_slot,
                    last_uses=last_uses.get(id(instruction), ()),
                )

    return LinkedPlan(
        plan,
        device,
        tuple(one for one in plan.instructions if isinstance(one, Feed)),
        tuple(one for one in plan.instructions if isinstance(one, Fetch)),
        tuple(tuple(each for one in stage for each in linked(one)) for stage in plan.stages),
        tuple(slots),
    )


def _without_nan_check(executable: CompiledProgram) -> CompiledProgram:
    """Wraps a program without JAX's own NaN check, which would lose the values of variables."""

    def run(*args: Any) -> list[jax.Array]:
        with jax.debug_nans(False):
            return executable(*args)

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
        attributes = Keywords(function, call.function).unpack(call.attributes)
        _check_arguments(call, function, (*call.variables, *call.inputs, *constants), attributes)
        specs = [plan.variables[number] for number in call.variables]
        variables = tuple((VariableId.of(plan.device, spec.key), spec) for spec in specs)
        return LinkedCall(call, function, constants, attributes, Latency(), variables)
    kernel = host_kernel(call.function)
    attributes = Keywords(kernel, call.function).unpack(call.attributes)
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

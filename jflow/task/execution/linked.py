"""Linked plans: plans whose programs, constants and functions are at hand."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, dropwhile, pairwise, takewhile
from typing import Any, TypeGuard

import jax
from jax.sharding import Mesh

from jflow.base.values import NUMBERS
from jflow.plan import (
    CALLBACK,
    VARYING,
    Call,
    Feed,
    Fetch,
    Instruction,
    Loop,
    Plan,
    Recv,
    ResourceSpec,
    Run,
    Send,
    Slot,
    VariableSpec,
    slots_read,
)
from jflow.plan.xla.compile import CompiledProgram
from jflow.plan.xla.hardware import DeviceOrMesh, first_device
from jflow.state.quotas import UNKNOWN, ChargedSession
from jflow.state.resources import VariableId
from jflow.state.resources.kernel import Kernel
from jflow.state.resources.kinds import kind_of
from jflow.task.execution.callback import LinkedCallback
from jflow.task.execution.functions import HostFunction
from jflow.task.execution.iterations import BodyOrder

N_LATENCIES = 3
"""The number of recent times from which a latency is estimated."""

DISTURBED_S = 0.02
"""The longest time, in seconds, that quick work may take when other work disturbs it."""


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
      mesh: the mesh that it runs on, if it is more than one device.
      creator: the session whose step it is of.
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
    mesh: Mesh | None = None
    creator: ChargedSession = UNKNOWN

    # Computed once, so that a step does no more than necessary. Variables are indices into `keys`.

    @cached_property
    def uses_variables(self) -> bool:
        """Whether it reads or writes variables, and so needs an access to them."""
        run = self.instruction
        return bool(run.reads or run.writes or run.before or run.defaults)

    def arguments_again(self, args: Sequence[Any], results: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the arguments of its next run on the results of the last one, if repeatable."""
        run = self.instruction
        new = dict(zip(run.writes, results, strict=False))
        values = (new.get(i, old) for i, old in zip(run.reads, args, strict=False))
        return (*values, *args[len(run.reads) :])

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
    def varying(self) -> tuple[int, ...]:
        """Indices of the variables that it writes whose sizes may change."""
        return tuple(i for i in self.instruction.writes if VARYING in self.specs[i].shape)

    @cached_property
    def variable_bytes(self) -> tuple[int, ...]:
        """The memory of each variable of the plan; 1 if that is not known before it has a value.

        Not 0: where a quota is full already, nothing more is made.
        """
        return tuple(map(_bytes_of, self.specs))

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
      may_be_quick: False if the time of a call cannot be predicted from earlier ones.
      variables: variables whose presence is passed as its first arguments.
    """

    instruction: Call
    function: HostFunction
    constants: tuple[Any, ...]
    attributes: dict[str, Any]
    latency: Latency
    variables: tuple[tuple[VariableId, VariableSpec], ...] = ()
    may_be_quick: bool = True


@dataclass(frozen=True)
class LinkedKernel:
    """A linked `Call` of a kernel; `constants` are its last arguments."""

    instruction: Call
    kernel: Kernel
    constants: tuple[Any, ...]
    attributes: dict[str, Any]
    resources: tuple[ResourceSpec, ...]

    @property
    def is_slow(self) -> bool:
        """Whether it may wait for a disk or compute for long; an event loop runs it in threads."""
        return self.instruction.function in kind_of(self.resources[0]).slow_kernels


@dataclass(frozen=True)
class LinkedStage:
    """A stage of the body of a loop.

    Attributes:
      arrivals: what other devices send it.
      work: its other instructions.
      made: (carry, slot) pairs: the slots that have the next values of carries after it.
      results: a result of each of its programs.
    """

    arrivals: tuple[Recv, ...]
    work: tuple[LinkedInstruction, ...]
    made: tuple[tuple[int, Slot], ...]
    results: tuple[Slot, ...]


@dataclass(frozen=True)
class LinkedLoop:
    """A linked `Loop`.

    Attributes:
      instruction: the instruction.
      body: the linked plan of an iteration.
      order: what its stages need.
      stages: its stages.
      copied: the carries whose first values are copied, because the first iteration would write
        into memory that is also used elsewhere.
      last_uses: the slots that nothing but sends reads after it.
      computed_predicate: the stage that computes the predicate here, if any.
      has_fed_predicate: whether it is known before an iteration begins.
    """

    instruction: Loop
    body: LinkedPlan
    order: BodyOrder
    stages: tuple[LinkedStage, ...]
    copied: frozenset[int]
    last_uses: tuple[Slot, ...]
    computed_predicate: int | None
    has_fed_predicate: bool

    @cached_property
    def consts(self) -> tuple[tuple[Slot, Slot], ...]:
        """(slot of the plan, slot of the body) pairs of what is the same in each iteration."""
        return tuple((slot, self._fed[feed]) for slot, feed in self.instruction.consts)

    @cached_property
    def carried(self) -> tuple[Slot, ...]:
        """The slots of the body for the carries."""
        return tuple(self._fed[carry.feed] for carry in self.instruction.carries)

    @cached_property
    def index(self) -> Slot | None:
        """The slot of the body for the number of the iteration."""
        index = self.instruction.index
        return None if index is None else self._fed[index]

    @cached_property
    def _fed(self) -> Mapping[int, Slot]:
        return {feed.index: feed.slot for feed in self.body.feeds}


LinkedInstruction = (
    LinkedRun | LinkedKernel | LinkedCall | LinkedCallback | LinkedLoop | Send | Recv
)
"""An instruction for the interpreter; feeds and fetches are the boundary of a step."""


@dataclass(frozen=True)
class LinkedPlan:
    """A plan that is ready to run on a device of this process.

    Attributes:
      plan: the plan.
      device: the device, or the mesh, it runs on.
      feeds, fetches: the slots to fill before a step and to read after it.
      stages: its other instructions, except those that only copy a constant to a slot.
      slots: the initial contents of the slots, with these constants.
      kept: slots whose values stay although nothing reads them any more.
      creator: the session whose step it is of.
    """

    plan: Plan
    device: DeviceOrMesh
    feeds: tuple[Feed, ...]
    fetches: tuple[Fetch, ...]
    stages: tuple[tuple[LinkedInstruction, ...], ...]
    slots: tuple[Any, ...]
    kept: frozenset[Slot] = frozenset()
    creator: ChargedSession = UNKNOWN

    @property
    def is_on_mesh(self) -> bool:
        """Whether it runs on several devices, from which values have to be gathered."""
        return isinstance(self.device, Mesh)

    @cached_property
    def platform(self) -> str:
        """The platform of its device, as JAX names it."""
        platform: str = first_device(self.device).platform
        return platform

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
        others = (one for one in self.plan.instructions if not isinstance(one, Send))
        read = {slot for one in others for slot in slots_read(one)} | self.kept
        users = (one for one in chain(*self.stages) if isinstance(one, LinkedRun | LinkedLoop))
        ended = {slot for user in users for slot in user.last_uses}
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
        return bool(self.plan.resources) or any(map(_keeps_inputs, self.plan.all_instructions))

    @property
    def outlives_results(self) -> bool:
        """Whether the plan may read fed values after its fetched values are computed.

        All results of a program are there when it has ended, so one that is fetched tells that.
        """
        fetched = {one.slot for one in self.fetches}
        return bool(self.plan.resources) or any(
            _keeps_inputs(one) and not (_is_program(one) and fetched.intersection(one.outputs))
            for one in self.plan.all_instructions
        )


def _bytes_of(spec: VariableSpec) -> int:
    dtype = NUMBERS.get(spec.dtype)
    if dtype is None or VARYING in spec.shape:
        return 1
    return math.prod(spec.shape) * dtype.itemsize


def _keeps_inputs(instruction: Instruction) -> bool:
    if isinstance(instruction, Call):
        return instruction.function == CALLBACK
    return isinstance(instruction, Run) and bool(instruction.writes)


def _is_program(instruction: Instruction) -> TypeGuard[Run]:
    return isinstance(instruction, Run) and instruction.program is not None

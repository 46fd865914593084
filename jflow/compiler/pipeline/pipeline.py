"""Compilation of a step: prune → place → partition → lower → name.

Everything here is a pure function of its arguments: equal requests give equal plans, and no call
depends on an earlier one. No state, device or connection is needed, so a session, a placement lab
and a simulator compile in the same way.

In the plans that `partition` returns, programs and constants have names that are unique in the
step. Naming replaces them by the names under which an executor finds them. For a cluster, programs
are exported to bytes, and all artifacts are named by their digests, so that a task keeps one copy
of what several steps share. For this process, programs stay jaxprs and keep their names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from jflow.base.cluster import Device, Task
from jflow.base.values import Array
from jflow.compiler.graph import Graph, Operation, Tensor
from jflow.compiler.graph.callbacks import Callback, callbacks_of
from jflow.compiler.graph.expansion import Expansion
from jflow.compiler.graph.gradient import is_recorded
from jflow.compiler.graph.opening import Opening
from jflow.compiler.graph.primitives import is_on_host
from jflow.compiler.graph.verify import verify
from jflow.compiler.lowering import Lowered, explained, export, lower, refuse_callbacks
from jflow.compiler.partition import Lengths, Partition, Segment, partition, prune
from jflow.compiler.pipeline.text import names_of, step_text
from jflow.compiler.placement import DEFAULT_STRATEGY, Handles, Inventory, Placement, Strategy
from jflow.compiler.placement.calibration import PRIOR
from jflow.compiler.placement.place import same_device
from jflow.compiler.placement.work import count_operations
from jflow.compiler.schedule.cut import SPLIT_S
from jflow.plan import Call, Plan, Program, Run
from jflow.plan.trace.measured import NO_NAMES, StepNames
from jflow.plan.xla import digest_of

QUICK_S = 50e-6
"""What a device could compute while it waits is no program of its own if it takes less, in seconds:
to begin one more costs more, above all if it has to have a thread."""

_NO_HANDLES: Handles = MappingProxyType({})

_NO_SHAPES: Mapping[Tensor, Sequence[Any]] = MappingProxyType({})


class StepRequest(NamedTuple):
    """The targets, fetches and feeds of a step; a key of compiled steps.

    Attributes:
      targets: operations to run.
      fetches: tensors whose values the step returns.
      fed: tensors whose values are inputs of the step; none of them is fetched.
      checks_nans: whether to check for NaN, as `jax_debug_nans` requires.
    """

    targets: tuple[Operation, ...]
    fetches: tuple[Tensor, ...]
    fed: tuple[Tensor, ...]
    checks_nans: bool = False


@dataclass(frozen=True)
class CompiledStep:
    """A compiled step: everything that an executor needs to run it.

    Attributes:
      placement: a device for each operation, in the graph's order.
      plans: one for each device that takes part.
      programs: programs for this process by name; empty for a cluster.
      artifacts: constants by name; for a cluster also the exported programs as u8[n].
      callbacks: the functions of the client; plans refer to them by position.
      n_fetches: number of values that the step returns.
      names: what traces call instructions and edges.
    """

    placement: Placement
    plans: tuple[Plan, ...]
    programs: Mapping[str, Lowered]
    artifacts: Mapping[str, Array]
    callbacks: tuple[Callback, ...]
    n_fetches: int
    names: StepNames = NO_NAMES

    def text(self) -> str:
        """Returns the placement, the plans and the programs as readable text."""
        return step_text(self.placement, self.plans, self.programs, self.artifacts)


def compile_step(
    graph: Graph,
    request: StepRequest,
    inventory: Inventory,
    *,
    soft: bool = False,
    handles: Handles = _NO_HANDLES,
    strategy: Strategy = DEFAULT_STRATEGY,
    owner: str = "",
) -> CompiledStep:
    """Compiles a step in one call.

    Args:
      graph: the graph of the request.
      request: what the step computes.
      inventory: the tasks, and the devices of those that the step needs.
      soft, handles: see `Strategy`.
      strategy: the placement strategy.
      owner: the session that owns resources that are not shared.

    Raises:
      OpError: as `prune`, `Strategy` and `compile_placed`.
    """
    opening = opening_on(inventory, soft, inventory.devices.__getitem__)
    if has_open_loops(graph, request, opening):
        graph, request = expanded(graph, request, opening)
    ops = prune_step(graph, request)
    assignment = strategy(ops, inventory, soft=soft, handles=handles)
    placement = assignment.place(inventory.devices, inventory.memory)
    return compile_placed(request, placement, inventory.platforms, owner=owner)


def prune_step(graph: Graph, request: StepRequest) -> list[Operation]:
    """Returns the verified operations that a step needs, in the graph's order.

    Raises as `prune` and `jflow.compiler.graph.verify`.
    """
    ops = _needed(graph, request)
    verify(graph, ops)
    return ops


def _needed(graph: Graph, request: StepRequest) -> list[Operation]:
    return prune(graph, request.targets, request.fetches, request.fed)


def waits_for_ranks(graph: Graph, request: StepRequest) -> bool:
    """Whether a step contains recorded calls, which need the ranks of its feeds.

    Raises as `prune`.
    """
    return any(map(is_recorded, _needed(graph, request)))


def has_open_loops(graph: Graph, request: StepRequest, opening: Opening) -> bool:
    """Whether a step contains loops that are opened or have one device, so that it is `expanded`.

    Raises as `prune`.
    """
    return any(opening.changes(op.eqn) for op in _needed(graph, request))


def opening_on(
    inventory: Inventory, soft: bool, devices_of: Callable[[Task], Sequence[Device]]
) -> Opening:
    """Returns which loops a step on a cluster opens; arguments as for `same_device`."""
    is_exported = inventory.platforms is not None
    return Opening(is_exported, partial(same_device, inventory, soft, devices_of))


def expanded(
    graph: Graph,
    request: StepRequest,
    opening: Opening | None,
    shapes: Mapping[Tensor, Sequence[Any]] = _NO_SHAPES,
) -> tuple[Expansion, StepRequest]:
    """Returns a copy of a graph in which the loops of a step are open, and the request in it.

    Args:
      graph: the graph.
      request: the step.
      opening: decides which loops are opened; None for none.
      shapes: the shapes of fed tensors of unknown rank; recorded calls on these are replayed.

    Raises:
      NotImplementedError: if a loop cannot be opened; it has the user's line.
    """
    roots = [*request.targets, *(tensor.op for tensor in request.fetches)]
    expansion = Expansion(graph, shapes, roots, request.fed, opening)
    return expansion, StepRequest(
        tuple(expansion.copies[op] for op in request.targets),
        tuple(map(expansion.tensor, request.fetches)),
        tuple(map(expansion.tensor, request.fed)),
        request.checks_nans,
    )


def compile_placed(
    request: StepRequest,
    placement: Placement,
    platforms: Mapping[Device, str] | None = None,
    *,
    owner: str = "",
) -> CompiledStep:
    """Compiles a step whose operations have devices.

    Args:
      request: what the step computes.
      placement: a device for each operation that the step needs, in the graph's order.
      platforms: the export platform of each device; None if programs stay in this process.
      owner: the session that owns resources that are not shared.

    Raises:
      InvalidArgumentError, UnimplementedError: if the operations cannot run in one step, or JAX
        cannot lower or export one of them.
    """
    ops = list(placement)
    if any(op.loop is not None for op in ops):
        # In the graph's order the operations of a loop are together; a strategy has another one.
        ops = [op for op in ops[0].graph.get_operations() if op in placement]
    cut = partition(
        ops,
        placement,
        request.fed,
        request.fetches,
        lengths=Lengths(
            partial(_is_long, placement, platforms), partial(_is_quick, placement, platforms)
        ),
        checks_nans=request.checks_nans,
        owner=owner,
    )
    programs = {name: _lowered(segment, platforms) for name, segment in cut.segments.items()}
    artifacts = _artifacts(cut, programs, platforms)
    if platforms is None:
        names = {name: name for name in (*programs, *artifacts)}
    else:
        names = {name: digest_of(artifact) for name, artifact in artifacts.items()}
    plans = _named(cut, programs, names)
    return CompiledStep(
        placement,
        plans,
        programs if platforms is None else {},
        {names[name]: artifact for name, artifact in artifacts.items()},
        tuple(callbacks_of(cut.callbacks)),
        len(request.fetches),
        names_of(cut, plans, placement),
    )


def _is_long(
    placement: Placement, platforms: Mapping[Device, str] | None, ops: Sequence[Operation]
) -> bool:
    """Whether operations take long enough for a program of their own that runs after the sends.

    Host calls are instructions of their own in any case.
    """
    compiled = [op for op in ops if not is_on_host(op.eqn)]
    return not compiled or _seconds(placement, platforms, compiled) > SPLIT_S


def _is_quick(
    placement: Placement, platforms: Mapping[Device, str] | None, ops: Sequence[Operation]
) -> bool:
    """Whether the estimated time of operations is below the cost of one more program."""
    return _seconds(placement, platforms, ops) <= QUICK_S


def _seconds(
    placement: Placement, platforms: Mapping[Device, str] | None, ops: Sequence[Operation]
) -> float:
    """Estimates the time of operations of one device as one program, in seconds.

    Those of a mesh are taken for those of one of its devices, in this process of a CPU.
    """
    device = placement[ops[0]]
    kind = device.type
    if device.axes:
        kind = "GPU" if platforms and _platform(device, platforms) != "cpu" else "CPU"
    rates = PRIOR.rates_of(kind)
    return float((count_operations(ops) @ rates.seconds_per_count).sum())


def _lowered(segment: Segment, platforms: Mapping[Device, str] | None) -> Lowered:
    if platforms is not None or segment.device.axes:
        refuse_callbacks(segment.ops)
    return lower(
        segment.ops,
        segment.reads,
        segment.inputs,
        segment.writes,
        segment.outputs,
        for_cpu=segment.device.type == "CPU",
        axes=segment.device.axes,
    )


def _artifacts(
    cut: Partition, programs: Mapping[str, Lowered], platforms: Mapping[Device, str] | None
) -> dict[str, Array]:
    """Returns constants and, for a cluster, exported programs, by their names in the step."""
    artifacts = dict(cut.constants)
    for name, program in programs.items():
        artifacts |= zip(_constant_names(name, program), program.constants, strict=True)
        if platforms is not None:
            platform = _platform(cut.segments[name].device, platforms)
            with explained(program.ops, platform, program.axes):
                artifacts[name] = export(program.jaxpr, platform, program.axes)
    return artifacts


def _platform(device: Device, platforms: Mapping[Device, str]) -> str:
    """Returns the platform of a device, or of the devices of a mesh."""
    of_task = [one for one in platforms if one.task == device.task]
    return platforms[device.members(of_task)[0]]


def _constant_names(name: str, program: Lowered) -> list[str]:
    return [f"{name} constant {number}" for number in range(len(program.constants))]


def _named(
    cut: Partition, programs: Mapping[str, Lowered], names: Mapping[str, str]
) -> tuple[Plan, ...]:
    """Returns the plans with digests in place of provisional names of programs and constants."""
    named = {
        name: Program(
            names[name],
            tuple(names[constant] for constant in _constant_names(name, program)),
            cut.segments[name].donated,
        )
        for name, program in programs.items()
    }

    def renamed(instruction: Any) -> Any:
        match instruction:
            case Run(program=Program(digest=segment)):
                sizes = programs[segment].sizes
                return replace(instruction, program=named[segment], sizes=sizes)
            case Call(constants=(_, *_) as constants):
                return replace(instruction, constants=tuple(names[name] for name in constants))
        return instruction

    return tuple(plan.mapped(renamed) for plan in cut.plans)

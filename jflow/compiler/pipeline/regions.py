"""Models a compiled step as a scheduling problem of its programs, to predict real step times.

A strategy sees operations. What runs are *regions*: the programs and host calls of the plans, which
start when all of their arguments are there and give all of their results at their end. Their costs
are counted from the lowered programs, each with its dispatch, or measured.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from jflow.base.cluster import Device, Wiring
from jflow.compiler.lowering import Lowered
from jflow.compiler.pipeline.pipeline import CompiledStep
from jflow.compiler.placement.calibration import PRIOR, Calibration, Rates
from jflow.compiler.placement.costs import costs_of, rates_on
from jflow.compiler.placement.elements import awaited_elements
from jflow.compiler.placement.equations import KEY_BYTES, UNKNOWN_SIZE, size_of
from jflow.compiler.placement.mesh_work import count_program_on_mesh
from jflow.compiler.placement.work import count_program
from jflow.compiler.schedule import Constraints, Dependency, OperationGraph, Problem, Schedule
from jflow.errors import InvalidArgumentError
from jflow.plan import VARYING, Call, Plan, Recv, Run, Send, Slot, VariableSpec


@dataclass(frozen=True)
class Region:
    """A program or host call of a plan.

    Attributes:
      name: of an operation in it.
      number: its position among the regions of the step.
      device: where it runs.
      program: the name of the program in `CompiledStep.programs`; "" for a host call, and where
        there is nothing to compute.
      reads, writes: the shardings of the variables that it reads and writes, on a mesh.
    """

    name: str
    number: int
    device: Device
    program: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


_PlanSlot = tuple[int, Slot]


@dataclass
class _Regions:
    """Regions of a step and the values that flow between them, under construction.

    Slots are given with the number of their plan.

    Attributes:
      regions: in the order in which they run.
      makers: the region that fills a slot, and the bytes in it.
      used: the regions on the same device that use what is in a slot.
      sent: the slot whose value is sent as an edge.
      signals: the region whose end is sent as an edge.
      received: the edge that fills a slot.
      awaited: the regions that wait for an edge.
    """

    regions: list[Region] = field(default_factory=list)
    makers: dict[_PlanSlot, tuple[int, float]] = field(default_factory=dict)
    used: dict[_PlanSlot, dict[int, None]] = field(default_factory=dict)
    sent: dict[int, _PlanSlot] = field(default_factory=dict)
    signals: dict[int, int] = field(default_factory=dict)
    received: dict[_PlanSlot, int] = field(default_factory=dict)
    awaited: dict[int, dict[int, None]] = field(default_factory=dict)


def region_problem(
    compiled: CompiledStep,
    calibration: Calibration | None = None,
    wiring: Wiring | None = None,
    measured: Mapping[str, float] | None = None,
) -> tuple[Problem, Schedule]:
    """Returns the regions of a step as a problem with costs, and their schedule.

    `predicted_seconds(problem, schedule) + problem.costs.step_seconds` is the predicted time of the
    step. What is fed comes for free. Meshes are taken for those of CPU devices.

    Args:
      compiled: a step that was compiled without platforms, so that its programs are known.
      calibration: what devices and links do; None for the prior.
      wiring: how the tasks reach each other.
      measured: seconds of programs without their dispatch, by their names in `compiled.programs`.

    Returns:
      A problem whose operations are `Region`s, and the schedule that the plans prescribe.

    Raises:
      InvalidArgumentError: if the programs are exported.
    """
    calibration, wiring = calibration or PRIOR, wiring or Wiring()
    collected = _collected(compiled)
    used = [plan.device for plan in compiled.plans]
    regions = tuple(collected.regions)
    number_of = {device: number for number, device in enumerate(used)}
    seconds = np.zeros((len(regions), len(used)))
    for region in regions:
        rates = rates_on(calibration, region.device)
        seconds[region.number] = _seconds(region, compiled, rates, measured or {})
    costs = costs_of(seconds, used, calibration, wiring)
    graph = OperationGraph(regions, (*_edges(collected), *_elements(compiled, regions)))
    places = tuple(number_of[region.device] for region in regions)
    classes = tuple(range(len(regions)))
    pinned = Constraints(classes, {i: (place,) for i, place in enumerate(places)})
    return Problem(graph, used, costs, pinned), Schedule(places, _order(graph))


def _collected(compiled: CompiledStep) -> _Regions:
    """Collects the regions of all plans by stage, so that producers come before consumers."""
    regions = _Regions()
    results = {op.name: [size_of(t.aval) for t in op.outputs] for op in compiled.placement}
    n_stages = max((len(plan.stages) for plan in compiled.plans), default=0)
    for stage in range(n_stages):
        for number, plan in enumerate(compiled.plans):
            if stage < len(plan.stages):
                _collect_stage(regions, compiled, results, number, plan, stage)
    return regions


def _collect_stage(
    regions: _Regions,
    compiled: CompiledStep,
    results: Mapping[str, list[float]],
    number: int,
    plan: Plan,
    stage: int,
) -> None:
    signals: list[int] = []
    for instruction in plan.stages[stage]:
        match instruction:
            case Recv(edge=edge, slot=None):
                signals.append(edge)
            case Recv(edge=edge, slot=int() as slot):
                regions.received[number, slot] = edge
            case Run() | Call():
                region = _add_region(regions, plan, instruction)
                for slot in _inputs(instruction):
                    _use(regions, (number, slot), region)
                for edge in signals:
                    regions.awaited.setdefault(edge, {})[region] = None
                new = _results_of(compiled, results, plan, instruction)
                regions.makers |= {(number, slot): (region, size) for slot, size in new.items()}
            case Send(edge=edge, slot=None):
                if regions.regions and regions.regions[-1].device == plan.device:
                    regions.signals[edge] = len(regions.regions) - 1
            case Send(edge=edge, slot=int() as slot):
                if (number, slot) in regions.makers:
                    regions.sent[edge] = (number, slot)


def _inputs(instruction: Run | Call) -> Iterator[Slot]:
    yield from instruction.inputs
    if isinstance(instruction, Run):
        yield from (default for _, _, default in instruction.defaults)


def _add_region(regions: _Regions, plan: Plan, instruction: Run | Call) -> int:
    number = len(regions.regions)
    program = instruction.program if isinstance(instruction, Run) else None
    name = instruction.op or (instruction.function if isinstance(instruction, Call) else "")
    region = Region(name, number, plan.device, program.digest if program else "")
    if isinstance(instruction, Run):
        shardings = [variable.sharding for variable in plan.variables]
        reads, writes = (
            tuple(shardings[i] for i in each) for each in (instruction.reads, instruction.writes)
        )
        region = replace(region, reads=reads, writes=writes)
    regions.regions.append(region)
    return number


def _use(regions: _Regions, slot: _PlanSlot, region: int) -> None:
    if slot in regions.received:
        regions.awaited.setdefault(regions.received[slot], {})[region] = None
    elif slot in regions.makers:
        regions.used.setdefault(slot, {})[region] = None


def _results_of(
    compiled: CompiledStep,
    results: Mapping[str, list[float]],
    plan: Plan,
    instruction: Run | Call,
) -> dict[Slot, float]:
    """Returns the slots that an instruction fills, each with the bytes put into it."""
    if isinstance(instruction, Call):
        sizes = results.get(instruction.op, [])
        return dict(zip(instruction.outputs, sizes, strict=False))
    by_slot = {}
    if instruction.program is not None:
        program = _program(compiled, instruction.program.digest)
        avals = program.jaxpr.out_avals[len(instruction.writes) :]
        by_slot = {
            slot: size_of(aval) for slot, aval in zip(instruction.outputs, avals, strict=True)
        }
    default_slots = ((variable, slot) for variable, slot, _ in instruction.defaults)
    for variable, slot in (*instruction.before, *instruction.after, *default_slots):
        by_slot[slot] = _variable_bytes(plan.variables[variable])
    return by_slot


def _variable_bytes(spec: VariableSpec) -> float:
    sizes = [UNKNOWN_SIZE if size == VARYING else size for size in spec.shape]
    try:
        itemsize = np.dtype(spec.dtype).itemsize
    except TypeError:  # a key
        itemsize = KEY_BYTES
    return float(math.prod(sizes) * itemsize)


def _edges(regions: _Regions) -> list[Dependency]:
    """Returns the dependencies between regions: values within and between devices, and signals."""
    users = {slot: dict(used) for slot, used in regions.used.items()}
    for edge, slot in regions.sent.items():
        users.setdefault(slot, {}).update(regions.awaited.get(edge, {}))
    edges = [
        Dependency(region, tuple(regions.awaited[edge]), 0.0)
        for edge, region in regions.signals.items()
        if edge in regions.awaited
    ]
    for slot, used in users.items():
        maker, n_bytes = regions.makers[slot]
        consumers = tuple(region for region in used if region != maker)
        if consumers:
            edges.append(Dependency(maker, consumers, n_bytes))
    return edges


def _elements(compiled: CompiledStep, regions: Sequence[Region]) -> Iterator[Dependency]:
    """Returns the dependencies of calls that dequeue elements on those that enqueue them."""
    number = {region.name: region.number for region in regions if not region.program}
    for put, taking in awaited_elements([*compiled.placement]).items():
        yield Dependency(number[put.name], tuple(number[each.name] for each in taking), 0.0)


def _order(graph: OperationGraph) -> tuple[int, ...]:
    """Returns the regions in a topological order, the lowest number first."""
    missing = [len(before) for before in graph.predecessors]
    ready = [number for number, n in enumerate(missing) if not n]  # a heap
    order = []
    while ready:
        number = heapq.heappop(ready)
        order.append(number)
        for after in graph.successors[number]:
            missing[after] -= 1
            if not missing[after]:
                heapq.heappush(ready, after)
    return tuple(order)


def _seconds(
    region: Region,
    compiled: CompiledStep,
    rates: Rates,
    measured: Mapping[str, float],
) -> float:
    if not region.program:
        return rates.call
    if region.program in measured:
        return rates.dispatch + measured[region.program]
    program = _program(compiled, region.program)
    if program.axes:
        counts = count_program_on_mesh(program, region.reads, region.writes)
    else:
        counts = count_program(program.jaxpr.jaxpr)
    return rates.dispatch + float(counts @ rates.seconds_per_count)


def _program(compiled: CompiledStep, name: str) -> Lowered:
    if name not in compiled.programs:
        raise InvalidArgumentError(
            f"the program {name!r:.20} of the step is exported; compile it without platforms"
        )
    return compiled.programs[name]

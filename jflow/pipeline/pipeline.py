"""Compiles a step: prune → place → partition → lower → name.

Everything here is a pure function of its arguments: equal requests give equal plans, and nothing is
remembered between two calls. No state, device or connection is needed, so that a session, a
placement lab and a simulator compile in the same way.

In a plan that leaves `partition`, programs and constants have names that are unique in the step.
Naming replaces them by the names under which an executor finds them. For a cluster, programs are
exported to bytes, and all artifacts are named by their digests, so that a task keeps one copy of
what several steps share. For this process, programs stay jaxprs and the names stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from jflow.cluster import Device
from jflow.graph import Graph, Operation, Tensor
from jflow.graph.callbacks import Callback, callbacks_of
from jflow.graph.verify import verify
from jflow.lowering import Lowered, explained, export, lower, refuse_callbacks
from jflow.partition import Partition, Segment, partition, prune
from jflow.pipeline.text import step_text
from jflow.placement import DEFAULT_STRATEGY, Handles, Inventory, Placement, Strategy
from jflow.plan import Call, Plan, Program, Run
from jflow.values import Array
from jflow.xla import digest_of

_NO_HANDLES: Handles = MappingProxyType({})


class StepRequest(NamedTuple):
    """What a step has to do. A tuple, because sessions look steps up by it.

    Attributes:
      targets: operations to run.
      fetches: tensors whose values the step gives.
      fed: tensors whose values come with the step; none of them is fetched.
      checks_nans: whether to look for NaN, as `jax_debug_nans` asks.
    """

    targets: tuple[Operation, ...]
    fetches: tuple[Tensor, ...]
    fed: tuple[Tensor, ...]
    checks_nans: bool = False


@dataclass(frozen=True)
class CompiledStep:
    """All that an executor needs to run a step.

    Attributes:
      placement: a device for each operation, in the graph's order.
      plans: one for each device that has something to do.
      programs: the programs of this process by name; empty for a cluster.
      artifacts: constants by name, and for a cluster also the exported programs as u8[n].
      callbacks: the functions of the client; the plans refer to them by position.
      n_fetches: how many values the step gives.
    """

    placement: Placement
    plans: tuple[Plan, ...]
    programs: Mapping[str, Lowered]
    artifacts: Mapping[str, Array]
    callbacks: tuple[Callback, ...]
    n_fetches: int

    def text(self) -> str:
        """The placement, plans and programs as text for people and for golden tests."""
        return step_text(self.placement, self.plans, self.programs)


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
    """Takes a step through the whole pipeline.

    Args:
      graph: what the request is about.
      request: what to do.
      inventory: the tasks, and the devices of those that the step needs.
      soft, handles: see `Strategy`.
      strategy: places the operations.
      owner: the session that owns the resources that are not shared.

    Raises:
      OpError: as `prune`, `Strategy` and `compile_placed`.
    """
    ops = prune_step(graph, request)
    assignment = strategy(ops, inventory, soft=soft, handles=handles)
    placement = assignment.place(inventory.devices)
    return compile_placed(request, placement, inventory.platforms, owner=owner)


def prune_step(graph: Graph, request: StepRequest) -> list[Operation]:
    """The operations that a step needs, in the graph's order, verified. Raises as `prune`."""
    ops = prune(graph, request.targets, request.fetches, set(request.fed))
    verify(graph, ops)
    return ops


def compile_placed(
    request: StepRequest,
    placement: Placement,
    platforms: Mapping[Device, str] | None = None,
    *,
    owner: str = "",
) -> CompiledStep:
    """Takes a step through the pipeline once its operations have devices.

    Args:
      request: what to do.
      placement: a device for each operation that the step needs, in the graph's order.
      platforms: what the programs of each device are exported for; None if they stay here.
      owner: the session that owns the resources that are not shared.

    Raises:
      InvalidArgumentError, UnimplementedError: if operations cannot run in one step, or JAX cannot
        lower or export one of them.
    """
    cut = partition(
        list(placement),
        placement,
        request.fed,
        request.fetches,
        checks_nans=request.checks_nans,
        owner=owner,
    )
    programs = {name: _lowered(segment, platforms) for name, segment in cut.segments.items()}
    artifacts = _artifacts(cut, programs, platforms)
    if platforms is None:
        names = {name: name for name in (*programs, *artifacts)}
    else:
        names = {name: digest_of(artifact) for name, artifact in artifacts.items()}
    return CompiledStep(
        placement,
        _named(cut, programs, names),
        programs if platforms is None else {},
        {names[name]: artifact for name, artifact in artifacts.items()},
        tuple(callbacks_of(cut.callbacks)),
        len(request.fetches),
    )


def _lowered(segment: Segment, platforms: Mapping[Device, str] | None) -> Lowered:
    if platforms is not None:
        refuse_callbacks(segment.ops)
    return lower(segment.ops, segment.reads, segment.inputs, segment.writes, segment.outputs)


def _artifacts(
    cut: Partition, programs: Mapping[str, Lowered], platforms: Mapping[Device, str] | None
) -> dict[str, Array]:
    """What the plans need in addition to the programs of this process, by names of their own."""
    found = dict(cut.constants)
    for name, program in programs.items():
        found |= zip(_constant_names(name, program), program.constants, strict=True)
        if platforms is not None:
            platform = platforms[cut.segments[name].device]
            with explained(program.ops, platform):
                found[name] = export(program.jaxpr, platform)
    return found


def _constant_names(name: str, program: Lowered) -> list[str]:
    return [f"{name} constant {number}" for number in range(len(program.constants))]


def _named(
    cut: Partition, programs: Mapping[str, Lowered], names: Mapping[str, str]
) -> tuple[Plan, ...]:
    """The plans, with the names that programs and constants have from now on."""
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
                return replace(instruction, program=named[segment])
            case Call(constants=(_, *_) as constants):
                return replace(instruction, constants=tuple(names[name] for name in constants))
        return instruction

    return tuple(
        replace(plan, stages=tuple(tuple(map(renamed, stage)) for stage in plan.stages))
        for plan in cut.plans
    )

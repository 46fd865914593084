"""Places, compiles and registers steps on a backend."""

from __future__ import annotations

from jflow.cluster import Device
from jflow.deadline import Deadline
from jflow.errors import OpError
from jflow.graph import Graph, Operation
from jflow.pipeline import StepRequest, compile_placed, prune_step
from jflow.placement import (
    Explanation,
    Inventory,
    Placement,
    Placer,
    Strategy,
    explain,
    strategy_of,
)
from jflow.runtime.backend import Backend, Executable
from jflow.runtime.config import ConfigProto


def placer_of(config: ConfigProto, strategy: Strategy | None = None) -> Placer:
    """What places the steps of a session or connection.

    Args:
      config: its options.
      strategy: in place of the one that the options name.

    Raises:
      InvalidArgumentError, TypeError: if there is no strategy as the options name.
    """
    chosen = strategy_of(config.placement) if strategy is None else strategy
    return Placer(config.allow_soft_placement, config.log_device_placement, chosen)


def place_step(
    graph: Graph, request: StepRequest, backend: Backend, placer: Placer, deadline: Deadline
) -> dict[Operation, Device]:
    """Returns a device for each operation that a step needs.

    Raises:
      InvalidArgumentError: if a placeholder is not fed, a device does not exist, or colocated
        operations request different devices.
      UnavailableError, DeadlineExceededError: if a task that the step needs does not answer.
    """
    placement, _ = _placed(graph, request, backend, placer, deadline)
    return dict(placement)


def explain_step(
    graph: Graph, request: StepRequest, backend: Backend, placer: Placer, deadline: Deadline
) -> Explanation:
    """Why each operation of a step goes where it goes. Raises as `place_step` and `explain`."""
    ops = prune_step(graph, request)
    assignment = placer.assign(ops, backend.inventory((), deadline))
    inventory = backend.inventory(assignment.tasks, deadline)
    return explain(assignment, inventory.devices)


def register_step(
    graph: Graph, request: StepRequest, backend: Backend, placer: Placer, deadline: Deadline
) -> Executable:
    """Compiles and registers a step.

    The deadline does not interrupt compiling. The caller keeps the step first and checks the
    deadline then, so that the next call need not compile it again.

    Raises:
      OpError: as `place_step` and `compile_placed`.
    """
    placement, inventory = _placed(graph, request, backend, placer, deadline)
    compiled = compile_placed(request, placement, inventory.platforms, owner=backend.owner)
    return backend.register(compiled)


def _placed(
    graph: Graph, request: StepRequest, backend: Backend, placer: Placer, deadline: Deadline
) -> tuple[Placement, Inventory]:
    """The placement of a step, and the devices of the tasks that it needs; queries no others."""
    ops = prune_step(graph, request)
    assignment = placer.assign(ops, backend.inventory((), deadline))
    inventory = backend.inventory(assignment.tasks, deadline)
    return placer.place(assignment, inventory), inventory


def add_origin(error: OpError, graph: Graph) -> None:
    """Adds the user's line that made the failed operation to the message of an error."""
    if error.op is None:
        return
    try:
        op: Operation = graph.get_operation_by_name(error.op)
    except KeyError:
        return
    error.with_context(made_at=op.origin)

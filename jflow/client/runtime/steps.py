"""Places, compiles and registers steps on a backend."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from jflow.base.cluster import Device, Task
from jflow.base.deadline import Deadline
from jflow.base.options import ConfigProto
from jflow.base.text import seconds_text
from jflow.client.runtime.backend import Backend, Executable
from jflow.client.runtime.calibration_file import current_calibration
from jflow.client.runtime.expanding import ExpandingExecutable
from jflow.client.runtime.moving import MovingExecutable, retry_while_moved
from jflow.client.runtime.tracing import TracingExecutable
from jflow.compiler.graph import Graph, Operation, Tensor
from jflow.compiler.graph.expansion import Expansion
from jflow.compiler.graph.gradient import is_recorded
from jflow.compiler.graph.hoisting import is_control_flow
from jflow.compiler.graph.opening import EVERY_KIND
from jflow.compiler.graph.primitives import state_of
from jflow.compiler.pipeline import (
    StepRequest,
    compile_placed,
    expanded,
    has_open_loops,
    opening_on,
    prune_step,
    waits_for_ranks,
)
from jflow.compiler.placement import (
    DEFAULT_STRATEGY,
    RULES,
    Assignment,
    Explanation,
    Inventory,
    Placement,
    Placer,
    Relocation,
    RelocationPlan,
    Relocator,
    Strategy,
    assign,
    explain,
    strategy_of,
)
from jflow.errors import InvalidArgumentError, OpError
from jflow.state.moves import EVERYTHING, MovedError
from jflow.view.cards import PlacedStep

HOLD_S = 4.0
"""The longest time that a move holds steps, in seconds; running steps that use the state have half
of it to end. Large state gets more time, by `LEAST_BANDWIDTH`."""

_N_NAMES = 3
"""As many names stand for a step."""

LEAST_BANDWIDTH = 50e6
"""The transfer rate that the time limit of a move assumes, in bytes per second."""


@dataclass(frozen=True)
class Replacement:
    """The result of `Session.replace`: the state that moved, and the predicted times.

    Attributes:
      moved: the state that has moved, by colocated groups, with its device before and after. Empty
        if nothing was worth it.
      predicted_before, predicted_after: the predicted time of a step in seconds, before and after
        the moves that were planned, as the mean of all steps that ran.
      predicted_cost: how long these moves were predicted to take, in seconds.
    """

    moved: tuple[Relocation, ...]
    predicted_before: float
    predicted_after: float
    predicted_cost: float

    def __str__(self) -> str:
        what = "; ".join(map(str, self.moved)) or "nothing"
        return (
            f"moved {what}; predicted step time {seconds_text(self.predicted_before)}, "
            f"{seconds_text(self.predicted_after)} with the planned moves, which take "
            f"{seconds_text(self.predicted_cost)}"
        )


def placer_of(
    config: ConfigProto,
    strategy: Strategy | None = None,
    fetches: Collection[Tensor] | None = None,
) -> Placer:
    """Returns the placer of a session, or of the step of a function.

    Args:
      config: the options.
      strategy: in place of the one that the options name.
      fetches: what the step of a function returns; None for the steps of a session.

    Raises:
      InvalidArgumentError, TypeError: if the options name an unknown strategy.
    """
    chosen_strategy = named_strategy(config.placement) if strategy is None else strategy
    if chosen_strategy is DEFAULT_STRATEGY and fetches is not None:
        # The rules have one more in functions, for which they have to know what is returned.
        chosen_strategy = partial(assign, fetches=fetches)
    return Placer(config.allow_soft_placement, config.log_device_placement, chosen_strategy)


def strategy_text(placement: str | Callable[..., Any]) -> str:
    """Returns the name of a placement strategy, as options have it, for people."""
    if callable(placement):
        return getattr(placement, "__name__", type(placement).__name__)
    return placement or "by requests only"


def named_strategy(placement: str | Callable[..., Any]) -> Strategy:
    """Returns the strategy that a user requests, with the costs measured on this machine.

    Raises:
      InvalidArgumentError, TypeError: as `strategy_of`.
    """
    # The rules need no costs, so no file is read for them.
    return strategy_of(placement, None if placement == RULES else current_calibration())


def place_step(
    graph: Graph, request: StepRequest, backend: Backend, placer: Placer, deadline: Deadline
) -> PlacedStep:
    """Returns the device of each operation that a step needs.

    Raises:
      InvalidArgumentError: if a placeholder is not fed, a device does not exist, or colocated
        operations request different devices.
      UnavailableError, DeadlineExceededError: if a task that the step needs does not respond.
    """
    opened, request, placer = _opened(graph, request, backend, placer, deadline)
    placement, _ = _place(opened, request, backend, placer, deadline)
    copies = opened.copies if isinstance(opened, Expansion) else {}
    originals = {copy: op for op, copy in copies.items()}
    return PlacedStep({originals.get(op, op): device for op, device in placement.items()})


def explain_step(
    graph: Graph, request: StepRequest, backend: Backend, placer: Placer, deadline: Deadline
) -> Explanation:
    """Explains the device of each operation of a step. Raises as `place_step` and `explain`."""
    graph, request, placer = _opened(graph, request, backend, placer, deadline)
    ops = prune_step(graph, request)
    assignment = _assigned(ops, backend, placer, deadline)
    inventory = backend.inventory(assignment.tasks, deadline)
    return explain(
        assignment,
        inventory.devices,
        current_calibration(),
        inventory.wiring,
        inventory.memory,
    )


def register_step(
    graph: Graph,
    request: StepRequest,
    backend: Backend,
    placer: Placer,
    deadline: Deadline,
    registering: threading.Lock | None = None,
    title: str = "",
) -> TracingExecutable:
    """Compiles and registers a step.

    The deadline does not interrupt compilation. The caller caches the step before it checks the
    deadline, so that the next call need not compile it again.

    Args:
      graph: the graph of the request.
      request: what the step computes.
      backend: where it runs.
      placer: places it.
      deadline: the deadline of the call.
      registering: held by the caller; a step that is fed tensors of unknown rank is compiled when
        it runs, and holds it then.
      title: what reports call it; "" for the names of what it computes.

    Raises:
      OpError: as `place_step` and `compile_placed`.
    """
    executable = _registered(graph, request, backend, placer, deadline, registering)
    explain = partial(explain_step, graph, request, backend, placer)
    computed = dict.fromkeys([*request.targets, *(tensor.op for tensor in request.fetches)])
    title = title or names_text([*computed])
    signature = ", ".join(str(tensor.aval) for tensor in request.fed)
    return TracingExecutable(executable, title, backend, explain, signature)


def _registered(
    graph: Graph,
    request: StepRequest,
    backend: Backend,
    placer: Placer,
    deadline: Deadline,
    registering: threading.Lock | None,
) -> Executable:
    """Returns a step that is not traced by blocks; see `register_step`."""
    if registering is not None and waits_for_ranks(graph, request):

        def expand(shapes: Mapping[Tensor, Sequence[Any]], deadline: Deadline) -> Executable:
            # What is replayed may have loops as well, so they are opened after it.
            replayed, own_request = expanded(graph, request, None, shapes)
            own_placer = placer.of_copies(replayed.copies)
            return _registered(replayed, own_request, backend, own_placer, deadline, None)

        return ExpandingExecutable(request, expand, registering)
    graph, request, placer = _opened(graph, request, backend, placer, deadline)

    def register(deadline: Deadline) -> Executable:
        placement, inventory = _place(graph, request, backend, placer, deadline)
        compiled = compile_placed(request, placement, inventory.platforms, owner=backend.owner)
        return backend.register(compiled)

    if not (backend.tasks_leave or any(state_of(op.eqn) for op in prune_step(graph, request))):
        return register(deadline)
    return MovingExecutable(register, partial(learn_moved, graph, backend, placer), deadline)


def replace_state(
    graph: Graph,
    steps: Mapping[StepRequest, int],
    backend: Backend,
    placer: Placer,
    strategy: Strategy,
    *,
    min_gain: float | None,
    n_steps: int,
    deadline: Deadline,
) -> Replacement:
    """Moves the state of steps; see `jflow.Session.replace`.

    Args:
      graph, backend, placer: as for `register_step`.
      steps: the steps, and how often each of them ran.
      strategy: chooses where state goes.
      min_gain, n_steps: when it moves.
      deadline: the deadline of the call.
    """
    pruned_steps = [(prune_step(graph, request), n_runs) for request, n_runs in steps.items()]

    def move() -> Replacement:
        tasks = backend.inventory((), deadline).tasks
        relocator = Relocator(
            graph,
            pruned_steps,
            placer,
            backend.inventory(tasks, deadline),
            backend.owner,
            moves_private=backend.moves_private,
            calibration=current_calibration(),
        )
        plan = relocator.plan(strategy)
        if min_gain is not None and not _is_worth_it(plan, min_gain, n_steps):
            return Replacement((), plan.before, plan.after, plan.cost)
        for one in plan.relocations:
            hold_s = HOLD_S + one.n_bytes / LEAST_BANDWIDTH
            backend.move_state(one.states, str(one.target), hold_s, deadline)
            placer.learn(graph, dict.fromkeys(one.states, str(one.target)))
        return Replacement(plan.relocations, plan.before, plan.after, plan.cost)

    # Another session may be first.
    return retry_while_moved(move, partial(learn_moved, graph, backend, placer), deadline)


def learn_moved(graph: Graph, backend: Backend, placer: Placer, error: MovedError) -> None:
    """Makes new placements of a graph use what has moved where it is now.

    Args:
      graph, backend, placer: as for `register_step`.
      error: of a step that uses what has moved.
    """
    placer.learn(graph, error.moved)
    if any(state.kind == EVERYTHING for state in error.moved):
        backend.forget_members()


def _is_worth_it(plan: RelocationPlan, min_gain: float, n_steps: int) -> bool:
    gain = plan.before - plan.after
    return gain > min_gain * plan.before and gain * n_steps > plan.cost


def _opened(
    graph: Graph, request: StepRequest, backend: Backend, placer: Placer, deadline: Deadline
) -> tuple[Graph, StepRequest, Placer]:
    """Returns the graph in which the loops of a step are open, and the request and placer in it."""
    if not has_open_loops(graph, request, EVERY_KIND):
        return graph, request, placer

    def devices_of(task: Task) -> Sequence[Device]:
        return backend.inventory((task,), deadline).devices[task]

    opening = opening_on(backend.inventory((), deadline), placer.soft, devices_of)
    if not has_open_loops(graph, request, opening):
        return graph, request, placer
    expansion, request = expanded(graph, request, opening)
    return expansion, request, placer.of_copies(expansion.copies)


def _place(
    graph: Graph, request: StepRequest, backend: Backend, placer: Placer, deadline: Deadline
) -> tuple[Placement, Inventory]:
    """Returns a step's placement and its tasks' devices; queries only the tasks that it needs."""
    ops = prune_step(graph, request)
    assignment = _assigned(ops, backend, placer, deadline)
    inventory = backend.inventory(assignment.tasks, deadline)
    return placer.place(assignment, inventory), inventory


def _assigned(
    ops: Sequence[Operation], backend: Backend, placer: Placer, deadline: Deadline
) -> Assignment:
    """Returns the first half of a placement, by the present tasks of the cluster."""
    known = backend.inventory((), deadline)
    try:
        return placer.assign(ops, known)
    except InvalidArgumentError:  # the step may request a task that has just joined
        backend.forget_members()
        present = backend.inventory((), deadline)
        if present.tasks == known.tasks:
            raise
        return placer.assign(ops, present)


def names_text(members: Sequence[Tensor | Operation]) -> str:
    """Returns the first names of tensors and operations, for people."""
    names = [member.name for member in members]
    more = f" and {len(names) - _N_NAMES} more" if len(names) > _N_NAMES else ""
    return ", ".join(names[:_N_NAMES]) + more


def add_origin(error: OpError, graph: Graph) -> None:
    """Adds the user's line that made the failed operation to the message of an error."""
    name = error.op
    while name:
        try:
            op: Operation = graph.get_operation_by_name(name)
        except KeyError:
            name = name.rpartition("/")[0]  # of a call that was replayed as several operations
            continue
        if name == error.op or is_recorded(op) or is_control_flow(op.eqn):
            error.with_context(made_at=op.origin)
        return

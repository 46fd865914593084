"""`ClosureSource`: traces functions that are scheduled and hands them to the engine as closures."""

from __future__ import annotations

from time import perf_counter
from typing import Any, NamedTuple

from jflow.client.functions import Connection
from jflow.errors import UnimplementedError
from jflow.training.coordinator.arguments import ScheduledArguments
from jflow.training.coordinator.closures import Programs, ScheduledClosure
from jflow.training.coordinator.elements import ElementCounts
from jflow.training.coordinator.engine import Engine
from jflow.training.coordinator.events import Keeping
from jflow.training.coordinator.remote_value import RemoteValue

AT_LEAST_ONCE, EXACTLY_ONCE = "at_least_once", "exactly_once"


class ScheduleOptions(NamedTuple):
    """How a function is scheduled, as `ClusterCoordinator.schedule` takes it."""

    effects: str
    priority: int
    worker: int | None
    timeout: float | None

    def check(self) -> None:
        """Raises ValueError if an option is out of range."""
        if self.effects not in (AT_LEAST_ONCE, EXACTLY_ONCE):
            raise ValueError(
                f"expected effects={AT_LEAST_ONCE!r} or {EXACTLY_ONCE!r}, got {self.effects!r}"
            )
        if self.timeout is not None and not self.timeout > 0:
            raise ValueError(f"expected a timeout above 0 s, got {self.timeout!r}")


class ClosureSource:
    """Creates the closures of scheduled calls.

    Args:
      engine: runs closures.
      connection: owns the variables that functions use.
    """

    def __init__(self, engine: Engine, connection: Connection) -> None:
        self._engine = engine
        self._connection = connection
        self._programs = Programs()
        self._counts = ElementCounts()

    def schedule(
        self,
        owner: Any,
        fn: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: ScheduleOptions,
    ) -> RemoteValue:
        """Schedules a call for `owner`; see `ClusterCoordinator.schedule`."""
        start = perf_counter()
        arguments = ScheduledArguments(fn, args, kwargs, self._connection, self._counts)
        for value in arguments.inputs:
            check_owner(value, owner)
        program, is_new = self._programs.of(arguments.call.run)
        if is_new:
            self._engine.meter.note("function_tracing", perf_counter() - start)
        is_exactly_once = options.effects == EXACTLY_ONCE
        if is_exactly_once and program.resource is not None:
            raise UnimplementedError(
                f"effects={EXACTLY_ONCE!r} is for functions that write variables only, but {fn!r} "
                f"uses {program.resource}; schedule it with effects={AT_LEAST_ONCE!r}"
            )

        keeping, depth = Keeping.NOT, 0
        if not is_exactly_once:
            keeping, depth = program.keeping(arguments.inputs)
        arguments.own(keeping)  # before the engine's lock, which answers wait for, is taken

        def closure_of(number: int) -> ScheduledClosure:
            value = RemoteValue(
                number,
                owner,
                repr(fn),
                arguments.call.out_tree,
                tuple(arguments.call.run.jaxpr.out_avals),
                self._engine.results,
                depth,
            )
            timeout = options.timeout
            return ScheduledClosure(value, program, arguments, timeout, is_exactly_once, keeping)

        closure = self._engine.add(
            closure_of,
            priority=options.priority,
            worker=options.worker,
            timeout=options.timeout,
            is_repeatable=program.is_repeatable or is_exactly_once,
        )
        return closure.remote_value


def check_owner(value: RemoteValue, owner: Any) -> None:
    """Raises ValueError if a result is that of another coordinator."""
    if value.owner is not owner:
        raise ValueError(f"{value!r} belongs to another coordinator, {value.owner!r}")

"""`RunningSteps`: the steps of a task and what they wait for, for its watchers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from jflow.deadline.clock import now
from jflow.resources import Cell
from jflow.watch import StatusRequest, StepStatus, short_name
from jflow.worker.context import WorkerContext
from jflow.worker.waker import Waker

_N_WAITS = 100
"""How many attempts on each resource are looked at: those at the head come first."""
_N_SHOWN = 20
"""How many waits of one step are shown."""


class RunningSteps:
    """The steps that have begun on a task and have not ended there.

    What a step waits for is found from the resources and the rendezvous, so that steps note nothing
    for watchers but when they began. Call it on the event loop only.
    """

    def __init__(self, context: WorkerContext) -> None:
        self._context = context

    @property
    def n_begun(self) -> int:
        """How many steps have begun so far."""
        return self._context.rendezvous.n_opened

    def listed(self, request: StatusRequest) -> tuple[int, tuple[StepStatus, ...]]:
        """How many there are, and those that are requested, the oldest first."""
        begun = sorted(self._context.begun.items(), key=lambda item: item[1][0])
        page = begun[request.first : request.first + request.limit]
        attempts = self._attempts() if page else {}
        present = now()
        return len(begun), tuple(
            StepStatus(
                f"{step:x}",
                max(present - at, 0.0),
                tuple(str(linked.plan.device) for linked in registered.plans),
                tuple(map(short_name, [*attempts.get(step, ()), *self._values(step)][:_N_SHOWN])),
            )
            for step, (at, registered) in page
        )

    def _attempts(self) -> Mapping[int, list[str]]:
        """What steps wait for at resources, by step."""
        found: dict[int, list[str]] = defaultdict(list)
        for cell in self._cells():
            for attempt, reason in cell.waiting(_N_WAITS):
                waker = attempt.then
                if isinstance(waker, Waker) and waker.step is not None:
                    found[waker.step].append(reason.removeprefix("waited ") or "for a resource")
        return found

    def _cells(self) -> Iterable[Cell]:
        containers = self._context.containers
        yield containers.accesses
        yield containers.writing
        yield from containers.resources.cells().values()

    def _values(self, step: int) -> Iterable[str]:
        """What a step waits for from other tasks and devices."""
        for waiter in self._context.rendezvous.waiting(step):
            source = self._context.senders.sender_of(waiter)
            yield f"for a value from {source or 'another device of its task'}"

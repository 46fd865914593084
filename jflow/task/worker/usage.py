"""`StepUsage`: what the registered steps of each session take of a task, and its quotas."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from jflow.base.cluster import Task
from jflow.plan import Plan
from jflow.state.quotas import Account, ChargedSession, Quotas, Usage
from jflow.state.watch import StatusRequest, UsageStatus, bounded_name

STEPS = Quotas(session=1 << 14, user=1 << 16)
"""How many steps a session, and a user, may have registered on a task."""
SLOTS = Quotas(session=1 << 23, user=1 << 25)
"""How many slots the plans of these may have together."""
PROGRAMS = Quotas(session=1 << 15, user=1 << 17)
"""How many programs they may call together; one that several steps call counts for each."""


class StepUsage:
    """What registered steps take of a task. On the event loop only.

    Args:
      task: the task, for messages.
      state: how many bytes of state it keeps, for watchers.
    """

    def __init__(self, task: Task, state: Usage) -> None:
        self._state = state
        self._steps = Usage(task, "registered steps", str, STEPS)
        self._slots = Usage(task, "slots of registered steps", str, SLOTS)
        self._programs = Usage(task, "programs of registered steps", str, PROGRAMS)

    @contextmanager
    def charging(self, creator: ChargedSession, plans: Sequence[Plan]) -> Iterator[None]:
        """Context manager that charges a step to its session, unless it is not registered in it.

        Raises:
          ResourceExhaustedError: if a quota would be exceeded.
        """
        charged: list[tuple[Usage, int]] = []
        account = Account("", creator)
        try:
            for usage, amount in self._amounts(plans):
                usage.charge({account: amount})
                charged.append((usage, amount))
            yield
        except BaseException:
            for usage, amount in charged:
                usage.add(account, -amount)
            raise

    def free(self, creator: ChargedSession, plans: Sequence[Plan]) -> None:
        """Ends what `charging` has charged."""
        for usage, amount in self._amounts(plans):
            usage.add(Account("", creator), -amount)

    def listed(self, request: StatusRequest) -> tuple[int, tuple[UsageStatus, ...]]:
        """Returns the number of accounts and the requested page, those with most bytes first."""
        counts: defaultdict[Account, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
        for i, usage in enumerate((self._state, self._steps, self._slots, self._programs)):
            for account, amount in usage.accounts().items():
                counts[account][i] = amount
        accounts = sorted(counts.items(), key=lambda one: (-one[1][0], one[0]))
        page = accounts[request.first : request.first + request.limit]
        return len(accounts), tuple(
            UsageStatus(bounded_name(account.container), *account.creator, *amounts)
            for account, amounts in page
        )

    def _amounts(self, plans: Sequence[Plan]) -> list[tuple[Usage, int]]:
        return [
            (self._steps, 1),
            (self._slots, sum(plan.n_slots for plan in plans)),
            (self._programs, sum(1 for plan in plans for _ in plan.programs)),
        ]

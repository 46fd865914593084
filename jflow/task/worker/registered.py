"""`RegisteredPlans`: the plans of a step on one task, ready to run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from jflow.base.cluster import Task
from jflow.base.values import Array
from jflow.errors import InvalidArgumentError, UnimplementedError
from jflow.net.protocol import StepOwner
from jflow.plan import Recv, Send, feed_indices, fetch_indices
from jflow.state.core import WritesOfTask
from jflow.state.effects import unsupported
from jflow.state.moves import Use, sessions_of, writes_often
from jflow.state.quotas import ChargedSession
from jflow.state.watch import StepStatus
from jflow.task.execution.classes import writes_of
from jflow.task.execution.linked import LinkedPlan


@dataclass(frozen=True)
class RegisteredPlans:
    """One task's plans of a step, and the indices of the values that they are fed and fetch.

    Attributes:
      handle: the number by which their master runs them.
      use: the state that they use.
      is_restartable: whether the step can be run again if it ends while it waits for a queue.
      writes_often: whether they write variables more than once.
      owner: whose step it is; its claim is that of the moment when they were registered.
      writes: what they write.
      refusal: the error for running them in a step applied once, if they do not support that.
      master: the task of the master that registered them.
    """

    handle: int
    plans: tuple[LinkedPlan, ...]
    feeds: tuple[int, ...]
    fetches: tuple[int, ...]
    use: Use
    is_restartable: bool
    writes_often: bool
    owner: StepOwner
    writes: WritesOfTask
    refusal: UnimplementedError | None
    master: Task

    @classmethod
    def of(
        cls,
        handle: int,
        linked: Sequence[LinkedPlan],
        use: Use,
        is_restartable: bool,
        owner: StepOwner,
        master: Task,
    ) -> RegisteredPlans:
        """Returns linked plans as they are registered; see the attributes."""
        plans = [one.plan for one in linked]
        return cls(
            handle,
            tuple(linked),
            feed_indices(plans),
            fetch_indices(plans),
            use,
            is_restartable,
            writes_often(plans),
            owner,
            writes_of(linked),
            unsupported(plans),
            master,
        )

    @property
    def creator(self) -> ChargedSession:
        """The session whose step it is."""
        return self.owner.charged(self.master)

    def check_feeds(self, feeds: Sequence[Array]) -> None:
        """Raises InvalidArgumentError if fed values are too few or too many."""
        if len(feeds) != len(self.feeds):
            raise InvalidArgumentError(f"expected {len(self.feeds)} fed values, got {len(feeds)}")

    @cached_property
    def exchanges(self) -> bool:
        """Whether the plans send or receive values; if not, the rendezvous skips their steps."""
        return any(
            isinstance(one, Send | Recv)
            for linked in self.plans
            for one in linked.plan.all_instructions
        )

    def status(self, step: int, age_s: float, abandoned_s: float | None = None) -> StepStatus:
        """Returns the status of a step that runs them; see `StepStatus`."""
        return StepStatus(
            f"{step:x}",
            age_s,
            tuple(str(linked.plan.device) for linked in self.plans),
            master=str(self.master),
            claim="" if self.owner.claim is None else self.owner.claim.name,
            abandoned_s=abandoned_s,
            session=self.owner.session,
            user=self.owner.user,
        )


def ends_with(task: Task, session: str, registered: Iterable[RegisteredPlans]) -> bool:
    """Whether a session with state on a task ends with it, because its master is there.

    Args:
      task: the task.
      session: the name of the session.
      registered: what is registered on the task.
    """
    return all(
        one.master == task
        for one in registered
        if session in sessions_of(linked.plan for linked in one.plans)
    )

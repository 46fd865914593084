"""`RegisteredPlans`: what a task keeps of a registered step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from jflow.base.cluster import Task
from jflow.base.values import Array
from jflow.errors import InvalidArgumentError, UnimplementedError
from jflow.plan import Recv, Send
from jflow.state.core import WritesOfTask
from jflow.state.fencing import Claim
from jflow.state.moves import Use
from jflow.task.execution.link import LinkedPlan


@dataclass(frozen=True)
class RegisteredPlans:
    """One task's plans of a step, and the indices of the values they are fed and give.

    Attributes:
      handle: the number by which their master runs them.
      use: the state that they use.
      is_restartable: whether the step can be run again if it ends while it waits for a queue.
      writes_often: whether they write variables more than once.
      claim: what their client had claimed when they were registered.
      writes: what they write.
      refusal: the error of a step that is to be applied once, because of what it does.
      master: the task whose client they are of.
    """

    handle: int
    plans: tuple[LinkedPlan, ...]
    feeds: tuple[int, ...]
    fetches: tuple[int, ...]
    use: Use
    is_restartable: bool
    writes_often: bool
    claim: Claim | None
    writes: WritesOfTask
    refusal: UnimplementedError | None
    master: Task

    def check_feeds(self, feeds: Sequence[Array]) -> None:
        """Raises InvalidArgumentError if fed values are too few or too many."""
        if len(feeds) != len(self.feeds):
            raise InvalidArgumentError(f"expected {len(self.feeds)} fed values, got {len(feeds)}")

    @cached_property
    def exchanges(self) -> bool:
        """Whether they send or receive values; if not, the rendezvous need not know their steps."""
        return any(
            isinstance(one, Send | Recv)
            for linked in self.plans
            for stage in linked.stages
            for one in stage
        )

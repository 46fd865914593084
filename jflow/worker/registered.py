"""`RegisteredPlans`: what a task keeps of a registered step."""

from __future__ import annotations

from dataclasses import dataclass

from jflow.errors import UnimplementedError
from jflow.execution.link import LinkedPlan
from jflow.execution.once import WritesOfTask
from jflow.fencing import Claim
from jflow.moves import Use


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

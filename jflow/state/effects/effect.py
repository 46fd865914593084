"""`Effect` identifies one attempt of a step that is applied once; `Staging` is how it is staged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from jflow.errors import InvalidArgumentError, UnimplementedError
from jflow.plan import CALLBACK, Call, Plan, Run

_MAX_NAME = 256
_MAX_NUMBER = 2**63 - 1


class EffectKey(NamedTuple):
    """Identifies a step, for all of its attempts."""

    client: str
    epoch: int
    sequence: int


@dataclass(frozen=True)
class Effect:
    """Identifies one attempt of a step whose writes are applied once, however often attempted.

    Attributes:
      client: what numbers the steps, by a name that no other has.
      epoch: the life of the client. A task that has seen a higher one refuses lower ones for ever.
      sequence: the number of the step; a client uses each one for one step.
      attempt: the number of the attempt, from 1. A later attempt takes over from all earlier ones.
      acknowledged: the client has the results of all steps with lower sequences, and attempts none
        of them again.
      is_saved: whether checkpoints keep what the client has done. Not for a session, which ends
        with its server.

    Raises:
      InvalidArgumentError: if the client has no name or one that is longer than 256 characters, or
        a number is out of range.
    """

    client: str
    epoch: int
    sequence: int
    attempt: int = 1
    acknowledged: int = 0
    is_saved: bool = True

    def __post_init__(self) -> None:
        if not 0 < len(self.client) <= _MAX_NAME:
            raise InvalidArgumentError(
                f"the client of an effect needs a name of 1 to {_MAX_NAME} characters, got "
                f"{len(self.client)}"
            )
        for name, least in (("epoch", 0), ("sequence", 0), ("attempt", 1), ("acknowledged", 0)):
            number = getattr(self, name)
            if not least <= number <= _MAX_NUMBER:
                raise InvalidArgumentError(
                    f"the {name} of an effect is at least {least} and at most {_MAX_NUMBER}, got "
                    f"{number}"
                )

    @property
    def key(self) -> EffectKey:
        """The key of the step, the same for all attempts."""
        return EffectKey(self.client, self.epoch, self.sequence)

    @property
    def age(self) -> tuple[int, int, str]:
        """The sort key of steps by age, for wait-die: the least one is the oldest."""
        return (self.sequence, self.epoch, self.client)

    def again(self) -> Effect:
        """Returns the next attempt of the same step."""
        return replace(self, attempt=self.attempt + 1)

    def __str__(self) -> str:
        return f"attempt {self.attempt} of step {self.sequence} of {self.client!r}"


def unsupported(plans: Iterable[Plan]) -> UnimplementedError | None:
    """Returns the error for a step that cannot be applied exactly once; None if it can.

    What a step does to variables can be staged, unless a loop does it. What it does to queues,
    accumulators and readers, and by Python functions, cannot be taken back.
    """
    for plan in plans:
        for one in (x for loop in plan.loops for x in loop.body.all_instructions):
            if isinstance(one, Run) and one.writes:
                return UnimplementedError(
                    f"a step with exactly-once effects writes each variable once, but operation "
                    f"{one.op!r} writes in a loop that has other effects; run it without effects, "
                    "which means at least once",
                    op=one.op or None,
                )
        for one in plan.all_instructions:
            if isinstance(one, Call) and (one.resources or one.function == CALLBACK):
                what = "calls Python" if one.function == CALLBACK else f"uses {one.function!r}"
                return UnimplementedError(
                    f"a step with exactly-once effects may only write variables, but operation "
                    f"{one.op!r} {what}; run it without effects, which means at least once",
                    op=one.op or None,
                )
    return None


def writes_once(plans: Sequence[Plan]) -> bool:
    """Whether a step on one task has a single write, by a program, and no other lasting effect.

    It can be applied once without staging: applying it, and noting that it is applied, are one.
    """
    writing = [
        one
        for plan in plans
        for one in plan.all_instructions
        if isinstance(one, Run) and one.writes
    ]
    is_alone = len({plan.device.task for plan in plans}) == 1
    return is_alone and len(writing) == 1 and unsupported(plans) is None


@dataclass(frozen=True)
class Staging:
    """How a task stages the writes of a step that is applied once.

    Attributes:
      effect: the attempt.
      is_alone: whether the task is the only one of the step; it applies what it wrote at once then.
      participants: the names of the tasks that the step writes on.
    """

    effect: Effect
    is_alone: bool
    participants: tuple[str, ...]

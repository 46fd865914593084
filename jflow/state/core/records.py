"""`Staging`: how a task keeps what a step writes that is applied once."""

from __future__ import annotations

from dataclasses import dataclass

from jflow.state.effects import Effect


@dataclass(frozen=True)
class Staging:
    """How a task keeps what the plans of a step write that is applied once.

    Attributes:
      effect: the attempt.
      is_alone: whether the task is the only one of the step; it applies what it wrote at once then.
      participants: the names of the tasks that the step writes on.
    """

    effect: Effect
    is_alone: bool
    participants: tuple[str, ...]

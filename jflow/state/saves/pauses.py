"""How long a save or restore may hold steps back, and how often it tries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from jflow.base.deadline import Deadline, backoff
from jflow.base.text import seconds_text
from jflow.errors import DeadlineExceededError, OpError
from jflow.state.moves import StateId

FIRST_PAUSE_S = 0.25
"""How long steps are held back in the first attempt at most, in seconds."""

LONGEST_PAUSE_S = 4.0
"""The longest time that steps are held back at once, in seconds."""

PATIENCE_FOR_OTHERS_S = 5.0
"""How long a restore waits for steps of other sessions, in seconds, or half of its time if less."""

PATIENCE_S = 60.0
"""How long a save or restore waits for steps in all, in seconds, if its caller has no deadline."""


class Pauses:
    """The attempts to find a moment at which snapshots contain no step's changes in part.

    A loop over it gives the longest time of each attempt, in seconds. After an attempt without
    success, `failed` says whether there is another one; steps then go on for as long as they were
    held back.

    Args:
      states: what is saved or restored, for the message.
      deadline: of the call.
      now: gives the present time in seconds.
    """

    def __init__(
        self, states: Sequence[StateId], deadline: Deadline, now: Callable[[], float]
    ) -> None:
        left = deadline.remaining()
        self._states = states
        self._timeout = PATIENCE_S if deadline.timeout is None else deadline.timeout
        self._now = now
        patience = PATIENCE_FOR_OTHERS_S if left is None else min(left / 2, PATIENCE_FOR_OTHERS_S)
        self._others_until = now() + patience
        self._until = now() + (PATIENCE_S if left is None else left)

    def __iter__(self) -> Iterator[float]:
        return backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)

    def are_others_late(self, seconds: float) -> bool:
        """Whether a restore has waited long enough for steps of other sessions.

        So it has if this attempt, of so many seconds, leaves no time for a later one beside them.
        """
        following = 2 * seconds + min(2 * seconds, LONGEST_PAUSE_S)
        return self._now() > self._others_until or self._until - self._now() < following

    def failed(self, seconds: float, error: OpError) -> None:
        """Records that steps did not end within an attempt's seconds; raises if no time is left.

        Raises:
          DeadlineExceededError: if no time is left for another one.
        """
        if self._until - self._now() > seconds:
            return
        more = f" and {len(self._states) - 1} more" if len(self._states) > 1 else ""
        raise DeadlineExceededError(
            f"steps that change {self._states[0]}{more} did not end within "
            f"{seconds_text(self._timeout)}, and nothing was done; a step that "
            "waits for a queue in the middle of its changes has to go on first "
            f"({error.message})"
        ) from None

"""`SecondOrStepTimer`: when something periodic is due, by steps or by seconds."""

from __future__ import annotations

import time


class SecondOrStepTimer:
    """Says for which steps something periodic is due; the first one always is.

    Args:
      every_secs: seconds between two times.
      every_steps: steps between two times.

    Raises:
      ValueError: unless exactly one of them is given.
    """

    def __init__(self, every_secs: float | None = None, every_steps: int | None = None) -> None:
        if (every_secs is None) == (every_steps is None):
            raise ValueError(
                "expected exactly one of every_secs and every_steps, got "
                f"every_secs={every_secs} and every_steps={every_steps}"
            )
        self._every_secs = every_secs
        self._every_steps = every_steps
        self.reset()

    def reset(self) -> None:
        """Forgets the last time."""
        self._last_step: int | None = None
        self._last_time = 0.0

    def should_trigger_for_step(self, step: int) -> bool:
        """Whether it is due at a step; never twice for the same step."""
        if self._last_step is None:
            return True
        if step == self._last_step:
            return False
        if self._every_steps is not None:
            return step >= self._last_step + self._every_steps
        assert self._every_secs is not None
        return time.monotonic() >= self._last_time + self._every_secs

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Notes that it was done at a step.

        Returns:
          The seconds and steps since the time before; None for both at the first time.
        """
        now = time.monotonic()
        before, then = self._last_step, self._last_time
        self._last_step, self._last_time = step, now
        return (None, None) if before is None else (now - then, step - before)

    def last_triggered_step(self) -> int | None:
        """The step at which it was last done, None if it was not."""
        return self._last_step

    def __repr__(self) -> str:
        interval = (
            f"{self._every_secs} s" if self._every_steps is None else f"{self._every_steps} steps"
        )
        return f"<jflow.train.SecondOrStepTimer every {interval}, last at {self._last_step}>"

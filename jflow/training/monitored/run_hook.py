"""`SessionRunHook`: what a monitored session calls around each step; a timer for hooks."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jflow.base.options import RunOptions
from jflow.client.runtime.tracing import RunMetadata
from jflow.client.session import Session
from jflow.training.threads import Coordinator


@dataclass(frozen=True)
class SessionRunArgs:
    """What a hook adds to a step.

    Attributes:
      fetches: what else to fetch, any structure that `Session.run` takes; None for nothing.
      feed_dict: what else to feed.
      options: options of the step. Those of all hooks and of the caller are merged: the largest
        timeout and trace level, and plans if one of them asks for them.
    """

    fetches: Any = None
    feed_dict: Mapping[Any, Any] | None = None
    options: RunOptions | None = None


@dataclass(frozen=True)
class SessionRunValues:
    """What a step gave to a hook.

    Attributes:
      results: the values of the hook's own fetches, in their structure; None if it had none.
      options: the merged options of the step.
      run_metadata: what was recorded of the step.
    """

    results: Any
    options: RunOptions
    run_metadata: RunMetadata


class SessionRunContext:
    """The step that hooks are called around.

    Args:
      original_args: the fetches and feeds of the caller.
      session: the session, which a hook may use for steps of its own.
    """

    def __init__(self, original_args: SessionRunArgs, session: Session) -> None:
        self._original_args = original_args
        self._session = session
        self._stop_requested = False

    @property
    def original_args(self) -> SessionRunArgs:
        """The fetches and feeds of the caller."""
        return self._original_args

    @property
    def session(self) -> Session:
        """The session that runs the step."""
        return self._session

    @property
    def stop_requested(self) -> bool:
        """Whether a hook has requested a stop during this step."""
        return self._stop_requested

    def request_stop(self) -> None:
        """Makes `should_stop` of the monitored session True once this step has ended."""
        self._stop_requested = True

    def __repr__(self) -> str:
        return f"<jflow.train.SessionRunContext of {self._original_args!r:.80}>"


class SessionRunHook:
    """Base of hooks: methods that a monitored session calls around its steps.

    The order is: `begin` of all hooks; then for each session that is created
    `after_create_session`; for each step `before_run`, the step, `after_run`; at the end `end`.
    """

    def __repr__(self) -> str:
        return f"<jflow.train.{type(self).__name__}>"

    def begin(self) -> None:
        """Called once, before the session is created; the graph may still be changed."""

    def after_create_session(self, session: Session, coord: Coordinator) -> None:
        """Called when a session has been created, also after a failure.

        Args:
          session: the session, whose graph is final.
          coord: the coordinator of the session's threads.
        """

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Called before each step; returns what to add to it, or None.

        Args:
          run_context: the step.
        """

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Called after each step that succeeded.

        Args:
          run_context: the step; `request_stop` ends the loop.
          run_values: what the step gave.
        """

    def end(self, session: Session) -> None:
        """Called once when the session ends, unless the code that uses it raised an error.

        Args:
          session: the session, which is still open.
        """


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
        """Returns whether it is due at a step; never twice for the same step."""
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
        """Returns the step at which it was last done, None if it was not."""
        return self._last_step

    def __repr__(self) -> str:
        interval = (
            f"{self._every_secs} s" if self._every_steps is None else f"{self._every_steps} steps"
        )
        return f"<jflow.train.SecondOrStepTimer every {interval}, last at {self._last_step}>"

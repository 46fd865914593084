"""Hooks that start, feed, check and stop a training loop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jflow.client.ops import Variable
from jflow.client.session import Session
from jflow.errors import OutOfRangeError
from jflow.training.monitored.global_step import get_global_step
from jflow.training.monitored.run_hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from jflow.training.threads import Coordinator

_LOG = logging.getLogger(__name__)

_POLL_S = 0.5
"""Interval at which a waiting worker looks at the global step, in seconds."""


def required_global_step(hook: SessionRunHook) -> Variable:
    """Returns the global step of the default graph. Raises RuntimeError if it has none."""
    step = get_global_step()
    if step is None:
        raise RuntimeError(
            f"{type(hook).__name__} requires a global step; call "
            "tf.train.get_or_create_global_step() and pass it to minimize()"
        )
    return step


class StopAtStepHook(SessionRunHook):
    """Requests a stop at a global step. A loop that starts there still runs one step.

    Args:
      num_steps: how many steps to run from the step at which the session starts.
      last_step: the step to stop at.

    Raises:
      ValueError: unless exactly one of them is given.
    """

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        if (num_steps is None) == (last_step is None):
            raise ValueError(
                f"expected exactly one of num_steps and last_step, got num_steps={num_steps} and "
                f"last_step={last_step}"
            )
        self._num_steps = num_steps
        self._last_step = last_step

    def begin(self) -> None:
        """Finds the global step."""
        self._global_step = required_global_step(self)

    def after_create_session(self, session: Session, coord: Coordinator) -> None:
        """Computes the last step, for the first session only."""
        if self._last_step is None:
            assert self._num_steps is not None
            self._last_step = int(session.run(self._global_step)) + self._num_steps

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Reads the global step."""
        return SessionRunArgs(self._global_step)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Requests a stop if the global step was reached."""
        assert self._last_step is not None
        # The step may have read it before it was incremented, or not have incremented it.
        if run_values.results + 1 >= self._last_step and (
            run_context.session.run(self._global_step) >= self._last_step
        ):
            run_context.request_stop()


class NanLossDuringTrainingError(RuntimeError):
    """A loss became NaN."""

    def __init__(self, message: str = "NaN loss during training.") -> None:
        super().__init__(message)


class NanTensorHook(SessionRunHook):
    """Ends the training once a loss is NaN.

    Args:
      loss_tensor: the loss.
      fail_on_nan_loss: whether to raise NanLossDuringTrainingError; otherwise it requests a stop.
    """

    def __init__(self, loss_tensor: Any, fail_on_nan_loss: bool = True) -> None:
        self._loss = loss_tensor
        self._fails = fail_on_nan_loss

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Fetches the loss."""
        return SessionRunArgs(self._loss)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Checks the loss."""
        if not np.isnan(run_values.results).any():
            return
        message = f"the model diverged: the loss {self._loss!r} is NaN"
        if self._fails:
            _LOG.error(message)
            raise NanLossDuringTrainingError(message)
        _LOG.warning(message)
        run_context.request_stop()


class GlobalStepWaiterHook(SessionRunHook):
    """Holds back the first step of a worker until the global step has reached a number.

    Workers that start one after another train more steadily.

    Args:
      wait_until_step: the global step to wait for; the worker does not wait if it is not positive.
    """

    def __init__(self, wait_until_step: int) -> None:
        self._wait_until_step = wait_until_step
        self._has_started = wait_until_step <= 0

    def begin(self) -> None:
        """Finds the global step."""
        self._global_step = required_global_step(self)

    def before_run(self, run_context: SessionRunContext) -> None:
        """Waits, before the first step."""
        if self._has_started:
            return
        _LOG.info("waiting for the global step %d", self._wait_until_step)
        while run_context.session.run(self._global_step) < self._wait_until_step:
            time.sleep(_POLL_S)
        self._has_started = True


class FinalOpsHook(SessionRunHook):
    """Fetches values at the end of a training.

    Args:
      final_ops: what to fetch, as for `Session.run`; None for nothing.
      final_ops_feed_dict: what to feed.

    Attributes:
      final_ops_values: the values, None before the end.
    """

    def __init__(
        self, final_ops: Any, final_ops_feed_dict: Mapping[Any, Any] | None = None
    ) -> None:
        self._final_ops = final_ops
        self._feeds = final_ops_feed_dict
        self.final_ops_values: Any = None

    def end(self, session: Session) -> None:
        """Fetches the values."""
        if self._final_ops is None:
            return
        try:
            self.final_ops_values = session.run(self._final_ops, feed_dict=self._feeds)
        except (OutOfRangeError, StopIteration):
            _LOG.warning("the data had ended when the final operations %r ran", self._final_ops)
            raise


class FeedFnHook(SessionRunHook):
    """Feeds each step with what a function returns.

    Args:
      feed_fn: function without arguments that returns values by tensor.
    """

    def __init__(self, feed_fn: Callable[[], Mapping[Any, Any]]) -> None:
        self._feed_fn = feed_fn

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Calls the function."""
        return SessionRunArgs(feed_dict=self._feed_fn())

"""`checkpoints_iterator`: the checkpoints of a directory one by one, as they are written."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

from jflow.training.checkpoints.checkpoint_state import latest_checkpoint

_PAUSE_S = 0.2
"""How often the directory is looked at, in seconds."""


def checkpoints_iterator(
    checkpoint_dir: str | os.PathLike[str],
    min_interval_secs: float = 0,
    timeout: float | None = None,
    timeout_fn: Callable[[], bool] | None = None,
) -> Iterator[str]:
    """Yields the latest checkpoint of a directory, each time that there is a new one.

    An evaluator that is slower than the training leaves checkpoints out.

    Args:
      checkpoint_dir: the directory.
      min_interval_secs: the least time between two checkpoints, in seconds.
      timeout: how long to wait for the next one, in seconds; None for ever.
      timeout_fn: what is called then; the iterator ends if it returns True, and waits again if not.
        None to end.
    """
    last: str | None = None
    while True:
        found = _next_checkpoint(checkpoint_dir, last, timeout)
        if found is None:
            if timeout_fn is None or timeout_fn():
                return
            continue
        start, last = time.monotonic(), found
        yield found
        time.sleep(max(0.0, start + min_interval_secs - time.monotonic()))


def _next_checkpoint(
    directory: str | os.PathLike[str], last: str | None, timeout: float | None
) -> str | None:
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        found = latest_checkpoint(directory)
        if found is not None and found != last:
            return found
        if end is not None and time.monotonic() >= end:
            return None
        time.sleep(_PAUSE_S)

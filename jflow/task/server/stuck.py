"""When a task is stuck: the limit that says so, and the error of those that it leaves."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

from jflow.base.cluster import Task
from jflow.errors import InvalidArgumentError, UnavailableError

LIMIT_VARIABLE = "JFLOW_ABANDONED_LIMIT_S"
RESTART_VARIABLE = "JFLOW_RESTART_WHEN_STUCK"

STUCK_EXIT_CODE = 75
"""The exit code of a server that ends because a device is stuck: EX_TEMPFAIL of sysexits.h."""

RESTART_LIMIT_S = 60.0
"""The limit of a server that ends when it is stuck, in seconds, unless another one is set."""


def abandoned_limit_s(environ: Mapping[str, str] = os.environ) -> float:
    """Returns for how long an abandoned program may run before its device is stuck, in seconds.

    Returns:
      What JFLOW_ABANDONED_LIMIT_S says; infinity if it is not set.

    Raises:
      InvalidArgumentError: if that is not a number above 0.
    """
    text = environ.get(LIMIT_VARIABLE, "")
    try:
        limit = float(text) if text else math.inf
    except ValueError:
        limit = math.nan
    if not limit > 0:
        raise InvalidArgumentError(
            f"{LIMIT_VARIABLE} must be a number of seconds above 0, got {text!r}"
        )
    return limit


def restarts_when_stuck(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the process of a server is to end when a device of it is stuck.

    Raises:
      InvalidArgumentError: if JFLOW_RESTART_WHEN_STUCK is neither 0 nor 1.
    """
    text = environ.get(RESTART_VARIABLE, "")
    if text not in ("", "0", "1"):
        raise InvalidArgumentError(f"{RESTART_VARIABLE} must be 0 or 1, got {text!r}")
    return text == "1"


def leaving_error(task: Task, reason: str) -> UnavailableError:
    """Returns the error of the calls that a task does not answer, because it ends."""
    return UnavailableError(
        f"{task} ends, to be started again, because {reason}. What it held is lost; run the step "
        "again once it is back, and restore what it needs",
        task=str(task),
    )

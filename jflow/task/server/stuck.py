"""When a task is stuck: the limit that says so, and the error of those that it leaves."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

from jflow.base.cluster import Task
from jflow.errors import InvalidArgumentError, UnavailableError
from jflow.task.worker import Worker

LIMIT_VARIABLE = "JFLOW_ABANDONED_LIMIT_S"
RESTART_VARIABLE = "JFLOW_RESTART_WHEN_STUCK"

SAVE_VARIABLE = "JFLOW_SAVE_WHEN_STUCK"

STUCK_EXIT_CODE = 75
"""The exit code of a server that ends because a device is stuck: EX_TEMPFAIL of sysexits.h."""

SAVE_S = 60.0
"""How long saving may take then, in seconds."""

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


def saved_prefix(task: Task, environ: Mapping[str, str] = os.environ) -> str:
    """Returns the path of the checkpoint that a stuck task writes before it ends, or "".

    It is "DIR/ps-0" where JFLOW_SAVE_WHEN_STUCK is DIR.
    """
    directory = environ.get(SAVE_VARIABLE, "")
    return f"{directory.rstrip('/')}/{task.job}-{task.index}" if directory else ""


async def save_what_can_be(worker: Worker, prefix: str) -> str:
    """Saves the variables of a task that no abandoned program writes.

    Returns:
      A sentence for those that use the task: what was saved, or why nothing was.
    """
    if not prefix:
        return "What it held is lost"
    saves = worker.saves.of_caller(None)
    try:
        n_saved = await saves.save_variables(prefix, SAVE_S, worker.abandoned.written())
    except Exception as error:  # the server has to end in any case
        return f"What it held is lost, as saving it failed: {error}"
    finally:
        saves.close()
    if not n_saved:
        return "What it held is lost, but it had no variables that could be saved"
    return f"{n_saved} variables were saved as {prefix!r}; all else that it held is lost"


def leaving_error(task: Task, reason: str, held: str) -> UnavailableError:
    """Returns the error of the calls that a task does not answer, because it ends."""
    return UnavailableError(
        f"{task} ends, to be started again, because {reason}. {held}; run the step again once it "
        "is back, and restore what it needs",
        task=str(task),
    )

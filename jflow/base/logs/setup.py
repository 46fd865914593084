"""What a process of a server logs, and in which form: options, or else environment variables."""

from __future__ import annotations

import logging
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from jflow.base.logs.formatter import LineFormatter
from jflow.base.logs.rates import RateLimit
from jflow.errors import InvalidArgumentError

LEVEL_VARIABLE = "JFLOW_LOG"
FORM_VARIABLE = "JFLOW_LOG_FORMAT"
SLOW_VARIABLE = "JFLOW_SLOW_STEP_S"

LEVELS: Mapping[str, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}
FORMS = ("text", "json")
_SLOW_S = 10.0


@dataclass(frozen=True)
class LogOptions:
    """What a server logs.

    Attributes:
      level: one of `LEVELS`: "warning" for what needs attention, "info" for sessions,
        resets, errors of calls and slow steps, too.
      form: one of `FORMS`.
      slow_step_s: after how many seconds a step is logged as slow.

    Raises:
      InvalidArgumentError: if there is no such level or form, or the time is not positive.
    """

    level: str = "warning"
    form: str = "text"
    slow_step_s: float = _SLOW_S

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise InvalidArgumentError(
                f"{LEVEL_VARIABLE} must be one of {', '.join(LEVELS)}, got {self.level!r}"
            )
        if self.form not in FORMS:
            raise InvalidArgumentError(
                f"{FORM_VARIABLE} must be one of {', '.join(FORMS)}, got {self.form!r}"
            )
        if not self.slow_step_s > 0:
            raise InvalidArgumentError(
                f"{SLOW_VARIABLE} must be a number of seconds above 0, got {self.slow_step_s:g}"
            )

    @classmethod
    def of(cls, environ: Mapping[str, str] = os.environ) -> LogOptions:
        """The options that environment variables set. Raises as the constructor."""
        text = environ.get(SLOW_VARIABLE, "")
        try:
            slow_step_s = float(text) if text else _SLOW_S
        except ValueError:
            slow_step_s = math.nan
        return cls(
            environ.get(LEVEL_VARIABLE) or "warning",
            environ.get(FORM_VARIABLE) or "text",
            slow_step_s,
        )


def log_to_stderr(options: LogOptions, task: str = "") -> None:
    """Lets the loggers of jflow write to standard error, and to nothing else; once in a process.

    Args:
      options: what is logged.
      task: the task of this process, which each line names.
    """
    logger = logging.getLogger("jflow")
    if any(isinstance(handler.formatter, LineFormatter) for handler in logger.handlers):
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(task, is_json=options.form == "json"))
    handler.addFilter(RateLimit())
    logger.addHandler(handler)
    logger.setLevel(LEVELS[options.level])
    logger.propagate = False

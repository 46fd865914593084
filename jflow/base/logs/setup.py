"""Configures the logs of a server process, by options or else environment variables."""

from __future__ import annotations

import logging
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from jflow.base.logs.events import LineFormatter
from jflow.errors import InvalidArgumentError

BURST = 20
"""How many records of a kind pass at once."""
EACH_S = 1.0
"""The time in which one more record of a kind may pass, in seconds."""

_MAX_KINDS = 256
_OTHERS = ""


@dataclass
class _Kind:
    left: float
    at: float
    n_left_out: int = 0


class RateLimit(logging.Filter):
    """A rate limit: passes `BURST` records of a kind at once, and then one each `EACH_S`.

    A kind is a logger and an event or format. A record that passes after others were left out has
    their number as `n_left_out`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[str, _Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record passes; the record's own time is the clock."""
        name = f"{record.name} {record.msg}"
        if name not in self._kinds and len(self._kinds) >= _MAX_KINDS:
            name = _OTHERS
        kind = self._kinds.setdefault(name, _Kind(BURST, record.created))
        passed_s = max(record.created - kind.at, 0.0)
        kind.left, kind.at = min(kind.left + passed_s / EACH_S, BURST), record.created
        if kind.left < 1:
            kind.n_left_out += 1
            return False
        kind.left -= 1
        if kind.n_left_out:
            record.n_left_out, kind.n_left_out = kind.n_left_out, 0
        return True


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
    """The options of a server's logs.

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
        """Returns the options that environment variables set. Raises as the constructor."""
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
    """Makes the loggers of jflow write to standard error only; does nothing if called again.

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

"""`event`: logs an event of a server, with named fields.

Fields are names, numbers, states and times. Values of tensors, tokens and nonces never are, and no
message of an error of a user's step is, because it may have such values in it.
"""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from typing import Any

from jflow.base.text import printable

Field = str | int | float | bool | None


def event(logger: logging.Logger, level: int, name: str, **fields: Field) -> None:
    """Logs an event, such as "session_opened", unless its level is not logged."""
    if logger.isEnabledFor(level):
        logger.log(level, name, extra={"fields": fields})


MAX_VALUE = 2000
"""The most characters of a message or field, so that names from elsewhere cannot fill a disk."""

_BARE = re.compile(r"[\w./:+@-]+", re.ASCII)
"""A value that needs no quotes."""


class LineFormatter(logging.Formatter):
    """Formats a record as one line: time (UTC), level, event or message, logger, task and fields.

    What is not printable, such as an escape sequence in a name, is escaped, and no value is longer
    than `MAX_VALUE` characters.

    Args:
      task: the task of the process; "" if it has none.
      is_json: whether a line is a JSON object; else key=value pairs.
    """

    def __init__(self, task: str = "", *, is_json: bool = False) -> None:
        super().__init__()
        self._task = task
        self._is_json = is_json

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line of a record, without a line end."""
        at = datetime.fromtimestamp(record.created, UTC)
        content: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
        }
        fields = getattr(record, "fields", None)
        content["message" if fields is None else "event"] = record.getMessage()
        content["logger"] = record.name
        if self._task:
            content["task"] = self._task
        content |= fields or {}
        if n_left_out := getattr(record, "n_left_out", 0):
            content["n_left_out"] = n_left_out
        if record.exc_info:
            content["error"] = self.formatException(record.exc_info)
        bounded_values = {key: _bounded_text(value) for key, value in content.items()}
        if self._is_json:
            return json.dumps(bounded_values)
        shown = bounded_values.pop("time"), bounded_values.pop("level")
        return " ".join(
            [*shown, *(f"{key}={_text(value)}" for key, value in bounded_values.items())]
        )


def _bounded_text(value: Any) -> Any:
    """Makes a value printable; of one that is too long, such as a traceback, keeps the end."""
    if not isinstance(value, str):
        return value
    if len(value) > MAX_VALUE:
        value = f"({len(value) - MAX_VALUE} more characters)…{value[-MAX_VALUE:]}"
    return printable(value)


def _text(value: Any) -> str:
    text = str(value)
    return text if _BARE.fullmatch(text) else json.dumps(text, ensure_ascii=False)

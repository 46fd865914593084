"""`event`: something that happened on a server, with named fields.

Fields are names, numbers, states and times. Values of tensors, tokens and nonces never are, and no
message of an error of a user's step is, because it may have such values in it.
"""

from __future__ import annotations

import logging

Field = str | int | float | bool | None


def event(logger: logging.Logger, level: int, name: str, **fields: Field) -> None:
    """Logs an event, such as "session_opened"; does nothing if its level is not logged."""
    if logger.isEnabledFor(level):
        logger.log(level, name, extra={"fields": fields})

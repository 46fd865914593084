"""The quotas of a server's state: what JFLOW_QUOTAS says, and how much of the memory by default."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace

from jflow.errors import InvalidArgumentError
from jflow.state.quotas import Quotas
from jflow.task.execution.memory import VARIABLE as MEMORY_VARIABLE
from jflow.task.execution.memory import parse_size

VARIABLE = "JFLOW_QUOTAS"
"""Such as "user=25%,session=2GiB": of the memory of the task's devices, or in bytes."""

USABLE_PERCENT = 90
"""The part of the devices' memory that state may take; of JFLOW_DEVICE_MEMORY it may take all."""

USER_PERCENT = 50
"""The part of that that the state of a user with a token of their own may take."""

_NAMES = [field.name for field in fields(Quotas)]


def quotas_of(memory_bytes: int, environ: Mapping[str, str] = os.environ) -> Quotas:
    """Returns the quotas of a task.

    Args:
      memory_bytes: the memory of its devices; 0 if that is not known.
      environ: the environment.

    Raises:
      InvalidArgumentError: if JFLOW_QUOTAS is malformed.
    """
    quotas = Quotas()
    if memory_bytes:
        part = 100 if environ.get(MEMORY_VARIABLE) else USABLE_PERCENT
        usable = memory_bytes * part // 100
        quotas = Quotas(usable, usable, usable, usable * USER_PERCENT // 100)
    for text in filter(None, environ.get(VARIABLE, "").split(",")):
        name, _, amount = text.partition("=")
        if name.strip() not in _NAMES:
            raise InvalidArgumentError(
                f"{VARIABLE} must have quotas such as user=25% or session=2GiB, of "
                f"{', '.join(_NAMES)}, between commas; got {text!r}"
            )
        quotas = replace(quotas, **{name.strip(): _bytes(text, amount.strip(), memory_bytes)})
    return quotas


def _bytes(text: str, amount: str, memory_bytes: int) -> int:
    """Returns the bytes of a quota that is given in bytes or percent."""
    if not amount.endswith("%"):
        return parse_size(amount, f"{VARIABLE}, {text!r},")
    try:
        percent = float(amount[:-1])
    except ValueError:
        percent = 0.0
    if not 0 < percent <= 100:
        raise InvalidArgumentError(
            f"{VARIABLE}: expected more than 0% and up to 100%, got {text!r}"
        )
    if not memory_bytes:
        raise InvalidArgumentError(
            f"{VARIABLE}: {text!r} is a part of the memory of the devices, which is not known; "
            "give bytes, or set JFLOW_DEVICE_MEMORY"
        )
    return int(memory_bytes * percent / 100)

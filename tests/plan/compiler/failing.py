"""The work of a process that compiles, where some programs fail in ways that XLA seldom does."""

from __future__ import annotations

import os
import signal

from jflow.plan.apart.messages import ApartMessage, MessageKind
from jflow.plan.compiler.requests import decoded
from jflow.plan.compiler.work import NOT_SERIALIZABLE, prepare
from jflow.plan.compiler.work import answer as compiled

__all__ = ["CRASHES", "ENDLESS", "UNSERIALIZABLE", "answer", "prepare"]

CRASHES = 101
"""The size of the first argument of programs that crash the process."""
ENDLESS = 102
"""… of those that are compiled for ever."""
UNSERIALIZABLE = 103
"""… of those that were compiled, and cannot be passed on."""


def answer(data: bytes) -> ApartMessage:
    """As of the process that servers have, except for these sizes."""
    reply = compiled(data)
    request = decoded(data)
    size = request.exported.in_avals[0].size if request and request.exported.in_avals else 0
    if size == CRASHES:
        os.kill(os.getpid(), signal.SIGSEGV)
    if size == ENDLESS:
        signal.pause()
    if size == UNSERIALIZABLE:
        return ApartMessage(MessageKind.REFUSED, flags=NOT_SERIALIZABLE)
    return reply

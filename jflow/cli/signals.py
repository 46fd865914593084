"""The signals that end a command which runs until then: Ctrl-C, and what `kill` sends."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

STOPPING = (signal.SIGINT, signal.SIGTERM)
_POLL_S = 0.2


def wait_for_signal() -> NoReturn:
    """Waits in the main thread until a handler raises.

    A signal that arrives between Python's last look for one and a wait without an end would be
    handled only after that wait, so this one ends again and again.
    """
    while True:
        time.sleep(_POLL_S)


@contextmanager
def interrupted() -> Iterator[None]:
    """A block that a signal ends by KeyboardInterrupt; a second one ends the process at once.

    The handlers of the caller are put back at the end. Only the main thread may enter the block.
    """

    def interrupt(_: int, __: FrameType | None) -> None:
        for number in STOPPING:
            signal.signal(number, signal.SIG_DFL)
        raise KeyboardInterrupt

    former = {number: signal.signal(number, interrupt) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)

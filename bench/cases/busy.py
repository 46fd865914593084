"""Small steps while other processes keep every core busy, over each transport."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from bench.cases.remote import raw_channel
from bench.cases.transports import TRANSPORTS, steps
from bench.timing import alternate, tell

N_FOR_EACH_CORE = 2
FIGURES = ("constant", "assign_add", "scalar of another task")


@contextmanager
def busy() -> Iterator[None]:
    """Processes that compute without end, more than there are cores."""
    command = [sys.executable, "-S", "-c", "while True: pass"]
    n = N_FOR_EACH_CORE * (os.cpu_count() or 1)
    started = [subprocess.Popen(command) for _ in range(n)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


if __name__ == "__main__":
    with ExitStack() as stack:
        echo = stack.enter_context(raw_channel()).unary_unary("/raw/echo")
        calls: dict[str, Callable[[], Any]] = {"raw unary echo": lambda: echo(b"x" * 100)}
        for transport in TRANSPORTS:
            small, _ = steps(stack, transport)
            names = [f"{transport}: {figure}" for figure in FIGURES]
            calls |= {name: small[name] for name in names}
        stack.enter_context(busy())
        times = alternate(calls, n=50)
        tell({f"{name}, busy machine": value for name, value in times.items()})

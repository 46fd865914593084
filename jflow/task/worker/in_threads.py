"""`in_threads`: runs the steps of a kernel that may have to wait for a disk in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from concurrent.futures import Executor
from contextlib import suppress

from jflow.base.drivers.coroutines import retrieve
from jflow.state.resources.kernel import Wanted


def in_threads(
    work: Generator[Wanted, None, None], threads: Executor
) -> Generator[Wanted | Awaitable[None], None, None]:
    """Wraps a kernel's generator, so that each of its steps runs in a thread."""
    wanted: list[Wanted | None] = []
    try:
        while True:
            yield _next_in_thread(work, wanted, threads)
            attempt = wanted.pop()
            if attempt is None:
                return
            yield attempt
    finally:
        work.close()


async def _next_in_thread(
    work: Generator[Wanted, None, None], wanted: list[Wanted | None], threads: Executor
) -> None:
    """Resumes `work` in a thread; appends what it waits for next, or None at its end."""
    going = asyncio.get_running_loop().run_in_executor(threads, next, work, None)
    try:
        wanted.append(await asyncio.shield(going))
    except asyncio.CancelledError:
        while not going.done():  # a running generator cannot be closed
            with suppress(asyncio.CancelledError):  # raised once, below
                await asyncio.wait([going])
        retrieve(going)
        raise

"""`all_of`: waits for several awaitables, or for the first error of one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any


async def all_of(awaitables: Iterable[Awaitable[Any]]) -> list[Any]:
    """Results of all awaitables. The first error cancels the others and is the only one raised."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

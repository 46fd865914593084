"""Steps of kernels in threads: what a read leaves behind that fails after a cancellation."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jflow.errors import DataLossError
from jflow.task.worker.in_threads import in_threads
from jflow.testing import PATIENCE_S


def test_a_read_that_fails_after_its_step_was_cancelled_is_not_logged() -> None:
    reading, end = threading.Event(), threading.Event()
    unseen: list[dict[str, Any]] = []

    def work() -> Generator[Any, None, None]:
        reading.set()
        assert end.wait(PATIENCE_S)
        raise DataLossError("a record is damaged")
        yield

    async def cancel(threads: ThreadPoolExecutor) -> None:
        steps: Any = in_threads(work(), threads)  # kept: it closes what reads when it is dropped
        step = asyncio.ensure_future(next(steps))
        while not reading.is_set():
            await asyncio.sleep(0.001)
        step.cancel()
        await asyncio.sleep(0)
        end.set()
        with pytest.raises(asyncio.CancelledError):
            await step
        steps.close()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unseen.append(context))
        with ThreadPoolExecutor(1) as threads:
            await cancel(threads)
        gc.collect()

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
    assert unseen == []

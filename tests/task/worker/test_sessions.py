"""The worker as several callers use it."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from jflow.base.cluster import Device, Task
from jflow.errors import AbortedError
from jflow.plan import Feed, Fetch, Plan
from jflow.task.execution import local_devices
from jflow.task.worker import Worker

TASK = Task("worker", 0)
PLAN = Plan(Device(TASK, "CPU", 0), 1, (), ((Feed(0, 0), Fetch(0, 0)),))


def test_what_a_caller_registered_is_forgotten_when_it_goes():
    async def check():
        with ThreadPoolExecutor(1) as threads:
            worker = Worker(TASK, local_devices(TASK), None, threads)
            one, other = worker.open_session(), worker.open_session()
            sessions = (worker, one, other)
            handles = [(await each.register([PLAN], {})).handle for each in sessions]
            assert len(set(handles)) == 3
            one.close()
            feeds = [np.arange(3.0)]
            for session, handle in zip(sessions, handles, strict=True):
                if session is one:
                    with pytest.raises(AbortedError, match=f"registered plans {handle}"):
                        await other.run_plans(1, handle, feeds)
                else:
                    (got,) = await session.run_plans(1, handle, feeds)
                    np.testing.assert_array_equal(got, feeds[0])
            one.close()

    asyncio.run(check())


def test_callers_share_the_state_of_the_task():
    with ThreadPoolExecutor(1) as threads:
        worker = Worker(TASK, local_devices(TASK), None, threads)
        session = worker.open_session()
        assert session.containers is worker.containers
        assert session.programs is worker.programs

"""Servers that do no work: tests say what their workers answer, and see what they were asked."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter

import numpy as np

from jflow.base.cluster import ClusterSpec, Device, Task
from jflow.base.deadline import FOREVER, deadline
from jflow.base.drivers import LoopDriver
from jflow.net.protocol import DeviceRecord, OwnTask, Registered, ServerInfo, UnregisteredError
from jflow.net.protocol.signatures import rpc_of
from jflow.plan import Feed, Fetch, Plan
from jflow.state.core import TaskMembers
from jflow.state.fencing import Fences
from jflow.state.members import MemberList
from jflow.state.moves import Gate
from jflow.task.master import Master
from jflow.testing import PATIENCE_S, VirtualClock

OWN, PS, OTHER = Task("worker", 0), Task("ps", 0), Task("worker", 1)
CLUSTER = ClusterSpec({"ps": ["h:1"], "worker": ["h:2", "h:3"]})


def plan(task, n_fetches=0, feeds=(), fetches=()):
    """A plan that takes and gives the values of these indices."""
    steps = (*(Feed(index, 0) for index in feeds), *(Fetch(0, index) for index in fetches))
    return Plan(Device(task, "CPU", 0), 1, (), (steps,))


class Worker:
    """The worker of one task, called over the wire or not.

    Attributes:
      script: async functions to call for "register", "run" and "reset" instead of answering.
      calls: what it was asked, without incarnations.
      handles: what is registered now.
      started, cancelled: how many scripted calls have begun and were cancelled.
      stuck: the error of what is for a device that is stuck; None if none is.
    """

    def __init__(self, task):
        self.task = task
        self.script = {}
        self.calls = []
        self.handles = set()
        self.started = self.cancelled = 0
        self.stuck = None

    async def register(self, plans, artifacts, is_restartable=False, owner=None):
        self.calls.append(("register", plans, dict(artifacts)))
        registered = await self._scripted("register", plans, artifacts)
        if registered is None:
            registered = Registered(100 + len(self.calls))
        if registered.handle:
            self.handles.add(registered.handle)
        return registered

    def check_devices(self, handle):
        if self.stuck is not None and handle in self.handles:
            raise self.stuck

    async def run_plans(self, step, handle, feeds, client=None, records=None, staging=None):
        self.calls.append(("run", step, handle, list(feeds)))
        answer = await self._scripted("run", step, handle, feeds)
        return [] if answer is None else answer

    async def reset(self, containers):
        self.calls.append(("reset", containers))
        await self._scripted("reset", containers)

    def begin_plans(self, step, handle, feeds, staging=None):
        return None

    def release(self, handle):
        self.calls.append(("release", handle))
        self.handles.discard(handle)

    async def _scripted(self, name, *args):
        if name not in self.script:
            return None
        self.started += 1
        try:
            return await self.script[name](*args)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    def requested(self, name):
        """The calls of that name."""
        return [call for call in self.calls if call[0] == name]


class Peer:
    """A worker at the other end of the wire; `incarnation` is its present life.

    Attributes:
      connection: the number of the connection; with it ends what was registered over it.
      cut_before_run: how many calls of `run` find that the connection has just ended.
    """

    is_direct = False

    def __init__(self, worker):
        self.worker = worker
        self.connection = 1
        self.cut_before_run = 0
        self.incarnation = 1000 + worker.task.index
        self.timeouts = []
        self.unavailable = None

    async def connect(self, connect_timeout, deadline=FOREVER, *, is_lost=False):
        self.timeouts.append(connect_timeout)
        await asyncio.sleep(0)
        if self.unavailable is not None:
            raise self.unavailable
        return info(self.worker.task, self.incarnation)

    def _check(self, incarnation):
        assert incarnation == self.incarnation
        if self.unavailable is not None:
            raise self.unavailable

    async def register(self, incarnation, plans, artifacts, is_restartable=False, owner=None):
        await asyncio.sleep(0)
        self._check(incarnation)
        return await self.worker.register(plans, artifacts, is_restartable, owner)

    def check_devices(self, handle):
        """See the worker."""

    def cut(self):
        """Ends the connection, and with it what was registered over it."""
        self.connection += 1
        self.worker.handles.clear()

    async def run_plans(
        self,
        incarnation,
        step,
        handle,
        feeds,
        client=None,
        records=None,
        staging=None,
        connection=None,
    ):
        await asyncio.sleep(0)
        self._check(incarnation)
        if self.cut_before_run:
            self.cut_before_run -= 1
            self.cut()
        if connection != self.connection:
            raise UnregisteredError("it was cut off", task=str(self.worker.task))
        assert handle in self.worker.handles
        return await self.worker.run_plans(step, handle, feeds)

    async def call(self, method, incarnation, *args):
        self._check(incarnation)
        return await rpc_of(method).method(self.worker)(*args)

    async def release(self, incarnation, handle):
        await asyncio.sleep(0)
        self._check(incarnation)
        self.worker.release(handle)


def info(task, incarnation):
    """What a server of the cluster tells about itself."""
    devices = (DeviceRecord(Device(task, "CPU", 0), "cpu", incarnation),)
    return ServerInfo(task, incarnation, CLUSTER, devices, 0)


class Servers:
    """A master beside its own worker, and two other tasks."""

    def __init__(self):
        self.workers = {task: Worker(task) for task in (OWN, PS, OTHER)}
        self.peers = {task: Peer(self.workers[task]) for task in (PS, OTHER)}
        own = OwnTask(lambda: info(OWN, 1), self.workers[OWN])
        tasks = {OWN: own} | self.peers
        members = TaskMembers(OWN, MemberList.first(CLUSTER), tasks, LoopDriver(), None, None)
        gate = Gate(LoopDriver())
        self.master = Master(lambda: info(OWN, 1), tasks, members, gate, Fences())

    @property
    def handles(self):
        """How many handles are registered on each task."""
        counts = Counter({task: len(worker.handles) for task, worker in self.workers.items()})
        return +counts

    def script(self, name, function, *tasks):
        """Makes tasks, or all of them, answer a call in this way."""
        for task in tasks or self.workers:
            self.workers[task].script[name] = function

    async def registered(self, session, *plans, n_fetches=0):
        """The handle of a step."""
        answer = await session.register(plans, n_fetches, {}, 5.0)
        assert answer.handle
        return answer.handle


def check(use):
    """Runs `use(servers)` on a loop in virtual time; nothing may go on after it, or fail unseen."""
    unseen, clock = [], VirtualClock()

    async def main():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unseen.append(context))
        async with asyncio.timeout(PATIENCE_S) as limit:
            await use(Servers())
        assert not limit.expired(), "it waited for what did not come"
        await idle()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        gc.collect()

    with clock.installed(deadline):
        clock.run(main())
    assert unseen == []


async def idle():
    """Lets everything run that can run."""
    for _ in range(20):
        await asyncio.sleep(0)


async def forever(*_):
    """An answer that never comes."""
    await asyncio.Event().wait()


def answers(*values):
    """A script that gives these values."""

    async def answer(*_):
        return [np.float32(value) for value in values]

    return answer


def fails(error):
    """A script that raises an error."""

    async def fail(*_):
        raise error

    return fail


async def until(condition):
    """Waits until something is true."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0)

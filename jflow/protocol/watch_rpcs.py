"""The RPCs of watchers of a cluster, for the table in `rpcs.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from jflow.cluster import Task
from jflow.errors import InvalidArgumentError
from jflow.protocol.rpc import Incoming, Outgoing, Rpc
from jflow.protocol.services import MasterSession, WorkerSession
from jflow.protocol.v1 import service_pb2 as pb
from jflow.values import Array
from jflow.watch import SessionWaits, StatusRequest, TaskReport, TaskState

# Of the worker ----------------------------------------------------------------------------------


def _inspect(request: StatusRequest) -> Outgoing:
    return pb.Inspect(request=request.to_bytes()), ()


async def _inspected(worker: WorkerSession, request: StatusRequest) -> bytes:
    return worker.watched.inspect(request).to_bytes()


async def _serve_inspect(worker: WorkerSession, call: Incoming) -> Outgoing:
    request = StatusRequest.from_bytes(call.envelope.inspect.request)
    return pb.Inspected(status=await _inspected(worker, request)), ()


def _status(message: pb.Inspected, _: list[Array]) -> bytes:
    return message.status


INSPECT = Rpc(
    "inspect",
    _inspect,
    _serve_inspect,
    _status,
    "inspected",
    method=lambda worker: partial(_inspected, worker),
)


def _stop() -> Outgoing:
    return pb.Stop(), ()


async def _stopped(worker: WorkerSession) -> None:
    worker.watched.stop()


async def _serve_stop(worker: WorkerSession, _: Incoming) -> Outgoing:
    await _stopped(worker)
    return None, ()


def _nothing(_: Any, __: list[Array]) -> None:
    """The result of an RPC that returns nothing."""


STOP = Rpc("stop", _stop, _serve_stop, _nothing, method=lambda worker: partial(_stopped, worker))

# Of the master ----------------------------------------------------------------------------------


def _inspect_tasks(request: StatusRequest, tasks: Sequence[Task], seconds: float) -> Outgoing:
    names = [str(task) for task in tasks]
    return pb.InspectTasks(request=request.to_bytes(), tasks=names, seconds=seconds), ()


async def _serve_inspect_tasks(session: MasterSession, call: Incoming) -> Outgoing:
    body = call.envelope.inspect_tasks
    request = StatusRequest.from_bytes(body.request)
    tasks = [_task(name) for name in body.tasks]
    return _to_proto(await session.watch.inspect(request, tasks, body.seconds))


def _task(name: str) -> Task:
    try:
        return Task.parse(name)
    except ValueError as error:
        raise InvalidArgumentError(str(error)) from None


def _to_proto(reports: Sequence[TaskReport]) -> Outgoing:
    """The reports as a message, and what the tasks that are up say as tensors."""
    message = pb.TaskReports(
        reports=[
            pb.TaskReport(
                task=str(one.task), address=one.address, state=one.state.value, reason=one.reason
            )
            for one in reports
        ]
    )
    is_up = [one for one in reports if one.state is TaskState.UP]
    return message, [np.frombuffer(one.status, np.uint8) for one in is_up]


def _reports(message: pb.TaskReports, tensors: list[Array]) -> list[TaskReport]:
    return list(_read(message, tensors))


def _read(message: pb.TaskReports, tensors: list[Array]) -> Iterator[TaskReport]:
    unread = iter(tensors)
    for one in message.reports:
        state = TaskState(one.state)
        status = next(unread, None) if state is TaskState.UP else b""
        if status is None:
            raise ValueError(f"it says nothing of {one.task}, which is up")
        yield TaskReport(Task.parse(one.task), one.address, state, one.reason, bytes(status))


INSPECT_TASKS = Rpc(
    "inspect_tasks",
    _inspect_tasks,
    _serve_inspect_tasks,
    _reports,
    "task_reports",
    lambda _: "inspecting the cluster",
)


def _stop_tasks(tasks: Sequence[Task], seconds: float) -> Outgoing:
    return pb.StopTasks(tasks=[str(task) for task in tasks], seconds=seconds), ()


async def _serve_stop_tasks(session: MasterSession, call: Incoming) -> Outgoing:
    body = call.envelope.stop_tasks
    return _to_proto(await session.watch.stop([_task(name) for name in body.tasks], body.seconds))


STOP_TASKS = Rpc(
    "stop_tasks",
    _stop_tasks,
    _serve_stop_tasks,
    _reports,
    "task_reports",
    lambda _: "stopping tasks",
)


def _find_waits() -> Outgoing:
    return pb.FindWaits(), ()


async def _serve_find_waits(session: MasterSession, _: Incoming) -> Outgoing:
    return pb.FoundWaits(found=(await session.find_waits()).to_bytes()), ()


def _found_waits(message: pb.FoundWaits, _: list[Array]) -> SessionWaits:
    return SessionWaits.from_bytes(message.found)


FIND_WAITS = Rpc(
    "find_waits",
    _find_waits,
    _serve_find_waits,
    _found_waits,
    "found_waits",
    lambda _: "finding what calls wait for",
)

"""Runs a process of a program by its role: chief, worker, parameter server or evaluator."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from jflow.base.cluster import Task
from jflow.launch.readiness import CONNECT_S, ChiefWatch, stop_others, wait_for_tasks
from jflow.launch.role import ProgramRole
from jflow.net.wire import connect
from jflow.task.server import Server
from jflow.task.server.loop import exempt_from_collection

T = TypeVar("T")

_LOG = logging.getLogger(__name__)
_PATIENCE_S = 5.0
"""How long a failed worker's server may take to stop once the program is over, in seconds."""
_POLL_S = 0.2


class RoleOfTask(NamedTuple):
    """A process's role, its task, the chief, and the time limit of waits."""

    role: ProgramRole
    own: Task
    chief: Task
    timeout: float


def run_chief(main: Callable[[ProgramRole], T], assigned: RoleOfTask) -> T:
    """Runs the chief: serves, waits for all tasks, calls `main`, and stops the other tasks."""
    with _server(assigned) as server:
        client = connect(server.target, CONNECT_S)
        try:
            wait_for_tasks(client, assigned.timeout)
            return main(assigned.role)
        finally:
            stop_others(client, assigned.role.cluster_spec, assigned.own)
            client.close()


def run_worker(function: Callable[[ProgramRole], T] | None, assigned: RoleOfTask) -> T | None:
    """Runs another task: serves until the chief is done, and calls `function` if there is one."""
    result = None
    with _server(assigned) as server, _watch(assigned, is_served=True) as watch:
        ending = threading.Thread(target=_end_with, args=(server, watch), daemon=True)
        ending.start()
        if function is None:
            exempt_from_collection()
        else:
            try:
                result = function(assigned.role)
            except Exception as error:
                if not server.join(_PATIENCE_S):
                    raise
                if watch.error is not None:
                    raise watch.error from error
                _LOG.info("%s ends with the chief: %s", assigned.own, error)
        server.join()
        ending.join()
        if watch.error is not None:
            raise watch.error
    return result


def _server(assigned: RoleOfTask) -> Server:
    return Server(assigned.role.cluster_spec, assigned.own.job, assigned.own.index)


def _watch(assigned: RoleOfTask, *, is_served: bool) -> ChiefWatch:
    """Watches the chief; sets `done` of the role when the program is over."""
    role, own, chief, limit = assigned
    return ChiefWatch(own, role.cluster_spec, chief, limit, role.done, is_served=is_served)


def _end_with(server: Server, watch: ChiefWatch) -> None:
    """Closes the watch when the server stops, and stops the server when the watch gives up."""
    while not server.join(_POLL_S):
        if watch.over.is_set():
            server.stop()
    watch.close()


def run_evaluator(function: Callable[[ProgramRole], T] | None, assigned: RoleOfTask) -> T:
    """Runs an evaluator, which serves nothing."""
    role, own = assigned.role, assigned.own
    if function is None:
        raise ValueError(
            f"this process is {own} by {role.source}, and the program has no part for it; give "
            "jflow.run a function as evaluator, or start no evaluator"
        )
    with _watch(assigned, is_served=False) as watch:
        result = function(role)
        if watch.error is not None:
            raise watch.error
    return result

"""`jflow up`: a cluster on this machine, in the foreground."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from jflow.base.cluster import Task
from jflow.base.logs import LogOptions
from jflow.cli.dashboard.command import served
from jflow.cli.output import say
from jflow.cli.server_options import add_server_options, add_sizes, set_variables
from jflow.cli.signals import interrupted

if TYPE_CHECKING:
    from jflow.launch import LocalCluster

_POLL_S = 0.1
_RESTART_S = 1.0
"""The least time between two restarts of a task, in seconds."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to those of `jflow`."""
    up = commands.add_parser("up", help="starts a cluster on this machine, until Ctrl-C or SIGTERM")
    add_sizes(up)
    up.add_argument(
        "--restart",
        action="store_true",
        help="start a task again at its address if it was killed or failed; its state is lost",
    )
    up.add_argument(
        "--logs",
        type=Path,
        metavar="DIR",
        help="where each task has a file for what it logs (default: the terminal)",
    )
    add_server_options(up)
    up.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="threads that each task computes with on the CPU (default: one for each core)",
    )
    up.add_argument(
        "--cpu-devices",
        type=int,
        metavar="N",
        help="as how many devices each task uses the CPU, for meshes (default: one)",
    )
    up.add_argument(
        "--visible-devices",
        metavar="GPUS",
        help="GPUs that the workers divide, between commas (default: all; '' for none)",
    )
    up.add_argument(
        "--gpu-memory-fraction",
        type=float,
        metavar="PART",
        help="part of a GPU's memory that each worker on it takes (default: 0.75, divided by them)",
    )
    up.add_argument(
        "--metrics",
        type=int,
        metavar="PORT",
        help="the metrics of each task for Prometheus, at the first free ports from PORT on",
    )
    up.add_argument(
        "--dashboard", action="store_true", help="serve the page of `jflow dashboard` as well"
    )
    up.set_defaults(run=_up)


def _up(options: argparse.Namespace) -> int:
    from jflow.launch import LocalCluster, TaskResources  # noqa: PLC0415 - watchers need none
    from jflow.net.wire.running_ups import announced  # noqa: PLC0415 - as above

    for name in ("ps", "workers"):
        if getattr(options, name) < 0:
            raise ValueError(f"--{name} must be at least 0, got {getattr(options, name)}")
    metrics = None if options.metrics is None else f"{options.metrics}+"
    set_variables(options, JFLOW_METRICS=metrics)
    LogOptions.of()  # refuses variables that the tasks would refuse
    if options.logs is not None:
        _make_folder(options.logs)
    try:
        with (
            interrupted(),
            LocalCluster(
                options.ps,
                options.workers,
                logs=options.logs,
                on_ready=_say_ready,
                resources=TaskResources(
                    options.threads,
                    _names(options.visible_devices),
                    options.gpu_memory_fraction,
                    options.cpu_devices,
                ),
            ) as cluster,
            _page(cluster, is_wanted=options.dashboard) as page,
            announced(_targets(cluster), options.logs, page),
        ):
            return Foreground(cluster, restarts=options.restart).run_cluster()
    except KeyboardInterrupt:
        return 0


def _targets(cluster: LocalCluster) -> list[str]:
    return [cluster.target(task.job, task.index) for task in cluster.tasks]


@contextmanager
def _page(cluster: LocalCluster, *, is_wanted: bool) -> Iterator[str]:
    """A block in which the page of a cluster is served if it is wanted; yields its URL."""
    if not is_wanted:
        yield ""
        return
    with served(_targets(cluster)) as url:
        say(f"the page is at {url}")
        yield url


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


class Foreground:
    """Watches the processes of a cluster until they have ended.

    Args:
      cluster: the cluster.
      restarts: whether it starts tasks again whose processes were killed or failed; it always
        starts those again that have ended because they were stuck.
    """

    def __init__(self, cluster: LocalCluster, *, restarts: bool) -> None:
        self._cluster = cluster
        self._restarts = restarts
        self._codes: dict[Task, int] = {}
        self._restarted: dict[Task, float] = {}

    def run_cluster(self) -> int:
        """Waits until no task runs; returns the exit code, 0 if all were stopped by request."""
        while len(self._codes) < len(self._cluster.tasks):
            for task in self._cluster.tasks:
                if task not in self._codes:
                    self._look(task)
            time.sleep(_POLL_S)
        return 1 if any(self._codes.values()) else 0

    def _look(self, task: Task) -> None:
        from jflow.task.server.stuck import STUCK_EXIT_CODE  # noqa: PLC0415 - watchers need none

        code = self._cluster.exit_code(task.job, task.index)
        if code is None:
            return
        how = f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        if not code:
            say(f"{task} has stopped")
        elif not self._restarts and code != STUCK_EXIT_CODE:
            say(f"{task} {how}; its state is lost", is_error=True)
        elif time.monotonic() < self._restarted.get(task, 0.0) + _RESTART_S:
            return
        else:
            say(f"{task} {how} and is started again", is_error=True)
            self._cluster.restart(task.job, task.index)
            self._restarted[task] = time.monotonic()
            address = self._cluster.cluster_spec.task_address(task.job, task.index)
            _say_ready(str(task), f"grpc://{address}")
            return
        self._codes[task] = code


def _say_ready(task: str, target: str) -> None:
    say(f"{task} is ready at {target}")


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--logs: {path} cannot be made: {error}") from error
    if not os.access(path, os.W_OK):
        raise ValueError(f"--logs: {path} cannot be written to")

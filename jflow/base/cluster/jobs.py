"""The variables JFLOW_JOBS and JFLOW_PORT, for engines that only number processes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jflow.base.cluster.address import DEFAULT_PORT, join_address
from jflow.base.cluster.device import Task
from jflow.base.cluster.spec import ClusterSpec

JOBS_VARIABLE = "JFLOW_JOBS"
"""The variable with the number of tasks of each job, such as "ps=1,worker=2"."""
PORT_VARIABLE = "JFLOW_PORT"
"""The variable with the port of tasks; of several on one host, that of the first."""
DEFAULT_JOB = "worker"
"""The job of all processes if nothing says which jobs there are."""

_JOB = re.compile(r"([A-Za-z][A-Za-z0-9_\-]*)=([0-9]{1,6})")
_MAX_PORT = 65535


class PlacedProcess(NamedTuple):
    """A cluster, and the task of this process in it; None if it has none."""

    cluster: ClusterSpec
    task: Task | None


def parse_jobs(text: str, source: str = JOBS_VARIABLE) -> dict[str, int]:
    """Parses a text such as "ps=1,worker=2" to the number of tasks of each job.

    Raises:
      ValueError: if it is malformed, has a job twice, or has no task at all.
    """
    jobs: dict[str, int] = {}
    for part in text.split(","):
        match = _JOB.fullmatch(part.strip())
        if match is None:
            raise ValueError(
                f"{source} must be jobs with their numbers of tasks, such as 'ps=1,worker=2', got "
                f"{text!r}"
            )
        if match[1] in jobs:
            raise ValueError(f"{source} has the job {match[1]!r} twice: {text!r}")
        jobs[match[1]] = int(match[2])
    if not any(jobs.values()):
        raise ValueError(f"{source} has no task: {text!r}")
    return {job: n for job, n in sorted(jobs.items()) if n}


def told_jobs(environ: Mapping[str, str]) -> dict[str, int] | None:
    """Returns the jobs in JFLOW_JOBS; None if it is not set. Raises ValueError as `parse_jobs`."""
    text = environ.get(JOBS_VARIABLE)
    return parse_jobs(text) if text else None


def told_port(environ: Mapping[str, str], default: int = DEFAULT_PORT) -> int:
    """Returns the port in JFLOW_PORT, or the default. Raises ValueError if it is malformed."""
    port = parse_number(PORT_VARIABLE, environ.get(PORT_VARIABLE) or str(default))
    if not 0 < port <= _MAX_PORT:
        raise ValueError(f"{PORT_VARIABLE} must be a number from 1 to {_MAX_PORT}, got {port}")
    return port


def parse_number(name: str, text: str) -> int:
    """Parses a variable as a number, 0 or more. Raises ValueError if it is malformed."""
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{name} must be a number, got {text!r}")
    return int(text)


def check_enough(jobs: Mapping[str, int], n_processes: int, engine: str, repair: str) -> None:
    """Raises RuntimeError if an engine has started fewer processes than there are tasks.

    Args:
      jobs: how many tasks each job has.
      n_processes: how many processes there are.
      engine: what has started them.
      repair: what makes it start more.
    """
    n_tasks = sum(jobs.values())
    if n_tasks > n_processes:
        raise RuntimeError(
            f"the jobs {dict(jobs)} need {n_tasks} processes, and {engine} has started "
            f"{n_processes}; {repair}, or lower the numbers ({JOBS_VARIABLE})"
        )


def numbered_tasks(jobs: Mapping[str, int]) -> list[Task]:
    """Returns the task of each process number: the jobs by name, one after the other."""
    return [Task(job, index) for job in sorted(jobs) for index in range(jobs[job])]


def place_ranks(
    jobs: Mapping[str, int], hosts: Sequence[str], port: int, rank: int | None
) -> PlacedProcess:
    """Builds the cluster of processes that an engine has numbered, and finds this one's task.

    Args:
      jobs: how many tasks each job has, at most one for each process.
      hosts: the host of each process, by its number.
      port: that of the first task on a host; the next ones follow.
      rank: the number of this process; None if it is none of them.
    """
    tasks = numbered_tasks(jobs)
    n_on: dict[str, int] = {}
    addresses: dict[str, dict[int, str]] = {}
    for task, host in zip(tasks, hosts, strict=False):
        address = join_address(host, port + n_on.get(host, 0))
        n_on[host] = n_on.get(host, 0) + 1
        addresses.setdefault(task.job, {})[task.index] = address
    own = tasks[rank] if rank is not None and rank < len(tasks) else None
    return PlacedProcess(ClusterSpec(addresses), own)

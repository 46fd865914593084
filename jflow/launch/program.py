"""`run`: one program for all tasks of a cluster; the environment gives a process its role."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TypeVar

from jflow.base.cluster import ClusterSpec, Task
from jflow.base.cluster.membership import EVALUATOR, Membership, find_membership, is_client
from jflow.base.cluster.role import LOCAL_MASTER, n_tasks
from jflow.launch.role import ProgramRole, role_of

T = TypeVar("T")

_JOBS = ("chief", "master", "worker", "ps", EVALUATOR)
"""The jobs that a program may have; "master" is an older name of "chief"."""
_ALONE = Membership("", ClusterSpec({}), None)


def run(
    main: Callable[[ProgramRole], T],
    *,
    worker: Callable[[ProgramRole], T] | None = None,
    evaluator: Callable[[ProgramRole], T] | None = None,
    cluster: ClusterSpec | Mapping[str, object] | None = None,
    job_name: str | None = None,
    task_index: int | None = None,
    timeout: float = 300.0,
    environ: Mapping[str, str] = os.environ,
) -> T | None:
    """Runs the role of this process in a program that is started on every machine of a cluster.

    The role follows from the arguments, or TF_CONFIG, Open MPI, Slurm or Kubernetes, in this order;
    `jflow doctor` shows it. The chief, the task of the job "chief" or else worker 0, waits until
    all tasks respond, calls `main`, and stops them. Workers and tasks of the job "ps" serve until
    then. A process of no cluster, or with JFLOW_ROLE=client, calls `main` and serves nothing. If
    the chief is killed, the others wait for it again.

    Args:
      main: called with the role of the chief; `role.master` is the target for its sessions.
      worker: the same for workers, beside their servers. Errors caused by the end of the chief are
        ignored.
      evaluator: the same for an evaluator, which is none of the tasks.
      cluster: the cluster, if the program knows it.
      job_name, task_index: the task of this process, if the program knows it.
      timeout: how long the chief waits for the others, and they for it, in seconds. After 10 s of a
        wait a warning says what it is for.
      environ: the environment variables.

    Returns:
      What the function returned; None where none was called.

    Raises:
      ValueError: if the cluster is malformed or has no chief, the task is not in it, nothing says
        which task this process is, or two sources contradict each other.
      DeadlineExceededError: if the chief, or a task that it waits for, is not up in time.
      UnauthenticatedError: if the chief has another token.
      Exception: what the function raises, and as `train.Server`.
    """
    membership = find_membership(environ, _membership_of(cluster, job_name, task_index))
    if membership is None:
        return main(role_of(_ALONE, None, None, LOCAL_MASTER, environ))
    chief = _checked_chief(membership)
    address = membership.cluster.task_address(chief.job, chief.index)
    if is_client(environ):
        return main(role_of(membership, None, chief, f"grpc://{address}", environ))
    task = _checked_task(membership)
    from jflow.launch import tasks  # noqa: PLC0415 - imports gRPC

    own = membership.address or address
    role = role_of(membership, task, chief, f"grpc://{own}", environ)
    assigned = tasks.RoleOfTask(role, task, chief, timeout)
    if task.job == EVALUATOR:
        return tasks.run_evaluator(evaluator, assigned)
    if task == chief:
        return tasks.run_chief(main, assigned)
    return tasks.run_worker(worker if task.job == "worker" else None, assigned)


def _membership_of(
    cluster: ClusterSpec | Mapping[str, object] | None, job: str | None, index: int | None
) -> Membership | None:
    """Returns the membership that the arguments give; None if they give no cluster."""
    if cluster is None:
        if job is not None or index is not None:
            raise ValueError("job_name and task_index need the cluster; give that, too")
        return None
    if index is not None and job is None:
        raise ValueError("task_index needs job_name; give that, too")
    task = None if job is None else Task(job, index or 0)
    return Membership("the arguments", ClusterSpec(cluster), task)


def _checked_chief(membership: Membership) -> Task:
    """Returns the chief of a cluster. Raises ValueError if the cluster cannot run a program."""
    cluster = membership.cluster
    if unknown := [job for job in cluster.jobs if job not in _JOBS]:
        raise ValueError(
            f"{membership.source} has the job {unknown[0]!r}; the jobs of a program are "
            f"{', '.join(_JOBS)}; the cluster is {cluster}"
        )
    chiefs = [task for task in cluster.tasks() if task.job in ("chief", "master")]
    if len(chiefs) > 1:
        raise ValueError(
            f"{membership.source} has more than one chief: {', '.join(map(str, chiefs))}; leave "
            "one of them"
        )
    if chiefs:
        return chiefs[0]
    if not n_tasks(cluster, "worker"):
        raise ValueError(
            f"{membership.source} has neither a chief nor a worker, so no task runs the program; "
            f"add one to the cluster, which is {cluster}"
        )
    return Task("worker", cluster.task_indices("worker")[0])


def _checked_task(membership: Membership) -> Task:
    """Returns this process's task. Raises ValueError if it has none, or one outside the cluster."""
    cluster, task, source = membership.cluster, membership.task, membership.source
    if task is None:
        raise ValueError(
            f"{source} has a cluster, and nothing says which task of it this process is; set "
            'TF_CONFIG["task"], or JFLOW_ROLE=client if it is none of '
            f"{', '.join(map(str, cluster.tasks()))}"
        )
    if task.job != EVALUATOR and task not in set(cluster.tasks()):
        raise ValueError(
            f"this process is {task} by {source}, which is not in the cluster; it has "
            f"{', '.join(map(str, cluster.tasks()))}; correct the task, or add it to the cluster"
        )
    return task

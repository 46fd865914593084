"""`run`: one program for all tasks of a cluster; the environment says which one a process is."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from jflow.base.cluster import ClusterSpec, SimpleClusterResolver, Task, read_tf_config
from jflow.base.cluster.membership import EVALUATOR, Membership, find_membership, is_client
from jflow.base.cluster.role import LOCAL_MASTER, Role, n_tasks

T = TypeVar("T")

_JOBS = ("chief", "master", "worker", "ps", EVALUATOR)
"""The jobs that a program may have; "master" is an older name of "chief"."""
_ALONE = Membership("", ClusterSpec({}), None)


@dataclass(frozen=True)
class ProgramRole(Role):
    """The role of this process in a program that runs on all tasks of a cluster.

    Attributes:
      source: what says it: "the arguments", "TF_CONFIG", "Open MPI", "Slurm", "Kubernetes"; "" for
        a process that belongs to no cluster.
      done: set when the chief is done; for a function that goes on until then, as an evaluator's.
    """

    source: str = ""
    done: threading.Event = field(default_factory=threading.Event, compare=False, repr=False)

    @property
    def resolver(self) -> SimpleClusterResolver:
        """The cluster and this task, for strategies and other users of resolvers."""
        return SimpleClusterResolver(
            self.cluster_spec, self.master, self.task_type, self.task_id, rpc_layer="grpc"
        )


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
    """Runs this process's part of a program that is started on every machine of a cluster.

    What part that is, the arguments say, or TF_CONFIG, Open MPI, Slurm or Kubernetes, in this
    order; `jflow doctor` shows it. The chief, the task of the job "chief" or else worker 0, waits
    until all tasks answer, calls `main`, and stops them. Workers and tasks of the job "ps" serve
    until then. A process of no cluster, or with JFLOW_ROLE=client, calls `main` and serves nothing.
    A chief that is killed is waited for again.

    Args:
      main: called with the role of the chief; `role.master` is the target for its sessions.
      worker: the same for workers, beside their servers. An error that comes because the chief is
        done is no error of the program.
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
      DeadlineExceededError: if the chief, or for it another task, does not come in time.
      UnauthenticatedError: if the chief has another token.
      Exception: what the function raises, and as `train.Server`.
    """
    given = _given(cluster, job_name, task_index)
    membership = find_membership(environ, given)
    if membership is None:
        return main(_role(_ALONE, None, None, LOCAL_MASTER, environ))
    chief = _checked_chief(membership)
    address = membership.cluster.task_address(chief.job, chief.index)
    if is_client(environ):
        return main(_role(membership, None, chief, f"grpc://{address}", environ))
    task = _checked_task(membership)
    from jflow.launch.parts import RoleOfTask, evaluate, follow, lead  # noqa: PLC0415 - imports gRPC

    own = membership.address or address
    role = _role(membership, task, chief, f"grpc://{own}", environ)
    assigned = RoleOfTask(role, task, chief, timeout)
    if task.job == EVALUATOR:
        return evaluate(evaluator, assigned)
    if task == chief:
        return lead(main, assigned)
    return follow(worker if task.job == "worker" else None, assigned)


def _given(
    cluster: ClusterSpec | Mapping[str, object] | None, job: str | None, index: int | None
) -> Membership | None:
    """What the arguments say."""
    if cluster is None:
        if job is not None or index is not None:
            raise ValueError("job_name and task_index need the cluster; give that, too")
        return None
    if index is not None and job is None:
        raise ValueError("task_index needs job_name; give that, too")
    task = None if job is None else Task(job, index or 0)
    return Membership("the arguments", ClusterSpec(cluster), task)


def _checked_chief(membership: Membership) -> Task:
    """The chief of a cluster. Raises ValueError if the cluster cannot run a program."""
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
    """The task of this process. Raises ValueError if it has none, or the cluster does not."""
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


def _role(
    membership: Membership,
    task: Task | None,
    chief: Task | None,
    master: str,
    environ: Mapping[str, str],
) -> ProgramRole:
    """The role of a task, or of a process that is none, with the target for its sessions."""
    cluster = membership.cluster
    n_chiefs = n_tasks(cluster, "chief") + n_tasks(cluster, "master")
    return ProgramRole(
        cluster_spec=cluster,
        task_type=None if task is None else task.job,
        task_id=0 if task is None else task.index,
        master=master,
        evaluation_master=master,
        is_chief=task is None or task == chief,
        num_ps_replicas=n_tasks(cluster, "ps"),
        num_worker_replicas=n_tasks(cluster, "worker") + n_chiefs,
        model_dir=read_tf_config(environ).model_dir,
        source=membership.source,
    )

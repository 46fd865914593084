"""`find_membership`: determines the cluster and the task of a process from its configuration.

The sources are asked in this order, and all that say something have to agree:

1. arguments of the program;
2. TF_CONFIG;
3. Open MPI, in processes of an `mpirun`;
4. Slurm, in processes of an `srun`, unless they belong to an `mpirun`, whose daemons Slurm started;
5. Kubernetes, in pods whose manifest sets JFLOW_JOBS and JFLOW_SERVICE.

An engine that started one process, and was not told jobs (JFLOW_JOBS), says nothing: that is how
shells and single programs are started, too. One that was not told jobs, beside a source that
names them, is compared by how many tasks there are and on which host this one is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations

from jflow.base.cluster.address import split_address
from jflow.base.cluster.config import read_tf_config
from jflow.base.cluster.device import Task
from jflow.base.cluster.jobs import JOBS_VARIABLE
from jflow.base.cluster.kubernetes import SERVICE_VARIABLE, KubernetesClusterResolver
from jflow.base.cluster.open_mpi import OpenMPIClusterResolver
from jflow.base.cluster.resolvers import RankedClusterResolver
from jflow.base.cluster.slurm import SlurmClusterResolver, is_one_of_several
from jflow.base.cluster.spec import ClusterSpec

EVALUATOR = "evaluator"
"""The job of a process that evaluates beside the cluster without being part of it."""
ROLE_VARIABLE = "JFLOW_ROLE"
"""The variable that is "client" in a process that is not a task of the cluster it uses."""
CLIENT = "client"


@dataclass(frozen=True)
class Membership:
    """A cluster, and the task of this process in it, according to one source.

    Attributes:
      source: what says it, such as "TF_CONFIG" or "Slurm".
      cluster: the tasks and their addresses, without the evaluator, which serves nothing.
      task: the task of this process, which may be an evaluator; None if it has none.
      has_jobs: whether the source knows the jobs; else all tasks are taken for workers.
    """

    source: str
    cluster: ClusterSpec
    task: Task | None
    has_jobs: bool = True

    @property
    def address(self) -> str | None:
        """The address of this process; None if it is not a serving task."""
        if self.task is None or self.task not in set(self.cluster.tasks()):
            return None
        return self.cluster.task_address(self.task.job, self.task.index)


@dataclass(frozen=True)
class MembershipSource:
    """A source of configuration that may give the cluster and the task of a process.

    Attributes:
      name: what it is called in messages.
      variables: the beginnings of the names of its environment variables.
      read: what it says; None if it says nothing. Raises ValueError or RuntimeError.
      switch_off: how to make it say nothing, for messages.
    """

    name: str
    variables: tuple[str, ...]
    read: Callable[[Mapping[str, str]], Membership | None]
    switch_off: str


def find_membership(
    environ: Mapping[str, str] = os.environ, known: Membership | None = None
) -> Membership | None:
    """Returns the cluster and the task of this process; None if no source gives a cluster.

    Args:
      environ: the environment variables.
      known: what the program itself says; it may have a cluster and no task.

    Raises:
      ValueError: if a source is malformed, or two of them contradict each other.
    """
    known_memberships = [] if known is None or not known.cluster else [known]
    known_memberships += memberships(environ)
    for one, other in combinations(known_memberships, 2):
        _check_agreement(one, other)
    if not known_memberships:
        return None
    best = next((one for one in known_memberships if one.has_jobs), known_memberships[0])
    task = next(
        (one.task for one in known_memberships if one.task is not None and one.has_jobs), best.task
    )
    return Membership(best.source, best.cluster, task, best.has_jobs)


def memberships(environ: Mapping[str, str]) -> list[Membership]:
    """Returns the memberships that the sources give, in their order.

    Raises:
      ValueError: if one is malformed; it names the source.
    """
    all_memberships = []
    for source in SOURCES:
        try:
            one = source.read(environ)
        except RuntimeError as error:
            raise ValueError(f"{source.name}: {error}") from None
        if one is not None:
            all_memberships.append(one)
    return all_memberships


def is_client(environ: Mapping[str, str]) -> bool:
    """Whether JFLOW_ROLE says that this process is not a task of its cluster.

    Raises:
      ValueError: if it says something else.
    """
    role = environ.get(ROLE_VARIABLE, "")
    if role not in ("", CLIENT):
        raise ValueError(
            f"{ROLE_VARIABLE} may be {CLIENT!r} only, for a program that uses a cluster and is no "
            f"task of it, got {role!r}; tasks are said by TF_CONFIG or by an engine"
        )
    return role == CLIENT


def without_evaluator(cluster: ClusterSpec) -> ClusterSpec:
    """Returns the cluster without its job "evaluator", whose tasks do not serve."""
    if EVALUATOR not in cluster.jobs:
        return cluster
    return ClusterSpec({job: tasks for job, tasks in cluster.as_dict().items() if job != EVALUATOR})


def _check_agreement(one: Membership, other: Membership) -> None:
    """Raises ValueError if two sources contradict each other."""
    for what, mine, theirs in _compared_facts(one, other):
        if mine != theirs:
            raise ValueError(
                f"{one.source} and {other.source} contradict each other: {what} is {mine} by "
                f"{one.source}, and {theirs} by {other.source}; correct one of them, or leave it "
                f"out ({_switch_off_text(one)}; {_switch_off_text(other)})"
            )


def _compared_facts(one: Membership, other: Membership) -> list[tuple[str, object, object]]:
    """Returns the facts that two sources both give: the name, the first's value, the second's."""
    if one.has_jobs and other.has_jobs:
        facts: list[tuple[str, object, object]] = []
        if one.task is not None and other.task is not None:
            facts.append(("the task of this process", str(one.task), str(other.task)))
        mine, theirs = ({*each.cluster.tasks()} for each in (one, other))
        facts += [
            (
                f"the address of {task}",
                one.cluster.task_address(task.job, task.index),
                other.cluster.task_address(task.job, task.index),
            )
            for task in sorted(mine & theirs)
        ]
        return facts
    facts = [("the number of tasks", _n_processes(one), _n_processes(other))]
    if one.address is not None and other.address is not None:
        mine_at, theirs_at = (split_address(at)[0] for at in (one.address, other.address))
        facts.append(("the host of this process", mine_at, theirs_at))
    return facts


def _n_processes(source: Membership) -> int:
    """Returns the number of processes according to a source, counting an evaluator."""
    is_evaluator = source.task is not None and source.task.job == EVALUATOR
    return len(list(source.cluster.tasks())) + is_evaluator


def _switch_off_text(source: Membership) -> str:
    return next(
        (one.switch_off for one in SOURCES if one.name == source.source), "change the arguments"
    )


def _tf_config(environ: Mapping[str, str]) -> Membership | None:
    config = read_tf_config(environ)
    if not config.cluster:
        return None
    task = None if config.job is None else _task_of(config.cluster, config.job, config.index)
    return Membership("TF_CONFIG", without_evaluator(config.cluster), task)


def _task_of(cluster: ClusterSpec, job: str, index: int | None) -> Task:
    """Returns the task in TF_CONFIG; without an index, the only task of its job."""
    if index is None:
        indices = cluster.task_indices(job) if job in cluster.jobs else []
        if len(indices) > 1:
            raise ValueError(
                f'TF_CONFIG["task"] has no index, and job {job!r} has the tasks {indices}; add it'
            )
        index = indices[0] if indices else 0
    return Task(job, index)


def _open_mpi(environ: Mapping[str, str]) -> Membership | None:
    if not is_in_mpirun(environ):
        return None
    if environ.get("OMPI_COMM_WORLD_SIZE") == "1" and not environ.get(JOBS_VARIABLE):
        return None
    return _of_ranks("Open MPI", OpenMPIClusterResolver(environ=environ), environ)


def _slurm(environ: Mapping[str, str]) -> Membership | None:
    if is_in_mpirun(environ) or "SLURM_JOB_NODELIST" not in environ:
        return None
    if not (environ.get(JOBS_VARIABLE) or is_one_of_several(environ)):
        return None
    resolver = SlurmClusterResolver(auto_set_gpu=False, environ=dict(environ))
    return _of_ranks("Slurm", resolver, environ)


def _kubernetes(environ: Mapping[str, str]) -> Membership | None:
    if is_in_mpirun(environ) or not environ.get(SERVICE_VARIABLE):
        return None
    return _of_ranks("Kubernetes", KubernetesClusterResolver(environ=environ), environ)


def is_in_mpirun(environ: Mapping[str, str]) -> bool:
    """Whether a process was started by Open MPI's mpirun."""
    return "OMPI_COMM_WORLD_RANK" in environ


def _of_ranks(name: str, resolver: RankedClusterResolver, environ: Mapping[str, str]) -> Membership:
    cluster, task = resolver.placed()
    return Membership(name, without_evaluator(cluster), task, bool(environ.get(JOBS_VARIABLE)))


SOURCES = (
    MembershipSource("TF_CONFIG", ("TF_CONFIG",), _tf_config, "unset TF_CONFIG"),
    MembershipSource("Open MPI", ("OMPI_COMM_WORLD_",), _open_mpi, "unset OMPI_COMM_WORLD_RANK"),
    MembershipSource("Slurm", ("SLURM_",), _slurm, "unset SLURM_JOB_NODELIST"),
    MembershipSource("Kubernetes", ("JFLOW_SERVICE",), _kubernetes, "unset JFLOW_SERVICE"),
)
"""The sources of memberships in the order of their priority, after the arguments."""

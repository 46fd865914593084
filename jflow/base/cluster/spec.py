"""`ClusterSpec`: the tasks of a cluster and their addresses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jflow.base.cluster.address import join_address, split_address
from jflow.base.cluster.definitions import ClusterDef, JobDef, jobs_of
from jflow.base.cluster.device import Task

_PARAMETER_SERVER = "ps"


class ClusterSpec:
    """The jobs of a cluster and the addresses of their tasks.

    Addresses are normalized to "host:port": an address without a port has port 2222, for the task
    that listens there and for those that connect to it.

    Args:
      cluster: a dict from job name to a list of addresses or to a dict from task index to
        address, a ClusterDef, or another ClusterSpec. An index may be a decimal string, as in
        JSON.

    Raises:
      TypeError: if `cluster` has another type or an address is not a string.
      ValueError: if an address or a task index is malformed, two tasks have one address, or a
        ClusterDef has a job twice.
    """

    def __init__(self, cluster: ClusterSpec | ClusterDef | Mapping[str, object]) -> None:
        self._jobs: dict[str, dict[int, str]]
        if isinstance(cluster, ClusterSpec):
            self._jobs = cluster._jobs
            return
        jobs = cluster if isinstance(cluster, Mapping) else jobs_of(cluster)
        if jobs is None:
            raise TypeError(
                "a cluster is a dict of lists of addresses, such as {'worker': ['host:port']}, a "
                f"dict of dicts, a ClusterDef or a ClusterSpec, got {cluster!r}"
            )
        self._jobs = {job: _addresses(job, tasks) for job, tasks in sorted(jobs.items())}
        _check_distinct(self)

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs, sorted."""
        return list(self._jobs)

    def num_tasks(self, job_name: str) -> int:
        """Returns the number of tasks of a job. Raises ValueError for an unknown job."""
        return len(self._job(job_name))

    def task_indices(self, job_name: str) -> list[int]:
        """Returns the task indices of a job, sorted. Raises ValueError for an unknown job."""
        return list(self._job(job_name))

    def task_address(self, job_name: str, task_index: int) -> str:
        """Returns the address of a task, "host:port". Raises ValueError for an unknown task."""
        try:
            return self._job(job_name)[task_index]
        except KeyError:
            raise ValueError(
                f"job {job_name!r} has no task {task_index}; it has {self.task_indices(job_name)}"
            ) from None

    def job_tasks(self, job_name: str) -> list[str | None]:
        """Returns the addresses of a job by index, None for gaps. Raises as `num_tasks`."""
        tasks = self._job(job_name)
        return [tasks.get(index) for index in range(max(tasks, default=-1) + 1)]

    def as_dict(self) -> dict[str, list[str] | dict[int, str]]:
        """Returns a list per job; a dict by index for a job with missing indices or no tasks."""
        result: dict[str, list[str] | dict[int, str]] = {}
        for job, tasks in self._jobs.items():
            dense = tasks and list(tasks) == list(range(len(tasks)))
            result[job] = list(tasks.values()) if dense else dict(tasks)
        return result

    def as_cluster_def(self) -> ClusterDef:
        """Returns the cluster as a new ClusterDef, with sorted jobs."""
        return ClusterDef([JobDef(job, dict(tasks)) for job, tasks in self._jobs.items()])

    def tasks(self) -> Iterator[Task]:
        """Yields all tasks, sorted by job name and index."""
        for job, tasks in self._jobs.items():
            for index in tasks:
                yield Task(job, index)

    @property
    def state_task(self) -> Task:
        """See `state_task_of`."""
        return state_task_of([*self.tasks()])

    def replace(self, task: Task, address: str) -> ClusterSpec:
        """Returns the cluster with another address for one task."""
        jobs: dict[str, dict[int, str]] = {job: dict(tasks) for job, tasks in self._jobs.items()}
        jobs.setdefault(task.job, {})[task.index] = address
        return ClusterSpec(jobs)

    def _job(self, name: str) -> dict[int, str]:
        try:
            return self._jobs[name]
        except KeyError:
            raise ValueError(f"the cluster has no job {name!r}; it has {self.jobs}") from None

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterSpec) and self._jobs == other._jobs

    def __hash__(self) -> int:
        return hash(tuple((job, tuple(tasks.items())) for job, tasks in self._jobs.items()))

    def __repr__(self) -> str:
        return f"ClusterSpec({self.as_dict()})"


def state_task_of(tasks: Sequence[Task]) -> Task:
    """Returns the task of state without a device request, the same for every master.

    It is the first task of the job "ps", else of the first job by name.

    Args:
      tasks: those of a cluster, sorted; at least one.
    """
    servers = [task for task in tasks if task.job == _PARAMETER_SERVER]
    return (servers or tasks)[0]


def _addresses(job: object, tasks: object) -> dict[int, str]:
    if not isinstance(job, str) or not job:
        raise TypeError(f"expected a string as job name, got {job!r}")
    if isinstance(tasks, Mapping):
        items = [(_index(job, index), address) for index, address in tasks.items()]
    elif isinstance(tasks, Sequence) and not isinstance(tasks, str | bytes):
        items = list(enumerate(tasks))
    else:
        raise TypeError(
            f"the tasks of job {job!r} are a list of addresses or a dict from index to address, "
            f"got {tasks!r}"
        )
    addresses: dict[int, str] = {}
    for index, address in sorted(items, key=lambda item: item[0]):
        if index in addresses:
            raise ValueError(f"job {job!r} has two tasks {index}")
        addresses[index] = _normalize_address(Task(job, index), address)
    return addresses


def _check_distinct(cluster: ClusterSpec) -> None:
    """Raises ValueError if two tasks share an address, unless its port is 0, chosen later."""
    at: dict[str, Task] = {}
    for task in cluster.tasks():
        address = cluster.task_address(task.job, task.index)
        if not address.endswith(":0") and at.setdefault(address, task) != task:
            raise ValueError(
                f"{at[address]} and {task} have one address, {address}; give each task a port of "
                "its own, or leave one of them out"
            )


def _index(job: str, index: object) -> int:
    if isinstance(index, str) and index.isascii() and index.isdigit():
        return int(index)
    if not isinstance(index, int) or isinstance(index, bool) or index < 0:
        raise ValueError(f"a task index of job {job!r} is a number from 0, got {index!r}")
    return index


def _normalize_address(task: Task, address: object) -> str:
    if not isinstance(address, str):
        raise TypeError(f"the address of {task} is not a string: {address!r}")
    try:
        return join_address(*split_address(address))
    except ValueError as error:
        raise ValueError(f"{task}: {error}") from None

"""`ClusterDef` and `JobDef`: a cluster in the shape of TensorFlow's protocol buffers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class JobDef:
    """A job of a `ClusterDef`.

    Attributes:
      name: the name of the job.
      tasks: addresses by task index.
    """

    name: str = ""
    tasks: dict[int, str] = field(default_factory=dict)


class _Jobs(list[JobDef]):
    """A list of jobs with `add`, as the repeated fields of protocol buffers have it."""

    def add(self, name: str = "", tasks: Mapping[int, str] | None = None) -> JobDef:
        """Appends a job and returns it."""
        self.append(JobDef(name, dict(tasks or {})))
        return self[-1]


class ClusterDef:
    """The jobs of a cluster, in the shape of TensorFlow's message; `ClusterSpec` checks them.

    It is not a protocol buffer and is not serialized. `ClusterSpec` also takes TensorFlow's own
    messages.

    Args:
      job: the jobs.

    Attributes:
      job: a list of the jobs; `job.add()` appends one and returns it.
    """

    def __init__(self, job: Iterable[JobDef] = ()) -> None:
        self.job = _Jobs(job)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterDef) and self.job == other.job

    __hash__ = None  # type: ignore[assignment]  # it can be changed

    def __repr__(self) -> str:
        return f"ClusterDef(job={self.job!r})"


def jobs_of(definition: Any) -> dict[str, dict[int, str]] | None:
    """Returns the tasks of each job of a definition; None if it is not a definition.

    Args:
      definition: a `ClusterDef`, or TensorFlow's message of this name.

    Raises:
      ValueError: if a job is there twice.
    """
    jobs = getattr(definition, "job", None)
    if not isinstance(jobs, Iterable) or isinstance(jobs, str):
        return None
    by_job: dict[str, dict[int, str]] = {}
    for job in jobs:
        if job.name in by_job:
            raise ValueError(
                f"the cluster has the job {job.name!r} twice, with the tasks {by_job[job.name]} "
                f"and {dict(job.tasks)}; put them into one"
            )
        by_job[job.name] = dict(job.tasks)
    return by_job

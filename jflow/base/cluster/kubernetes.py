"""`KubernetesClusterResolver`: a cluster whose tasks are pods behind a headless service."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from jflow.base.cluster.address import join_address
from jflow.base.cluster.device import Task
from jflow.base.cluster.jobs import (
    JOBS_VARIABLE,
    PORT_VARIABLE,
    PlacedProcess,
    told_jobs,
    told_port,
)
from jflow.base.cluster.resolvers import RankedClusterResolver
from jflow.base.cluster.spec import ClusterSpec

SERVICE_VARIABLE = "JFLOW_SERVICE"
"""The variable with the DNS name of the headless service of all pods."""
POD_VARIABLE = "JFLOW_POD"
"""The variable with the name of this process's pod, by default its HOSTNAME."""
_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
_NUMBERED = re.compile(r"(.+)-([0-9]+)")


class KubernetesClusterResolver(RankedClusterResolver):
    """The cluster of pods of StatefulSets or indexed Jobs, from environment variables.

    The pods of job `worker` are those of a StatefulSet, or of an indexed Job, named
    `PREFIX-worker`; Kubernetes numbers their host names, `PREFIX-worker-0`, and a headless
    service, of which they are (`serviceName` or `subdomain`), makes DNS names of them:
    `PREFIX-worker-0.SERVICE`. So nothing is asked of the API server, and no client library and
    no permission is needed; which pods run is not known. A pod with another name is not a task.

    TensorFlow's resolver of this name asks the API server for pods with labels instead.

    Args:
      jobs: the number of tasks of each job; by default what JFLOW_JOBS says, such as
        "ps=1,worker=2".
      service: the DNS name of the headless service, such as "digits", or in full
        "digits.default.svc.cluster.local"; by default JFLOW_SERVICE.
      prefix: what the names of pods begin with; by default the first word of the service's name.
      port: the port of all tasks; by default JFLOW_PORT, or else 2222.
      rpc_layer: the protocol of targets.
      environ: the environment variables, of which HOSTNAME, or JFLOW_POD in its place, names this
        pod, and JOB_COMPLETION_INDEX is set in indexed Jobs.

    Methods and properties raise RuntimeError if the jobs or the service are not known; ValueError
    if a variable is malformed or they contradict each other.
    """

    def __init__(
        self,
        jobs: Mapping[str, int] | None = None,
        service: str | None = None,
        prefix: str | None = None,
        port: int | None = None,
        rpc_layer: str | None = "grpc",
        *,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        super().__init__(rpc_layer)
        self._jobs = jobs
        self._service = service
        self._prefix = prefix
        self._port = port
        self._environ = environ

    def placed(self) -> PlacedProcess:
        jobs = self._jobs or told_jobs(self._environ)
        service = self._service or self._environ.get(SERVICE_VARIABLE)
        for what, value, name in (
            ("how many tasks each job has", jobs, JOBS_VARIABLE),
            ("which headless service the pods have", service, SERVICE_VARIABLE),
        ):
            if not value:
                raise RuntimeError(
                    f"Kubernetes does not say {what}; set {name} in the manifest, beside "
                    f"{JOBS_VARIABLE}, {SERVICE_VARIABLE} and {PORT_VARIABLE}"
                )
        assert jobs is not None
        assert service is not None
        prefix = self._prefix or service.partition(".")[0]
        port = self._port or told_port(self._environ)
        addresses = {
            job: [join_address(f"{prefix}-{job}-{i}.{service}", port) for i in range(n)]
            for job, n in jobs.items()
        }
        return PlacedProcess(ClusterSpec(addresses), self._own_task(prefix, jobs))

    def _own_task(self, prefix: str, jobs: Mapping[str, int]) -> Task | None:
        """Returns the task that this pod's name gives; None for a pod with another name."""
        pod = self._environ.get(POD_VARIABLE) or self._environ.get("HOSTNAME", "")
        match = _NUMBERED.fullmatch(pod.partition(".")[0])
        if match is None or not match[1].startswith(f"{prefix}-"):
            return None
        job, index = match[1].removeprefix(f"{prefix}-"), int(match[2])
        if job not in jobs:
            return None
        if index >= jobs[job]:
            raise ValueError(
                f"the pod {pod!r} is task {index} of job {job!r}, and {JOBS_VARIABLE} says that it "
                f"has {jobs[job]}; make the number there that of its replicas"
            )
        own_index = self._environ.get(_INDEX_VARIABLE)
        if own_index is not None and own_index != str(index):
            raise ValueError(
                f"the pod {pod!r} is number {index} by its name, and {own_index} by "
                f"{_INDEX_VARIABLE}; set {POD_VARIABLE} to its host name, or leave it out"
            )
        return Task(job, index)

    def __repr__(self) -> str:
        return f"KubernetesClusterResolver(jobs={self._jobs!r}, service={self._service!r})"

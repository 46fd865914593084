"""`OpenMPIClusterResolver`: a cluster whose tasks are the processes of an `mpirun`."""

from __future__ import annotations

import os
from collections.abc import Mapping

from jflow.base.cluster.jobs import (
    DEFAULT_JOB,
    PlacedProcess,
    check_enough,
    parse_number,
    place_ranks,
    told_jobs,
    told_port,
)
from jflow.base.cluster.resolvers import RankedClusterResolver

HOSTS_VARIABLE = "JFLOW_HOSTS"
"""The variable with the hosts of all processes, as `mpirun --host` takes them: "a:2,b:2"."""


class OpenMPIClusterResolver(RankedClusterResolver):
    """The cluster of an Open MPI program and the task of this process, from Open MPI's variables.

    Open MPI tells processes their numbers, but not where the others are. If all are on one host,
    which it does tell, that is this machine; else JFLOW_HOSTS has to say it.
    Jobs are given process numbers in the order of their names.

    Args:
      jobs: the number of tasks of each job; by default what JFLOW_JOBS says, such as
        "ps=1,worker=2", or else all processes are workers.
      hosts: the hosts in the order in which processes are numbered, with the number of processes
        on each, as `mpirun --host` takes them: "a:2,b:2"; by default what JFLOW_HOSTS says.
      port_base: the port of the first task on each host, the next ones follow; by default
        JFLOW_PORT, or else 2222.
      rpc_layer: the protocol of targets.
      environ: the environment variables, of which those named OMPI_... are read.

    Methods and properties raise RuntimeError if a variable of Open MPI is missing, there are fewer
    processes than tasks, or the hosts of the others are not known; ValueError if a variable is
    malformed or they contradict each other.
    """

    def __init__(
        self,
        jobs: Mapping[str, int] | None = None,
        hosts: str | None = None,
        port_base: int | None = None,
        rpc_layer: str | None = "grpc",
        *,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        super().__init__(rpc_layer)
        self._jobs = jobs
        self._hosts = hosts
        self._port_base = port_base
        self._environ = environ

    def placed(self) -> PlacedProcess:
        rank, size = self._number("OMPI_COMM_WORLD_RANK"), self._number("OMPI_COMM_WORLD_SIZE")
        jobs = self._jobs or told_jobs(self._environ) or {DEFAULT_JOB: size}
        check_enough(jobs, size, "mpirun", "raise -n")
        port = self._port_base or told_port(self._environ)
        return place_ranks(jobs, self._hosts_of_ranks(size), port, rank)

    def _hosts_of_ranks(self, size: int) -> list[str]:
        host_list = self._hosts or self._environ.get(HOSTS_VARIABLE)
        if host_list:
            hosts = [
                host for part in host_list.split(",") for host in _repeat_host(part, host_list)
            ]
            if len(hosts) != size:
                raise ValueError(
                    f"{HOSTS_VARIABLE} is {host_list!r}, which is {len(hosts)} processes, and "
                    f"OMPI_COMM_WORLD_SIZE is {size}; give mpirun the same hosts with --host, and "
                    "no other number with -n"
                )
            return hosts
        if self._number("OMPI_COMM_WORLD_LOCAL_SIZE") != size:
            raise RuntimeError(
                f"Open MPI has started {size} processes on several machines, and does not say on "
                f"which; set {HOSTS_VARIABLE} to what mpirun has in --host, as in "
                f"`mpirun --host a:2,b:2 -x {HOSTS_VARIABLE}=a:2,b:2`"
            )
        return ["localhost"] * size

    def _number(self, name: str) -> int:
        text = self._environ.get(name)
        if text is None:
            raise RuntimeError(f"{name} is not set; start this process with Open MPI's mpirun")
        return parse_number(name, text)

    def __repr__(self) -> str:
        return f"OpenMPIClusterResolver(jobs={self._jobs!r})"


def _repeat_host(part: str, text: str) -> list[str]:
    """Parses "host:2" to the host, repeated twice."""
    host, colon, count = part.strip().partition(":")
    if not host or (colon and not (count.isascii() and count.isdigit())):
        raise ValueError(f"{HOSTS_VARIABLE} must be hosts such as 'a:2,b:2', got {text!r}")
    return [host] * int(count or 1)

"""`SlurmClusterResolver`: a cluster whose tasks are the processes of a Slurm job step."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping

from jflow.base.cluster.hostlist import expand_counts, expand_hostlist, hosts_of_tasks
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

PORT = 8888
"""The port of the first task on a host unless something says otherwise, as in TensorFlow."""
_GPUS = "CUDA_VISIBLE_DEVICES"
_N_GPUS = "SLURM_GPUS_ON_NODE"
_N_COMPONENTS = "SLURM_HET_SIZE"
"""The variable with the number of components of a heterogeneous job."""


class SlurmClusterResolver(RankedClusterResolver):
    """The cluster of a Slurm job step and the task of this process, from Slurm's variables.

    Jobs are given process numbers in the order of their names. In a batch script, outside of a
    step, there is the cluster of the job and no task. Of a heterogeneous job, the step must be one
    `srun` of all components.

    Args:
      jobs: the number of tasks of each job; by default what JFLOW_JOBS says, such as
        "ps=1,worker=2", or else all processes are workers.
      port_base: the port of the first task on each host, the next ones follow; by default
        JFLOW_PORT, or else 8888.
      gpus_per_node: the GPUs of each host; by default those that SLURM_GPUS_ON_NODE says.
      gpus_per_task: by default, what each of the tasks on a host gets if all get equally many.
      tasks_per_node: the processes on each host, or a dict by host; by default what Slurm says.
      auto_set_gpu: whether `cluster_spec` sets CUDA_VISIBLE_DEVICES in `environ` to the GPUs of
        this task. It is left alone where Slurm has divided them itself (SLURM_GPUS_PER_TASK), and
        in heterogeneous jobs.
      rpc_layer: the protocol of targets.
      environ: the environment variables, of which those named SLURM_... are read.

    Methods and properties raise RuntimeError if a variable of Slurm is missing, there are fewer
    processes than tasks or fewer GPUs than they need, or a process is on another host than block
    distribution puts it; ValueError if a variable is malformed.
    """

    def __init__(
        self,
        jobs: Mapping[str, int] | None = None,
        port_base: int | None = None,
        gpus_per_node: int | None = None,
        gpus_per_task: int | None = None,
        tasks_per_node: int | Mapping[str, int] | None = None,
        auto_set_gpu: bool = True,
        rpc_layer: str | None = "grpc",
        *,
        environ: MutableMapping[str, str] = os.environ,
    ) -> None:
        super().__init__(rpc_layer)
        self._jobs = jobs
        self._port_base = port_base
        self._gpus_per_node = gpus_per_node
        self._gpus_per_task = gpus_per_task
        self._tasks_per_node = tasks_per_node
        self._auto_set_gpu = auto_set_gpu
        self._environ = environ

    def placed(self) -> PlacedProcess:
        hosts = self._hosts()
        jobs = self._jobs or told_jobs(self._environ) or {DEFAULT_JOB: len(hosts)}
        check_enough(jobs, len(hosts), "Slurm", "raise --ntasks")
        rank = self._rank(hosts)
        port = self._port_base or told_port(self._environ, PORT)
        placed_process = place_ranks(jobs, hosts, port, rank)
        if self._auto_set_gpu and placed_process.task is not None and rank is not None:
            self._set_gpus(hosts, rank)
        return placed_process

    def _hosts(self) -> list[str]:
        """Returns the host of each process."""
        if _N_COMPONENTS in self._environ:
            # A step has these variables, too; those of the step itself are of one component only.
            groups = [f"HET_GROUP_{i}" for i in range(self._number(_N_COMPONENTS))]
            names = [(f"SLURM_JOB_NODELIST_{i}", f"SLURM_TASKS_PER_NODE_{i}") for i in groups]
            return [host for nodes, counts in names for host in self._listed_hosts(nodes, counts)]
        nodes, counts = (
            ("SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE")
            if is_in_step(self._environ)
            else ("SLURM_JOB_NODELIST", "SLURM_TASKS_PER_NODE")
        )
        n_on = self._tasks_per_node
        if n_on is None:
            return self._listed_hosts(nodes, counts)
        hosts = expand_hostlist(self._variable(nodes))
        if not isinstance(n_on, Mapping):
            n_on = dict.fromkeys(hosts, n_on)
        return hosts_of_tasks(list(n_on), list(n_on.values()))

    def _listed_hosts(self, nodes: str, counts: str) -> list[str]:
        """Returns the host of each process by two variables, of hosts and numbers of processes."""
        hosts, n_on = self._variable(nodes), self._variable(counts)
        return hosts_of_tasks(expand_hostlist(hosts), expand_counts(n_on))

    def _rank(self, hosts: list[str]) -> int | None:
        """Returns the number of this process; None outside of a step."""
        if not is_in_step(self._environ):
            return None
        rank = self._number("SLURM_PROCID")
        here = self._environ.get("SLURMD_NODENAME")
        if self._tasks_per_node is None and here and rank < len(hosts) and hosts[rank] != here:
            raise RuntimeError(
                f"process {rank} of the Slurm step is on {here!r} (SLURMD_NODENAME), and block "
                f"distribution puts it on {hosts[rank]!r}; use `srun --distribution=block`"
            )
        return rank

    def _set_gpus(self, hosts: list[str], rank: int) -> None:
        if not self._environ.keys().isdisjoint(("SLURM_GPUS_PER_TASK", _N_COMPONENTS)):
            return
        own = range(hosts.index(hosts[rank]), hosts.index(hosts[rank]) + hosts.count(hosts[rank]))
        n_gpus = self._gpus_per_node
        if n_gpus is None:
            n_gpus = parse_number(_N_GPUS, self._environ.get(_N_GPUS, "0"))
        n_each = n_gpus // len(own) if self._gpus_per_task is None else self._gpus_per_task
        if n_each * len(own) > n_gpus:
            raise RuntimeError(
                f"{len(own)} tasks on {hosts[rank]!r} need {n_each} GPUs each, and it has "
                f"{n_gpus}; lower gpus_per_task, or ask Slurm for more with --gpus-per-node"
            )
        if n_each:
            first = own.index(rank) * n_each
            self._environ[_GPUS] = ",".join(map(str, range(first, first + n_each)))

    def _number(self, name: str) -> int:
        return parse_number(name, self._variable(name))

    def _variable(self, name: str) -> str:
        try:
            return self._environ[name]
        except KeyError:
            raise RuntimeError(
                f"{name} is not set, so this process is not in a Slurm job; start it with srun or "
                "sbatch"
            ) from None

    def __repr__(self) -> str:
        return f"SlurmClusterResolver(jobs={self._jobs!r})"


def is_one_of_several(environ: Mapping[str, str]) -> bool:
    """Whether a process is one of several that the same srun has started."""
    n_tasks = "SLURM_NTASKS" if _N_COMPONENTS in environ else "SLURM_STEP_NUM_TASKS"
    return is_in_step(environ) and environ.get(n_tasks, "1") != "1"


def is_in_step(environ: Mapping[str, str]) -> bool:
    """Whether a process was started by srun, rather than directly by the script of a Slurm job."""
    return "SLURM_STEP_NODELIST" in environ

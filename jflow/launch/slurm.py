"""Renders the batch script of a cluster on Slurm, which `jflow slurm render` prints.

`srun` starts a server for each task of the allocation, which finds its task in the variables of the
job step (`SlurmClusterResolver`). The program then runs on the first node, as a client of the
cluster, and the servers end with it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from jflow.launch.resources import HUGE_PAGES, TUNABLES

_WORD = re.compile(r"[A-Za-z0-9@%+=:,./_-]+")
_NEXT_COMPONENT = "hetjob"
"""The separator between the options of two components."""
_N_PORTS = 32
"""The number of ports reserved for a job on each node."""

_SCRIPT = """\
#!/bin/bash
{options}

set -euo pipefail
export JFLOW_JOBS={jobs}
export JFLOW_CLUSTER="slurm-$SLURM_JOB_ID"
export {tunables}="${{{tunables}-{huge_pages}}}"
# Jobs on one node have ports of their own, {n_ports} each, below those that the system gives out.
export JFLOW_PORT=$((20000 + SLURM_JOB_ID % 380 * {n_ports}))

cluster="$(jflow slurm cluster)"
folder="$(mktemp -d "$HOME/.jflow-$SLURM_JOB_ID-XXXXXX")"
servers='' program='' cancelled=''
finish() {{
  [ -z "$program" ] || kill "$program" 2>/dev/null || true
  if [ -n "$servers" ]; then
    [ -z "$cancelled" ] && TF_CONFIG="$cluster" jflow stop || kill "$servers" || true
  fi
  rm -rf "$folder"
  wait
}}
trap finish EXIT
# Slurm kills what is still there 30 s after that.
trap 'cancelled=1; exit 143' TERM
trap 'cancelled=1; exit 130' INT
{security}
# srun does not take over --cpus-per-task from sbatch, and would place the tasks differently.
srun --distribution=block --kill-on-bad-exit=0 --wait=0 --label \\
  {serve} &
servers=$!

for i in $(seq 100); do
  TF_CONFIG="$cluster" jflow status && break
  kill -0 "$servers" || {{ echo 'the servers have ended' >&2; exit 1; }}
  [ "$i" -lt 100 ] || {{ echo 'the cluster is not ready' >&2; exit 1; }}
  sleep 2
done

TF_CONFIG="$cluster" JFLOW_ROLE=client {command} &
program=$!
wait "$program"
"""
_SERVE = '--ntasks="$SLURM_NTASKS" --cpus-per-task="$SLURM_CPUS_PER_TASK" jflow server'
_SERVE_IN_COMPONENTS = """\
--het-group=0 --ntasks={ps} --cpus-per-task={cpus} env JAX_PLATFORMS=cpu jflow server : \\
  --het-group=1 --ntasks={workers} --cpus-per-task={cpus} --distribution=block jflow server"""
"""The first component of the job has the tasks of the job "ps", which compute on the CPU."""
_ENCRYPTED = """
# Certificates of this job alone, in a directory that the nodes share.
TF_CONFIG="$cluster" jflow certs init "$folder" --days 30
export JFLOW_TLS_DIR="$folder"
"""
_INSECURE = """
export JFLOW_INSECURE=1
"""


@dataclass(frozen=True)
class SlurmJob:
    """A Slurm job that runs a cluster and the program that uses it.

    Attributes:
      command: the program and its arguments.
      ps, workers: numbers of tasks.
      name: the name of the job.
      cpus: processors of each task.
      gpus: GPUs of each worker. Slurm reserves as many for each task of a component, so parameter
        servers are a component of their own then: the job is a heterogeneous one.
      memory: memory of each processor, such as "4G"; None for the partition's default.
      time: the longest time that the job may take, such as "4:00:00"; None for the partition's.
      options: further options of sbatch, such as "--partition=gpu".
      is_encrypted: whether the script makes certificates for the job.

    Raises:
      ValueError: if one of them is not possible.
    """

    command: Sequence[str]
    ps: int = 1
    workers: int = 2
    name: str = "jflow"
    cpus: int = 1
    gpus: int = 0
    memory: str | None = None
    time: str | None = None
    options: Sequence[str] = ()
    is_encrypted: bool = True

    def __post_init__(self) -> None:
        if not self.command:
            raise ValueError("expected the program that uses the cluster, such as: python train.py")
        if self.ps < 0 or self.workers < 0 or not self.ps + self.workers:
            raise ValueError(f"expected at least one task, got ps={self.ps} workers={self.workers}")
        if self.cpus < 1 or self.gpus < 0:
            raise ValueError(
                "expected at least one processor for each task and no negative number of GPUs, got "
                f"cpus={self.cpus} gpus={self.gpus}"
            )
        for option in self._options():
            if not _WORD.fullmatch(option):
                raise ValueError(f"{option!r} is not an option of sbatch, such as --partition=gpu")

    def script(self) -> str:
        """Returns the batch script, to be passed to sbatch."""
        jobs = {"ps": self.ps, "worker": self.workers}
        return _SCRIPT.format(
            options="\n".join(f"#SBATCH {option}" for option in self._options()),
            jobs=",".join(f"{job}={n}" for job, n in jobs.items() if n),
            n_ports=_N_PORTS,
            tunables=TUNABLES,
            huge_pages=HUGE_PAGES,
            serve=self._serve(),
            security=_ENCRYPTED if self.is_encrypted else _INSECURE,
            command=shlex.join(self.command),
        )

    @property
    def _has_components(self) -> bool:
        """Whether some tasks need GPUs and others do not."""
        return bool(self.gpus and self.ps and self.workers)

    def _serve(self) -> str:
        """Returns the command that srun starts."""
        if not self._has_components:
            return _SERVE
        return _SERVE_IN_COMPONENTS.format(ps=self.ps, workers=self.workers, cpus=self.cpus)

    def _options(self) -> list[str]:
        if not self._has_components:
            return self._options_of(self.ps + self.workers, self.gpus if self.workers else 0)
        servers, workers = self._options_of(self.ps, 0), self._options_of(self.workers, self.gpus)
        return [*servers, _NEXT_COMPONENT, *workers]

    def _options_of(self, n_tasks: int, gpus: int) -> list[str]:
        """Returns the options of a component; Slurm applies only some of them to the next one."""
        options = [
            f"--job-name={self.name}",
            f"--ntasks={n_tasks}",
            f"--cpus-per-task={self.cpus}",
        ]
        if gpus:
            options.append(f"--gpus-per-task={gpus}")
        if self.memory is not None:
            options.append(f"--mem-per-cpu={self.memory}")
        if self.time is not None:
            options.append(f"--time={self.time}")
        return [*options, *self.options]

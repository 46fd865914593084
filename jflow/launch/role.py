"""`ProgramRole`: the role of this process in a program that runs on a cluster."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from jflow.base.cluster import SimpleClusterResolver, Task, read_tf_config
from jflow.base.cluster.membership import Membership
from jflow.base.cluster.role import Role, n_tasks


@dataclass(frozen=True)
class ProgramRole(Role):
    """The role of this process in a program that runs on all tasks of a cluster.

    Attributes:
      source: where the role is from: "the arguments", "TF_CONFIG", "Open MPI", "Slurm",
        "Kubernetes"; "" for a process that belongs to no cluster.
      done: set when the chief is done; a function such as an evaluator's continues until then.
    """

    source: str = ""
    done: threading.Event = field(default_factory=threading.Event, compare=False, repr=False)

    @property
    def resolver(self) -> SimpleClusterResolver:
        """A resolver of the cluster and this task, for strategies and the like."""
        return SimpleClusterResolver(
            self.cluster_spec, self.master, self.task_type, self.task_id, rpc_layer="grpc"
        )


def role_of(
    membership: Membership,
    task: Task | None,
    chief: Task | None,
    master: str,
    environ: Mapping[str, str],
) -> ProgramRole:
    """Returns the role of a task, or of a process without one, with the target for its sessions."""
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

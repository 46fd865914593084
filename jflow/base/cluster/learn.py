"""`RunConfig` by the rules of tf.contrib.learn: any cluster, worker 0 is the chief."""

from __future__ import annotations

import os
from dataclasses import dataclass

from jflow.base.cluster.config import read_tf_config
from jflow.base.cluster.role import LOCAL_MASTER, Role, model_directory, n_tasks, own_master


@dataclass(frozen=True, init=False)
class RunConfig(Role):
    """The role of this process in its cluster, from TF_CONFIG by the rules of tf.contrib.learn.

    The chief is worker 0, or master 0 if the environment is "cloud". The task may be omitted; its
    index is 0 by default.

    Args:
      master: target for sessions; by default that of the own task.
      evaluation_master: target for evaluation.
      model_dir: directory for checkpoints and summaries; by default that of TF_CONFIG.

    Attributes:
      environment: the kind of cluster manager, "local" or "cloud" for example.

    Raises:
      ValueError: if TF_CONFIG is malformed, names a task that its cluster does not have, or has
        another model_dir.
    """

    environment: str

    def __init__(
        self,
        master: str | None = None,
        *,
        evaluation_master: str = LOCAL_MASTER,
        model_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        config = read_tf_config()
        cluster, job, index = config.cluster, config.job, config.index or 0
        if master is None:
            master = own_master(cluster, job, index) if cluster and job else LOCAL_MASTER
        chief = "master" if config.environment == "cloud" else "worker"
        super().__init__(
            cluster_spec=cluster,
            task_type=job,
            task_id=index,
            master=master,
            evaluation_master=evaluation_master,
            is_chief=index == 0 and job in (None, chief),
            num_ps_replicas=n_tasks(cluster, "ps"),
            num_worker_replicas=n_tasks(cluster, "worker"),
            model_dir=model_directory(model_dir, config),
        )
        object.__setattr__(self, "environment", config.environment)

    @staticmethod
    def get_task_id() -> int:
        """Returns the index in TF_CONFIG, by default 0."""
        return read_tf_config().index or 0

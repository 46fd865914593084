"""`RunConfig` by the rules of tf.estimator: a cluster has exactly one chief."""

from __future__ import annotations

import os
from dataclasses import dataclass

from jflow.base.cluster.config import TaskConfig, read_tf_config
from jflow.base.cluster.role import (
    LOCAL_MASTER,
    Role,
    check_task,
    model_directory,
    n_tasks,
    own_master,
)
from jflow.base.cluster.spec import ClusterSpec

_EVALUATOR = "evaluator"


@dataclass(frozen=True, init=False)
class RunConfig(Role):
    """The role of this process in its cluster, from TF_CONFIG by the rules of tf.estimator.

    A cluster has exactly one task "chief" (or "master", its older name), which counts as a
    worker; TF_CONFIG gives the type and index of this process. An "evaluator" is not part of the
    cluster. Without a cluster this process is the only worker.

    Args:
      model_dir: directory for checkpoints and summaries; by default that of TF_CONFIG.

    Attributes:
      global_id_in_cluster: a number for each task, 0 for the chief, parameter servers last; None
        for an evaluator.

    Raises:
      ValueError: if TF_CONFIG is malformed, violates these rules or has another model_dir.
    """

    global_id_in_cluster: int | None

    def __init__(self, model_dir: str | os.PathLike[str] | None = None) -> None:
        config = read_tf_config()
        is_local = not config.cluster
        chief = "worker" if is_local else _chief_job(config.cluster)
        job, index = _local_task(config) if is_local else _task(config, chief)
        is_evaluator = job == _EVALUATOR
        cluster = ClusterSpec({}) if is_evaluator else config.cluster
        evaluates = is_local or is_evaluator
        super().__init__(
            cluster_spec=cluster,
            task_type=job,
            task_id=index,
            master=LOCAL_MASTER if is_evaluator else _master(config, job, index),
            evaluation_master=(evaluates and config.evaluation_master) or LOCAL_MASTER,
            is_chief=job == chief,
            num_ps_replicas=n_tasks(cluster, "ps"),
            num_worker_replicas=1
            if is_local
            else n_tasks(cluster, "worker") + n_tasks(cluster, chief),
            model_dir=model_directory(model_dir, config),
        )
        global_id = None if is_evaluator else _global_id(cluster, chief, job, index)
        object.__setattr__(self, "global_id_in_cluster", global_id)


def _chief_job(cluster: ClusterSpec) -> str:
    chief = "master" if "master" in cluster.jobs else "chief"
    if chief == "master" and "chief" in cluster.jobs:
        raise ValueError(
            "TF_CONFIG[\"cluster\"] has the jobs 'chief' and 'master', which is an older name "
            "of the same; leave one of them out"
        )
    if n_tasks(cluster, chief) != 1:
        raise ValueError(
            f'TF_CONFIG["cluster"] must have exactly one task {chief!r} for '
            f"tf.estimator.RunConfig, and it has {n_tasks(cluster, chief)}"
        )
    return chief


def _task(config: TaskConfig, chief: str) -> tuple[str, int]:
    for key, value in (("type", config.job), ("index", config.index)):
        if value in (None, ""):
            raise ValueError(
                f'TF_CONFIG["task"]["{key}"] must be set where TF_CONFIG["cluster"] is, for '
                "tf.estimator.RunConfig"
            )
    assert config.job is not None
    assert config.index is not None
    if config.job != _EVALUATOR:
        check_task(config.cluster, config.job, config.index)
    elif chief == "master":
        raise ValueError(
            "TF_CONFIG[\"task\"][\"type\"] cannot be 'evaluator' in a cluster with a job 'master'; "
            "call that job 'chief'"
        )
    return config.job, config.index


def _local_task(config: TaskConfig) -> tuple[str, int]:
    job, index = config.job or "worker", config.index or 0
    if (job, index) != ("worker", 0):
        raise ValueError(
            'TF_CONFIG["task"] without TF_CONFIG["cluster"] can only be task \'worker\' 0, '
            f"got {job!r} {index}"
        )
    return job, index


def _master(config: TaskConfig, job: str, index: int) -> str:
    if config.session_master is not None:
        return config.session_master
    return own_master(config.cluster, job, index) if config.cluster else LOCAL_MASTER


def _global_id(cluster: ClusterSpec, chief: str, job: str, index: int) -> int:
    """Returns a task's number: the chief first, then the other jobs by name, "ps" last."""
    order = sorted(cluster.jobs, key=lambda each: (each == "ps", each != chief, each))
    jobs_before = order[: order.index(job)] if cluster else ()
    return sum(len(cluster.job_tasks(each)) for each in jobs_before) + index

"""Which cluster and task a process has: the order of the sources, and their contradictions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jflow.base.cluster import ClusterSpec, Task
from jflow.base.cluster.membership import Membership, find_membership, is_client
from tests.base.cluster.test_engines import MPI, POD, STEP

JOBS = {"ps": ["a:1"], "worker": ["b:2", "c:3"]}


def tf_config(cluster: Any = JOBS, **task: Any) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


def found(environ: dict[str, str], given: Membership | None = None) -> Membership:
    membership = find_membership(environ, given)
    assert membership is not None
    return membership


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"TF_CONFIG": "{}"},
        {"KUBERNETES_SERVICE_HOST": "10.0.0.1"},
        MPI | {"OMPI_COMM_WORLD_SIZE": "1"},
        STEP | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_TASKS_PER_NODE": "1"},
        {name: text for name, text in STEP.items() if not name.startswith("SLURM_STEP")},
    ],
    ids=["nothing", "empty", "other pod", "mpirun of one", "srun of one", "batch script"],
)
def test_a_process_that_was_started_alone_belongs_to_nothing(environ: dict[str, str]) -> None:
    assert find_membership(environ) is None


def test_each_source_is_found() -> None:
    told = found(tf_config(type="worker", index=1))
    assert (told.source, told.cluster, told.task) == (
        "TF_CONFIG",
        ClusterSpec(JOBS),
        Task("worker", 1),
    )
    assert told.address == "c:3"
    assert found(MPI).source == "Open MPI"
    assert found(STEP).task == Task("worker", 3)
    assert found(POD).task == Task("worker", 1)
    assert found(POD).source == "Kubernetes"


def test_what_srun_says_of_the_daemons_of_mpirun_does_not_count() -> None:
    membership = found(STEP | MPI)
    assert (membership.source, membership.task) == ("Open MPI", Task("worker", 1))


def test_an_evaluator_is_a_task_that_the_cluster_does_not_have() -> None:
    told = found(tf_config(type="evaluator", index=0))
    assert (told.task, told.cluster, told.address) == (
        Task("evaluator", 0),
        ClusterSpec(JOBS),
        None,
    )
    pod = POD | {"JFLOW_JOBS": "evaluator=1,ps=1", "HOSTNAME": "digits-evaluator-0"}
    assert found(pod).task == Task("evaluator", 0)
    assert found(pod).cluster.jobs == ["ps"]


def test_arguments_come_first_and_the_environment_completes_them() -> None:
    given = Membership("the arguments", ClusterSpec(JOBS), None)
    assert found({}, given).task is None
    membership = found(tf_config(type="worker", index=0), given)
    assert (membership.source, membership.task) == ("the arguments", Task("worker", 0))


def test_sources_that_agree_are_one() -> None:
    cluster = {
        "ps": ["digits-ps-0.digits:2222"],
        "worker": [f"digits-worker-{i}.digits:2222" for i in range(2)],
    }
    assert found(POD | tf_config(cluster, type="worker", index=1)).task == Task("worker", 1)
    same = {"worker": ["tux01:1", "tux01:2", "tux02:1", "tux02:2"], "ps": ["tux03:1"]}
    membership = found(STEP | tf_config(same, type="worker", index=3))
    assert (membership.source, membership.task) == ("TF_CONFIG", Task("worker", 3))


@pytest.mark.parametrize(
    ("environ", "text"),
    [
        (
            POD | tf_config({"worker": ["digits-worker-0.digits"]}, type="worker", index=0),
            "TF_CONFIG and Kubernetes contradict.*task of this process is /job:worker/task:0 by "
            "TF_CONFIG, and /job:worker/task:1 by Kubernetes.*unset TF_CONFIG; unset JFLOW_SERVICE",
        ),
        (
            POD | tf_config({"ps": ["x:1"]}),
            "address of /job:ps/task:0 is x:1 by TF_CONFIG, and dig",
        ),
        (STEP | tf_config(), "TF_CONFIG and Slurm.*number of tasks is 3 by TF_CONFIG, and 5 by"),
        (MPI | tf_config(type="ps", index=0), "host of this process is a by TF.*localhost by Open"),
        (
            STEP | {"JFLOW_JOBS": "ps=1,worker=4"} | tf_config(type="ps", index=0),
            "task:0 by TF_CONFIG, and /job:worker/task:2 by Slurm",
        ),
        (tf_config(type="worker"), "has no index, and job 'worker' has the tasks .0, 1."),
        (STEP | {"JFLOW_JOBS": "worker=6"}, "^Slurm: the jobs .* need 6 processes"),
        (POD | {"JFLOW_JOBS": ""}, "^Kubernetes: .*set JFLOW_JOBS"),
    ],
)
def test_a_contradiction_names_both_sides_and_the_repair(
    environ: dict[str, str], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        find_membership(environ)


def test_arguments_that_contradict_the_environment_are_refused() -> None:
    given = Membership("the arguments", ClusterSpec(JOBS), Task("ps", 0))
    with pytest.raises(ValueError, match="the arguments and TF_CONFIG contradict"):
        find_membership(tf_config(type="worker", index=0), given)


def test_a_client_says_so() -> None:
    assert is_client({"JFLOW_ROLE": "client"})
    assert not is_client({})
    with pytest.raises(ValueError, match=r"JFLOW_ROLE may be 'client' only.*got 'worker'"):
        is_client({"JFLOW_ROLE": "worker"})

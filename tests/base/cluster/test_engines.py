"""Resolvers of engines that place processes (Slurm, Open MPI, Kubernetes), and their unions."""

from __future__ import annotations

from typing import Any

import pytest

from jflow.base.cluster import (
    ClusterResolver,
    ClusterSpec,
    KubernetesClusterResolver,
    OpenMPIClusterResolver,
    SimpleClusterResolver,
    SlurmClusterResolver,
    UnionResolver,
)

STEP = {  # srun --ntasks=5 on three hosts; the names and forms of srun's manual
    "SLURM_JOB_ID": "65541",
    "SLURM_JOB_NODELIST": "tux[01-03]",
    "SLURM_TASKS_PER_NODE": "2(x2),1",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "tux[01-03]",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURMD_NODENAME": "tux02",
}
MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "3",
}
POD = {
    "KUBERNETES_SERVICE_HOST": "10.0.0.1",
    "HOSTNAME": "digits-worker-1",
    "JFLOW_JOBS": "ps=1,worker=2",
    "JFLOW_SERVICE": "digits",
}


def slurm(*arguments: Any, given: dict[str, str] | None = None, **named: Any) -> Any:
    environ = STEP | (given or {})
    return SlurmClusterResolver(*arguments, environ=environ, **named)


def without(variables: dict[str, str], *names: str) -> dict[str, str]:
    return {name: text for name, text in variables.items() if name not in names}


def test_all_processes_of_a_slurm_step_are_workers_unless_told() -> None:
    resolver = slurm()
    assert resolver.cluster_spec() == ClusterSpec(
        {"worker": ["tux01:8888", "tux01:8889", "tux02:8888", "tux02:8889", "tux03:8888"]}
    )
    assert resolver.get_task_info() == ("worker", 3)
    assert resolver.master() == "grpc://tux02:8889"
    assert resolver.master("worker", 4) == "grpc://tux03:8888"


@pytest.mark.parametrize("told", ["arguments", "variables"])
def test_jobs_of_a_slurm_step_get_ranks_in_the_order_of_their_names(told: str) -> None:
    jobs = {"worker": 2, "ps": 2, "chief": 1}
    if told == "arguments":
        resolver = slurm(jobs, port_base=4000)
    else:
        resolver = slurm(given={"JFLOW_JOBS": "worker=2,ps=2,chief=1", "JFLOW_PORT": "4000"})
    assert resolver.cluster_spec().as_dict() == {
        "chief": ["tux01:4000"],
        "ps": ["tux01:4001", "tux02:4000"],
        "worker": ["tux02:4001", "tux03:4000"],
    }
    assert (resolver.task_type, resolver.task_id) == ("worker", 0)


def test_processes_of_a_slurm_step_beyond_the_jobs_have_no_task() -> None:
    resolver = slurm({"worker": 3})
    assert resolver.get_task_info() == (None, None)
    assert resolver.master() == ""
    assert resolver.cluster_spec().num_tasks("worker") == 3


def test_a_batch_script_has_the_cluster_of_its_job_and_no_task() -> None:
    script = {name: text for name, text in STEP.items() if not name.startswith("SLURM_STEP")}
    resolver = SlurmClusterResolver(environ=script)
    assert resolver.cluster_spec() == slurm().cluster_spec()
    assert resolver.get_task_info() == (None, None)


def test_a_heterogeneous_job_of_slurm_is_one_cluster() -> None:
    job = {
        "SLURM_JOB_ID": "65541",
        "SLURM_HET_SIZE": "2",
        "SLURM_JOB_NODELIST_HET_GROUP_0": "tux01",
        "SLURM_JOB_NODELIST_HET_GROUP_1": "gpu[1-2]",
        "SLURM_TASKS_PER_NODE_HET_GROUP_0": "2",
        "SLURM_TASKS_PER_NODE_HET_GROUP_1": "1(x2)",
        "JFLOW_JOBS": "ps=2,worker=2",
    }
    step = job | {
        "SLURM_STEP_NODELIST": "gpu[1-2]",
        "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
        "SLURM_PROCID": "3",
        "SLURMD_NODENAME": "gpu2",
        "SLURM_GPUS_ON_NODE": "4",
    }
    expected = {"ps": ["tux01:8888", "tux01:8889"], "worker": ["gpu1:8888", "gpu2:8888"]}
    environ = dict(step)
    resolver = SlurmClusterResolver(environ=environ)
    assert resolver.cluster_spec().as_dict() == expected
    assert resolver.get_task_info() == ("worker", 1)
    assert environ == step, "Slurm has divided the GPUs of a component"
    assert SlurmClusterResolver(environ=job).cluster_spec().as_dict() == expected
    assert SlurmClusterResolver(environ=job).get_task_info() == (None, None)
    with pytest.raises(RuntimeError, match="SLURM_JOB_NODELIST_HET_GROUP_1 is not set"):
        SlurmClusterResolver(environ=without(job, "SLURM_JOB_NODELIST_HET_GROUP_1")).cluster_spec()


def test_tasks_per_node_may_be_given_to_slurm() -> None:
    assert slurm(tasks_per_node=1).cluster_spec().job_tasks("worker") == [
        "tux01:8888",
        "tux02:8888",
        "tux03:8888",
    ]
    given = slurm(tasks_per_node={"x": 1, "y": 2}).cluster_spec()
    assert given.job_tasks("worker") == ["x:8888", "y:8888", "y:8889"]


def test_slurm_divides_the_gpus_of_a_host_among_its_tasks() -> None:
    environ = STEP | {"SLURM_GPUS_ON_NODE": "4"}
    SlurmClusterResolver(environ=environ).cluster_spec()
    assert environ["CUDA_VISIBLE_DEVICES"] == "2,3"
    environ = dict(STEP)
    SlurmClusterResolver(gpus_per_node=2, gpus_per_task=1, environ=environ).cluster_spec()
    assert environ["CUDA_VISIBLE_DEVICES"] == "1"
    with pytest.raises(RuntimeError, match="need 2 GPUs each, and it has 2"):
        slurm(gpus_per_node=2, gpus_per_task=2).cluster_spec()


@pytest.mark.parametrize(
    "given", [{}, {"SLURM_GPUS_PER_TASK": "2", "SLURM_GPUS_ON_NODE": "4"}], ids=["none", "divided"]
)
def test_slurm_leaves_gpus_alone_that_it_has_divided_or_not_given(given: dict[str, str]) -> None:
    environ = STEP | given | {"CUDA_VISIBLE_DEVICES": "0"}
    SlurmClusterResolver(environ=environ).cluster_spec()
    assert environ["CUDA_VISIBLE_DEVICES"] == "0"
    environ = STEP | {"SLURM_GPUS_ON_NODE": "4"}
    SlurmClusterResolver(auto_set_gpu=False, environ=environ).cluster_spec()
    assert "CUDA_VISIBLE_DEVICES" not in environ


@pytest.mark.parametrize(
    ("environ", "error", "text"),
    [
        ({}, RuntimeError, "SLURM_JOB_NODELIST is not set.* srun"),
        (without(STEP, "SLURM_PROCID"), RuntimeError, "SLURM_PROCID is not set"),
        (STEP | {"JFLOW_JOBS": "worker=6"}, RuntimeError, "need 6 processes.*started 5"),
        (STEP | {"SLURMD_NODENAME": "tux01"}, RuntimeError, "'tux01'.*'tux02'.*block"),
        (STEP | {"SLURM_PROCID": "x"}, ValueError, "SLURM_PROCID must be a number, got 'x'"),
        (STEP | {"JFLOW_JOBS": "ps:1"}, ValueError, "JFLOW_JOBS must be jobs.*'ps:1'"),
        (STEP | {"JFLOW_JOBS": "ps=1,ps=2"}, ValueError, "has the job 'ps' twice"),
        (STEP | {"JFLOW_JOBS": "ps=0"}, ValueError, "has no task"),
        (STEP | {"JFLOW_PORT": "99999"}, ValueError, "JFLOW_PORT must be a number from 1"),
        (STEP | {"SLURM_STEP_TASKS_PER_NODE": "2"}, ValueError, "3 hosts"),
    ],
)
def test_what_slurm_lacks_or_contradicts_is_an_error(
    environ: dict[str, str], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        SlurmClusterResolver(environ=environ).cluster_spec()


def test_open_mpi_on_one_machine_needs_nothing_else() -> None:
    resolver = OpenMPIClusterResolver(environ=MPI | {"JFLOW_JOBS": "ps=1,worker=2"})
    assert resolver.cluster_spec().as_dict() == {
        "ps": ["localhost:2222"],
        "worker": ["localhost:2223", "localhost:2224"],
    }
    assert resolver.get_task_info() == ("worker", 0)


def test_open_mpi_on_several_machines_is_told_the_hosts() -> None:
    environ = MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
    with pytest.raises(RuntimeError, match="does not say on which; set JFLOW_HOSTS"):
        OpenMPIClusterResolver(environ=environ).cluster_spec()
    resolver = OpenMPIClusterResolver(environ=environ | {"JFLOW_HOSTS": "a:1,b:2"})
    assert resolver.cluster_spec().job_tasks("worker") == ["a:2222", "b:2222", "b:2223"]
    assert resolver.master() == "grpc://b:2222"
    given = OpenMPIClusterResolver({"worker": 2}, "a,b,c", 70, environ=environ)
    assert given.cluster_spec().job_tasks("worker") == ["a:70", "b:70"]


@pytest.mark.parametrize(
    ("environ", "error", "text"),
    [
        ({}, RuntimeError, "OMPI_COMM_WORLD_RANK is not set.*mpirun"),
        (MPI | {"OMPI_COMM_WORLD_SIZE": "many"}, ValueError, "must be a number, got 'many'"),
        (MPI | {"JFLOW_JOBS": "worker=4"}, RuntimeError, "need 4 processes.*started 3"),
        (MPI | {"JFLOW_HOSTS": "a:2,b:2"}, ValueError, "is 4 processes.*SIZE is 3"),
        (MPI | {"JFLOW_HOSTS": "a:x"}, ValueError, "must be hosts such as 'a:2,b:2'"),
    ],
)
def test_what_open_mpi_lacks_or_contradicts_is_an_error(
    environ: dict[str, str], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        OpenMPIClusterResolver(environ=environ).cluster_spec()


@pytest.mark.parametrize("extra", [{}, {"JOB_COMPLETION_INDEX": "1"}], ids=["stateful", "indexed"])
def test_a_pod_knows_the_cluster_by_the_names_of_a_headless_service(extra: dict[str, str]) -> None:
    resolver = KubernetesClusterResolver(environ=POD | extra)
    assert resolver.cluster_spec().as_dict() == {
        "ps": ["digits-ps-0.digits:2222"],
        "worker": ["digits-worker-0.digits:2222", "digits-worker-1.digits:2222"],
    }
    assert resolver.get_task_info() == ("worker", 1)
    assert resolver.master() == "grpc://digits-worker-1.digits:2222"


def test_a_full_name_of_the_service_and_the_name_of_the_pod_may_be_given() -> None:
    given = {"JFLOW_SERVICE": "digits.a.svc.cluster.local", "JFLOW_POD": "digits-ps-0"}
    resolver = KubernetesClusterResolver(environ=POD | given | {"JFLOW_PORT": "80"})
    assert resolver.master() == "grpc://digits-ps-0.digits.a.svc.cluster.local:80"
    resolver = KubernetesClusterResolver({"ps": 1}, "s", "digits", 90, environ=POD | given)
    assert resolver.cluster_spec() == ClusterSpec({"ps": ["digits-ps-0.s:90"]})
    assert resolver.get_task_info() == ("ps", 0)


@pytest.mark.parametrize("pod", ["notebook", "notebook-0", "digits-evaluator-0", "digits-0", ""])
def test_a_pod_with_another_name_has_no_task(pod: str) -> None:
    resolver = KubernetesClusterResolver(environ=POD | {"HOSTNAME": pod})
    assert resolver.get_task_info() == (None, None)
    assert resolver.master() == ""
    assert resolver.cluster_spec().num_tasks("worker") == 2


@pytest.mark.parametrize(
    ("environ", "error", "text"),
    [
        (without(POD, "JFLOW_JOBS"), RuntimeError, "how many tasks.*set JFLOW_JOBS"),
        (without(POD, "JFLOW_SERVICE"), RuntimeError, "headless service.*set JFLOW_SERVICE"),
        (POD | {"HOSTNAME": "digits-worker-2"}, ValueError, "is task 2.*JFLOW_JOBS.*has 2"),
        (POD | {"JOB_COMPLETION_INDEX": "0"}, ValueError, "1 by its name, and 0 by"),
    ],
)
def test_what_kubernetes_lacks_or_contradicts_is_an_error(
    environ: dict[str, str], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        KubernetesClusterResolver(environ=environ).get_task_info()


def simple(cluster: dict[str, Any], *given: Any) -> ClusterResolver:
    return SimpleClusterResolver(ClusterSpec(cluster), *given, rpc_layer="grpc")


def test_lists_of_a_union_follow_each_other_and_the_first_says_the_rest() -> None:
    one = simple({"worker": ["a:1"], "ps": ["p:1"]}, "grpc://x:1", "ps", 0, "google")
    both = UnionResolver(one, simple({"worker": ["b:1", "c:1"]}, "", "worker", 1))
    assert both.cluster_spec().as_dict() == {"ps": ["p:1"], "worker": ["a:1", "b:1", "c:1"]}
    assert (both.task_type, both.task_id, both.environment) == ("ps", 0, "google")
    assert both.master() == "grpc://x:1"
    assert both.master("worker", 2) == "grpc://c:1"
    assert UnionResolver(one, task_type="worker", task_id=3).task_id == 3


def test_sparse_jobs_of_a_union_keep_their_indices_and_refuse_equal_ones() -> None:
    both = UnionResolver(simple({"worker": {3: "a:1"}}), simple({"worker": ["b:1"]}))
    assert both.cluster_spec().as_dict() == {"worker": {0: "b:1", 3: "a:1"}}
    clash = UnionResolver(simple({"worker": {1: "a:1"}}), simple({"worker": ["b:1", "c:1"]}))
    with pytest.raises(KeyError, match="a:1 and at c:1"):
        clash.cluster_spec()


def test_a_union_is_of_resolvers() -> None:
    with pytest.raises(ValueError, match="at least one"):
        UnionResolver()
    with pytest.raises(TypeError, match="must be a ClusterResolver"):
        UnionResolver(ClusterSpec({}))  # type: ignore[arg-type]

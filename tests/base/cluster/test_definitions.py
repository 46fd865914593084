"""`ClusterDef`, in and out of a `ClusterSpec`, and which tasks device filters leave."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from jflow.base.cluster import (
    ClusterDef,
    ClusterDeviceFilters,
    ClusterSpec,
    Device,
    DeviceFilters,
    JobDef,
    Task,
)

CLUSTER = ClusterSpec({"worker": {1: "b:1", 3: "d:1"}, "ps": ["p:1"]})


def test_a_cluster_goes_out_and_comes_back() -> None:
    made = CLUSTER.as_cluster_def()
    assert made == ClusterDef([JobDef("ps", {0: "p:1"}), JobDef("worker", {1: "b:1", 3: "d:1"})])
    assert ClusterSpec(made) == CLUSTER
    made.job[0].tasks[0] = "q:1"
    assert CLUSTER.task_address("ps", 0) == "p:1"
    assert ClusterSpec(ClusterDef()) == ClusterSpec({})


def test_jobs_are_added_as_to_a_protocol_buffer() -> None:
    made = ClusterDef()
    job = made.job.add()
    job.name = "worker"
    job.tasks[0] = "a"
    made.job.add(name="ps", tasks={2: "p:1"})
    assert ClusterSpec(made).as_dict() == {"ps": {2: "p:1"}, "worker": ["a:2222"]}
    assert repr(made).startswith("ClusterDef(job=[JobDef(name='worker', tasks={0: 'a'})")


def test_the_message_of_tensorflow_is_read_by_its_fields() -> None:
    job = SimpleNamespace(name="worker", tasks={0: "a:1", 4: "b:1"})
    assert ClusterSpec(SimpleNamespace(job=[job])).as_dict() == {"worker": {0: "a:1", 4: "b:1"}}  # type: ignore[arg-type]


def test_a_definition_is_checked_as_any_cluster() -> None:
    with pytest.raises(
        ValueError, match=r"job 'ps' twice, with the tasks \{0: 'a'\} and \{1: 'b'\}"
    ):
        ClusterSpec(ClusterDef([JobDef("ps", {0: "a"}), JobDef("ps", {1: "b"})]))
    with pytest.raises(ValueError, match="/job:ps/task:0 and /job:ps/task:1 have one address"):
        ClusterSpec(ClusterDef([JobDef("ps", {0: "a", 1: "a"})]))
    with pytest.raises(TypeError, match="a ClusterDef or a ClusterSpec, got"):
        ClusterSpec(Task("worker", 0))  # type: ignore[arg-type]  # it has a job, too


@pytest.mark.parametrize(
    ("filters", "tasks", "devices"),
    [
        ([], "ps:0 worker:0 worker:1", "ps:0:CPU worker:0:CPU worker:0:GPU"),
        (["/job:ps"], "ps:0", "ps:0:CPU"),
        (["/task:0"], "ps:0 worker:0", "ps:0:CPU worker:0:CPU worker:0:GPU"),
        (["/gpu:0"], "ps:0 worker:0 worker:1", "worker:0:GPU"),
        (["/job:worker/task:0/gpu:0", "/job:ps"], "ps:0 worker:0", "ps:0:CPU worker:0:GPU"),
        (["/gpu:1"], "ps:0 worker:0 worker:1", ""),
    ],
)
def test_a_filter_leaves_what_matches_and_omitted_fields_match_all(
    filters: list[str], tasks: str, devices: str
) -> None:
    found = DeviceFilters(filters)
    every = [Task("ps", 0), Task("worker", 0), Task("worker", 1)]
    assert [f"{t.job}:{t.index}" for t in every if found.see_task(t)] == tasks.split()
    named = [Device(every[0], "CPU", 0), Device(every[1], "CPU", 0), Device(every[1], "GPU", 0)]
    seen = [f"{d.task.job}:{d.task.index}:{d.type}" for d in named if found.see(d)]
    assert seen == devices.split()


def test_each_task_sees_its_part_of_the_cluster_and_itself() -> None:
    filters = ClusterDeviceFilters()
    filters.set_device_filters("worker", 1, ["/job:ps"])
    assert filters.seen_by(Task("worker", 1), CLUSTER).as_dict() == {
        "ps": ["p:1"],
        "worker": {1: "b:1"},
    }
    assert filters.seen_by(Task("ps", 0), CLUSTER) == CLUSTER
    filters.set_device_filters("worker", 1, [])
    assert filters.seen_by(Task("worker", 1), CLUSTER) == CLUSTER
    with pytest.raises(ValueError, match="'ps:0' is not a device name"):
        filters.set_device_filters("ps", 0, ["ps:0"])

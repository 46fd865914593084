import pytest
from hypothesis import given
from hypothesis import strategies as st

from jflow.base.cluster import LOCAL_TASK, Device, DeviceSpec, Task

JOBS = st.from_regex(r"[A-Za-z][A-Za-z0-9_\-]{0,8}", fullmatch=True)
NUMBERS = st.integers(0, 2000)
TYPES = st.sampled_from(["CPU", "GPU", "TPU", "XLA_CPU"])


def _spec(job, task, kind, index):
    return DeviceSpec(job, task, kind, None if kind is None else index)


SPECS = st.builds(
    _spec, st.none() | JOBS, st.none() | NUMBERS, st.none() | TYPES, st.none() | NUMBERS
)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("", DeviceSpec()),
        ("/job:ps", DeviceSpec("ps")),
        ("/task:3", DeviceSpec(task=3)),
        ("/job:ps/task:0", DeviceSpec("ps", 0)),
        ("/job:my-job_2/task:10", DeviceSpec("my-job_2", 10)),
        ("/job:ps/task:0/device:CPU:0", DeviceSpec("ps", 0, "CPU", 0)),
        ("/device:CPU:1/task:2/job:w", DeviceSpec("w", 2, "CPU", 1)),
        ("/device:GPU", DeviceSpec(type="GPU")),
        ("/device:gpu:1", DeviceSpec(type="GPU", index=1)),
        ("/device:XLA_CPU:0", DeviceSpec(type="XLA_CPU", index=0)),
        ("/cpu:0", DeviceSpec(type="CPU", index=0)),
        ("/GPU:7", DeviceSpec(type="GPU", index=7)),
        ("/tpu:0", DeviceSpec(type="TPU", index=0)),
        ("/gpu", DeviceSpec(type="GPU")),
        ("gpu:0", DeviceSpec(type="GPU", index=0)),
        ("job:ps/task:1", DeviceSpec("ps", 1)),
        ("/job:w/task:1/gpu:0", DeviceSpec("w", 1, "GPU", 0)),
    ],
)
def test_every_part_of_a_name_can_be_read_alone_or_with_others(text, spec):
    assert DeviceSpec.parse(text) == spec


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("/cpu:*", DeviceSpec(type="CPU")),
        ("/device:GPU:*", DeviceSpec(type="GPU")),
        ("/job:w/task:*", DeviceSpec("w")),
        ("/job:w/task:*/device:CPU:*", DeviceSpec("w", type="CPU")),
    ],
)
def test_a_star_is_the_same_as_leaving_the_field_out(text, spec):
    assert DeviceSpec.parse(text) == spec


@pytest.mark.parametrize("replica", ["/replica:0", "/replica:12", "/replica:*"])
def test_a_replica_is_read_and_ignored(replica):
    with_replica = f"/job:worker{replica}/task:1/device:GPU:0"
    assert DeviceSpec.parse(with_replica) == DeviceSpec("worker", 1, "GPU", 0)


@pytest.mark.parametrize(
    "text",
    [
        "/",
        "//cpu:0",
        "/job:",
        "/job:ps/",
        "/job:ps//task:0",
        "/job:ps task:0",
        "/job:ps/task:",
        "/job:ps/task:zero",
        "/job:ps/task:-1",
        "/job:ps/task:1.5",
        "/job:1ps",
        "/replica:x",
        "/device:",
        "/device:1",
        "/device:CPU:0:1",
        "/cpu:-1",
        "/cpu:x",
        "/cpus:0",
        "/disk:0",
        "/foo",
        "/cpu:0 ",
        " /cpu:0",
        "/cpu:0/gpu:1",
        "/device:CPU:0/cpu:0",
        "/job:ps/job:worker",
        "/task:0/job:ps/task:0",
        "/task:\u0663",
        "/device:CP\u00dc:0",
    ],
)
def test_anything_else_is_an_error_that_quotes_the_text(text):
    with pytest.raises(ValueError, match="is not a device name") as raised:
        DeviceSpec.parse(text)
    assert repr(text) in str(raised.value)


PIECES = st.sampled_from(
    ["/", ":", "*", "job", "task", "device", "replica", "cpu", "GPU", "ps", "0", "-1", "9" * 5000]
)


@given(st.text() | st.lists(PIECES).map("".join))
def test_any_text_is_a_device_name_or_a_value_error(text):
    try:
        spec = DeviceSpec.parse(text)
    except ValueError:
        return
    assert DeviceSpec.parse(str(spec)) == spec


@pytest.mark.parametrize(
    ("field", "value"), [("job", "1st"), ("job", ""), ("task", -1), ("type", "gpu"), ("index", -2)]
)
def test_a_field_that_no_name_could_say_is_a_value_error(field, value):
    with pytest.raises(ValueError, match=f"cannot be the {field} of a device"):
        DeviceSpec(**{field: value})


@pytest.mark.parametrize(("field", "value"), [("job", 1), ("task", "0"), ("index", True)])
def test_a_field_of_another_type_is_a_type_error(field, value):
    with pytest.raises(TypeError, match=f"expected the {field} of a device to be of type"):
        DeviceSpec(**{field: value})


@given(SPECS)
def test_a_printed_spec_reads_back_as_itself(spec):
    assert DeviceSpec.parse(str(spec)) == spec


@given(SPECS)
def test_a_spec_is_empty_when_it_prints_nothing(spec):
    assert spec.is_empty == (str(spec) == "")


@given(SPECS, SPECS)
def test_merging_takes_each_field_from_the_inner_spec_where_it_has_one(outer, inner):
    merged = outer.merge(inner)
    for field in ("job", "task", "type", "index"):
        mine = getattr(inner, field)
        assert getattr(merged, field) == (getattr(outer, field) if mine is None else mine)


@given(SPECS, SPECS, SPECS)
def test_merging_is_associative_and_the_empty_spec_changes_nothing(a, b, c):
    assert a.merge(b).merge(c) == a.merge(b.merge(c))
    assert DeviceSpec().merge(a) == a.merge(DeviceSpec()) == a


def test_the_task_of_the_outer_block_survives_an_inner_job():
    outer, inner = DeviceSpec.parse("/job:ps/task:0"), DeviceSpec.parse("/job:worker")
    assert str(outer.merge(inner)) == "/job:worker/task:0"


@given(JOBS, NUMBERS)
def test_a_task_reads_back_from_its_name(job, index):
    task = Task(job, index)
    assert Task.parse(str(task)) == task
    assert Task.parse(f"{task}/device:CPU:0") == task


@given(JOBS, NUMBERS, TYPES, NUMBERS)
def test_a_device_reads_back_from_its_name(job, task, kind, index):
    device = Device(Task(job, task), kind, index)
    assert Device.parse(str(device)) == device


@pytest.mark.parametrize("text", ["", "/job:ps", "/task:0", "/job:ps/task:*", "/cpu:0"])
def test_a_task_needs_a_job_and_an_index(text):
    with pytest.raises(ValueError, match="expected a task name with a job and an index"):
        Task.parse(text)


@pytest.mark.parametrize(
    "text",
    ["/job:ps/task:0", "/job:ps/device:CPU:0", "/task:0/cpu:0", "/job:ps/task:0/device:CPU:*"],
)
def test_a_device_needs_every_field(text):
    with pytest.raises(ValueError, match="a device name with a job, a task, a type and an index"):
        Device.parse(text)


def test_tasks_are_ordered_by_job_and_then_by_number():
    tasks = [Task("worker", 0), Task("ps", 10), Task("ps", 2)]
    assert sorted(tasks) == [Task("ps", 2), Task("ps", 10), Task("worker", 0)]


def test_the_task_without_a_cluster_is_localhost():
    assert str(LOCAL_TASK) == "/job:localhost/task:0"

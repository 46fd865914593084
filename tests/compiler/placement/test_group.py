"""Operations that are colocated are placed as one."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

import jflow as tf
from jflow.base.cluster import Device, DeviceSpec, Task
from jflow.compiler.placement import Inventory
from tests.compiler.placement.placing import place

TASKS = (Task("ps", 0), Task("worker", 0), Task("worker", 1))
KINDS = (("CPU", 0), ("CPU", 1), ("GPU", 0))
INVENTORY = Inventory(
    TASKS[1], TASKS, {task: tuple(Device(task, kind, i) for kind, i in KINDS) for task in TASKS}
)
MASTER, STATE = "/job:worker/task:0/device:GPU:0", "/job:ps/task:0/device:GPU:0"


def _sin(name, device=None):
    with tf.colocate_with(None, ignore_existing=True):
        value = tf.placeholder("float32", (), name=f"{name}_in")
    with tf.device(device or ""):
        return tf.numpy.sin(value, name=name).op


def _places(*ops, **options):
    every = tf.get_default_graph().get_operations()
    placement = place([op for op in every if op in ops] if ops else every, INVENTORY, **options)
    return {op.name: str(device) for op, device in placement.items()}


def test_members_of_a_group_are_on_one_device_chosen_by_the_default():
    a = _sin("a")
    with tf.colocate_with(a):
        b = _sin("b")
    assert _places(a, b) == {"a": MASTER, "b": MASTER}


def test_what_members_ask_for_is_merged():
    a = _sin("a")
    with tf.colocate_with(a):
        b, c = _sin("b", "/job:worker/task:1"), _sin("c", "/cpu:1")
    assert set(_places(a, b, c).values()) == {"/job:worker/task:1/device:CPU:1"}


def test_members_count_that_the_step_does_not_need():
    """So that a variable is on one device in every step."""
    v = tf.Variable(1.0, name="v")
    with tf.colocate_with(v):
        _sin("b", "/job:worker/task:1/cpu:0")
    assert _places(v.op) == {"v": "/job:worker/task:1/device:CPU:0"}


def test_an_operation_that_is_colocated_with_a_variable_goes_where_it_is():
    v = tf.Variable(1.0, name="v")
    with tf.colocate_with(v):
        b = _sin("b")
    assert _places(b) == {"b": STATE}
    assert _places(b, v.op, v.value().op) == {"b": STATE, "v": STATE, "v/read": STATE}


def test_a_variable_in_a_group_places_all_of_it_as_state():
    a = _sin("a")
    with tf.colocate_with(a):
        tf.Variable(1.0, name="v")
    assert _places(a) == {"a": STATE}


def test_an_access_stands_for_its_variable():
    v = tf.Variable(1.0, name="v")
    with tf.colocate_with(v.value()):
        b = _sin("b", "/cpu:1")
    with tf.colocate_with(_sin("c")):
        added = v.assign_add(1.0, name="added").op
    places = _places(v.op, b, added, tf.get_default_graph().get_operation_by_name("c"))
    assert set(places.values()) == {"/job:ps/task:0/device:CPU:1"}


def test_groups_that_share_a_member_are_one():
    a, b = _sin("a"), _sin("b", "/job:ps/cpu:1")
    with tf.colocate_with(a), tf.colocate_with(b):
        c = _sin("c")
    assert set(_places(a, b, c).values()) == {"/job:ps/task:0/device:CPU:1"}


def test_a_constant_in_a_group_does_not_follow_its_consumers():
    a = _sin("a")
    with tf.colocate_with(a):
        value = tf.constant(1.0, name="value")
    with tf.device("/job:ps"):
        sin = tf.numpy.sin(value, name="sin").op
    assert _places(a, value.op, sin) == {"a": MASTER, "value": MASTER, "sin": STATE}


CONFLICTS = [
    ("/job:ps", "/job:worker", False),
    ("/job:worker/task:0", "/task:1", False),
    ("/cpu:0", "/gpu:0", True),
    ("/cpu:0", "/cpu:1", True),
]


def _conflict(first, second):
    owner = _sin("owner")
    with tf.colocate_with(owner):
        return [owner, _sin("a", first), _sin("b", second)]


@pytest.mark.parametrize(("first", "second", "_"), CONFLICTS)
def test_members_that_disagree_are_an_error_that_names_both(first, second, _):
    owner, *ops = _conflict(first, second)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Cannot colocate") as raised:
        _places(owner, *ops)
    assert raised.value.op == "b"
    for op in ops:
        story = f"{op.name!r} (made at {op.origin}), which requests {op.device!r}"
        assert story in str(raised.value)


@pytest.mark.parametrize(("first", "second", "tolerated"), CONFLICTS)
def test_with_soft_placement_type_and_number_may_disagree(first, second, tolerated):
    ops = _conflict(first, second)
    if tolerated:
        # The first in the graph's order has its way.
        expected = _places(_sin("alone", first))["alone"]
        assert set(_places(*ops, soft=True).values()) == {expected}
    else:
        with pytest.raises(tf.errors.InvalidArgumentError, match="Cannot colocate") as raised:
            _places(*ops, soft=True)
        assert "soft placement" not in str(raised.value)


def test_a_member_that_disagrees_harms_only_steps_that_need_it():
    owner, a, b = _conflict("/cpu:1", "/gpu:0")
    device = "/job:worker/task:0/device:CPU:1"
    assert _places(owner, a) == {"owner": device, "a": device}
    with pytest.raises(tf.errors.InvalidArgumentError, match="Cannot colocate"):
        _places(b)


def test_a_device_that_is_not_there_is_an_error_with_all_that_take_part():
    a = _sin("a")
    with tf.colocate_with(a):
        b = _sin("b", "/cpu:7")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"available are .*CPU:1") as raised:
        _places(a)
    assert f"'b' (made at {b.origin})" in str(raised.value)
    assert "'/device:CPU:7'" in str(raised.value)


# Any graph

FIELDS = ("job", "task", "type", "index")
SPECS = st.builds(
    lambda job, task, kind: DeviceSpec(job, task, *kind),
    st.sampled_from([None, None, "ps", "worker"]),
    st.sampled_from([None, None, 0, 1]),
    st.sampled_from([(None, None), (None, None), ("CPU", None), ("CPU", 1), ("GPU", 0)]),
)


@dataclass(frozen=True)
class Member:
    is_variable: bool
    spec: DeviceSpec
    targets: tuple[int, ...]


@st.composite
def _graphs(draw):
    members = []
    for i in range(draw(st.integers(1, 6))):
        targets = st.lists(st.integers(0, i - 1), max_size=2) if i else st.just([])
        members.append(Member(draw(st.booleans()), draw(SPECS), tuple(draw(targets))))
    return members


def _group_of(members, i):
    """Everything that is colocated with a member, in order; a closure by brute force."""
    found, size = {i}, 0
    while size < len(found):
        size = len(found)
        for j, member in enumerate(members):
            if j in found or found & set(member.targets):
                found |= {j, *member.targets}
    return sorted(found)


def _requested(members, i):
    """What a member asks for: as the outermost of its targets that asks, else as it says."""
    requested = [_requested(members, j) for j in members[i].targets]
    return next((spec for spec in requested if not spec.is_empty), members[i].spec)


def _fitting(specs, default):
    """Every device that all of the specs allow, the best first."""
    job = {spec.job for spec in specs} - {None} or {default.job}
    number = {spec.task for spec in specs} - {None}
    if not number:
        number = {default.index} if job == {default.job} else {0}
    return [
        Device(task, kind, index)
        for task in TASKS
        for kind, index in (("GPU", 0), ("CPU", 0), ("CPU", 1))
        if ({task.job}, {task.index}) == (job, number)
        and all(spec.type in (None, kind) and spec.index in (None, index) for spec in specs)
    ]


def _agree(specs):
    return all(len({getattr(spec, name) for spec in specs} - {None}) <= 1 for name in FIELDS)


def _expected(members, i):
    """The device by the rules, tried one by one; None where there is none."""
    group = _group_of(members, i)
    specs = []
    for j in group:
        if _agree([*specs, _requested(members, j)]):
            specs.append(_requested(members, j))
        elif j == i:
            return None
    default = TASKS[0] if any(members[j].is_variable for j in group) else TASKS[1]
    return next(iter(_fitting(specs, default)), None)


@given(_graphs())
def test_any_graph_is_placed_as_the_rules_say(members):
    with tf.Graph().as_default():
        ops = []
        for i, member in enumerate(members):
            blocks = [tf.colocate_with(ops[j]) for j in member.targets]
            blocks.append(tf.device(member.spec))
            for block in blocks:
                block.__enter__()
            ops.append(tf.Variable(float(i)).op if member.is_variable else _sin(f"op{i}"))
            for block in reversed(blocks):
                block.__exit__(None, None, None)
        for i, op in enumerate(ops):
            expected = _expected(members, i)
            if expected is None:
                with pytest.raises(tf.errors.InvalidArgumentError, match="Cannot"):
                    place([op], INVENTORY)
            else:
                assert place([op], INVENTORY) == {op: expected}

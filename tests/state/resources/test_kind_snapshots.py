"""Snapshots as a saver takes them: of every kind, through managers and cells."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from jflow.base.cluster import Device, Task
from jflow.base.values import NUMBERS, TensorSpec
from jflow.errors import CancelledError, InvalidArgumentError
from jflow.plan import ResourceSpec
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.resources import Cell, ResourceId, ResourceManager
from jflow.state.resources.accumulator import (
    Accumulator,
    AccumulatorSpec,
    ApplyGradient,
    ApplySparse,
    SetGlobalStep,
    TakeGradient,
)
from jflow.state.resources.iterator_state import (
    IteratorStateSpec,
    SavedIteratorState,
    SaveIteratorState,
)
from jflow.state.resources.kinds import KINDS
from jflow.state.resources.lookup_table import LookupTableSpec
from jflow.state.resources.queue import Dequeue, Enqueue, QueueSpec
from jflow.state.resources.random_state import RandomStateSpec
from jflow.state.resources.reader import ReaderSpec
from jflow.state.resources.value_table import ValueTableSpec
from jflow.state.resources.wait_queue import QueuedResource
from tests.samples import assert_same, numbers

TASK = Task("ps", 0)
CPU = Device(TASK, "CPU", 0)
ROOTS = AllowedDirectories(())
SPECS = {
    "accumulator": AccumulatorSpec("float32", (2,)),
    "iterator_state": IteratorStateSpec(),
    "lookup_table": LookupTableSpec("string", "int64"),
    "queue": QueueSpec("FIFOQueue", 3, components=(TensorSpec((), "float32"),)),
    "random_state": RandomStateSpec((1, 2)),
    "reader": ReaderSpec("IdentityReader"),
    "value_table": ValueTableSpec(),
}


def manager_of(*ids):
    """A manager with a resource of these kinds, made as plans make them."""
    manager = ResourceManager(TASK, ROOTS)
    for resource_id in ids:
        manager.get(CPU, described(resource_id))
    return manager


def described(resource_id):
    kind = next(kind for kind in KINDS if kind.name == resource_id.kind)
    container, _, _, name, owner = resource_id
    return ResourceSpec(kind.name, container, name, owner, definition(SPECS[kind.name]))


def definition(spec):
    return spec.to_bytes()


def restore(manager, resource_id, snapshot):
    """Restores a resource as a checkpoint does: one that does not exist is made first."""
    manager.get(CPU, described(resource_id)).restore(snapshot)


def adopt(manager, resource_id, snapshot):
    """Restores a resource as a move does: its plan is not known."""
    cell = manager.restore_cell(resource_id.kind, resource_id.name, snapshot)
    manager.adopt(resource_id, cell)


ALL = [
    ResourceId("", CPU, "accumulator", "a"),
    ResourceId("box", CPU, "iterator_state", "i"),
    ResourceId("", CPU, "queue", "q", "a session"),
    ResourceId("", CPU, "queue", "q"),
    ResourceId("box", CPU, "reader", "r"),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_kind_has_snapshots(kind):
    resource = kind.make(SPECS[kind.name], "x", ROOTS)
    snapshot = resource.snapshot()
    assert type(snapshot) is kind.snapshot
    assert snapshot.spec == SPECS[kind.name]
    with pytest.raises(AttributeError, match=r"immutable|cannot assign"):
        snapshot.spec = None
    assert resource.restore(snapshot) == []
    others = [other.make(SPECS[other.name], "y", ROOTS) for other in KINDS if other is not kind]
    for other in others:
        with pytest.raises(InvalidArgumentError, match=r"cannot restore .*: expected a .*, got a"):
            resource.restore(other.snapshot())


def test_a_saver_walks_all_resources_and_restores_them_elsewhere():
    manager = manager_of(*ALL)
    assert {*manager.cells()} == {*ALL}
    queue = manager.cells()[ALL[3]]
    queue.submit(Enqueue((np.array(5, np.float32),)), print)
    saved = {resource_id: cell.snapshot() for resource_id, cell in manager.cells().items()}
    elsewhere = ResourceManager(TASK, ROOTS)
    for other, put in ((elsewhere, restore), (manager_of(*ALL), restore), (elsewhere, adopt)):
        for resource_id, snapshot in saved.items():
            put(other, resource_id, snapshot)
        assert {*other.cells()} == {*ALL}
        sizes = [other.get(CPU, described(one)).query(lambda state: state.size) for one in ALL[2:4]]
        assert sizes == [0, 1], "and plans find them"


def test_a_resource_in_the_default_container_is_restored_under_either_of_its_names():
    manager = manager_of(ALL[3])
    snapshot = manager.cells()[ALL[3]].snapshot()
    for put in (restore, adopt):
        put(manager, ALL[3]._replace(container="ps"), snapshot)
        assert {*manager.cells()} == {ALL[3]}


def test_a_restored_resource_is_refused_to_a_plan_that_expects_another_one():
    manager, other = manager_of(ALL[3]), ResourceManager(TASK, ROOTS)
    adopt(other, ALL[3], manager.cells()[ALL[3]].snapshot())
    wanted = structs.replace(SPECS["queue"], capacity=4)
    spec = ResourceSpec("queue", "", "q", "", definition(wanted))
    with pytest.raises(InvalidArgumentError, match=r"another capacity. Expected 4, found 3"):
        other.get(CPU, spec)


def test_restoring_wakes_a_step_that_waits_for_an_existing_resource():
    manager, full = manager_of(ALL[3]), manager_of(ALL[3])
    full.cells()[ALL[3]].submit(Enqueue((np.array(5, np.float32),)), print)
    waiting, woken = Dequeue(), []
    manager.cells()[ALL[3]].submit(waiting, woken.append)
    restore(manager, ALL[3], full.cells()[ALL[3]].snapshot())
    assert woken == [waiting]


def test_a_snapshot_of_another_kind_makes_no_resource():
    manager, empty = manager_of(*ALL), ResourceManager(TASK, ROOTS)
    with pytest.raises(InvalidArgumentError, match="cannot restore queue 'q': expected a Queue"):
        adopt(empty, ALL[3], manager.cells()[ALL[0]].snapshot())
    with pytest.raises(InvalidArgumentError, match="unknown kind"):
        adopt(empty, ALL[3]._replace(kind="stack"), manager.cells()[ALL[0]].snapshot())
    assert empty.cells() == {}


def test_a_closed_manager_restores_nothing():
    manager = manager_of(ALL[3])
    cell = manager.cells()[ALL[3]]
    snapshot = cell.snapshot()
    manager.clear_all()
    with pytest.raises(CancelledError, match="queue 'q' is gone: the session was closed"):
        restore(manager, ALL[3], snapshot)
    adopt(manager, ALL[3], snapshot)
    assert manager.cells() == {}
    with pytest.raises(CancelledError, match="queue 'q' is gone"):
        cell.snapshot()


# Iterator states ----------------------------------------------------------------------------------


@given(before=st.none() | st.binary(), after=st.none() | st.binary())
def test_an_iterator_state_is_its_text(before, after):
    state, other = (SavedIteratorState(IteratorStateSpec(), name) for name in ("one", "other"))
    for text in (before, after):
        snapshot = state.snapshot()
        if text is not None:
            state.submit(SaveIteratorState(text))
        assert state.snapshot().text == (snapshot.text if text is None else text)
        other.restore(snapshot)
        assert other.snapshot() == snapshot
    state.restore(snapshot)
    assert state.text == before


# Accumulators; their state in the middle of operations, test_accumulator_machine.py checks ----


@pytest.mark.parametrize("reduction", ["MEAN", "SUM"])
@pytest.mark.parametrize("name", [name for name in NUMBERS if name != "bool"])
def test_sums_of_every_dtype_are_saved_bit_by_bit(name, reduction):
    spec = AccumulatorSpec(name, (2, 3), reduction)
    one, other = Accumulator(spec, "one"), Accumulator(spec, "other")
    for seed in range(3):
        if seed == 2:
            other.restore(one.snapshot())
        for acc in (one, other):
            acc.submit(ApplyGradient(numbers(name, (2, 3), seed), 0))
    assert other.gradient_sum.n_gradients == 3
    taken = [TakeGradient(1), TakeGradient(1)]
    one.submit(taken[0])
    other.submit(taken[1])
    assert_same(taken[1].result()[0], taken[0].result()[0])


@pytest.mark.parametrize("name", [name for name in NUMBERS if name != "bool"])
def test_sparse_sums_of_every_dtype_are_saved_bit_by_bit(name):
    spec = AccumulatorSpec(name, None, "MEAN", is_sparse=True)
    one, other = Accumulator(spec, "one"), Accumulator(spec, "other")
    gradients = [(np.array([4, 1]), np.array([9, 3])), (np.array([1, 1]), None)]
    for seed, (indices, shape) in enumerate(gradients):
        one.submit(ApplySparse(indices, numbers(name, (2, 3), seed), shape, 0))
    other.restore(one.snapshot())
    taken = [TakeGradient(1), TakeGradient(1)]
    for attempt, acc in zip(taken, (one, other), strict=True):
        acc.submit(ApplySparse(np.array([2]), numbers(name, (1, 3), 9), None, 0))
        acc.submit(attempt)
    for got, sent in zip(taken[1].result(), taken[0].result(), strict=True):
        assert_same(got, sent)
    assert taken[1].result()[2].tolist() == [9, 3]


@pytest.mark.parametrize("adds", [False, True], ids=["takes only", "adds and takes"])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_snapshot_of_an_accumulator_does_not_change(is_sparse, adds):
    acc = accumulator(is_sparse)
    snapshot = acc.snapshot()
    before = {**vars(snapshot.gradient_sum)}
    copies = {key: np.copy(value) for key, value in before.items() if value is not None}
    other = accumulator(is_sparse)
    other.restore(snapshot)
    for one in (acc, other):
        if adds:
            apply(one, is_sparse)
        taken = TakeGradient(1)
        one.submit(taken)
        for array in taken.result():
            array[...] = 77
    for key, value in copies.items():
        np.testing.assert_array_equal(vars(snapshot.gradient_sum)[key], value)


def accumulator(is_sparse):
    acc = Accumulator(AccumulatorSpec("float64", (4, 2), "SUM", is_sparse), "acc")
    apply(acc, is_sparse)
    return acc


def apply(acc, is_sparse):
    if is_sparse:
        acc.submit(ApplySparse(np.array([1, 3]), np.ones((2, 2)), np.array([4, 2]), 0))
    else:
        acc.submit(ApplyGradient(np.ones((4, 2)), 0))


def test_a_take_that_waits_completes_when_a_restore_brings_enough():
    full = accumulator(is_sparse=False)
    full.submit(SetGlobalStep(4))
    empty = Accumulator(full.spec, "empty")
    cell, woken, take = Cell(empty, ""), [], TakeGradient(1)
    assert not cell.submit(take, woken.append)
    cell.restore(full.snapshot())
    assert woken == [take]
    assert take.result()[0].tolist() == [[1, 1]] * 4
    assert (empty.global_step, empty.n_accumulated) == (5, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "float32"}, "dtype float64.*dtype float32"),
        ({"shape": (4, 3)}, r"shape \(4, 2\).*shape \(4, 3\)"),
        ({"reduction": "MEAN"}, "reduction SUM.*reduction MEAN"),
        ({"is_sparse": True}, "kind conditional accumulator.*kind sparse conditional"),
    ],
    ids=str,
)
def test_a_snapshot_of_another_accumulator_is_refused(change, message):
    acc = accumulator(is_sparse=False)
    spec = structs.replace(acc.spec, **change)
    other = Accumulator(spec, "other")
    with pytest.raises(
        InvalidArgumentError, match=f"cannot restore conditional accumulator 'acc'.*{message}"
    ):
        acc.restore(other.snapshot())
    assert acc.n_accumulated == 1


@pytest.mark.parametrize(
    ("is_sparse", "change", "message"),
    [
        (False, {"sums": None}, "1 gradients with no sum"),
        (False, {"n_gradients": 0}, "0 gradients with a sum"),
        (False, {"n_gradients": -1, "sums": None}, "-1 gradients"),
        (False, {"sums": np.zeros((4, 2), np.float32)}, "Type mismatch in sum of the snapshot"),
        (
            False,
            {"sums": np.zeros((4, 3))},
            r"Expected \(4, 2\), got \(4, 3\)",
        ),
        (True, {"indices": None}, "sparse gradients have indices and counts"),
        (True, {"counts": np.zeros(3, np.int64)}, "counts of the snapshot"),
        (True, {"indices": np.zeros(2, np.int32)}, "indices of the snapshot"),
        (True, {"indices": np.array([3, 1])}, r"indices \[3 1\] of a tensor of \(4, 2\)"),
        (True, {"indices": np.array([1, 4])}, r"indices \[1 4\]"),
        (True, {"indices": np.array([-1, 0])}, r"indices \[-1  0\]"),
        (True, {"sums": np.zeros((2, 3))}, "sums of the snapshot"),
        (True, {"sums": None, "n_gradients": 0}, "2 indices without gradients"),
        (True, {"shape": (4, 3)}, r"shape \(4, 3\), expected \(4, 2\)"),
        (True, {"shape": None}, "shape any shape"),
    ],
    ids=str,
)
def test_sums_that_do_not_fit_the_spec_are_refused(is_sparse, change, message):
    acc = accumulator(is_sparse)
    snapshot = acc.snapshot()
    sums = dataclasses.replace(snapshot.gradient_sum, **change)
    with pytest.raises(InvalidArgumentError, match=message):
        acc.restore(dataclasses.replace(snapshot, gradient_sum=sums))
    assert acc.n_accumulated == 1


def test_resources_of_all_kinds_name_their_snapshots():
    for kind in KINDS:
        resource = kind.make(SPECS[kind.name], "x", ROOTS)
        assert isinstance(resource, QueuedResource)
        assert resource.saved_as is kind.snapshot

"""Snapshots of variables: cuts beside programs that write, every dtype, and restoring them."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jflow.base.cluster import Device, Task
from jflow.base.values import NUMBERS, to_physical
from jflow.errors import CancelledError, InvalidArgumentError
from jflow.plan import VARYING, VariableKey, VariableSpec
from jflow.state.resources import Access, Containers, VariableId, VariableSnapshot
from tests.drawn import examples
from tests.samples import KEYS, allowing, assert_same, keys, numbers
from tests.variables import get_variable, set_variable

TASK = Task("ps", 0)
CPU = Device(TASK, "CPU", 0)
NAMES = st.sets(st.sampled_from("abc"), min_size=1)


def spec_of(name, dtype="float32", shape=(2,)):
    return VariableSpec(VariableKey("", name), dtype, shape)


def id_of(name):
    return VariableId("", str(CPU), name)


def device_of(_):
    return jax.local_devices(backend="cpu")[0]


@partial(jax.jit, donate_argnums=0)
def _set_to(array, value):
    return array * 0 + value


class Program(Access):
    """Updates variables in place: each gets the program's number when it ends."""

    def __init__(self, containers, number, names):
        super().__init__((), [id_of(name) for name in names])
        self.containers, self.number, self.names = containers, number, names
        self.new = {}

    def take(self):
        """Their buffers are gone until the end, as if the program ran."""
        for name in self.names:
            spec = spec_of(name)
            found = self.containers.find(id_of(name), spec)
            old = jnp.zeros(2, jnp.float32) if found is None else found.donate()
            self.new[name] = _set_to(old, self.number)

    def put(self):
        for name, array in self.new.items():
            self.containers.set(self, id_of(name), spec_of(name), array, None)

    def rollback(self):
        raise NotImplementedError

    def reason(self, ahead, writer):
        return "waits"


class CutMachine(RuleBasedStateMachine):
    """A cut has the writes of the programs that were granted before it, and of no later one.

    The model is a list of the programs that have been granted, in order.
    """

    def __init__(self):
        super().__init__()
        self.containers = Containers(TASK)
        self.cell = self.containers.accesses
        self.n = 0
        self.granted = []
        self.waiting = []
        self.running = []
        self.initial = {}
        self.cuts = []  # (cut, what it has to contain)
        self.saved = None

    def note_grants(self):
        """Programs that wait are granted in the order in which they came."""
        for program in [p for p in self.waiting if p.is_complete]:
            self.waiting.remove(program)
            self.running.append(program)
            self.granted.append(program)

    def expected(self):
        values = dict(self.initial)
        for program in self.granted:
            values |= dict.fromkeys(program.names, program.number)
        return values

    @rule(names=NAMES)
    def submit(self, names):
        self.n += 1
        program = Program(self.containers, self.n, sorted(names))
        self.cell.submit(program, lambda _: None)
        self.waiting.append(program)
        self.note_grants()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end(self, data):
        program = data.draw(st.sampled_from(self.running))
        self.running.remove(program)
        self.containers.end_access(program)
        self.note_grants()

    @rule()
    def cut(self):
        cut = self.containers.cut(map(id_of, "abc"))
        is_complete = self.cell.submit(cut, lambda _: None)
        assert is_complete == (not self.running), "it waits for what is running, and only for that"
        self.cuts.append((cut, self.expected()))
        self.note_grants()

    @rule(names=NAMES)
    def cut_some(self, names):
        wanted = [id_of(name) for name in names]
        cut = self.containers.cut(wanted)
        self.cell.submit(cut, lambda _: None)
        values = {name: value for name, value in self.expected().items() if name in names}
        self.cuts.append((cut, values))

    @precondition(lambda self: any(cut.is_complete for cut, _ in self.cuts))
    @rule()
    def read(self):
        """Other programs may have updated the variables since."""
        for cut, expected in [pair for pair in self.cuts if pair[0].is_complete]:
            self.cuts = [pair for pair in self.cuts if pair[0] is not cut]
            self.saved = {i: leased.snapshot() for i, leased in cut.leased.items()}
            self.saved_values = expected
            found = {i.name: saved.value.tolist() for i, saved in self.saved.items()}
            assert found == {name: [value] * 2 for name, value in expected.items()}

    @precondition(lambda self: self.cuts)
    @rule(data=st.data())
    def give_up(self, data):
        cut, _ = pair = data.draw(st.sampled_from(self.cuts))
        self.cuts.remove(pair)
        if cut.is_complete:
            self.cell.unread(cut)
        else:
            self.cell.cancel(cut, CancelledError("given up"))
        assert cut.leased == {}

    @precondition(lambda self: self.saved and not self.running)
    @rule()
    def restore(self):
        restoring = self.containers.restoring(self.saved, device_of)
        assert self.cell.submit(restoring, lambda _: None)
        restoring.result()
        self.initial = self.expected() | self.saved_values
        self.granted = []

    @invariant()
    def programs_wait_for_programs_only(self):
        for program in self.waiting:
            busy = {name for other in self.running for name in other.names}
            ahead = self.waiting[: self.waiting.index(program)]
            assert busy | {name for other in ahead for name in other.names} & {*program.names}

    def teardown(self):
        while self.running:
            self.containers.end_access(self.running.pop())
            self.note_grants()
        self.read_all()
        for name, value in self.expected().items():
            variable = get_variable(self.containers, CPU, spec_of(name))
            assert variable.buffer.array.tolist() == [value] * 2
            assert not variable.is_leased

    def read_all(self):
        assert all(cut.is_complete for cut, _ in self.cuts)
        if self.cuts:
            self.read()


TestCut = CutMachine.TestCase
TestCut.settings = settings(max_examples=examples(30), stateful_step_count=30, deadline=None)


def saved(containers, *names):
    cut = containers.cut([id_of(name) for name in names])
    assert containers.accesses.submit(cut, print)
    return {i: leased.snapshot() for i, leased in cut.leased.items()}


def restore(containers, snapshots):
    restoring = containers.restoring(snapshots, device_of)
    assert containers.accesses.submit(restoring, print)
    restoring.result()


def test_a_snapshot_survives_the_donation_of_the_buffer_that_it_was_taken_of():
    containers = Containers(TASK)
    set_variable(containers, CPU, spec_of("x"), jnp.ones(2, jnp.float32))
    cut = containers.cut([id_of("x")])
    containers.accesses.submit(cut, print)
    program = Program(containers, 5, ["x"])
    containers.begin_access(program)
    containers.end_access(program)
    (leased,) = cut.leased.values()
    assert leased.snapshot().value.tolist() == [1, 1]
    variable = get_variable(containers, CPU, spec_of("x"))
    assert variable.buffer.array.tolist() == [5, 5]
    address = variable.buffer.array.unsafe_buffer_pointer()
    program = Program(containers, 6, ["x"])
    containers.begin_access(program)
    containers.end_access(program)
    assert variable.buffer.array.unsafe_buffer_pointer() == address, "in place again"


def test_taking_a_snapshot_leaves_nothing_that_makes_updates_copy():
    containers = Containers(TASK)
    set_variable(containers, CPU, spec_of("x"), _set_to(jnp.ones(2, jnp.float32), 3))
    variable = get_variable(containers, CPU, spec_of("x"))
    address = variable.buffer.array.unsafe_buffer_pointer()
    (snapshot,) = saved(containers, "x").values()
    program = Program(containers, 5, ["x"])
    containers.begin_access(program)
    containers.end_access(program)
    assert variable.buffer.array.unsafe_buffer_pointer() == address
    assert snapshot.value.tolist() == [3, 3]


def test_a_snapshot_shares_no_memory_with_what_is_restored_from_it():
    containers = Containers(TASK)
    memory = np.empty(4 * 4096 + 64, np.uint8)
    start = -memory.ctypes.data % 64  # JAX takes aligned memory as it is, where it may
    value = memory[start : start + 4 * 4096].view(np.float32)
    value[:] = 1
    snapshot = VariableSnapshot(spec_of("x", shape=(4096,)), value)
    restore(containers, {id_of("x"): snapshot})
    variable = get_variable(containers, CPU, spec_of("x", shape=(4096,)))
    value[:] = 2
    assert (variable.buffer.array == 1).all()
    variable.buffer.array = _set_to(variable.donate(), 7)
    variable.buffer.array.block_until_ready()
    assert (value == 2).all()


@pytest.mark.parametrize("name", NUMBERS)
def test_every_dtype_is_saved_bit_by_bit_in_physical_form(name):
    with allowing(name):
        value = to_physical(numbers(name, (2, 3)))
        spec = spec_of("x", name, (2, 3))
        containers, other = Containers(TASK), Containers(TASK)
        set_variable(containers, CPU, spec, jnp.array(value))
        snapshots = saved(containers, "x")
        assert_same(snapshots[id_of("x")].value, value)
        restore(other, snapshots)
        assert_same(np.asarray(get_variable(other, CPU, spec).buffer.array), value)


@pytest.mark.parametrize("impl", KEYS)
def test_random_keys_are_saved_as_their_data(impl):
    some = keys(impl, (3,))
    spec = spec_of("x", some.dtype.name, (3,))
    containers, other = Containers(TASK), Containers(TASK)
    set_variable(containers, CPU, spec, jnp.array(to_physical(some)))
    restore(other, saved(containers, "x"))
    found = get_variable(other, CPU, spec).buffer.array
    assert_same(jax.random.wrap_key_data(found, impl=impl), some)


def test_a_variable_is_restored_under_another_name():
    containers = Containers(TASK)
    set_variable(containers, CPU, spec_of("x"), jnp.ones(2, jnp.float32))
    restore(containers, {id_of("y"): saved(containers, "x")[id_of("x")]})
    assert get_variable(containers, CPU, spec_of("y")).spec.key.name == "y"


def test_variables_that_are_not_initialized_are_not_in_a_snapshot():
    assert saved(Containers(TASK), "x") == {}


@pytest.mark.parametrize(
    ("dtype", "shape"), [("float32", (3,)), ("int32", (2,)), ("float32", (VARYING,))]
)
def test_a_snapshot_of_another_dtype_or_shape_is_refused_and_changes_nothing(dtype, shape):
    containers, other = Containers(TASK), Containers(TASK)
    for name in ("x", "y"):
        set_variable(containers, CPU, spec_of(name), jnp.zeros(2, jnp.float32))
    size = shape[0] if shape[0] != VARYING else 3
    set_variable(other, CPU, spec_of("y", dtype, shape), jnp.ones(size, dtype))
    set_variable(other, CPU, spec_of("x"), jnp.ones(2, jnp.float32))
    said = "None" if shape[0] == VARYING else shape[0]
    with pytest.raises(
        InvalidArgumentError,
        match=rf"cannot restore variable 'y'.*float32 and shape \(2,\).*{dtype}.*\({said},\)",
    ):
        restore(containers, saved(other, "x", "y"))
    assert get_variable(containers, CPU, spec_of("x")).buffer.array.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("float32", np.zeros(2)),
        ("float32", np.zeros(3, np.float32)),
        ("int4", np.zeros(2, np.int32)),
        ("key<fry>", np.zeros((2, 2), np.int32)),
        ("key<fry>", np.zeros(2, np.uint32)),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_its_spec_is_refused(dtype, value):
    snapshot = VariableSnapshot(spec_of("x", dtype), value)
    with pytest.raises(InvalidArgumentError, match="its value in the snapshot is of"):
        Containers(TASK).restoring({id_of("x"): snapshot}, device_of)


def test_what_needs_64_bit_types_is_refused_where_they_are_switched_off():
    snapshot = VariableSnapshot(spec_of("x", "float64"), np.zeros(2))
    with pytest.raises(InvalidArgumentError, match="jax_enable_x64"):
        Containers(TASK).restoring({id_of("x"): snapshot}, device_of)


def test_a_restore_waits_for_the_program_that_writes_and_goes_before_later_ones():
    containers = Containers(TASK)
    set_variable(containers, CPU, spec_of("x"), jnp.ones(2, jnp.float32))
    snapshots = saved(containers, "x")
    running, later = Program(containers, 2, ["x"]), Program(containers, 3, ["x"])
    containers.begin_access(running)
    restoring = containers.restoring(snapshots, device_of)
    assert not containers.accesses.submit(restoring, lambda _: None)
    containers.accesses.submit(later, lambda _: None)
    containers.end_access(running)
    assert restoring.is_complete
    assert later.is_complete
    containers.end_access(later)
    assert get_variable(containers, CPU, spec_of("x")).buffer.array.tolist() == [3, 3]


def test_a_leased_value_does_not_change_when_its_variable_is_restored():
    containers = Containers(TASK)
    set_variable(containers, CPU, spec_of("x"), jnp.ones(2, jnp.float32))
    lease = get_variable(containers, CPU, spec_of("x")).lease()
    snapshot = saved(containers, "x")[id_of("x")]
    zeros = dataclasses.replace(snapshot, value=np.zeros(2, np.float32))
    restore(containers, {id_of("x"): zeros})
    assert lease.buffer.array.tolist() == [1, 1]
    assert get_variable(containers, CPU, spec_of("x")).buffer.array.tolist() == [0, 0]


def test_a_cut_does_not_wait_for_a_variable_that_a_reset_takes_away_from_its_program():
    containers = Containers(TASK)
    for name in ("x", "y"):
        set_variable(containers, CPU, spec_of(name), jnp.ones(2, jnp.float32))
    running = Program(containers, 2, ["x"])
    containers.begin_access(running)
    cut, woken = containers.cut(map(id_of, "xy")), []
    assert not containers.accesses.submit(cut, woken.append)
    assert containers.accesses.reason(cut).startswith("waited for variable 'x'")
    containers.clear([""])
    assert woken == [cut]
    assert [i.name for i in cut.leased] == ["y"]
    containers.end_access(running)

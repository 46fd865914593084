"""Data locality: what a function leaves free goes where fewer bytes are sent, never where more."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jflow as tf
from jflow.base.cluster import Device, Task
from jflow.compiler.graph import Operation, Tensor
from jflow.compiler.placement import Inventory, assign
from jflow.compiler.placement.equations import size_of
from jflow.compiler.placement.locality import may_move
from jflow.testing import in_process

TASKS = (Task("ps", 0), Task("worker", 0), Task("worker", 1))
DEVICES = {task: (Device(task, "CPU", 0),) for task in TASKS}
PS, MASTER, OTHER = (DEVICES[task][0] for task in TASKS)
INVENTORY = Inventory(MASTER.task, TASKS, DEVICES)


def bytes_sent(placement: Mapping[Operation, Device], fetches: Sequence[Tensor]) -> float:
    """The bytes that a step sends between devices, by a count of its own."""
    sent = {
        (tensor, device)
        for op, device in placement.items()
        for tensor in op.inputs
        if placement.get(tensor.op, MASTER) != device
    }
    sent |= {(tensor, MASTER) for tensor in fetches if placement[tensor.op] != MASTER}
    return sum(size_of(tensor.aval) for tensor, _ in sent)


@st.composite
def graphs(draw: st.DrawFn, devices: Sequence[Device | None]) -> list[Tensor]:
    """The values of a graph of concatenations and slices, some with a device."""
    values: list[Tensor] = []
    with tf.Graph().as_default():
        for i in range(draw(st.integers(1, 2))):
            values.append(
                tf.placeholder(tf.float32, (draw(st.sampled_from([8, 4_000_000])),), f"x{i}")
            )
        for _ in range(draw(st.integers(1, 7))):
            device = draw(st.sampled_from(devices))
            used = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
            n = draw(st.sampled_from([4, 3_000_000, 8_000_000]))
            with tf.device("" if device is None else str(device)):
                whole = tf.lax.concatenate(used, 0) if used[1:] else used[0] * 2
                values.append(whole)
                values.append(tf.lax.slice(whole, (0,), (min(n, whole.shape[0]),)))
    return values


def placed(
    values: Sequence[Tensor], fetches: Sequence[Tensor]
) -> tuple[Mapping[Operation, Device], Mapping[Operation, Device]]:
    """The placements of a session and of a function."""
    ops = [value.op for value in values if value.op.type != "placeholder"]
    before = assign(ops, INVENTORY).place(DEVICES)
    return before, assign(ops, INVENTORY, fetches=fetches).place(DEVICES)


@given(graphs([None, None, PS, OTHER, MASTER]), st.data())
def test_a_function_never_sends_more_than_a_session(values: list[Tensor], data: Any) -> None:
    made = [value for value in values if value.op.type != "placeholder"]
    fetches = data.draw(st.lists(st.sampled_from(made), unique=True))
    before, after = placed(values, fetches)
    assert bytes_sent(after, fetches) <= bytes_sent(before, fetches)
    for op, device in after.items():
        if not op.spec.is_empty:
            assert device == before[op], "a device that the user names wins"


@given(graphs([None, PS]), st.data())
def test_between_two_devices_nothing_sends_less(values: list[Tensor], data: Any) -> None:
    made = [value for value in values if value.op.type != "placeholder"]
    fetches = data.draw(st.lists(st.sampled_from(made), max_size=2, unique=True))
    _, after = placed(values, fetches)
    free = [op for op in after if op.spec.is_empty][:10]
    # Messages and work count, too; they decide nothing where more than all of them is saved.
    slack = (1 << 21) + sum(value.aval.size for value in values)
    for devices in itertools.product([MASTER, PS], repeat=len(free)):
        other = {**after, **dict(zip(free, devices, strict=True))}
        assert bytes_sent(after, fetches) <= bytes_sent(other, fetches) + slack


def test_nothing_moves_where_as_much_is_sent() -> None:
    x = tf.placeholder(tf.float32, (1000,))
    with tf.device("/job:ps"):
        there = x * 2
    values = [there, there + 1]
    before, after = placed(values, [values[1]])
    assert after == before


def test_small_savings_do_not_add_messages() -> None:
    """A value of 4 kB is not worth a way to the server and back."""
    with tf.device("/job:ps"):
        far = tf.numpy.zeros(1000) + 1
    near = tf.placeholder(tf.float32, (2,)) + 1
    values = [far.op.inputs[0], far, near, tf.lax.concatenate([near, far], 0)]
    values.append(values[-1][0])
    before, after = placed(values, [values[-1]])
    assert after == before


# Functions ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    with in_process({"ps": 1, "worker": 2}) as backend:
        yield next(one for one in backend.targets if one)


@pytest.fixture
def connection(target: str) -> Iterator[tf.function.Connection]:
    tf.Session.reset(target)
    with tf.connect(target) as connection:
        yield connection


def tasks_of(function: Any, *args: Any) -> dict[str, set[str]]:
    """The tasks of the operations of a call, by their type."""
    found: dict[str, set[str]] = {}
    for op, device in function.placement(*args).items():
        found.setdefault(op.type, set()).add(str(device.task))
    return found


X, Y = np.ones((32, 784), np.float32), np.ones((32, 10), np.float32)


def loss(w: Any, x: Any, y: Any) -> Any:
    return jnp.mean((x @ w - y) ** 2)


def test_a_gradient_goes_straight_to_its_variable(connection: tf.function.Connection) -> None:
    w = tf.Variable(jnp.zeros((784, 10)), name="w")

    def far(w: Any, x: Any, y: Any) -> Any:
        with tf.device("/job:worker/task:1"):
            return loss(w, x, y)

    @tf.function
    def train(x: Any, y: Any) -> Any:
        value, slope = jax.value_and_grad(far)(w.value(), x, y)
        w.assign_sub(0.1 * slope)
        return value

    assert float(train(X, Y)) == 1.0
    tasks = {str(device.task) for device in train.placement(X, Y).values()}
    assert tasks == {"/job:ps/task:0", "/job:worker/task:1"}
    expected = -0.1 * jax.grad(loss)(jnp.zeros((784, 10)), X, Y)
    np.testing.assert_allclose(w.value(), expected, rtol=1e-5)
    explained = str(train.explain(X, Y))
    assert "chosen by rules: beside the data that it uses or makes, where fewer bytes" in explained


def test_an_optimizer_computes_beside_its_variables(connection: tf.function.Connection) -> None:
    w = tf.Variable(jnp.ones((784, 10)), name="w")
    state = optax.adam(1e-2).init(jnp.ones((784, 10)))
    slots = jax.tree.map(tf.Variable, state)

    @tf.function
    def train(x: Any, y: Any) -> Any:
        value, slope = jax.value_and_grad(loss)(w.value(), x, y)
        old = jax.tree.map(lambda slot: slot.value(), slots)
        changes, new = optax.adam(1e-2).update(slope, old)
        w.assign_add(changes)
        jax.tree.map(lambda slot, leaf: slot.assign(leaf), slots, new)
        return value

    train(X, Y)
    tasks = tasks_of(train, X, Y)
    assert tasks["dot_general"] == {"/job:worker/task:0"}, "what is expensive stays on the worker"
    assert tasks["sqrt"] == {"/job:ps/task:0"}


def test_rows_are_taken_where_their_table_is(connection: tf.function.Connection) -> None:
    table = tf.Variable(jnp.ones((20_000, 8)), name="table")

    @tf.function
    def lookup(numbers: Any) -> Any:
        return table.value()[numbers] * 2.0

    np.testing.assert_array_equal(lookup(np.arange(3)), np.full((3, 8), 2.0))
    assert tasks_of(lookup, np.arange(3))["gather"] == {"/job:ps/task:0"}


def test_an_initial_value_is_computed_where_it_is_stored(
    connection: tf.function.Connection,
) -> None:
    with tf.trace_steps() as steps:
        w = tf.Variable(lambda: jnp.full((784, 10), 0.5), name="w")
    np.testing.assert_array_equal(w.value(), np.full((784, 10), 0.5))
    assert {span.device for span in steps[0].spans if span.device} == {str(PS)}


def test_a_device_that_the_user_names_wins(connection: tf.function.Connection) -> None:
    table = tf.Variable(jnp.ones((20_000, 8)), name="table")

    @tf.function
    def lookup(numbers: Any) -> Any:
        with tf.device("/job:worker/task:1"):
            return table.value()[numbers]

    assert tasks_of(lookup, np.arange(3))["gather"] == {"/job:worker/task:1"}


def test_in_a_graph_a_function_follows_the_session(target: str) -> None:
    tf.Session.reset(target)
    table = tf.Variable(tf.numpy.ones((20_000, 8)), name="table")
    rows = tf.function(lambda values, numbers: values[numbers])(table, tf.constant([1, 2]))
    with tf.Session(target) as session:
        tasks = {op.type: str(device.task) for op, device in session.placement(rows).items()}
    assert tasks["gather"] == "/job:worker/task:0"


def test_effects_and_products_stay(connection: tf.function.Connection) -> None:
    """Calls of Python, and what decides which task computes, are where they were."""
    w = tf.Variable(jnp.ones((2000, 2000)), name="w")

    @tf.function
    def both(x: Any) -> Any:
        jax.debug.callback(lambda total: None, jnp.sum(w.value()))
        return x @ w.value()

    tasks = tasks_of(both, np.ones((1, 2000), np.float32))
    assert tasks["dot_general"] == tasks["debug_callback"] == {"/job:worker/task:0"}
    assert tasks["reduce_sum"] == {"/job:ps/task:0"}


def _chain(x: Any) -> Any:
    for _ in range(200):
        x = jnp.tanh(x)
    return x


def _series(x: Any) -> Any:
    return jax.random.gamma(jax.random.key(0), jnp.abs(x) + 1)


@pytest.mark.parametrize(
    "function", [jnp.sort, _series, _chain, jax.jit(_chain), jnp.linalg.inv, jnp.fft.fft2]
)
def test_what_takes_longer_than_sending_stays(
    connection: tf.function.Connection, function: Any
) -> None:
    """A parameter server would compute it for all workers."""
    v = tf.Variable(jnp.ones((512, 512)), name="v")

    @tf.function
    def total() -> Any:
        return jnp.sum(jnp.abs(function(v.value())))

    last = [device for op, device in total.placement().items() if op.type != "read"]
    assert {str(device.task) for device in last[:-2]} <= {"/job:worker/task:0"}


def test_what_is_made_for_one_kind_of_device_stays_also_inside_of_calls() -> None:
    def foreign(x: Any) -> Any:
        return jax.ffi.ffi_call("mine", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    x = tf.placeholder(tf.float32, (1_000_000,))
    with tf.device("/job:ps"):
        far = x * 2.0
    for function in (foreign, jax.jit(foreign), jax.checkpoint(jax.jit(foreign))):
        op = tf.get_default_graph().apply(function, (far,)).op
        assert not may_move(op)

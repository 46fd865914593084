"""What an operation asks for inside nested blocks, against TensorFlow's rules in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jflow as tf
from jflow.base.cluster import DeviceSpec


def _op(name="x"):
    return tf.constant(1.0, name=name).op


# Device functions


def test_a_device_function_is_called_with_each_new_operation():
    seen = []

    def choose(op):
        seen.append((op.name, op.type, [t.name for t in op.inputs]))
        return "/gpu:0" if op.type == "sin" else "/cpu:0"

    x = tf.constant(1.0, name="x")
    with tf.device(choose):
        y = tf.numpy.sin(x, name="y")
        z = tf.numpy.cos(y, name="z")
    after = tf.numpy.sin(z, name="after")
    assert seen == [("y", "sin", ["x:0"]), ("z", "cos", ["y:0"])]
    assert [t.device for t in (x, y, z, after)] == ["", "/device:GPU:0", "/device:CPU:0", ""]


def test_the_result_of_a_function_replaces_what_inner_blocks_say():
    with tf.device(lambda _: "/job:ps"), tf.device("/job:worker/task:1/cpu:1"):
        assert _op().device == "/job:ps"


def test_an_outer_name_fills_what_a_function_leaves_out():
    with tf.device("/job:ps/task:3/cpu:1"), tf.device(lambda _: "/task:0"):
        assert _op().device == "/job:ps/task:0/device:CPU:1"


def test_a_function_sees_what_inner_blocks_ask_for():
    seen = []
    with (
        tf.device("/job:ps"),
        tf.device(lambda op: seen.append(op.device) or "/cpu:2"),
        tf.device(lambda op: seen.append(op.device) or "/task:1"),
        tf.device("/gpu:0"),
    ):
        assert _op().device == "/job:ps/device:CPU:2"
    assert seen == ["/device:GPU:0", "/task:1"]


def test_a_function_that_passes_on_what_it_sees_changes_nothing():
    with tf.device("/job:ps"), tf.device(lambda op: op.device), tf.device("/cpu:1"):
        assert _op().device == "/job:ps/device:CPU:1"


@pytest.mark.parametrize("result", [None, "", DeviceSpec()])
def test_a_function_may_answer_nothing(result):
    with tf.device("/job:ps"), tf.device(lambda _: result), tf.device("/cpu:1"):
        assert _op().device == "/job:ps"


def test_a_function_may_answer_a_spec():
    with tf.device(lambda _: DeviceSpec("ps", 1)):
        assert _op().device == "/job:ps/task:1"


def test_functions_outside_of_no_device_are_not_called():
    with tf.device(lambda _: 1 / 0), tf.device(None):
        assert _op().device == ""
        with tf.device("/cpu:1"):
            assert _op().device == "/device:CPU:1"


def test_an_object_that_cannot_be_hashed_can_be_a_device_function():
    @dataclass
    class Choose:
        device: str

        def __call__(self, _: tf.Operation) -> str:
            return self.device

    for device in ("/device:CPU:1", "/device:CPU:2"):
        with tf.device(Choose(device)):
            assert tf.numpy.sin(tf.constant(1.0)).device == device


def test_a_round_robin_gives_each_operation_its_own():
    tasks = iter(range(9))
    with tf.device(lambda op: f"/job:ps/task:{next(tasks)}" if op.type == "variable" else None):
        variables = [tf.Variable(float(i)) for i in range(3)]
    assert [v.device for v in variables] == [f"/job:ps/task:{i}" for i in range(3)]


def test_a_function_that_answers_no_device_name_is_an_error_that_says_where():
    def choose(_):
        return "cpu number one"

    with tf.device(choose), pytest.raises(ValueError, match="'cpu number one' is not a") as raised:
        tf.constant(1.0, name="x")
    message = str(raised.value)
    assert "choose' for operation 'x'" in message
    assert f"{__file__}:" in message


@pytest.mark.parametrize("result", [0, b"/cpu:0", ["/cpu:0"]])
def test_a_function_that_answers_something_else_is_an_error(result):
    with tf.device(lambda _: result), pytest.raises(TypeError, match="for operation 'x'"):
        _op()


def test_what_a_function_raises_comes_out_and_the_graph_is_as_before():
    def choose(_):
        raise KeyError("mine")

    with tf.device(choose), pytest.raises(KeyError, match="mine") as raised:
        tf.constant(1.0, name="x")
    assert "choose' for operation 'x'" in raised.value.__notes__[0]
    assert tf.get_default_graph().get_operations() == []
    assert _op().device == ""


# Device functions and functions that JAX traces


def test_a_function_around_a_traced_one_is_called_when_it_becomes_operations():
    seen = []

    def choose(op):
        seen.append(op.type)
        return "/cpu:1"

    def traced(x):
        with tf.device(choose):
            return jnp.sin(x)

    jaxpr = jax.make_jaxpr(traced)(1.0)
    assert seen == []
    (y,) = tf.get_default_graph().inline(jaxpr, [tf.constant(1.0).var], lambda _: "y")
    assert (seen, y.device) == (["sin"], "/device:CPU:1")


def test_a_device_function_is_called_once_for_each_operation_of_a_jflow_function():
    seen = []

    def choose(op):
        seen.append(op.type)
        return "/cpu:1"

    @tf.function
    def compute(x):
        return jnp.cos(jnp.sin(x))

    with tf.device(choose):
        y = compute(tf.constant(1.0))
        assert seen.count("sin") == seen.count("cos") == 1
        assert y.device == "/device:CPU:1"
        seen.clear()
        assert compute(2.0) == jnp.cos(jnp.sin(2.0))
        assert compute(3.0) == jnp.cos(jnp.sin(3.0))
    assert seen.count("sin") == seen.count("cos") == 1


def test_a_live_variable_is_shown_to_device_functions_as_an_operation():
    seen = []

    def choose(op):
        seen.append((op.name, op.type))
        return "/cpu:2"

    with tf.connect(), tf.device(choose):
        variable = tf.Variable(1.0, name="v")
        assert variable.device == "/job:localhost/task:0/device:CPU:2"
        assert variable + 1 == 2.0
    assert seen[0] == ("v", "variable")


def test_a_gradient_asks_for_what_the_function_answered_for_its_forward_operation():
    calls = []
    x = tf.constant(1.0)
    with tf.device(lambda op: calls.append(op.name) or "/cpu:2"):
        y = tf.numpy.sin(x)
    (slope,) = tf.gradients(y, x)
    assert (slope.device, calls) == ("/device:CPU:2", [y.op.name])


def test_a_loop_whose_body_has_a_device_function_goes_where_that_says():
    def body(carry, _):
        with tf.device(lambda op: "/cpu:1" if op.type == "scan" else "/cpu:2"):
            return carry * 2, None

    y = tf.lax.scan(body, tf.constant(1.0), length=3)[0]
    assert y.device == "/device:CPU:1"


# Colocation


def test_an_operation_has_the_device_of_the_one_it_is_colocated_with():
    with tf.device("/cpu:1"):
        a = _op("a")
    with tf.colocate_with(a):
        b = _op("b")
    assert b.device == "/device:CPU:1"
    assert a.colocation_groups() == b.colocation_groups() == [b"loc:@a"]


def test_colocation_forgets_the_device_blocks_around_it():
    a = _op("a")
    with tf.device("/job:ps"), tf.device(lambda _: "/cpu:1"), tf.colocate_with(a):
        assert _op().device == ""
        with tf.device("/cpu:2"):
            assert _op().device == "/device:CPU:2"


def test_a_device_of_the_other_operation_wins_over_blocks_inside():
    with tf.device("/cpu:1"):
        a = _op("a")
    with tf.colocate_with(a), tf.device("/job:ps"):
        assert _op().device == "/device:CPU:1"


def test_colocation_goes_through_to_the_first_of_a_chain():
    a = _op("a")
    with tf.colocate_with(a):
        b = _op("b")
    with tf.colocate_with(b):
        c = _op("c")
    assert c.colocation_groups() == [b"loc:@a"]


def test_nested_colocation_adds_up_unless_it_ignores_what_is_there():
    a, b = _op("a"), _op("b")
    with tf.colocate_with(b), tf.colocate_with(a):
        assert _op().colocation_groups() == [b"loc:@a", b"loc:@b"]
    with tf.colocate_with(a):
        with tf.colocate_with(b, ignore_existing=True):
            assert _op().colocation_groups() == [b"loc:@b"]
        with tf.colocate_with(None, ignore_existing=True):
            free = _op("free")
        assert _op().colocation_groups() == [b"loc:@a"]
    assert free.colocation_groups() == [b"loc:@free"]


def test_no_device_does_not_end_colocation():
    a = _op("a")
    with tf.colocate_with(a), tf.device(None):
        assert _op().colocation_groups() == [b"loc:@a"]


def test_a_tensor_or_a_variable_can_be_colocated_with():
    x, v = tf.constant(1.0, name="x"), tf.Variable(1.0, name="v")
    with tf.colocate_with(x), tf.colocate_with(v):
        assert _op().colocation_groups() == [b"loc:@v", b"loc:@x"]


def test_gradients_follow_the_colocation_of_their_forward_operations():
    a, x = _op("a"), tf.constant([1.0, 2.0])
    with tf.colocate_with(a):
        y = tf.numpy.tanh(x)
    before = len(tf.get_default_graph().get_operations())
    tf.gradients(y, x)
    made = tf.get_default_graph().get_operations()[before:]
    assert {tuple(op.colocation_groups()) for op in made} == {(b"loc:@a",)}


def test_a_traced_function_carries_its_colocation():
    a = _op("a")

    def traced(x):
        with tf.colocate_with(a):
            return jnp.sin(x)

    with tf.device("/cpu:1"):
        y = tf.get_default_graph().apply(traced, [tf.constant(1.0)])
    assert (y.op.colocation_groups(), y.device) == ([b"loc:@a"], "")


def test_nothing_to_colocate_with_must_be_meant():
    with pytest.raises(ValueError, match="ignore_existing=True"):
        tf.colocate_with(None)


@pytest.mark.parametrize("value", ["x", 1.0, object()])
def test_other_things_cannot_be_colocated_with(value):
    with pytest.raises(TypeError, match="colocate_with requires an operation"):
        tf.colocate_with(value)


def test_an_operation_of_another_graph_cannot_be_colocated_with():
    with tf.Graph().as_default():
        foreign = _op("foreign")
    with pytest.raises(ValueError, match="belongs to another graph"):
        tf.colocate_with(foreign)


def test_a_colocation_block_is_for_one_graph():
    with (
        tf.colocate_with(_op("a")),
        tf.Graph().as_default(),
        pytest.raises(ValueError, match=r"'b' \(made at .*colocates with 'a' of another graph"),
    ):
        _op("b")


# Any nesting

JOBS, TASKS = st.none() | st.sampled_from("vw"), st.none() | st.integers(0, 2)
SPECS = st.one_of(
    st.builds(DeviceSpec, JOBS, TASKS),
    st.builds(DeviceSpec, JOBS, TASKS, st.sampled_from(["CPU", "GPU"]), TASKS),
)


@dataclass(frozen=True)
class Name:
    spec: DeviceSpec


@dataclass(frozen=True)
class Function:
    spec: DeviceSpec
    keeps: bool
    """Whether it only fills in what the operation does not ask for."""

    def __call__(self, op: tf.Operation) -> DeviceSpec:
        return self.answer(op.spec)

    def answer(self, found: DeviceSpec) -> DeviceSpec:
        return self.spec.merge(found) if self.keeps else self.spec


@dataclass(frozen=True)
class Forget:
    pass


@dataclass(frozen=True)
class Colocate:
    target: int | None
    ignores: bool


Block = Name | Function | Forget | Colocate
BLOCKS = st.one_of(
    st.builds(Name, SPECS),
    st.builds(Function, SPECS, st.booleans()),
    st.just(Forget()),
    st.builds(Colocate, st.integers(0, 2), st.booleans()),
    st.just(Colocate(None, ignores=True)),
)


def _expected(blocks: Sequence[Block], targets: Sequence[DeviceSpec]) -> tuple[str, list[int]]:
    """The device and the targets inside `blocks`, as TensorFlow's Graph has them."""
    device_stack: list[Block] = []
    colocation_stack: list[int] = []
    for block in blocks:
        if isinstance(block, Colocate):
            device_stack = []
            colocation_stack = [] if block.ignores else colocation_stack
            colocation_stack = colocation_stack + (
                [block.target] if block.target is not None else []
            )
        else:
            device_stack.append(block)
    found = DeviceSpec()
    for block in reversed(device_stack):
        if isinstance(block, Forget):
            break
        found = block.answer(found) if isinstance(block, Function) else block.spec.merge(found)
    for target in reversed(colocation_stack):
        found = found if targets[target].is_empty else targets[target]
    return str(found), sorted(set(colocation_stack))


def _enter(stack: ExitStack, blocks: Sequence[Block], targets: Sequence[tf.Operation]) -> None:
    for block in blocks:
        if isinstance(block, Colocate):
            target: Any = None if block.target is None else targets[block.target]
            stack.enter_context(tf.colocate_with(target, block.ignores))
        elif isinstance(block, Forget):
            stack.enter_context(tf.device(None))
        else:
            name = str(block.spec) if isinstance(block, Name) else block
            stack.enter_context(tf.device(name))


@given(st.lists(BLOCKS, max_size=6), st.tuples(SPECS, SPECS, SPECS), st.integers(0, 6))
def test_any_nesting_asks_for_what_tensorflow_would(blocks, specs, cut):
    """In graph code, and with the innermost blocks inside of a function that JAX traces."""
    graph = tf.Graph()
    with graph.as_default():
        targets = []
        for i, spec in enumerate(specs):
            with tf.device(spec):
                targets.append(_op(f"t{i}"))
        x = tf.constant(1.0)

        def traced(value):
            with ExitStack() as stack:
                _enter(stack, blocks[cut:], targets)
                return jnp.sin(value)

        with ExitStack() as stack:
            _enter(stack, blocks[:cut], targets)
            in_a_function = graph.apply(traced, [x]).op
            _enter(stack, blocks[cut:], targets)
            in_graph_code = _op()
        after = _op()
    device, groups = _expected(blocks, specs)
    for op in (in_graph_code, in_a_function):
        assert op.device == device
        assert op.colocated_with == tuple(f"t{i}" for i in groups)
    assert (after.device, after.colocated_with) == ("", ())

"""Bodies of loops over devices: programs, what is sent, what is kept where, what takes no copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jflow as tf
from jflow.base.cluster import Device, Task
from jflow.compiler.pipeline import CompiledStep, StepRequest, compile_step
from jflow.compiler.placement import Inventory
from jflow.plan import Loop, Plan, Recv, Run, Send, verify, verify_step

TASKS = tuple(Task("worker", i) for i in range(3))
DEVICES = {task: (Device(task, "CPU", 0),) for task in TASKS}
PLATFORMS = {device: "cpu" for devices in DEVICES.values() for device in devices}
CLUSTER = Inventory(TASKS[0], TASKS, DEVICES, PLATFORMS)

WEIGHTS = [np.full((4, 4), 0.1 * (i + 1), np.float32) for i in range(3)]


def on(stage: int) -> Any:
    return tf.device(f"/job:worker/task:{stage}")


def model(weights: Any, x: Any) -> Any:
    for stage, weight in enumerate(weights):
        with on(stage):
            x = jnp.tanh(x @ weight)
    return x


def loss(weights: Any, x: Any) -> Any:
    y = model(weights, x)
    with on(len(weights) - 1):
        return jnp.sum(y)


def forward(weights: Any, xs: Any) -> Any:
    def body(total: Any, x: Any) -> Any:
        value = loss(weights, x)
        with on(len(weights) - 1):
            return total + value, None

    return lax.scan(body, jnp.float32(0), xs)[0]


def accumulated(weights: Any, xs: Any) -> Any:
    def body(total: Any, x: Any) -> Any:
        return jax.tree.map(jnp.add, total, jax.grad(loss)(weights, x)), None

    return lax.scan(body, jax.tree.map(jnp.zeros_like, weights), xs)[0]


def compiled(function: Callable[..., Any], n: int = 8, n_stages: int = 3) -> CompiledStep:
    """A step that is fed the microbatches."""
    with tf.Graph().as_default() as graph:
        xs = tf.placeholder("float32", (n, 2, 4))
        results = graph.apply(function, (WEIGHTS[:n_stages], xs))
        request = StepRequest((), tuple(jax.tree.leaves(results)), (xs,))
        step = compile_step(graph, request, CLUSTER)
    for plan in step.plans:
        verify(plan)
    verify_step(step.plans, step.n_fetches)
    return step


def loops(step: CompiledStep) -> list[list[Loop]]:
    """The loops of each device."""
    return [[one for one in plan.instructions if isinstance(one, Loop)] for plan in step.plans]


def runs(plan: Plan) -> list[Run]:
    return [one for one in plan.instructions if isinstance(one, Run)]


def sent(plan: Plan) -> list[Send]:
    """The values that a plan sends, without signals."""
    return [x for x in plan.instructions if isinstance(x, Send) and x.slot is not None]


def test_each_stage_of_a_scan_is_one_program_and_each_activation_crosses_once() -> None:
    parts = [loop for (loop,) in loops(compiled(forward))]
    assert [len(runs(loop.body)) for loop in parts] == [1, 1, 1]
    assert [len(sent(loop.body)) for loop in parts] == [1, 1, 0]
    # What uses an activation signals that it has it, so that no device is flooded.
    signals = [one for loop in parts for one in loop.body.instructions if isinstance(one, Recv)]
    assert [one.slot is None for one in signals] == [True, False, True, False]


@pytest.mark.parametrize("function", [forward, jax.grad(forward), accumulated])
def test_the_programs_do_not_depend_on_the_number_of_iterations(function: Any) -> None:
    few, many = (
        {
            run.program.digest
            for loops_here in loops(compiled(function, n))
            for loop in loops_here
            for run in runs(loop.body)
            if run.program is not None
        }
        for n in (4, 32)
    )
    # Those that take or give stacked arrays have these in their types.
    assert len(few) == len(many)
    instructions = [
        [len(plan.all_instructions) for plan in compiled(function, n).plans] for n in (4, 32)
    ]
    assert instructions[0] == instructions[1]


def test_equal_stages_share_their_programs() -> None:
    parts = [loop for (loop,) in loops(compiled(forward))]
    digests = [run.program.digest for loop in parts[1:2] for run in runs(loop.body) if run.program]
    longer = [loop for (loop,) in loops(compiled(forward, n_stages=2))]
    assert len({*digests}) == 1
    assert runs(parts[0].body)[0].program == runs(longer[0].body)[0].program


def test_the_backward_loop_takes_residuals_where_the_forward_loop_has_them() -> None:
    step = compiled(jax.grad(forward))
    assert [len(each) for each in loops(step)] == [2, 2, 2]
    for plan, (ahead, back) in zip(step.plans, loops(step), strict=True):
        # Nothing that a loop has stacked leaves its device, and the other loop sends back no more
        # than what a stage gives the one before.
        stacked = {carry.final for carry in ahead.carries}
        assert not stacked & {one.slot for one in sent(plan)}
        assert stacked & {slot for slot, _ in back.consts}
    assert [len(sent(back.body)) for _, back in loops(step)] == [0, 1, 1]


def test_a_scan_of_gradients_is_one_loop_that_keeps_no_residuals() -> None:
    step = compiled(accumulated)
    assert [len(each) for each in loops(step)] == [1, 1, 1]
    for (loop,) in loops(step):
        assert len(loop.carries) == 1
        assert loop.window == 6
    # Forward and backward on all but the last device, which does both at once.
    assert [len(runs(loop.body)) for (loop,) in loops(step)] == [2, 2, 1]


@pytest.mark.parametrize("function", [forward, accumulated])
def test_carries_that_one_program_replaces_keep_their_memory(function: Any) -> None:
    for (loop,) in loops(compiled(function)):
        donated = [len(run.program.donated) for run in runs(loop.body) if run.program]
        assert sum(donated) == len(loop.carries)


def test_a_carry_that_is_sent_or_used_twice_is_not_overwritten() -> None:
    def twice(weights: Any, xs: Any) -> Any:
        def body(carry: Any, x: Any) -> Any:
            with on(0):
                new = carry + x
            with on(1):
                return new, carry * 2

        return lax.scan(body, jnp.zeros((2, 4)), xs)

    loop = loops(compiled(twice))[0][0]
    assert [run.program.donated for run in runs(loop.body) if run.program] == [()]


def test_a_window_of_the_user_is_that_of_the_loop() -> None:
    def narrow(weights: Any, xs: Any) -> Any:
        with tf.loop(window=3):
            return forward(weights, xs)

    assert [loop.window for (loop,) in loops(compiled(narrow))] == [3, 3, 3]
    both = loops(compiled(jax.grad(narrow)))
    assert [loop.window for each in both for loop in each] == [3] * 6


@pytest.mark.parametrize("window", [0, -1, 4097])
def test_a_window_that_cannot_be_is_refused(window: int) -> None:
    with pytest.raises(ValueError, match=f"from 1 to 4096, got {window}"):
        tf.loop(window=window)
    with pytest.raises(TypeError, match="as an int, got float"):
        tf.loop(window=2.0)  # type: ignore[arg-type]


def test_the_text_of_a_plan_shows_the_body_of_a_loop() -> None:
    text = compiled(forward).plans[0].text()
    assert "loop 0 of 8 iterations, 6 at once; feed" in text
    assert "in dataflow order" in text


# Loops whose requests mean one device -------------------------------------------------------------


def over(devices: tuple[str, ...], kind: str) -> Callable[[Any], Any]:
    """A loop or branch whose body requests several devices."""

    def body(x: Any) -> Any:
        for device in devices:
            with tf.device(device):
                x = jnp.sin(x) + 1.0
        return x

    def run(x: Any) -> Any:
        if kind == "scan":
            return lax.scan(lambda c, _: (body(c), None), x, length=3)[0]
        if kind == "cond":
            return lax.cond(x[0] > 0, body, lambda x: x, x)
        # A loop in a loop on several devices.
        return lax.fori_loop(0, 2, lambda _, c: on_last(over(devices, "scan")(c)), x)

    def on_last(x: Any) -> Any:
        with on(2):
            return x * 2.0

    return run


def step_of(function: Callable[..., Any], inventory: Inventory, soft: bool) -> CompiledStep:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder("float32", (2,))
        y = graph.apply(function, (x,))
        return compile_step(graph, StepRequest((), (y,), (x,)), inventory, soft=soft)


@pytest.mark.parametrize(
    ("devices", "soft", "device"),
    [
        (("/gpu:0", "/gpu:1"), True, "/job:worker/task:0/device:CPU:0"),
        (("/job:worker/task:1", "/job:worker/task:1/cpu:0"), False, "/job:worker/task:1"),
        (("/job:worker/task:1/gpu:0", "/job:worker/task:1/gpu:1"), True, "/job:worker/task:1"),
    ],
)
@pytest.mark.parametrize("kind", ["scan", "cond"])
def test_a_loop_whose_requests_mean_one_device_is_one_program_on_it(
    devices: tuple[str, ...], soft: bool, device: str, kind: str
) -> None:
    step = step_of(over(devices, kind), CLUSTER, soft)
    assert not any(loops(step))
    placed = {str(step.placement[op]) for op in step.placement if op.type == kind}
    assert [name.startswith(device) for name in placed] == [True]


def test_an_inner_loop_whose_requests_mean_one_device_is_one_program() -> None:
    function = over(("/job:worker/task:1", "/job:worker/task:1/cpu:0"), "loop in loop")
    bodies = [loop.body for (loop,) in filter(None, loops(step_of(function, CLUSTER, soft=False)))]
    assert len(bodies) == 2
    assert not any(isinstance(one, Loop) for body in bodies for one in body.instructions)
    assert sum(len(runs(body)) for body in bodies) == 2


def test_a_loop_that_means_several_devices_stays_open_under_soft_placement() -> None:
    devices = {TASKS[0]: tuple(Device(TASKS[0], "CPU", i) for i in range(2))}
    several = Inventory(TASKS[0], TASKS[:1], devices, None)
    assert all(loops(step_of(over(("/cpu:0", "/cpu:1"), "scan"), several, soft=True)))
    assert not any(loops(step_of(over(("/cpu:0", "/gpu:1"), "scan"), several, soft=True)))


def test_a_device_that_does_not_exist_is_refused_in_a_loop_too() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="available are"):
        step_of(over(("/gpu:0", "/gpu:1"), "scan"), CLUSTER, soft=False)


def test_a_block_that_discards_those_around_it_is_another_device() -> None:
    def run(x: Any) -> Any:
        def body(c: Any, _: Any) -> Any:
            with tf.device("/cpu:0"):
                c = jnp.sin(c)
            with tf.device(None), tf.device("/job:worker/task:0/cpu:0"):
                return c + 1.0, None

        with on(1):
            return lax.scan(body, x, length=3)[0]

    step = step_of(run, CLUSTER, soft=False)
    assert {device.task for device in step.placement.values()} == {*TASKS[:2]}

"""What plans tell about the state that they use."""

from __future__ import annotations

import pytest

from jflow.base.cluster import Device, Task
from jflow.net.protocol.codec import error_of, error_to_status
from jflow.plan import Call, Plan, ResourceSpec, Run, VariableKey, VariableSpec
from jflow.state.moves import MovedError, StateId, is_restartable, states_of

PS = Device(Task("ps", 0), "CPU", 0)
QUEUE = ResourceSpec("queue", "ps", "q", "", b"")
V = VariableSpec(VariableKey("ps", "v"), "float32", ())
TAKE = Call("queue.dequeue", outputs=(0,), resources=(0,))


def plan(*instructions: object, resources: tuple[ResourceSpec, ...] = (QUEUE,)) -> Plan:
    return Plan(PS, 2, (V,), (instructions,), resources)  # type: ignore[arg-type]


def test_plans_name_their_state_by_device_with_the_default_container_empty() -> None:
    assert states_of([plan(TAKE)]) == {
        StateId(str(PS), "variable", "", "v"),
        StateId(str(PS), "queue", "", "q"),
    }


@pytest.mark.parametrize(
    ("instructions", "expected"),
    [
        ((TAKE,), True),
        ((TAKE, Run(None, reads=(0,))), True),
        ((Run(None, reads=(0,)),), False),
        ((TAKE, Run(None, writes=(0,))), False),
        ((TAKE, TAKE), False),
        ((TAKE, Call("callback")), False),
        ((TAKE, Call("string.join")), True),
        ((Call("queue.enqueue_many", inputs=(0,), resources=(0,)),), False),
        ((Call("queue.selected", resources=(0, 1)),), False),
    ],
)
def test_a_step_can_be_run_again_if_waiting_for_a_queue_is_all_that_it_does(
    instructions: tuple[object, ...], expected: bool
) -> None:
    assert is_restartable([plan(*instructions, resources=(QUEUE, QUEUE))]) is expected


def test_an_error_that_says_where_state_is_arrives_with_it() -> None:
    moved = {StateId(str(PS), "queue", "c", "q", "me"): "/job:worker/task:0/device:CPU:0"}
    error = error_of(error_to_status(MovedError.of(moved), "/job:ps/task:0"))
    assert isinstance(error, MovedError)
    assert error.moved == moved
    assert error.task == "/job:ps/task:0"

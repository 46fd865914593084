"""Senseless plans are refused: by the verifier itself, from the wire, and in this process."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

import jflow as tf
from jflow import errors
from jflow.base.cluster import LOCAL_TASK, Device
from jflow.base.deadline import FOREVER
from jflow.client.runtime.local import LocalBackend
from jflow.compiler.pipeline import CompiledStep
from jflow.net.protocol.plan_codec import plan_from_proto, plan_to_proto
from jflow.net.protocol.v1 import plan_pb2 as pb_plan
from jflow.plan import Call, Feed, Fetch, Plan, Program, Recv, Run, Send, verify, verify_step
from tests.drawn import examples
from tests.plan.plans import FED, HERE, LOOP, SENSELESS, THERE, plan, well_formed

CASES = pytest.mark.parametrize("case", SENSELESS)


@CASES
def test_a_senseless_plan_is_refused(case):
    bad, said = SENSELESS[case]
    with pytest.raises(errors.InvalidArgumentError) as info:
        verify(bad)
    assert said in info.value.message
    assert str(bad.device) in info.value.message


@CASES
def test_a_senseless_plan_is_refused_when_it_arrives(case):
    bad, _ = SENSELESS[case]
    try:
        message = plan_to_proto(bad).SerializeToString()
        arrived = plan_from_proto(pb_plan.Plan.FromString(message))
    except (TypeError, ValueError, AttributeError, errors.InvalidArgumentError):
        return
    assert arrived != bad  # no message can say it


@CASES
def test_a_senseless_plan_is_refused_in_this_process(case):
    bad, _ = SENSELESS[case]
    with pytest.raises(errors.InvalidArgumentError):
        LocalBackend().register(_compiled(bad))


def _compiled(*plans: Plan, n_fetches: int = 0) -> CompiledStep:
    return CompiledStep({}, plans, {}, {}, (), n_fetches)


@settings(max_examples=examples(60))
@given(well_formed())
def test_a_well_formed_plan_is_taken(made):
    verify(made)


def test_an_error_names_device_instruction_and_operation():
    with pytest.raises(errors.InvalidArgumentError) as info:
        verify(plan((Call("queue.enqueue", (2,), resources=(0,), op="put"),)))
    assert info.value.message == (
        "the plan for /job:w/task:0/device:CPU:0: slot 2 is read before it is filled, in "
        "`call queue.enqueue(%2); on r0   [op 'put']`"
    )
    assert info.value.op == "put"


def test_a_stage_may_read_from_a_stage_that_is_before_the_ones_it_names():
    stages = [(Call("f", (), (1,)),), (), (Call("g", (1,)),)]
    verify(plan(*stages, after=((), (0,), (1,))))
    with pytest.raises(errors.InvalidArgumentError, match="stage 2 does not come after"):
        verify(plan(*stages, after=((), (), (1,))))


def test_feeds_are_there_from_the_start_and_fetches_are_read_at_the_end():
    verify(plan((Call("f", (0,), (1,)), Fetch(2, 0)), (FED, Call("g", (1,), (2,)))))


def test_a_value_from_before_an_update_may_be_an_input_of_it():
    verify(plan((Run(Program("p"), inputs=(1,), writes=(0,), before=((0, 1),), after=((0, 2),)),)))


# Plans of one step --------------------------------------------------------------------------------

SENDS, TAKES = (FED, Send(0, THERE, 0)), (Recv(0, HERE, 0), Fetch(0, 0))


def _two(one, other):
    return [plan(*one), plan(*other, device=THERE)]


def test_plans_that_fit_together_are_taken():
    verify_step(_two([SENDS], [(), TAKES]), 1)
    verify_step([], 0)


STEPS = {
    "nothing sends it": (_two([(FED,)], [(), TAKES]), 1, "receives edge 0 from"),
    "nothing takes it": (_two([SENDS], [(), ()]), 0, "sends edge 0 to"),
    "it is sent too late": (_two([(), SENDS], [(), TAKES]), 1, "in stage 1, and"),
    "it is sent in the same stage": (_two([SENDS], [TAKES]), 1, "in stage 0, and"),
    "a value is a signal": (_two([SENDS], [(), (Recv(0, HERE, None),)]), 0, "a signal at one end"),
    "another device sends it": (
        _two([SENDS], [(), (Recv(0, replace(HERE, index=1), 0),)]),
        0,
        "which does not send it",
    ),
    "another device receives it": (
        _two([(Send(0, replace(HERE, index=1), None),)], [(), TAKES]),
        1,
        "which does not send it",
    ),
    "two devices send one edge": (
        _two([SENDS], [(Send(0, HERE, None),), ()]),
        0,
        "both send as edge 0",
    ),
    "two plans for one device": ([plan(), plan()], 0, "two plans for"),
    "a value is fetched by two devices": (
        _two([(FED, Fetch(0, 0))], [(FED, Fetch(0, 0))]),
        2,
        "2 fetched values came with plans that give [0, 0]",
    ),
    "a value is not fetched": (_two([(FED, Fetch(0, 1))], [()]), 1, "that give [1]"),
    "more values are wanted": (_two([(FED, Fetch(0, 0))], [()]), 2, "of 2 fetched values"),
}


@pytest.mark.parametrize("case", STEPS)
def test_plans_that_do_not_fit_together_are_refused(case):
    plans, n_fetches, said = STEPS[case]
    for one in plans:
        verify(one)
    with pytest.raises(errors.InvalidArgumentError) as info:
        verify_step(plans, n_fetches)
    assert said in info.value.message
    with pytest.raises(errors.InvalidArgumentError) as info:
        LocalBackend().register(_compiled(*plans, n_fetches=n_fetches))
    assert said in info.value.message


@pytest.fixture
def counted(monkeypatch):
    """The plans that the local backend verifies."""
    found = []
    monkeypatch.setattr(
        "jflow.client.runtime.local.verify", lambda one: (found.append(one), verify(one))
    )
    return found


def test_a_step_is_verified_once_and_not_each_time_it_runs(counted):
    x = tf.placeholder("float32", ())
    y = x + 1
    with tf.Session() as session:
        for value in range(3):
            assert session.run(y, {x: value}) == value + 1
    assert [str(one.device) for one in counted] == [str(Device(LOCAL_TASK, "CPU", 0))]


def test_a_fed_output_of_a_call_is_not_filled_by_the_call():
    line = tf.placeholder("string", ())
    one, other = tf.decode_csv(line, [[1.0], [2.0]])
    with tf.Session() as session:
        assert session.run(one + other, {line: "3,4", one: 7}) == 11.0


def test_a_plan_made_here_can_still_be_run():
    device = Device(LOCAL_TASK, "CPU", 0)
    made = Plan(device, 2, (), ((Feed(0, 0), Call("identity", (0,), (1,)), Fetch(1, 0)),))
    step = LocalBackend().register(_compiled(made, n_fetches=1))
    assert step.run([np.float32(3)], FOREVER) == [3.0]


def _looping(device: Device, **changes: object) -> Plan:
    """A plan of a loop that gives its carry to the other device."""
    other = THERE if device == HERE else HERE
    sent, received = (0, 1) if device == HERE else (1, 0)
    stages = (
        (Feed(0, 0),),
        (Send(sent, other, 0),),
        (Recv(received, other, 1),),
        (Run(Program("p"), inputs=(1,), outputs=(2,)), Fetch(2, 0)),
    )
    body = Plan(device, 3, (), stages, (), ((), (0,), (), (2,)))
    loop = replace(LOOP, body=body, stride=2, cycle=8)
    return replace(
        plan((FED, replace(loop, **changes)), n_slots=2),
        device=device,  # type: ignore[arg-type]
    )


def test_devices_with_a_loop_in_common_are_taken():
    verify_step([_looping(HERE), _looping(THERE)], 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"trips": 4},
        {"window": 3},
        {"stride": 4},
        {"cycle": 9},
        {"is_reversed": True},
        {"predicate": 0},
    ],
)
def test_devices_that_disagree_about_a_loop_are_refused(changes):
    with pytest.raises(errors.InvalidArgumentError, match="disagree about loop 0"):
        verify_step([_looping(HERE), _looping(THERE, **changes)], 0)


def test_a_part_of_a_loop_without_the_others_is_refused():
    with pytest.raises(errors.InvalidArgumentError, match="which does not send it"):
        verify_step([_looping(HERE)], 0)


def test_edges_that_two_loops_share_are_refused():
    def twice(device: Device) -> Plan:
        (stage,) = _looping(device).stages
        second = replace(stage[1], number=1, carries=(replace(stage[1].carries[0], final=None),))
        return replace(_looping(device), stages=((*stage, second),))

    with pytest.raises(errors.InvalidArgumentError, match="is also one of another loop"):
        verify_step([twice(HERE), twice(THERE)], 0)


def test_edges_beyond_the_stride_are_refused():
    with pytest.raises(errors.InvalidArgumentError, match="not less than 1, the least stride"):
        verify_step([_looping(HERE, stride=1), _looping(THERE, stride=1)], 0)

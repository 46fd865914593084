"""What programs and stages a step is cut into, by examples."""

from __future__ import annotations

import numpy as np
import pytest

import jflow as tf
from jflow.compiler.partition import partition, prune
from jflow.plan import Call, Feed, Fetch, Recv, Run, Send
from tests.compiler.partition.cases import DEVICES, Case


def _cut(fetched, places, fed=(), max_segment_ops=1000, sends_first=False, defers=False):
    """The case of some fetches with operations placed by name, elsewhere on the first device."""
    ops = prune(tf.get_default_graph(), [], fetched, set(fed))
    placement = {op: DEVICES[places.get(op.name, 0)] for op in ops}
    return Case(ops, placement, list(fed), list(fetched), max_segment_ops, sends_first, defers)


def _ping_pong():
    a = tf.constant(1.0, name="a")
    b = tf.numpy.sin(a, name="b")
    c = tf.numpy.cos(b, name="c")
    return tf.numpy.add(tf.numpy.exp(a, name="side"), c, name="d")


def test_a_step_on_one_device_is_one_run():
    case = _cut([_ping_pong()], {})
    (plan,) = case.plans
    assert [type(step) for step in plan.instructions] == [Run, Fetch]
    assert len(plan.stages) == 1


def test_there_are_as_many_stages_as_crossings():
    case = _cut([_ping_pong()], {"b": 1})
    here, there = case.plans
    assert [[type(step) for step in stage] for stage in here.stages] == [
        [Run, Send],
        [],
        [Recv, Run, Fetch],
    ]
    assert [[type(step) for step in stage] for stage in there.stages] == [[], [Recv, Run, Send]]


def test_work_that_need_not_wait_is_in_the_first_stage():
    case = _cut([_ping_pong()], {"b": 1})
    assert [op.name for op in case.segments[0].ops] == ["a", "side"]


def test_what_is_sent_does_not_wait_for_what_takes_long():
    case = _cut([_ping_pong()], {"b": 1}, sends_first=True)
    here, there = case.plans
    assert [[type(step) for step in stage] for stage in here.stages] == [
        [Run, Send],
        [Run],
        [],
        [Recv, Run, Fetch],
    ]
    assert [[op.name for op in segment.ops] for segment in case.segments[:2]] == [["a"], ["side"]]
    assert [[type(step) for step in stage] for stage in there.stages] == [[], [], [Recv, Run, Send]]


def _meeting():
    """What waits for another device, `far`, and for what this one has before, `near`."""
    far = tf.numpy.sin(tf.constant(1.0, name="first"), name="far")
    near = tf.numpy.exp(tf.constant(2.0, name="second"), name="near")
    return near, tf.numpy.add(near, far, name="both")


@pytest.mark.parametrize("is_fetched", [False, True])
def test_what_is_quick_and_only_needed_later_is_no_program_of_its_own(is_fetched):
    near, both = _meeting()
    fetched = [both, near][: 1 + is_fetched]
    there = dict.fromkeys(("first", "far"), 1)
    assert [len(segment.ops) for segment in _cut(fetched, there).segments] == [2, 1, 2]
    here, _ = _cut(fetched, there, defers=True).plans
    assert [[type(step) for step in stage] for stage in here.stages] == [
        [],
        [Recv, Run, *[Fetch] * len(fetched)],
    ]


@pytest.mark.parametrize("user", ["another device", "the host", "what waits for another queue"])
def test_what_others_could_be_waiting_for_is_not_put_off(user):
    near, both = _meeting()
    places = dict.fromkeys(("first", "far"), 1)
    fetched = [both]
    if user == "another device":
        fetched.append(tf.numpy.cos(near, name="there"))
        places["there"] = 1
    elif user == "the host":
        fetched.append(tf.as_string(near))
    else:
        queues = [tf.FIFOQueue(1, [tf.float32], shapes=[()]) for _ in range(2)]
        fetched = [tf.numpy.add(queue.dequeue(), near) for queue in queues]
    cases = [_cut(fetched, places, defers=defers) for defers in (False, True)]
    assert cases[0].plans == cases[1].plans


def _dequeued():
    return tf.FIFOQueue(1, [tf.float32], shapes=[()]).dequeue()


def test_what_only_a_step_behind_a_queue_needs_is_read_there():
    variable = tf.Variable(1.0)
    scaled = _dequeued() * tf.numpy.exp(tf.constant(2.0))
    with tf.control_dependencies([variable.assign_sub(variable * scaled)]):
        done = tf.identity(scaled)
    (plan,) = _cut([done], {}, defers=True).plans
    run, _ = (one for one in plan.instructions if isinstance(one, Run | Fetch))
    assert run.writes == run.reads
    assert not run.before


def test_a_read_is_not_put_off_behind_a_write_that_it_came_before():
    variable = tf.Variable(1.0)
    before = variable.read_value()
    queue = tf.FIFOQueue(2, [tf.float32], shapes=[()])
    with tf.control_dependencies([variable.assign(queue.dequeue())]):
        total = tf.numpy.add(before, queue.dequeue())
    with tf.Session() as session:
        session.run(variable.initializer)
        session.run(queue.enqueue_many([[5.0, 7.0]]))
        assert session.run(total) == 1.0 + 7.0


def test_what_is_long_is_not_put_off():
    _, both = _meeting()
    there = dict.fromkeys(("first", "far"), 1)
    assert len(_cut([both], there, sends_first=True).segments) == 3


def test_a_control_edge_across_devices_is_a_bare_signal():
    first = tf.numpy.sin(tf.constant(1.0), name="first")
    with tf.control_dependencies([tf.group(first)]):
        second = tf.constant(2.0, name="second")
    case = _cut([second, first], {"second": 1})
    ((_, _, send),) = case.steps(Send)
    ((_, stage, recv),) = case.steps(Recv)
    assert (send.slot, recv.slot, stage) == (None, None, 1)


def test_a_tensor_with_consumers_in_two_stages_arrives_for_the_first():
    a = tf.numpy.sin(tf.constant(1.0), name="a")
    early = tf.numpy.exp(a, name="early")
    back = tf.numpy.cos(early, name="back")
    late = tf.numpy.add(a, back, name="late")
    case = _cut([late], {"early": 1, "late": 1})
    recvs = [(device, stage) for device, stage, _ in case.steps(Recv)]
    assert recvs == [(DEVICES[0], 2), (DEVICES[1], 1), (DEVICES[1], 3)]


def test_a_long_run_is_cut_at_the_limit():
    x = tf.constant(1.0)
    for _ in range(9):
        x = tf.numpy.sin(x)
    case = _cut([x], {}, max_segment_ops=4)
    assert [len(segment.ops) for segment in case.segments] == [4, 4, 2]


def test_nothing_to_run_makes_no_plan():
    assert _cut([], {}).plans == ()
    done = tf.group(tf.no_op())
    assert partition([done], {done: DEVICES[0]}, [], []).plans == ()


def test_a_control_dependency_on_a_variable_is_no_work():
    x = tf.Variable(1.0)
    with tf.control_dependencies([x]):
        y = tf.constant(2.0, name="y")
    case = _cut([y], {"y": 1})
    assert case.steps(Send) == []


def test_only_what_is_both_read_and_written_is_donated():
    x, y = tf.Variable(1.0, name="x"), tf.Variable(1.0, name="y")
    case = _cut([x.assign_add(y * 2), y.assign(5.0)], {})
    ((_, _, run),) = case.steps(Run)
    (segment,) = case.segments
    donated = [segment.reads[i].name for i in run.program.donated]
    assert "x" in donated
    assert set(donated) == {r.name for r in segment.reads if r in segment.writes}
    case = _cut([x.assign_add(y * 2)], {})
    (segment,) = case.segments
    assert [segment.reads[i].name for i in segment.donated] == ["x"]
    assert [ref.name for ref in segment.reads] == ["x", "y"]


def test_a_plan_lists_each_program_once():
    case = _cut([_ping_pong()], {"b": 1})
    here, there = case.plans
    assert [program.digest for program in here.programs] == ["segment 0", "segment 1"]
    assert [program.digest for program in there.programs] == ["segment 2"]


@pytest.mark.parametrize("n", [0, 1])
def test_a_fetched_variable_needs_no_program(n):
    x = tf.Variable(1.0, name="x")
    fetched = [x.value(), x.read_value()][: n + 1]
    case = _cut(fetched, {})
    ((_, _, run),) = case.steps(Run)
    assert run.program is None
    assert [variable for variable, _ in run.before] == [0] * (n + 1)


def test_host_tensors_are_calls_and_a_crossing_from_and_to_programs():
    here, there = DEVICES[:2]
    word = tf.constant(["a"])
    x = tf.Variable(0.0)
    with tf.control_dependencies([x.assign_add(1.0)]):
        same = tf.identity(word)
    with tf.control_dependencies([same]):
        read = x.read_value()
    moved = tf.identity(same)
    ops = prune(tf.get_default_graph(), [], [read, moved], set())
    case = Case(ops, {op: there if op is moved.op else here for op in ops}, [], [read, moved])
    assert [(device, stage) for device, stage, _ in case.steps(Run)] == [(here, 0), (here, 2)]
    (first, constant), (second, identity), (third, last) = [
        ((device, stage), step) for device, stage, step in case.steps(Call)
    ]
    assert (first, second, third) == ((here, 0), (here, 1), (there, 2))
    assert constant == Call(
        "identity", (), (constant.outputs[0],), ("constant 0",), op=word.op.name
    )
    assert identity == Call("identity", constant.outputs, identity.outputs, op=same.op.name)
    assert last.function == "identity"
    (sent,) = [step for _, stage, step in case.steps(Send) if stage == 1]
    assert (sent.slot, sent.target) == (identity.outputs[0], there)
    assert case.plans[0].artifacts > {"constant 0"}


def test_stages_in_dataflow_order_wait_for_all_that_fills_their_slots():
    here, there = DEVICES[:2]
    x = tf.placeholder(tf.int32, ())
    shared = x + 1
    puts = [tf.FIFOQueue(1, [tf.int32], [()]).enqueue(value) for value in (x, shared, x, shared)]
    ops = prune(tf.get_default_graph(), puts, [], {x})
    case = Case(ops, {op: here if op is shared.op else there for op in ops}, [x], [])
    (plan,) = [plan for plan in case.plans if plan.device == there]
    assert plan.after
    fills, uses = {}, []
    for stage, steps in enumerate(plan.stages):
        for step in steps:
            if isinstance(step, Feed | Recv):
                assert step.slot not in fills, "once for all that use it"
                fills[step.slot] = stage
            elif isinstance(step, Call):
                uses += [(stage, slot) for slot in step.inputs]
    assert len(uses) == len(puts)
    for stage, slot in uses:
        assert fills[slot] in {stage, *plan.after[stage]}
    waiting = {stage for stage, _ in uses}
    assert len(waiting) == len(puts)
    assert not any(waiting & {*plan.after[stage]} for stage in waiting), "none for another one"


def test_an_initialized_value_is_taken_after_the_initializer_of_the_same_step():
    here, there = DEVICES[:2]
    initial = tf.numpy.sin(tf.constant(1.0))
    x = tf.Variable(initial)
    copy = tf.Variable(x)
    ops = prune(tf.get_default_graph(), [x.initializer, copy.initializer], [], set())
    on_x = (x.initializer, copy.initial_value.op)
    placement = {op: here if op in on_x else there for op in ops}
    case = Case(ops, placement, [], [], sends_first=True)
    of_x = [step for device, _, step in case.steps(Run) if device == here]
    assert [bool(run.writes or run.after) for run in of_x] == [True, False]
    assert [bool(run.defaults) for run in of_x] == [False, True]


@pytest.mark.parametrize("is_followed", [False, True])
def test_an_update_that_guards_its_indices_runs_before_their_check(is_followed):
    table, count = tf.Variable(np.zeros((4, 3), np.float32)), tf.Variable(0)
    indices = tf.placeholder("int32", (2,))
    update = tf.scatter_add(table, indices, np.ones((2, 3), np.float32))
    with tf.control_dependencies([update]):
        last = count.assign_add(1) if is_followed else update.op
    target = last.op if is_followed else last
    ops = prune(tf.get_default_graph(), [target], [], {indices})
    case = Case(ops, dict.fromkeys(ops, DEVICES[0]), [indices], [])
    steps = [step for _, _, step in case.steps(Run | Call)]
    names = [step.function if isinstance(step, Call) else step.op for step in steps]
    assert names == ["ScatterAdd", "check_indices", *(["AssignAdd"] if is_followed else [])]

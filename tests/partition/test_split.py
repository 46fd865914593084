"""The stage law: plans that walk their stages in order cannot wait for each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jflow as tf
from jflow.cluster import Device, Task
from jflow.graph import Operation, Tensor
from jflow.graph.bundle import Bundle
from jflow.graph.control import control_sources
from jflow.graph.primitives import ACCESSES, assign_p, group_p, read_p, variable_p
from jflow.partition import Lengths, partition, prune
from jflow.plan import Call, Feed, Fetch, Recv, Run, Send

DEVICES = [
    Device(Task("ps", 0), "CPU", 0),
    Device(Task("worker", 0), "CPU", 0),
    Device(Task("worker", 0), "GPU", 0),
]


@dataclass
class _Case:
    """A step: its operations on devices, cut into plans."""

    ops: list[Operation]
    placement: dict[Operation, Device]
    fed: list[Tensor]
    fetched: list[Tensor]
    max_segment_ops: int = 1000
    sends_first: bool = False
    defers: bool = False

    def __post_init__(self):
        found = partition(
            self.ops,
            self.placement,
            self.fed,
            self.fetched,
            max_segment_ops=self.max_segment_ops,
            lengths=Lengths(lambda rest: self.sends_first, lambda group: self.defers),
        )
        self.plans = found.plans
        self.named = found.segments
        self.edges = found.edges
        self.segments = list(found.segments.values())
        self.running = [op for op in self.ops if op.eqn.primitive not in (group_p, variable_p)]

    def segment_of(self, run):
        """The segment that a `Run` runs, None if there is nothing to compute."""
        return None if run.program is None else self.named[run.program.digest]

    def steps(self, kind):
        """(device, stage, step) of every step of a kind, in the plans' order."""
        return [
            (plan.device, stage, step)
            for plan in self.plans
            for stage, steps in enumerate(plan.stages)
            for step in steps
            if isinstance(step, kind)
        ]

    def crossings(self):
        """What must cross: (tensor, target), and (operation, target) for bare signals."""
        found = set()
        for op in self.running:
            sources = [t for t in op.inputs if t not in self.fed]
            sources += [s for s in control_sources(op) if s in set(self.running)]
            for source in sources:
                producer = source.op if isinstance(source, Tensor) else source
                if self.placement[producer] != self.placement[op]:
                    found.add((source, self.placement[op]))
        return found

    def sources_of(self, edge):
        """What an edge brings: tensors, or an operation whose end it signals."""
        value = self.edges[edge]
        return value.tensors if isinstance(value, Bundle) else (value,)

    def moments(self):
        """When an operation that is lowered runs: its stage and its place in its plan."""
        found = {}
        for plan in self.plans:
            place = 0
            for stage, steps in enumerate(plan.stages):
                for step in steps:
                    place += 1
                    segment = self.segment_of(step) if isinstance(step, Run) else None
                    for i, op in enumerate(segment.ops if segment else ()):
                        assert op not in found, "an operation is in two segments"
                        found[op] = (plan.device, stage, (place, i))
        return found


@st.composite
def _cases(draw):
    tf.reset_default_graph()
    device = st.sampled_from(DEVICES[: draw(st.integers(1, len(DEVICES)))])
    vector = np.zeros(2, np.float32)
    variables = {tf.Variable(vector, name="x"): draw(device), tf.Variable(vector): draw(device)}
    tensors = [tf.constant(vector), tf.placeholder("float32", (2,))]
    placement = {}
    for _ in range(draw(st.integers(1, 14))):
        control = draw(st.lists(st.sampled_from(tensors), max_size=2))
        control = [t if draw(st.booleans()) else tf.group(t, *control[:1]) for t in control]
        # Of the newest few, so that graphs are deep too.
        one, two = draw(st.sampled_from(tensors[-3:])), draw(st.sampled_from(tensors))
        variable = draw(st.sampled_from(list(variables)))
        kind = draw(st.sampled_from(["add", "split", "sin", "constant", "read", "set", "update"]))
        with tf.control_dependencies(control):
            if kind == "add":
                made = [tf.numpy.add(one, two)]
            elif kind == "split":
                made = [tf.numpy.tile(half, 2) for half in tf.numpy.split(one, 2)]
            elif kind == "sin":
                made = [tf.numpy.sin(one)]
            elif kind == "constant":
                made = [tf.constant(vector)]
            elif kind == "read":
                made = [variable.read_value()]
            elif kind == "set":
                made = [variable.assign(one)]
            else:
                made = [variable.assign_add(one)]
        tensors += made
    some = st.lists(st.sampled_from(tensors), max_size=3, unique=True)
    fed = [tensors[1], *(t for t in draw(some) if t is not tensors[1])]
    fetched = [t for t in dict.fromkeys([*draw(some), tensors[-1]]) if t not in fed]
    targets = [t.op for t in draw(some) if t is not tensors[1]]
    ops = prune(tf.get_default_graph(), targets, fetched, set(fed))
    devices = {variable.op.name: device for variable, device in variables.items()}
    for op in ops:
        on_variable = op.eqn.primitive in ACCESSES
        there = devices[op.eqn.params["variable"].name] if on_variable else draw(device)
        placement[op] = there
    limit, sends_first = draw(st.sampled_from([1, 2, 1000])), draw(st.booleans())
    return _Case(ops, placement, fed, fetched, limit, sends_first, draw(st.booleans()))


@given(_cases())
def test_every_receive_has_exactly_one_send_with_its_edge(case):
    sends = {step.edge: (device, step) for device, _, step in case.steps(Send)}
    recvs = {step.edge: (device, step) for device, _, step in case.steps(Recv)}
    assert len(sends) == len(case.steps(Send))
    assert len(recvs) == len(case.steps(Recv))
    assert set(sends) == set(recvs)
    for edge, (target, recv) in recvs.items():
        source, send = sends[edge]
        assert (recv.source, send.target) == (source, target)
        assert source != target
        assert (recv.slot is None) == (send.slot is None)


@given(_cases())
def test_nothing_is_received_that_an_earlier_stage_did_not_send(case):
    sent = {step.edge: stage for _, stage, step in case.steps(Send)}
    for _, stage, recv in case.steps(Recv):
        assert sent[recv.edge] < stage


@given(_cases())
def test_a_tensor_is_sent_once_to_each_device_that_needs_it(case):
    crossings = case.crossings()
    sent = [
        (source, step.target)
        for _, _, step in case.steps(Send)
        for source in case.sources_of(step.edge)
    ]
    assert len(sent) == len(set(sent))
    assert set(sent) == crossings
    for _, _, step in case.steps(Send):
        assert (step.slot is None) == isinstance(case.edges[step.edge], Operation)


@given(_cases())
def test_nothing_is_sent_with_what_another_program_makes(case):
    program_of = {op: name for name, segment in case.named.items() for op in segment.ops}
    for _, _, step in case.steps(Send):
        assert len({program_of.get(t.op) for t in case.sources_of(step.edge) if
                    isinstance(t, Tensor)}) <= 1  # fmt: skip


@given(_cases())
def test_an_operation_runs_once_on_its_device_after_all_that_it_waits_for(case):
    moments = case.moments()
    for op, (device, stage, place) in moments.items():
        assert device == case.placement[op]
        sources = [t.op for t in op.inputs if t not in case.fed]
        sources += [s for s in control_sources(op) if s in moments]
        for source in sources:
            if source not in moments:
                assert source.eqn.primitive in ACCESSES, "only a bare read is not lowered"
                continue
            other, earlier, before = moments[source]
            assert (before < place) if other == device else (earlier < stage)


@given(_cases())
def test_what_has_an_effect_or_leaves_is_lowered(case):
    lowered = set(case.moments())
    for op in case.running:
        writes = op.eqn.primitive in ACCESSES and len(op.eqn.invars) > 0
        fetched = any(t in case.fetched for t in op.outputs)
        if writes or (fetched and op.eqn.primitive not in ACCESSES):
            assert op in lowered


@given(_cases())
def test_segments_are_cut_at_the_limit_and_stay_on_one_device(case):
    for segment in case.segments:
        compiled = [op for op in segment.ops if op.eqn.primitive not in {read_p, assign_p}]
        assert segment.ops
        assert len(compiled) <= case.max_segment_ops
        assert {case.placement[op] for op in segment.ops} == {segment.device}


@given(_cases())
def test_every_slot_is_filled_before_it_is_used(case):
    for plan in case.plans:
        filled = set()
        for step in plan.instructions:
            used = {
                Run: lambda s: s.inputs,
                Send: lambda s: () if s.slot is None else (s.slot,),
                Fetch: lambda s: (s.slot,),
            }.get(type(step), lambda s: ())(step)
            assert filled.issuperset(used)
            if isinstance(step, Run):
                filled.update(step.outputs)
                filled.update(slot for _, slot in (*step.before, *step.after))
            elif isinstance(step, Feed | Recv) and step.slot is not None:
                filled.add(step.slot)
        assert filled.issubset(range(plan.n_slots))


@given(_cases())
def test_every_fetch_is_given_back_once_by_the_device_that_makes_it(case):
    fetches = {step.index: device for device, _, step in case.steps(Fetch)}
    assert len(case.steps(Fetch)) == len(case.fetched)
    assert fetches == {i: case.placement[t.op] for i, t in enumerate(case.fetched)}


@given(_cases())
def test_a_feed_goes_once_to_each_device_that_uses_it(case):
    wanted = {
        (case.placement[op], case.fed.index(tensor))
        for op in case.running
        for tensor in op.inputs
        if tensor in case.fed
    }
    feeds = [(device, step.index) for device, _, step in case.steps(Feed)]
    assert len(feeds) == len(set(feeds))
    assert set(feeds) == wanted


@given(_cases())
def test_a_run_reads_and_writes_the_variables_of_its_segment(case):
    for plan in case.plans:
        for step in plan.instructions:
            segment = case.segment_of(step) if isinstance(step, Run) else None
            if segment is None:
                continue
            names = [spec.key.name for spec in plan.variables]
            assert [names[i] for i in step.reads] == [ref.name for ref in segment.reads]
            assert [names[i] for i in step.writes] == [ref.name for ref in segment.writes]
            assert len(step.inputs) == len(segment.inputs)
            assert len(step.outputs) == len(segment.outputs)
            both = [i for i, ref in enumerate(segment.reads) if ref in segment.writes]
            assert list(step.program.donated) == both


# Examples


def _cut(fetched, places, fed=(), max_segment_ops=1000, sends_first=False, defers=False):
    """The case of some fetches with operations placed by name, elsewhere on the first device."""
    ops = prune(tf.get_default_graph(), [], fetched, set(fed))
    placement = {op: DEVICES[places.get(op.name, 0)] for op in ops}
    return _Case(ops, placement, list(fed), list(fetched), max_segment_ops, sends_first, defers)


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


@pytest.mark.parametrize("user", ["another device", "the host", "what waits for a queue"])
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
        queue = tf.FIFOQueue(1, [tf.float32], shapes=[()])
        fetched = [tf.numpy.add(queue.dequeue(), near)]
    cases = [_cut(fetched, places, defers=defers) for defers in (False, True)]
    assert cases[0].plans == cases[1].plans


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
    case = _Case(ops, {op: there if op is moved.op else here for op in ops}, [], [read, moved])
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
    case = _Case(ops, {op: here if op is shared.op else there for op in ops}, [x], [])
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


@pytest.mark.parametrize("is_followed", [False, True])
def test_an_update_that_guards_its_indices_runs_before_their_check(is_followed):
    table, count = tf.Variable(np.zeros((4, 3), np.float32)), tf.Variable(0)
    indices = tf.placeholder("int32", (2,))
    update = tf.scatter_add(table, indices, np.ones((2, 3), np.float32))
    with tf.control_dependencies([update]):
        last = count.assign_add(1) if is_followed else update.op
    target = last.op if is_followed else last
    ops = prune(tf.get_default_graph(), [target], [], {indices})
    case = _Case(ops, dict.fromkeys(ops, DEVICES[0]), [indices], [])
    steps = [step for _, _, step in case.steps(Run | Call)]
    names = [step.function if isinstance(step, Call) else step.op for step in steps]
    assert names == ["ScatterAdd", "check_indices", *(["AssignAdd"] if is_followed else [])]

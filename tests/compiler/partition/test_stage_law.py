"""The stage law: plans that walk their stages in order cannot wait for each other."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import jflow as tf
from jflow.compiler.graph import Operation, Tensor
from jflow.compiler.graph.control import control_sources
from jflow.compiler.graph.primitives import ACCESSES, assign_p, read_p
from jflow.compiler.partition import prune
from jflow.plan import Feed, Fetch, Recv, Run, Send
from tests.compiler.partition.cases import DEVICES, Case


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
    return Case(ops, placement, fed, fetched, limit, sends_first, draw(st.booleans()))


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

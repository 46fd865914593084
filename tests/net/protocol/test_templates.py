"""Control parts with templates: they mean the same as others, whatever their bytes are."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jflow.base.values import NUMBERS
from jflow.errors import InvalidArgumentError, OpError
from jflow.net.protocol import templates
from jflow.net.protocol.codec import frames_of, open_message
from jflow.net.protocol.frame import Assembler, Message, encode
from jflow.net.protocol.rpcs import RUN_PLANS, RUN_STEP, SEND_TENSORS
from jflow.net.protocol.run_rpcs import PlansRequest
from jflow.net.protocol.templates import TemplateDecoder, TemplateEncoder, Varying
from jflow.net.protocol.v1 import service_pb2 as pb
from jflow.state.core import Staging
from jflow.state.effects import Effect
from tests.drawn import examples

HEAD = templates._VARYING.size
U63 = st.integers(0, 2**63 - 1)
U64 = st.integers(0, 2**64 - 1)
SHAPES = st.lists(st.integers(1, 3), max_size=3).map(tuple)
TENSORS = st.lists(
    st.builds(
        lambda dtype, shape, seed: np.asarray(
            np.random.default_rng(seed).integers(0, 2, shape)
        ).astype(dtype),
        st.sampled_from([*NUMBERS.values()]),
        SHAPES,
        U63,
    ),
    max_size=3,
)
EFFECTS = st.none() | st.builds(
    Effect, st.just("client"), st.integers(0, 3), U63, st.integers(1, 3), U63, st.booleans()
)
STAGINGS = st.none() | st.builds(
    Staging, EFFECTS.filter(bool), st.booleans(), st.lists(st.sampled_from("ab")).map(tuple)
)
REQUESTS = st.one_of(
    st.builds(
        lambda *args, **kwargs: (RUN_STEP, args, kwargs),
        *(st.integers(0, 3), TENSORS),
        calls_back=st.booleans(),
        is_traced=st.booleans(),
        effect=EFFECTS,
    ),
    st.builds(
        lambda *args, **kwargs: (RUN_PLANS, (PlansRequest(*args, **kwargs),), {}),
        *(U64, st.integers(0, 3), TENSORS),
        is_traced=st.booleans(),
        staging=STAGINGS,
    ),
    st.builds(
        lambda step, values: (SEND_TENSORS, (step, values), {}),
        U64,
        st.dictionaries(
            st.integers(0, 9), st.none() | TENSORS.filter(len).map(lambda found: found[0])
        ),
    ),
)
TIMES = st.sampled_from([(0.0, 0.0), (10.0, 9.5), (10.0, 0.001)])
CALLS = st.lists(st.tuples(REQUESTS, U63, TIMES), min_size=1, max_size=8)


def opened(control, tensors=(), parser=None):
    (frame,) = frames_of(encode, 1, control, tensors)
    return (parser or TemplateDecoder()).open(Assembler().feed(frame))


def common(rpc, args, kwargs, call, incarnation, times):
    """The request's message in the form that all messages can have."""
    envelope, tensors = rpc.envelope(*args, **kwargs)
    envelope.id, envelope.incarnation = call, incarnation
    envelope.timeout_s, envelope.remaining_s = times
    for tensor in tensors:
        name = next(name for name, dtype in NUMBERS.items() if dtype == tensor.dtype)
        envelope.tensors.add(dtype=name, shape=tensor.shape)
    return envelope, tensors


@settings(max_examples=examples(50))
@given(CALLS)
def test_a_request_means_the_same_in_either_form(calls):
    writer, parser = TemplateEncoder(), TemplateDecoder()
    for (rpc, args, kwargs), call, times in calls:
        control = rpc.prepared(*args, **kwargs).control(writer, call, 7, *times)
        envelope, tensors = common(rpc, args, kwargs, call, 7, times)
        got = opened(control, tensors, parser)
        assert got.envelope == envelope
        assert len(got.tensors) == len(tensors)
        for mine, other in zip(got.tensors, tensors, strict=True):
            assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
            assert mine.tobytes() == other.tobytes()


def test_the_envelope_of_a_repeated_call_is_made_once_and_parsed_once():
    writer, parser = TemplateEncoder(), TemplateDecoder()
    feeds = [np.float32(1)]
    controls = [RUN_STEP.prepared(7, feeds).control(writer, call, 5) for call in (1, 2)]
    assert controls[0][HEAD:] == controls[1][HEAD:]
    one, two = (opened(control, feeds, parser) for control in controls)
    assert one.template is two.template
    assert (one.varying.id, two.varying.id) == (1, 2)
    assert (one.envelope.id, two.envelope.id) == (1, 2)
    assert one.template.envelope.id == 0, "what all share was not changed"


def test_nothing_is_made_for_a_call_that_was_made_before(monkeypatch):
    writer = TemplateEncoder()
    RUN_STEP.prepared(7, []).control(writer, 1, 5)
    monkeypatch.setattr(pb, "RunStep", None)
    RUN_STEP.prepared(7, []).control(writer, 2, 5)
    with pytest.raises(TypeError):
        RUN_STEP.prepared(8, []).control(writer, 3, 5)


@pytest.mark.parametrize("value", [np.array([b"a"], object), np.zeros((0, 3), np.float32)])
def test_strings_and_empty_tensors_go_in_the_other_form(value):
    request = RUN_STEP.prepared(7, [value])
    control = request.control(TemplateEncoder(), 1, 5)
    assert opened(control, [value]) is None
    envelope, (got,) = open_message(Assembler().feed(*frames_of(encode, 1, control, [value])))
    assert (envelope.id, envelope.incarnation, envelope.run_step.handle) == (1, 5, 7)
    assert got.shape == value.shape


def test_an_envelope_that_is_large_goes_in_the_other_form():
    values = dict.fromkeys(range(2 * templates.MAX_BYTES))
    control = SEND_TENSORS.prepared(3, values).control(TemplateEncoder(), 0, 5)
    assert opened(control) is None
    envelope, _ = open_message(Message(1, control, np.empty(0, np.uint8)))
    assert [*envelope.send_tensors.signals] == [*values]
    assert envelope.send_tensors.step == 3, "what varies is in the message"


def test_a_step_of_many_feeds_keeps_its_number_in_the_other_form():
    feeds = [np.ones(1, np.float32)] * templates.MAX_BYTES
    effect = Effect("client", 0, 5, acknowledged=4, is_saved=False)
    control = RUN_STEP.prepared(7, feeds, effect=effect).control(TemplateEncoder(), 1, 5)
    assert opened(control, feeds) is None
    envelope, _ = open_message(Assembler().feed(*frames_of(encode, 1, control, feeds)))
    assert envelope.run_step.effect.sequence == 5
    assert envelope.run_step.effect.acknowledged == 4


def test_what_either_end_keeps_is_bounded():
    writer, parser = TemplateEncoder(), TemplateDecoder()
    for handle in range(3 * templates.MAX_KEPT):
        control = RUN_STEP.prepared(handle, []).control(writer, 1, 5)
        assert opened(control, (), parser).envelope.run_step.handle == handle
    assert len(writer._templates) <= templates.MAX_KEPT
    assert len(parser._templates) <= templates.MAX_KEPT


@pytest.mark.parametrize("n_bytes", [0, 3, 4])
def test_tensors_that_do_not_fit_the_payload_are_refused(n_bytes):
    value = np.ones(2, np.float32)
    control = RUN_STEP.prepared(7, [value]).control(TemplateEncoder(), 1, 5)
    parser = TemplateDecoder()
    for _ in range(2):  # the second time the envelope is known
        with pytest.raises(InvalidArgumentError, match="does not fit"):
            parser.open(Message(1, control, np.zeros(n_bytes, np.uint8)))


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        *(("string", (1,)), ("float32", (0,)), ("float32", (0, 2**60)), ("object", (1,))),
        *(("float32", (2**60,)), ("float32", (1,) * 33)),
    ],
)
def test_tensors_that_a_template_cannot_have_are_refused(dtype, shape):
    envelope = pb.Envelope(run_step=pb.RunStep(handle=7))
    envelope.tensors.add(dtype=dtype, shape=shape)
    control = (
        templates._VARYING.pack(templates.MARK, 1, 0.0, 0, 0, 0) + envelope.SerializeToString()
    )
    with pytest.raises(InvalidArgumentError):
        TemplateDecoder().open(Message(1, control, np.zeros(64, np.uint8)))


def test_a_control_part_that_is_too_long_is_refused_before_it_is_parsed():
    long = bytes(1) * (HEAD + templates.MAX_BYTES + 1)
    with pytest.raises(InvalidArgumentError, match="has 41 to"):
        TemplateDecoder().open(Message(1, long, np.empty(0, np.uint8)))


@settings(max_examples=examples(100))
@given(st.binary(max_size=80), st.integers(0, 64))
def test_noise_gives_messages_or_errors_of_jflow_and_nothing_else(noise, n_bytes):
    control = bytes([templates.MARK]) + noise
    try:
        got = TemplateDecoder().open(Message(1, control, np.zeros(n_bytes, np.uint8)))
    except OpError:
        return
    assert got.envelope.id == got.varying.id


@settings(max_examples=examples(50))
@given(REQUESTS, U63, st.data())
def test_damaged_control_parts_give_messages_or_errors_of_jflow_and_nothing_else(
    request, call, data
):
    rpc, args, kwargs = request
    requested = rpc.prepared(*args, **kwargs)
    control = bytearray(requested.control(TemplateEncoder(), call, 7))
    for _ in range(data.draw(st.integers(1, 3))):
        control[data.draw(st.integers(0, len(control) - 1))] = data.draw(st.integers(0, 255))
    (frame,) = frames_of(encode, 1, bytes(control), requested.tensors)
    message = Assembler().feed(frame)
    parser = TemplateDecoder()
    for _ in range(2):
        try:
            got = parser.open(message)
            if got is None:
                open_message(message)
            else:
                assert got.envelope.id == got.varying.id
        except OpError:
            pass


def test_replies_of_the_same_shapes_have_the_same_bytes():
    writer, value = TemplateEncoder(), np.zeros((), np.float32)
    one, two = (writer.control((), Varying(call), [value], pb.Envelope) for call in (1, 2))
    assert one[HEAD:] == two[HEAD:]
    got = opened(two, [value])
    assert got.template.is_plain
    assert got.varying.id == 2
    assert got.tensors[0].shape == ()
    assert math.isfinite(got.tensors[0])

"""Tensors, plans and errors come back from the wire as they were, or are refused there."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jflow import errors
from jflow.base.cluster import Device, Task
from jflow.base.values import NUMBERS as ELEMENTS
from jflow.base.values import BlockArray, is_string_tensor
from jflow.net.protocol.buffers import aligned_buffer
from jflow.net.protocol.codec import (
    control_of,
    error_of,
    error_to_status,
    frames_of,
    open_message,
)
from jflow.net.protocol.frame import Assembler, Message, encode, encode_parts
from jflow.net.protocol.plan_codec import plan_from_proto, plan_to_proto
from jflow.net.protocol.v1 import plan_pb2 as pb_plan
from jflow.net.protocol.v1 import service_pb2 as pb
from jflow.net.protocol.v1 import tensor_pb2 as pb_tensor
from jflow.plan import (
    Call,
    Feed,
    Fetch,
    Plan,
    Recv,
    Run,
    Send,
    VariableKey,
    VariableSpec,
)
from tests.drawn import examples
from tests.plan.plans import well_formed

DTYPES = list(ELEMENTS.values())
KINDS = sorted(errors.OpError.__subclasses__(), key=lambda kind: kind.error_code)
TASK = "/job:worker/task:1"

# Tensors ------------------------------------------------------------------------------------------


def _frames(envelope, tensors):
    return frames_of(encode, 7, control_of(envelope, tensors), tensors)


def _through(tensors, envelope=None):
    assembler = Assembler()
    envelope = envelope or pb.Envelope(id=1)
    (message,) = filter(None, map(assembler.feed, _frames(envelope, tensors)))
    return open_message(message)


def _same(got, sent):
    assert (got.dtype, got.shape) == (sent.dtype, sent.shape)
    assert got.tobytes() == sent.tobytes()


def _array(dtype, shape, seed=0):
    numbers = np.random.default_rng(seed).integers(0, 3, shape)
    return np.asarray(numbers).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (5,), (0,), (3, 0, 2), (2, 3, 4)], ids=str)
def test_a_tensor_of_every_dtype_comes_back(dtype, shape):
    sent = _array(dtype, shape)
    _, (got,) = _through([sent])
    _same(got, sent)


@st.composite
def _strings(draw):
    shape = draw(st.lists(st.integers(0, 3), max_size=3).map(tuple))
    strings = np.empty(shape, object)
    for index in np.ndindex(shape):
        strings[index] = draw(st.binary(max_size=100))
    return strings


_TENSORS = st.lists(
    _strings()
    | st.builds(_array, st.sampled_from(DTYPES), st.lists(st.integers(0, 4), max_size=3)),
    max_size=4,
)


@given(_TENSORS)
def test_strings_and_numbers_come_back_side_by_side(sent):
    _, got = _through(sent)
    for one, other in zip(got, sent, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        same = (
            one.tolist() == other.tolist()
            if is_string_tensor(other)
            else one.tobytes() == other.tobytes()
        )
        assert same


@settings(max_examples=examples(100))
@given(_TENSORS, st.data())
def test_damaged_frames_give_tensors_or_an_error_that_says_so(sent, data):
    assembler = Assembler()
    for frame in _frames(pb.Envelope(id=1), sent):
        changed = bytearray(frame)
        for _ in range(data.draw(st.integers(1, 4))):
            changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
        try:
            message = assembler.feed(bytes(changed[: data.draw(st.integers(0, len(changed)))]))
            if message is not None:
                open_message(message)
        except (errors.InvalidArgumentError, errors.ResourceExhaustedError):
            return


@pytest.mark.parametrize(
    ("shape", "lengths"),
    [([2**60], []), ([2**32, 2**32], []), ([9], [1] * 8), ([1], [2**64 - 1]), ([2], [2**63] * 2)],
    ids=str,
)
def test_strings_that_are_longer_than_the_payload_are_refused_before_memory_is_taken(
    shape, lengths
):
    message = _message([("string", shape)], 64)
    message.payload[:] = 0
    message.payload[: 8 * len(lengths)] = np.array(lengths, "<u8").view(np.uint8)
    with pytest.raises(errors.InvalidArgumentError, match="does not fit"):
        open_message(message)


def test_those_are_all_dtypes_that_jax_has():
    usual = "bool int4 int8 uint4 uint64 float16 bfloat16 float64 float8_e4m3fn complex128"
    assert set(usual.split()) < {dtype.name for dtype in DTYPES}


@given(
    st.lists(st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 4), max_size=5))),
    st.integers(0, 2**32),
)
def test_any_list_of_tensors_comes_back_in_order(kinds, seed):
    sent = [_array(dtype, shape, seed + i) for i, (dtype, shape) in enumerate(kinds)]
    _, got = _through(sent)
    assert len(got) == len(sent)
    for one, other in zip(got, sent, strict=True):
        _same(one, other)


@pytest.mark.parametrize(
    "sent",
    [
        np.arange(12.0).reshape(3, 4).T,
        np.arange(10)[::2],
        np.arange(10)[::-1],
        np.broadcast_to(np.float32(3), (4, 5)),
        np.asfortranarray(np.arange(6, dtype=np.int8).reshape(2, 3)),
        np.frombuffer(b"read-only", np.uint8),
    ],
    ids=["transposed", "strided", "backwards", "broadcast", "fortran", "read-only"],
)
def test_the_memory_layout_of_a_tensor_does_not_matter(sent):
    _, (got,) = _through([sent])
    _same(got, sent)


def _blocks(dtype, shapes, seed=0):
    return BlockArray([_array(dtype, shape, seed + i) for i, shape in enumerate(shapes)])


@given(
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 9), min_size=1, max_size=4),
    st.lists(st.integers(1, 16), max_size=2),
    st.integers(0, 30),
    st.integers(0, 2**32),
)
def test_an_array_in_several_buffers_comes_back_as_one(dtype, n_rows, row, n_last, seed):
    sent = _blocks(dtype, [*((64 * n, *row) for n in n_rows), (n_last, *row)], seed)
    assert (sent.size, sent.nbytes) == (np.asarray(sent).size, np.asarray(sent).nbytes)
    _, got = _through([np.ones(3), sent, np.zeros(2)])
    _same(got[1], np.asarray(sent))
    _same(got[2], np.zeros(2))


def test_an_array_in_several_buffers_is_sent_without_a_copy():
    sent = _blocks(np.dtype("float32"), [(64, 64)] * 3)
    buffers = [buffer for parts in frames_of(encode_parts, 1, b"", [sent]) for buffer in parts]
    memory = [np.frombuffer(one, np.uint8) for one in buffers if isinstance(one, memoryview)]
    assert len(memory) == len(sent.blocks)
    for one, block in zip(memory, sent.blocks, strict=True):
        assert np.shares_memory(one, block)


def test_special_values_keep_every_bit():
    sent = np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0, 5e-324])
    _, (got,) = _through([sent])
    _same(got, sent)


def test_a_received_tensor_is_a_view_of_the_payload_at_an_aligned_address():
    sent = [np.arange(3, dtype=np.int8), np.arange(5000.0), np.ones((2, 2), np.complex64)]
    assembler = Assembler()
    (message,) = filter(None, map(assembler.feed, _frames(pb.Envelope(), sent)))
    _, got = open_message(message)
    for tensor in got:
        assert np.shares_memory(tensor, message.payload)
        assert tensor.ctypes.data % 64 == 0


def test_the_envelope_comes_back_beside_its_tensors():
    sent = pb.Envelope(id=3, incarnation=2**64 - 1, run_step=pb.RunStep(handle=4))
    got, _ = _through([np.zeros(3)], sent)
    assert got == sent
    assert [(t.dtype, list(t.shape)) for t in got.tensors] == [("float64", [3])]


def _message(metas, n_bytes=0):
    envelope = pb.Envelope(tensors=[pb_tensor.TensorMeta(dtype=d, shape=s) for d, s in metas])
    return Message(1, envelope.SerializeToString(), aligned_buffer(n_bytes))


@pytest.mark.parametrize(
    ("metas", "n_bytes"),
    [
        ([("float32", [17])], 64),
        ([("float32", [])], 0),
        ([("uint8", [64]), ("uint8", [1])], 64),
        ([("uint8", [1]), ("uint8", [1])], 64),
        ([("float64", [2**62])], 64),
        ([("float64", [2**61, 2**61, 2**61])], 64),
        ([("uint8", [2**64 - 1])], 64),
        ([("uint8", [2**32, 2**32])], 64),
        ([("uint8", [2**63, 2])], 64),
    ],
)
def test_a_tensor_that_is_larger_than_the_payload_is_refused(metas, n_bytes):
    with pytest.raises(errors.InvalidArgumentError, match="does not fit"):
        open_message(_message(metas, n_bytes))


@pytest.mark.parametrize(
    "shape",
    [[0, 2**64 - 1], [0, 2**63 - 1], [2**62, 2**62, 0], [0] * 65, [1] * 65, [1] * 5000],
    ids=["0 x 2^64", "0 x 2^63", "2^124 x 0", "65 zeros", "65 ones", "5000 ones"],
)
def test_a_shape_that_no_array_can_have_is_refused(shape):
    with pytest.raises(errors.InvalidArgumentError):
        open_message(_message([("uint8", shape)], 64))


@pytest.mark.parametrize("dtype", ["uint8", "string"])
def test_a_number_of_dimensions_is_refused_before_their_sizes_are_multiplied(dtype):
    with pytest.raises(errors.InvalidArgumentError, match="has 5000 dimensions; at most 32") as got:
        open_message(_message([(dtype, [2**62] * 5000)], 64))
    assert len(str(got.value)) < 200, "the sizes are not in it"


@pytest.mark.parametrize(
    "name",
    [
        *("", "none", "float33", "float32\0", "é", "(2", "{'a': 1}", "f4, f4", "x" * 10_000),
        *("O", "object", "i4,O", "V", "V8", "void64", "S", "S4", "bytes", "U4", "str", "a", "c"),
        *("M8[s]", "datetime64[s]", "m8[s]", "timedelta64", "f4,i4", "(2,2)f4", "f4,(2", "2**9f4"),
        *("complex32", "longdouble", "float128", ">f4", "<f4", ">i8", "int1", "float6_e2m3fn"),
    ],
)
def test_an_element_type_that_is_not_one_of_jax_s_numbers_is_refused(name):
    with pytest.raises(errors.InvalidArgumentError, match="type"):
        open_message(_message([(name, [1])], 4096))


def test_a_control_part_that_is_no_envelope_is_refused():
    with pytest.raises(errors.InvalidArgumentError, match="malformed control message"):
        open_message(Message(1, b"\xff\xff\xff", aligned_buffer(0)))


@settings(max_examples=examples(60))
@given(st.binary(max_size=60), st.integers(0, 200))
def test_any_control_part_gives_tensors_or_an_error_of_jflow(control, n_bytes):
    with suppress(errors.OpError):
        open_message(Message(1, control, aligned_buffer(n_bytes)))


@settings(max_examples=examples(60))
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["float32", "uint8", "int4", "complex128", "string", "O", "V3"])
            | st.text("fiuVSOM48,()[]*<> ", max_size=8),
            st.lists(st.integers(0, 3) | st.integers(0, 2**64 - 1), max_size=4),
        ),
        max_size=3,
    ),
    st.integers(0, 300),
)
def test_any_description_of_tensors_gives_tensors_or_an_error_of_jflow(metas, n_bytes):
    with suppress(errors.OpError):
        open_message(_message(metas, n_bytes))


# Errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(("op", "task"), [(None, None), ("x/read", "/job:ps/task:0")])
def test_an_error_comes_back_as_it_was(kind, op, task):
    status = error_to_status(kind("it broke", op=op, task=task), TASK)
    got = error_of(pb_tensor.Status.FromString(status.SerializeToString()))
    assert type(got) is kind
    assert (got.message, got.op, got.task) == ("it broke", op, task or TASK)


def test_the_base_of_all_errors_becomes_unknown():
    got = error_of(error_to_status(errors.OpError("it broke"), TASK))
    assert type(got) is errors.UnknownError


def test_an_error_that_is_not_jflow_s_own_becomes_internal_and_shows_no_code():
    try:
        raise ValueError("seven is not prime enough") from OSError("behind it")
    except ValueError as error:
        status = error_to_status(error, TASK)
    got = error_of(status)
    assert type(got) is errors.InternalError
    assert got.message == "ValueError: seven is not prime enough"
    assert got.task == TASK


@pytest.mark.parametrize("message", ["", "naïve — Größe", "bad name \udc80", "\0", "x" * 100_000])
def test_an_error_of_any_text_can_be_sent(message):
    got = error_of(error_to_status(errors.NotFoundError(message, op="x"), TASK))
    assert type(got) is errors.NotFoundError
    if "\udc80" not in message:
        assert got.message == message


@pytest.mark.parametrize("code", [17, 99, -1, 2**31 - 1])
def test_a_code_of_a_later_version_becomes_unknown(code):
    got = error_of(pb_tensor.Status(code=code, message="new"))
    assert (type(got), got.message) == (errors.UnknownError, "new")


def test_success_is_never_taken_for_an_error():
    assert type(error_of(pb_tensor.Status())) is errors.UnknownError


# Plans --------------------------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(well_formed())
def test_a_plan_comes_back_as_it_was(plan):
    sent = plan_to_proto(plan).SerializeToString()
    assert plan_from_proto(pb_plan.Plan.FromString(sent)) == plan


DEVICE = Device(Task("w", 0), "CPU", 0)
SPEC = VariableSpec(VariableKey("", "x"), "float32", ())


@pytest.mark.parametrize(
    "step",
    [
        Feed(0, 2),
        Fetch(2, 0),
        Recv(0, DEVICE, 2),
        Send(0, DEVICE, 2),
        Call("identity", inputs=(0, 2)),
        Call("identity", outputs=(2,)),
        Run(None, inputs=(0, 2)),
        Run(None, outputs=(2,)),
        Run(None, before=((0, 2),)),
        Run(None, after=((0, 2),)),
        Run(None, reads=(1,)),
        Run(None, writes=(0, 1)),
        Run(None, before=((1, 0),)),
        Run(None, after=((1, 0),)),
        Run(None, after=((2**32 - 1, 0),)),
    ],
    ids=str,
)
def test_a_plan_that_names_a_slot_or_variable_that_is_not_there_is_refused(step):
    message = plan_to_proto(Plan(DEVICE, 2, (SPEC,), ((Feed(0, 0),), (step,))))
    with pytest.raises(errors.InvalidArgumentError, match="out of range"):
        plan_from_proto(message)


def test_a_plan_cannot_make_a_worker_take_memory_for_slots_that_are_not_used():
    message = plan_to_proto(Plan(DEVICE, 2**32 - 1, (), ()))
    with pytest.raises(errors.InvalidArgumentError, match="4294967295 slots; the limit is 1048576"):
        plan_from_proto(message)


@pytest.mark.parametrize("name", ["", "nonsense", "/job:w", "/job:w/task:0", "/cpu:0", "/job:\0"])
@pytest.mark.parametrize("where", ["plan", "recv", "send"])
def test_a_plan_with_a_name_that_is_no_device_is_refused(where, name):
    message = plan_to_proto(
        Plan(DEVICE, 2, (), ((Recv(0, DEVICE, 0), Send(1, DEVICE, 0)),)),
    )
    if where == "plan":
        message.device = name
    elif where == "recv":
        message.stages[0].instructions[0].recv.source = name
    else:
        message.stages[0].instructions[1].send.target = name
    with pytest.raises(errors.InvalidArgumentError, match="device"):
        plan_from_proto(message)


def test_an_instruction_of_no_known_kind_is_refused():
    message = plan_to_proto(Plan(DEVICE, 2, (), ((),)))
    message.stages[0].instructions.add()
    with pytest.raises(errors.InvalidArgumentError, match="unknown kind"):
        plan_from_proto(message)


@settings(max_examples=examples(60))
@given(well_formed(), st.data())
def test_a_damaged_plan_is_read_or_refused_with_an_error_of_jflow(plan, data):
    changed = bytearray(plan_to_proto(plan).SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    message = pb_plan.Plan()
    try:
        message.ParseFromString(bytes(changed))
    except Exception:
        return
    with suppress(errors.OpError):
        plan_from_proto(message)

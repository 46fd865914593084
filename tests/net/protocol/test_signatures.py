"""RPCs that follow from the signatures of methods: what travels, and what is refused."""

from __future__ import annotations

import inspect
import os
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import hypothesis.strategies as st
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings

from jflow.base.cluster import Device, Task
from jflow.base.deadline import FOREVER, Deadline
from jflow.base.values import Array
from jflow.base.versions import VERSION, Since
from jflow.errors import InvalidArgumentError, UnavailableError, UnimplementedError
from jflow.net.protocol import MasterSession, WorkerSession
from jflow.net.protocol.records import DeviceRecord
from jflow.net.protocol.signatures import MethodSignature, rpcs_of
from jflow.state.core import ClaimedRuns, SavedState, StateMoves
from jflow.state.effects import Earlier, Effect, Phase
from jflow.state.journal import JournalPosition
from jflow.state.moves import End, StateId
from jflow.state.watch import StatusRequest, TaskReport, TaskState
from tests.drawn import examples
from tests.net.protocol.example_calls import example_call

METHODS = {
    f"{role}'s {rpc.name}": method
    for role, service in (("master", MasterSession), ("worker", WorkerSession))
    for method, rpc in rpcs_of(service).items()
}
RECORDED = Path(__file__).parent / f"calls_of_version_{VERSION}.txt"

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
NUMBER = st.integers(0, 2**63 - 1)
TASKS = st.builds(Task, st.sampled_from(["worker", "ps"]), st.integers(0, 99))
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: NUMBER,
    float: st.floats(0.0, 1e9),
    bool: st.booleans(),
    bytes: st.binary(max_size=8),
    Task: TASKS,
    Deadline: st.just(FOREVER),
    StateId: st.builds(StateId, TEXT, TEXT, TEXT, TEXT, TEXT),
    Effect: st.builds(Effect, TEXT.filter(bool), NUMBER, NUMBER, NUMBER.map(lambda n: n or 1)),
    End: st.sampled_from(End),
    Array: st.lists(st.integers(0, 9), max_size=3).map(np.array),
    StatusRequest: st.builds(StatusRequest, st.just(("sessions",))),
    JournalPosition: st.builds(JournalPosition, TASKS, NUMBER, NUMBER),
}


def drawn(annotation: Any) -> st.SearchStrategy[Any]:
    """Values of an annotation of a service's method."""
    if annotation in VALUES:
        return VALUES[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Sequence:
        return st.lists(drawn(arguments[0]), max_size=2)
    if origin is Mapping:
        return st.dictionaries(TEXT, drawn(arguments[1]), max_size=2)
    return st.one_of(*(st.none() if one is type(None) else drawn(one) for one in arguments))


def arguments_of(method: Any) -> st.SearchStrategy[list[Any]]:
    """Arguments for a method."""
    hints = typing.get_type_hints(method)
    names = [*inspect.signature(method).parameters][1:]
    return st.tuples(*(drawn(hints[name]) for name in names)).map(list)


def same(one: Any, other: Any) -> bool:
    """Whether values are equal; arrays may be anywhere in them."""
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other)) and one.dtype == other.dtype
    if isinstance(one, TaskReport):
        return one.state is other.state and same(one.packed, other.packed)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@pytest.mark.parametrize("name", METHODS)
@given(data=st.data())
@settings(max_examples=examples(8))
def test_the_arguments_of_a_call_arrive(name, data):
    method = METHODS[name]
    signature = MethodSignature(method, name)
    arguments = data.draw(arguments_of(method))
    found = signature.with_deadline(signature.decode(*signature.encode(arguments, {})), FOREVER)
    assert all(map(same, found, arguments))


@pytest.mark.parametrize("name", METHODS)
@given(data=st.data())
@settings(max_examples=examples(20))
def test_arguments_that_were_damaged_are_refused_or_are_others(name, data):
    method = METHODS[name]
    signature = MethodSignature(method, name)
    record, tensors = signature.encode(data.draw(arguments_of(method)), {})
    at = data.draw(st.integers(0, len(record) - 1))
    damaged = bytearray(record)
    damaged[at] = data.draw(st.integers(0, 255))
    try:
        found = signature.decode(bytes(damaged), tensors)
    except InvalidArgumentError:
        return
    again = signature.encode(signature.with_deadline(found, FOREVER), {})
    assert all(map(same, signature.decode(*again).values(), found.values()))


class Service:
    """Methods of all kinds of parameters and results."""

    async def saved(self, hold: str) -> SavedState: ...

    async def earlier(self) -> Earlier: ...

    async def listed(self) -> Sequence[DeviceRecord]: ...

    async def reported(self) -> Sequence[TaskReport]: ...

    async def grown(
        self, name: str, seconds: Annotated[float, Since(VERSION + 1)] = 7.0
    ) -> int: ...


RESULTS = {
    "saved": SavedState(b"record", (np.arange(3), np.float32(2))),
    "earlier": Earlier(
        Phase.COMMITTED,
        3,
        ("/job:ps/task:0",),
        (np.arange(2),),
        UnavailableError("it was lost", op="x", task="/job:ps/task:0"),
    ),
    "listed": (DeviceRecord(Device(Task("ps", 0), "GPU", 1), "cuda", 2**64 - 1),),
    "reported": (
        TaskReport(Task("ps", 0), "h:1", TaskState.UP, packed=np.ones(5 << 20, np.uint8)),
        TaskReport(Task("ps", 1), "h:2", TaskState.DOWN, "it is gone"),
    ),
}


@pytest.mark.parametrize("name", RESULTS)
def test_the_result_of_a_call_arrives(name):
    signature, result = MethodSignature(getattr(Service, name), name), RESULTS[name]
    record, tensors = signature.encode_result(result)
    assert len(record) < 1000, "arrays, and bytes that may be long, travel beside it"
    found = signature.decode_result(record, tensors)
    if name == "earlier":
        assert (found.error.message, found.error.op) == ("it was lost", "x")
        assert (found.phase, found.attempt) == (Phase.COMMITTED, 3)
        assert same(found.results, result.results)
    else:
        assert same(found, result)


def test_a_parameter_of_a_later_version_is_left_out_and_read_by_its_default():
    signature = MethodSignature(Service.grown, "grown")
    for version, named, seconds in ((VERSION, {}, 7.0), (VERSION + 1, {"seconds": 3}, 3.0)):
        record, _ = signature.encode(["x"], named, version)
        assert signature.decode(record, (), version) == {"name": "x", "seconds": seconds}
    with pytest.raises(InvalidArgumentError, match="'grown': Object contains unknown field"):
        signature.decode(record, (), VERSION)
    with pytest.raises(
        UnimplementedError, match=r"'seconds' of the call 'grown' came with version"
    ):
        signature.encode(["x"], {"seconds": 3}, VERSION)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "missing required field `name`"),
        ({"name": "x", "epoch": 1, "more": 2}, "unknown field `more`"),
        ({"epoch": 1, "name": "x"}, "not in its canonical form"),
        ({"name": 1, "epoch": 1}, r"Expected `str`, got `int` - at `\$.name`"),
        ({"name": "x", "epoch": True}, r"Expected `int`, got `bool` - at `\$.epoch`"),
        ({"name": "x", "epoch": -1}, r"Expected `int` >= 0 - at `\$.epoch`"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(arguments, message):
    signature = MethodSignature(ClaimedRuns.learn, "claims.learn")
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        signature.decode(_packed(arguments), ())
    assert "arguments of 'claims.learn'" in caught.value.message


def test_arrays_beside_a_record_are_each_used_once_and_in_order():
    signature = MethodSignature(StateMoves.put, "moves.put")
    record, tensors = signature.encode(["hold", b"r", [np.zeros(1), np.ones(1)]], {})
    swapped = record.replace(b"\x92\x00\x01", b"\x92\x01\x00")
    assert swapped != record
    for data, arrays in (
        (swapped, tensors),
        (record, tensors[:1]),
        (record, [*tensors, tensors[0]]),
    ):
        with pytest.raises(InvalidArgumentError, match=r"arguments of 'moves\.put'"):
            signature.decode(data, arrays)


def test_the_messages_of_this_version_are_those_that_were_recorded():
    """A new call is a line more: JFLOW_RENEW_GOLDEN=1 writes it, and the version stays.

    A line that changes is another version of the protocol, of which the number has to grow.
    """
    lines = []
    for name, method in METHODS.items():
        envelope, _ = example_call(method)
        lines.append(f"{name}: {envelope.SerializeToString().hex()}\n")
    text = "".join(lines)
    if os.environ.get("JFLOW_RENEW_GOLDEN"):
        RECORDED.write_text(text)
    assert RECORDED.read_text() == text


def _packed(arguments: Mapping[str, Any]) -> bytes:
    """A map as MessagePack, in the order of its keys as they are given."""
    data: bytes = msgspec.msgpack.encode(arguments)
    return data

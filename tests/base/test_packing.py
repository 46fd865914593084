"""Records come back from bytes as they were; every other sequence of bytes is refused."""

from __future__ import annotations

import struct
import time
import tracemalloc
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from jflow.base.packing import Finite, Limits, Meta, Record, pack, unpack, unpack_keywords
from jflow.base.values import NUMBERS, TensorSpec, string
from jflow.errors import InvalidArgumentError
from tests.drawn import examples
from tests.scripts import run_script


class Point(Record, frozen=True):
    x: int
    name: str = ""

    def __post_init__(self) -> None:
        if self.name == "nowhere":
            raise ValueError("there is no such point")


class Everything(Record, frozen=True):
    what: ClassVar[str] = "thing"

    flag: bool
    number: int
    count: Annotated[int, Meta(ge=0, le=10)]
    real: Finite
    text: str
    data: bytes
    choice: Literal["red", "green"]
    maybe: int | None
    either: str | Finite
    points: tuple[Point, ...]
    pair: tuple[str, tuple[int, ...]]
    spec: TensorSpec
    options: Mapping[str, bool | str]
    anything: Any


INTEGERS = st.integers(-(2**63), 2**64 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PLAIN = st.recursive(
    st.none() | st.booleans() | INTEGERS | FLOATS | TEXTS | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)
SPECS = st.builds(
    TensorSpec,
    st.none() | st.lists(st.none() | st.integers(0, 2**40), max_size=4).map(tuple),
    st.sampled_from([*NUMBERS.values(), string]),
)
POINTS = st.builds(Point, INTEGERS, TEXTS.filter(lambda text: text != "nowhere"))
THINGS = st.builds(
    Everything,
    flag=st.booleans(),
    number=INTEGERS,
    count=st.integers(0, 10),
    real=FLOATS,
    text=TEXTS,
    data=st.binary(max_size=20),
    choice=st.sampled_from(["red", "green"]),
    maybe=st.none() | INTEGERS,
    either=TEXTS | FLOATS,
    points=st.lists(POINTS, max_size=3).map(tuple),
    pair=st.tuples(TEXTS, st.lists(INTEGERS, max_size=3).map(tuple)),
    spec=SPECS,
    options=st.dictionaries(TEXTS, st.booleans() | TEXTS, max_size=3),
    anything=PLAIN,
)
THING = Everything(
    flag=True,
    number=-5,
    count=3,
    real=0.5,
    text="text",
    data=b"data",
    choice="red",
    maybe=None,
    either="either",
    points=(Point(1), Point(2, "two")),
    pair=("pair", (1, 2)),
    spec=TensorSpec((None, 3), "float32"),
    options={"b": True, "a": "x"},
    anything={"deep": [1, None]},
)


@given(THINGS)
def test_a_record_comes_back_as_it_was(thing):
    assert Everything.from_bytes(thing.to_bytes()) == thing


@given(st.dictionaries(TEXTS, PLAIN, max_size=5))
def test_plain_values_come_back_as_they_were(values):
    assert unpack(pack(values)) == values


@given(st.dictionaries(TEXTS, PLAIN, max_size=5), st.randoms())
def test_equal_maps_are_equal_bytes_in_whatever_order_they_were_made(values, random):
    keys = [*values]
    random.shuffle(keys)
    assert pack({key: values[key] for key in keys}) == pack(values)


def test_equal_records_are_equal_bytes():
    assert Everything.from_bytes(THING.to_bytes()).to_bytes() == THING.to_bytes()
    other = {"a": "x", "b": True}
    assert replace(THING, options=other).to_bytes() == THING.to_bytes()


def test_fields_are_in_the_order_of_their_declaration():
    assert Point(1, "a").to_bytes() == b"\x82\xa1x\x01\xa4name\xa1a"
    with pytest.raises(InvalidArgumentError, match="malformed Point: expected all fields"):
        Point.from_bytes(msgspec.msgpack.encode({"name": "a", "x": 1}))


def test_what_is_in_a_record_can_be_shown_without_its_type():
    assert unpack(THING.to_bytes())["points"] == [{"x": 1, "name": ""}, {"x": 2, "name": "two"}]
    assert unpack(THING.to_bytes())["spec"] == {"shape": [None, 3], "dtype": "float32"}


# What cannot be -----------------------------------------------------------------------------------

WRONG = [
    ("flag", 1, r"Expected `bool`, got `int` - at `\$.flag`"),
    ("number", True, r"Expected `int`, got `bool` - at `\$.number`"),
    ("number", 1.0, r"Expected `int`, got `float` - at `\$.number`"),
    ("number", None, r"Expected `int`, got `(null|None)` - at `\$.number`"),
    ("count", 11, r"Expected `int` <= 10 - at `\$.count`"),
    ("count", -1, r"Expected `int` >= 0 - at `\$.count`"),
    ("real", 1, "no integer for a float"),
    ("real", float("nan"), "expected a finite float"),
    ("real", float("-inf"), "expected a finite float"),
    ("text", b"text", r"Expected `str`, got `bytes` - at `\$.text`"),
    ("text", "x" * 70000, "at most 65536 bytes"),
    ("data", "data", r"Expected `bytes`, got `str` - at `\$.data`"),
    ("choice", "blue", r"Invalid enum value 'blue' - at `\$.choice`"),
    ("choice", 3, r"Expected `str`, got `int` - at `\$.choice`"),
    ("maybe", "x", r"Expected `int | null`, got `str` - at `\$.maybe`"),
    ("either", 3, "no integer for a float"),
    ("points", "x", r"Expected `array`, got `str` - at `\$.points`"),
    ("points", [3], r"Expected `object`, got `int` - at `\$.points\[0\]`"),
    ("points", [{"name": ""}], r"missing required field `x` - at `\$.points\[0\]`"),
    ("points", [{"x": 1}], "expected all fields"),
    ("points", [{"x": 1, "name": "", "y": 2}], "Object contains unknown field `y`"),
    ("pair", ["a"], r"Expected `array` of length 2, got 1 - at `\$.pair`"),
    ("pair", ["a", [1, "x"]], r"Expected `int`, got `str` - at `\$.pair\[1\]\[1\]`"),
    ("options", {"a": 3}, r"Expected `bool | str`, got `int` - at `\$.options\[...\]`"),
    ("options", ["a"], r"Expected `object`, got `array` - at `\$.options`"),
    ("anything", [float("nan")], "expected a finite float"),
    ("anything", {"a": {1: 2}}, "text as a key|str keys"),
]


@pytest.mark.parametrize(("field", "value", "message"), WRONG)
def test_a_value_of_another_type_is_refused_on_both_sides(field, value, message):
    with pytest.raises(InvalidArgumentError, match=f"malformed thing: .*{message}"):
        replace(THING, **{field: value}).to_bytes()
    plain = msgspec.msgpack.decode(THING.to_bytes()) | {field: value}
    with pytest.raises(InvalidArgumentError, match=f"malformed thing: .*{message}"):
        Everything.from_bytes(msgspec.msgpack.encode(plain))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (2**64, "can't serialize ints"),
        ("\ud800", "surrogates not allowed"),
        ({1: 2}, "dicts with str keys"),
        (np.int32(1), "got np.int32"),
        (object(), "got <object"),
        (["x" * 65000] * 20, "at most 1048576 bytes, got 1300"),
        ([0] * 70000, "at most 65536 items, got 70001"),
    ],
)
def test_what_cannot_be_encoded_is_refused(value, message):
    with pytest.raises(InvalidArgumentError, match=message):
        pack({"value": value})


def test_what_contains_itself_is_refused():
    value: list[Any] = []
    value.append(value)
    with pytest.raises(InvalidArgumentError, match="maximum recursion depth"):
        pack({"value": value})


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"shape": [-1], "dtype": "float32"},
            r"sizes of 0 or more, got \(-1,\) - at `\$.spec`",
        ),
        ({"shape": [], "dtype": "float31"}, "'float31' is not a dtype.* - at `\\$.spec`"),
        ({"shape": [], "dtype": "U8"}, "'U8' is not a dtype"),
        (
            {"shape": [1.0], "dtype": "int8"},
            r"got `float` - at `\$.spec.shape\[0\]`",
        ),
        ({"shape": [True], "dtype": "int8"}, r"got `bool` - at `\$.spec.shape\[0\]`"),
        (
            {"shape": 3, "dtype": "int8"},
            r"Expected `array .*, got `int` - at `\$.spec.shape`",
        ),
        ({"shape": [], "dtype": 3}, r"as a data type - at `\$.spec`"),
        ({"shape": [], "dtype": [["a", "int8"]]}, r"is not a dtype of tensors - at `\$.spec`"),
        ({"shape": [], "dtype": None}, "expected all fields"),
        ({"dtype": "int8"}, r"missing required field `shape` - at `\$.spec`"),
        ({"shape": [], "dtype": "int8", "size": 1}, "expected all fields"),
    ],
)
def test_a_spec_that_cannot_be_is_refused(spec, message):
    plain = msgspec.msgpack.decode(THING.to_bytes()) | {"spec": spec}
    with pytest.raises(InvalidArgumentError, match=message):
        Everything.from_bytes(msgspec.msgpack.encode(plain))


def test_what_the_class_itself_refuses_is_an_invalid_argument():
    with pytest.raises(InvalidArgumentError, match="malformed Point: there is no such point"):
        Point.from_bytes(msgspec.msgpack.encode({"x": 1, "name": "nowhere"}))


def test_an_annotation_that_cannot_be_encoded_is_refused():
    class Bad(Record, frozen=True):
        value: complex

    with pytest.raises(InvalidArgumentError, match="malformed Bad: expected plain values, got 1j"):
        Bad(1j).to_bytes()


# Hostile bytes ------------------------------------------------------------------------------------

LIST32, MAP32, TEXT32, BYTES32 = b"\xdd", b"\xdf", b"\xdb", b"\xc6"
HUGE = struct.pack(">I", 2**32 - 1)
LONG_KEY = b"\x81\xda\xff\xff" + b"k" * 65535
HOSTILE = {
    "nothing": b"",
    "a huge list": LIST32 + HUGE,
    "a huge map": MAP32 + HUGE,
    "huge text": TEXT32 + HUGE,
    "huge bytes": BYTES32 + HUGE,
    "a huge list of huge lists": (LIST32 + struct.pack(">I", 2**16)) * 2000,
    "deep lists": b"\x91" * 500_000,
    "deep maps": b"\x81\xa0" * 500_000,
    "a reserved byte": b"\xc1",
    "an extension": b"\xc7\x01\x05x",
    "an empty extension": b"\xc7\x00\x05",
    "a huge extension": b"\xc9" + HUGE + b"\x05",
    "a timestamp": b"\xd6\xff\x00\x00\x00\x00",
    "text that is no UTF-8": b"\xa1\xff",
    "a key that is no text": b"\x81\x01\x01",
    "a key that is bytes": b"\x81\xc4\x01x\x01",
    "a key that comes twice": b"\x82\xa1x\x01\xa1x\x02",
    "keys that are out of order": b"\x82\xa1y\x01\xa1x\x02",
    "a list as a key": b"\x81\x91\x01\x01",
    "two values": b"\x80\x80",
    "too much": b"\xc6" + struct.pack(">I", 2 << 20) + bytes(2 << 20),
    "a long list": LIST32 + struct.pack(">I", 2**16 + 1) + b"\x01" * (2**16 + 1),
    "a long key around a long list": b"\x81\xda\xff\xff"
    + b"k" * 65535
    + b"\xdc\xff\xff"
    + b"\x91" * 65535,
    "many empty lists": b"\x9f" + (b"\xdc\xff\xff" + b"\x90" * 65535) * 15,
    "not a number": b"\xcb\x7f\xf8" + bytes(6),
    "infinity": b"\xca\x7f\x80\x00\x00",
}


def _readers():
    def function(*, anything: Any = None) -> None: ...

    def others(**anything: Any) -> None: ...

    yield Everything.from_bytes
    yield Point.from_bytes
    yield lambda data: unpack_keywords(data, function, "function")
    yield lambda data: unpack_keywords(data, others, "others")


def _refused(read, data):
    tracemalloc.start()
    start = time.process_time()
    try:
        with pytest.raises(InvalidArgumentError) as error:
            read(data)
        assert time.process_time() - start < 2
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert len(str(error.value)) < 4000


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_are_refused_at_once_and_without_much_memory(name):
    data = HOSTILE[name]
    for read in _readers():
        _refused(read, data)
        # Where anything may be, and nested.
        _refused(read, b"\x81\xa8anything" + data)
        _refused(read, b"\x81\xa8anything\x92\x01" + data)


@settings(max_examples=examples(100))
@given(THINGS, st.data())
def test_truncated_bytes_are_refused(thing, data):
    encoded = thing.to_bytes()
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(InvalidArgumentError, match="malformed thing"):
        Everything.from_bytes(encoded[:cut])


@settings(max_examples=examples(150))
@given(THINGS, st.data())
def test_damaged_bytes_are_refused_or_are_another_record(thing, data):
    encoded = bytearray(thing.to_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = Everything.from_bytes(bytes(encoded))
    except InvalidArgumentError:
        return
    assert Everything.from_bytes(found.to_bytes()) == found


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_understood(data):
    for read in (Everything.from_bytes, unpack):
        with suppress(InvalidArgumentError):
            read(data)


def test_a_record_can_have_limits_of_its_own():
    class Long(Record, frozen=True):
        limits: ClassVar[Limits] = Limits(n_text=1 << 19)
        text: str

    long = Long("x" * 500_000)
    assert Long.from_bytes(long.to_bytes()) == long
    with pytest.raises(InvalidArgumentError, match="at most 524288 bytes"):
        Long("x" * 600_000).to_bytes()


# Keyword arguments --------------------------------------------------------------------------------


def _function(*values: int, count: int, names: list[str] | None = None, up_to: bool = False):
    """Only the keyword-only parameters are arguments by name."""


def test_arguments_are_those_of_the_function():
    assert unpack_keywords(pack({"count": 3}), _function, "f") == {"count": 3}
    given = {"up_to": True, "names": ["a"], "count": 3}
    assert unpack_keywords(pack(given), _function, "f") == given


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "malformed arguments of 'f': .* missing required field `count`"),
        ({"cuont": 3}, "unknown field `cuont`"),
        ({"count": 3, "values": 1}, "unknown field `values`"),
        ({"count": "3"}, r"Expected `int`, got `str` - at `\$.count`"),
        ({"count": True}, r"Expected `int`, got `bool` - at `\$.count`"),
        ({"count": 3, "names": [1]}, r"Expected `str`, got `int` - at `\$.names\[0\]`"),
        ({"count": 3, "up_to": 1}, r"Expected `bool`, got `int` - at `\$.up_to`"),
    ],
)
def test_other_arguments_are_refused(given, message):
    with pytest.raises(InvalidArgumentError, match=message):
        unpack_keywords(pack(given), _function, "f")


FIRST_LOOKS = """
import sys, threading
import msgspec
from jflow.base.packing import Record
from jflow.net.protocol.signatures import _ArrayCodec

def family(n):
    source = "class R0(Record):\\n    a: int = 0\\n"
    for i in range(1, n):
        source += f"class R{i}(Record):\\n    a: tuple[R{i - 1}, ...] = ()\\n"
        source += f"    b: R{i - 1} | None = None\\n"
    exec(source, names := {"Record": Record})
    return names[f"R{n - 1}"]

sys.setswitchinterval(1e-6)
for _ in range(40):
    record, barrier = family(30), threading.Barrier(6)
    data = msgspec.msgpack.encode(record())
    def look():
        barrier.wait()
        USE
    threads = [threading.Thread(target=look) for _ in range(6)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
print("all are here")
"""


@pytest.mark.parametrize(
    "use",
    ["record.from_bytes(record().to_bytes())", "_ArrayCodec(record, 12, 'it').decode(data, ())"],
)
def test_threads_that_use_a_record_for_the_first_time_at_once_do_not_end_the_process(
    tmp_path: Path, use: str
) -> None:
    script = tmp_path / "first_looks.py"
    script.write_text(FIRST_LOOKS.replace("USE", use))
    done = run_script(script, cwd=tmp_path)
    assert done.stdout == "all are here\n", done.stderr

"""Examples in every form that protocol buffers allow, compared with their meaning in proto3.

Entries are drawn, written as bytes, and reduced to values here; the decoders must agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jflow.errors import InvalidArgumentError
from jflow.state.records import DECODERS, VarLenFeature, as_columns
from tests.state.records.arrays import strings

DTYPES = {1: "string", 2: "float32", 3: "int64"}
KEYS = ("a", "b", "")


@dataclass(frozen=True)
class Run:
    """Values of a list: strings, packed numbers, or numbers each with a tag."""

    values: Sequence[Any]
    is_packed: bool


@dataclass(frozen=True)
class Entry:
    """A key, the lists of a Feature by field number, and where the Feature is divided."""

    key: str
    lists: Sequence[tuple[int, Sequence[Run]]]
    cut: int | None


def varint(value: int) -> bytes:
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    return bytes([*data, value])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


UNKNOWN = st.sampled_from([b""] * 4 + [b"\x78\x96\x01", b"\x71" + bytes(8), b"\x75abcd", b"\x7a\0"])


def write_run(kind: int, run: Run) -> bytes:
    if kind == 1:
        return b"".join(field(1, value) for value in run.values)
    write = (lambda x: np.float32(x).tobytes()) if kind == 2 else (lambda x: varint(x % 2**64))
    numbers = [write(value) for value in run.values]
    if run.is_packed:
        return field(1, b"".join(numbers))
    return b"".join((b"\x0d" if kind == 2 else b"\x08") + number for number in numbers)


def write_entry(entry: Entry, unknown: bytes) -> bytes:
    lists = (
        field(kind, unknown.join([b"", *(write_run(kind, run) for run in runs)]))
        for kind, runs in entry.lists
    )
    feature = b"".join(lists)
    at = len(feature) if entry.cut is None else entry.cut % (len(feature) + 1)
    pieces = [feature[:at], feature[at:]] if entry.cut is not None else [feature]
    return field(1, entry.key.encode()) + b"".join(field(2, x) for x in pieces) + unknown


def said(entries: Sequence[Entry]) -> dict[str, tuple[int, list[Any]]]:
    """Kind and values by key: those of the last entry with the key, and of its last kind."""
    found = {}
    for entry in entries:
        kind, values = 0, list[Any]()
        for number, runs in entry.lists:
            values = values if number == kind else []
            values += [value for run in runs for value in run.values]
            kind = number
        found[entry.key] = kind, values
    return found


def runs_of(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Run]]:
    return st.lists(st.builds(Run, st.lists(values, max_size=4), st.booleans()), max_size=3)


LISTS = st.one_of(
    st.tuples(st.just(1), runs_of(st.binary(max_size=3))),
    st.tuples(st.just(2), runs_of(st.sampled_from([0.5, -1.0, 3e8]))),
    st.tuples(st.just(3), runs_of(st.integers(-(2**63), 2**63 - 1))),
)
ENTRIES = st.lists(
    st.builds(
        Entry,
        st.sampled_from(KEYS),
        st.lists(LISTS, max_size=3),
        st.none() | st.integers(0, 40),
    ),
    max_size=4,
)


def parse(data: bytes, key: str, dtype: str) -> list[Any]:
    """The values of a feature, after a check that both decoders agree on them."""
    defaults, columns = as_columns({key: VarLenFeature(dtype)})
    _, values, _ = DECODERS["parse_single_example"](
        strings(data).reshape(()), *defaults, columns=columns
    )
    _, batch, shape = DECODERS["parse_example"](strings(*[data] * 5), *defaults, columns=columns)
    assert batch.tolist() == values.tolist() * 5
    assert shape.tolist() == [5, len(values)]
    return list(values.tolist())


@given(ENTRIES, st.lists(UNKNOWN, min_size=3, max_size=3))
def test_what_the_bytes_say_is_read(entries: list[Entry], unknown: list[bytes]) -> None:
    written = [field(1, write_entry(entry, unknown[0])) for entry in entries]
    half = len(written) // 2
    features = [b"".join(written[:half]), unknown[1], b"".join(written[half:])]
    data = field(1, b"".join(features[:2])) + unknown[2] + field(1, features[2])
    expected = said(entries)
    for key in KEYS:
        kind, values = expected.get(key, (0, []))
        for number, dtype in DTYPES.items():
            if kind in (0, number):
                assert parse(data, key, dtype) == values
            else:
                with pytest.raises(InvalidArgumentError, match=f"expected {dtype} values"):
                    parse(data, key, dtype)


def example_of(*entries: tuple[bytes, bytes]) -> bytes:
    return field(1, b"".join(field(1, field(1, k) + field(2, v)) for k, v in entries))


def test_damage_in_a_feature_that_is_not_requested_does_not_matter() -> None:
    good, bad = field(3, b"\x08\x05"), field(3, b"\x0a\x09abc")
    data = example_of((b"a", good), (b"b", bad))
    assert parse(data, "a", "int64") == [5]
    with pytest.raises(InvalidArgumentError, match=r"Key: b\..*damaged"):
        parse(data, "b", "int64")


def test_keys_of_other_features_need_not_be_text() -> None:
    assert parse(example_of((b"\xff", b""), (b"a", field(1, b"\x0a\1x"))), "a", "string") == [b"x"]


def test_a_number_does_not_go_on_in_another_run() -> None:
    data = example_of((b"a", field(2, field(1, b"\0\0") + field(1, b"\x80\x3f"))))
    with pytest.raises(InvalidArgumentError, match=r"Key: a\..*damaged"):
        parse(data, "a", "float32")

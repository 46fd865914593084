"""tf.train.Example: named lists of strings, floats or integers as protocol buffers.

    Example  { Features features = 1 }       Feature   { oneof { BytesList = 1, FloatList = 2,
    Features { map<string, Feature> = 1 }                        Int64List = 3 } }
    each list { repeated ... value = 1 }     map entry { string key = 1, Feature value = 2 }

The wire format is taken apart by hand: the floats of a whole batch then become an array in one
piece, where a message object would make each of them a Python object first.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jflow.errors import InvalidArgumentError
from jflow.values import Array, as_strings

_VARINT, _FIXED64, _MESSAGE, _FIXED32 = 0, 1, 2, 5
_FIRST, _SECOND, _THIRD = (number << 3 | _MESSAGE for number in (1, 2, 3))

BYTES, FLOATS, INTEGERS = _FIRST, _SECOND, _THIRD
"""The kinds of lists, by their tags in a Feature."""

NO_LIST = 0

List = tuple[int, bytes]
"""Kind and message of a list."""


class MalformedError(Exception):
    """Bytes that are no message."""


def features_of(data: bytes, wanted: Container[bytes]) -> dict[bytes, List]:
    """The lists of an Example by their keys; a feature may have none.

    Raises:
      MalformedError: if the bytes are no Example.
    """
    found: dict[bytes, List] = {}
    try:
        for key, value in _entries(data):
            if key in wanted:
                found[key] = _feature(value)
    except IndexError:
        raise MalformedError from None
    return found


def packed(kind: int, message: bytes) -> bytes:
    """The numbers of a list one after the other: floats of 4 bytes, or varints.

    Raises:
      MalformedError: if the list is no message.
    """
    loose = 1 << 3 | (_FIXED32 if kind == FLOATS else _VARINT)
    try:
        parts = [
            message[start:end]
            for tag, start, end in _fields(message, 0, len(message))
            if tag in (_FIRST, loose)
        ]
    except IndexError:
        raise MalformedError from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


def strings(message: bytes) -> list[bytes]:
    """The strings of a list. Raises MalformedError if it is no message."""
    try:
        fields = _fields(message, 0, len(message))
    except IndexError:
        raise MalformedError from None
    return [message[start:end] for tag, start, end in fields if tag == _FIRST]


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The integer at an index, and the index behind it.

    Raises:
      MalformedError: if it takes more than ten bytes.
      IndexError: if the bytes end before it does.
    """
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise MalformedError


def varints(data: Array) -> Array:
    """i64[n]: the integers that `data`, which is u8[m], holds; the last one has to be whole.

    Raises:
      MalformedError: if one takes more than ten bytes.
    """
    ends = np.flatnonzero(data < 128)
    if len(ends) == len(data):
        return data.astype(np.int64)
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    if lengths.max(initial=0) > 10:
        raise MalformedError
    places = np.arange(len(data)) - np.repeat(starts, lengths)
    bits = (data & 127).astype(np.uint64) << (7 * places).astype(np.uint64)
    return np.bitwise_or.reduceat(bits, starts).view(np.int64)


def encode_example(features: Mapping[str, Any]) -> bytes:
    """The bytes of the Example with these lists.

    Args:
      features: by key, an array or nested lists of numbers, text or bytes, or one of these. Floats
        are kept in 32 bits, integers and booleans in 64. An empty list, which has no dtype, is
        read as an empty list of any dtype.

    Raises:
      InvalidArgumentError: if a value is none of these, or an integer is out of range.
    """
    return encode_lists(_as_list(key, value) for key, value in sorted(features.items()))


def encode_lists(lists: Iterable[tuple[str, int, Sequence[Any]]]) -> bytes:
    """The bytes of the Example with lists of these keys, kinds and values.

    Raises:
      InvalidArgumentError: if a value is not of the kind, or an integer is out of range.
    """
    entries = []
    for key, kind, values in lists:
        try:
            feature = b"" if kind == NO_LIST else _message(kind, _ENCODERS[kind](values))
        except (TypeError, AttributeError, ValueError, OverflowError) as error:
            raise InvalidArgumentError(f"feature {key!r}: {error}: {values!r:.80}") from error
        entry = _message(_FIRST, key.encode()) + _message(_SECOND, feature)
        entries.append(_message(_FIRST, entry))
    return _message(_FIRST, b"".join(entries))


def _entries(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Key and Feature of each entry of the map; of entries with one key the last one counts."""
    for tag, start, end in _fields(data, 0, len(data)):
        if tag != _FIRST:
            continue
        for inner, first, last in _fields(data, start, end):
            if inner != _FIRST:
                continue
            key, pieces = b"", []
            for field, begin, stop in _fields(data, first, last):
                if field == _FIRST:
                    key = data[begin:stop]
                elif field == _SECOND:
                    pieces.append(data[begin:stop])
            yield key, b"".join(pieces)


def _feature(message: bytes) -> List:
    """The last list that is set; messages of one kind that follow each other are one."""
    kind, pieces = NO_LIST, list[bytes]()
    for tag, start, end in _fields(message, 0, len(message)):
        if tag in (BYTES, FLOATS, INTEGERS):
            if tag != kind:
                kind, pieces = tag, []
            pieces.append(message[start:end])
    return kind, b"".join(pieces)


def _fields(data: bytes, at: int, end: int) -> list[tuple[int, int, int]]:
    """Tag, start and end of each field of a message.

    Raises:
      MalformedError: if they do not fill it.
      IndexError: as well.
    """
    found = []
    while at < end:
        tag = data[at]
        at += 1
        if tag > 127:
            tag, at = varint(data, at - 1)
        kind, start = tag & 7, at
        if kind == _MESSAGE:
            size = data[at]
            start = at + 1
            if size > 127:
                size, start = varint(data, at)
            at = start + size
        elif kind == _VARINT:
            at = varint(data, at)[1]
        elif kind in (_FIXED32, _FIXED64):
            at += 4 if kind == _FIXED32 else 8
        else:
            raise MalformedError
        found.append((tag, start, at))
    if at != end:
        raise MalformedError
    return found


def _message(tag: int, data: bytes) -> bytes:
    return b"%c%b%b" % (tag, _as_varint(len(data)), data)


def _as_varint(value: int) -> bytes:
    if value < 128:
        return b"%c" % value
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    data.append(value)
    return bytes(data)


def _as_list(key: str, value: Any) -> tuple[str, int, Sequence[Any]]:
    try:
        array = np.asarray(value)
    except ValueError:
        # NumPy makes text of bytes beside text, which may not be ASCII; and refuses ragged lists.
        array = np.asarray(value, object)
    if not array.size and not hasattr(value, "dtype"):
        return key, NO_LIST, ()
    kind = array.dtype.kind
    if kind in "OSU":
        try:
            return key, BYTES, as_strings(value).reshape(-1).tolist()
        except TypeError as error:
            raise InvalidArgumentError(f"feature {key!r}: {error}") from error
    if kind in "biu":
        return key, INTEGERS, array.reshape(-1).tolist()
    if np.can_cast(array.dtype, np.float64):
        return key, FLOATS, array.reshape(-1).tolist()
    raise InvalidArgumentError(
        f"feature {key!r}: expected numbers, text or bytes, got {array.dtype}: {value!r:.80}"
    )


def _encode_bytes(values: Sequence[bytes | str]) -> bytes:
    items = (x.encode() if isinstance(x, str) else x for x in values)
    return b"".join([_message(_FIRST, item) for item in items])


def _encode_floats(values: Sequence[float]) -> bytes:
    with np.errstate(over="ignore"):
        return _message(_FIRST, np.array(values, "<f4").tobytes())


def _encode_integers(values: Sequence[int]) -> bytes:
    # Packed as an array they are checked for their range; negative ones are as if unsigned.
    unsigned = np.array(values, np.int64).view(np.uint64).tolist()
    return _message(_FIRST, b"".join(map(_as_varint, unsigned)))


_ENCODERS: Mapping[int, Callable[[Sequence[Any]], bytes]] = {
    BYTES: _encode_bytes,
    FLOATS: _encode_floats,
    INTEGERS: _encode_integers,
}

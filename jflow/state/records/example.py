"""Parsing and encoding of tf.train.Example: named lists of strings, floats or integers.

Protocol buffers parse the messages, but leave packed numbers as bytes. The numbers of a whole batch
then become one array, whereas typed messages would make each of them a Python object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from jflow.base.values import Array, as_strings
from jflow.errors import InvalidArgumentError
from jflow.state.records.v1 import example_pb2 as pb

NO_LIST, BYTES, FLOATS, INTEGERS = range(4)
"""The kinds of lists, numbered as the fields of a Feature."""

_KINDS = {"bytes_list": BYTES, "float_list": FLOATS, "int64_list": INTEGERS}

List = tuple[int, Any]
"""The kind of a list, and its strings or its packed numbers."""


class MalformedError(Exception):
    """Raised for an Example that cannot be parsed.

    Attributes:
      key: key of the feature that is damaged; None if it is the Example itself.
    """

    def __init__(self, key: str | None = None) -> None:
        super().__init__(key)
        self.key = key


class _UnusualError(Exception):
    """Raised for an Example with unknown fields, or with numbers not in one packed run."""


def find_lists(data: bytes, wanted: Iterable[str]) -> dict[str, List]:
    """Returns the requested lists of an Example by key; other features may be damaged.

    Raises:
      MalformedError: if the bytes are not an Example, or a requested feature is damaged.
    """
    try:
        features = pb.Example.FromString(data).features
        if len(UnknownFieldSet(features)):
            # A map entry with unknown fields is not in the map, but itself an unknown field.
            raise _UnusualError
        by_key = features.feature
        return {key: _list(by_key[key]) for key in wanted if key in by_key}
    except (DecodeError, UnicodeDecodeError, _UnusualError):
        return _find_one_by_one(data, wanted)


def find_feature_lists(data: bytes, wanted: Iterable[str]) -> dict[str, list[List]]:
    """Returns the requested feature lists of a SequenceExample by key, a list for each feature.

    Raises:
      MalformedError: if the bytes are not a SequenceExample, or a requested list is damaged.
    """
    try:
        entries = pb.RawSequenceExample.FromString(data).feature_lists.feature_list
    except DecodeError:
        raise MalformedError from None
    found = {}
    for key, message in _messages_of(entries, wanted).items():
        try:
            features = pb.RawFeatureList.FromString(message).feature
            found[key] = [_any_list(feature) for feature in features]
        except DecodeError:
            raise MalformedError(key) from None
    return found


def integers_of(packed: Array) -> Array:
    """Decodes varints, u8[m], to i64[n]; the last varint must be complete.

    Raises:
      MalformedError: if one has more than ten bytes.
    """
    ends = np.flatnonzero(packed < 128)
    if len(ends) == len(packed):
        return packed.astype(np.int64)
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    if lengths.max(initial=0) > 10:
        raise MalformedError
    # Each byte holds seven bits, the first byte the lowest.
    places = np.arange(len(packed)) - np.repeat(starts, lengths)
    bits = (packed & 127).astype(np.uint64) << (7 * places).astype(np.uint64)
    return np.bitwise_or.reduceat(bits, starts).view(np.int64)


def encode_example(features: Mapping[str, Any]) -> bytes:
    """Encodes lists as a serialized `tf.train.Example`.

    Args:
      features: by key, an array or nested lists of numbers, text or bytes, or a single one. Floats
        are stored in 32 bits, integers and booleans in 64 bits. An empty list without a dtype can
        be parsed as a list of any dtype.

    Returns:
      The bytes of the Example.

    Raises:
      InvalidArgumentError: if a value is something else, or an integer is out of range.
    """
    return encode_lists(_as_list(key, value) for key, value in sorted(features.items()))


def encode_lists(lists: Iterable[tuple[str, int, Sequence[Any]]]) -> bytes:
    """Encodes lists, each as key, kind and values, as a serialized Example.

    Raises:
      InvalidArgumentError: if a value is not of the kind, or an integer is out of range.
    """
    example = pb.RawExample()
    features = example.features
    features.SetInParent()
    for key, kind, values in lists:
        entry = features.feature.add()
        entry.key = key.encode()
        try:
            entry.value.append(_encode_feature(kind, values))
        except (TypeError, AttributeError, ValueError) as error:
            raise InvalidArgumentError(f"feature {key!r}: {error}: {values!r:.80}") from error
    return example.SerializeToString()


def _list(feature: pb.Feature) -> List:
    name = feature.WhichOneof("kind")
    if name is None:
        return NO_LIST, b""
    values = getattr(feature, name)
    if name == "bytes_list":
        return BYTES, values.value[:]
    runs = values.value
    if len(runs) == 1 and not len(UnknownFieldSet(values)):
        return _KINDS[name], runs[0]
    if values.ByteSize():
        raise _UnusualError
    return _KINDS[name], b""


def _find_one_by_one(data: bytes, wanted: Iterable[str]) -> dict[str, List]:
    """Like `find_lists`, but slower, for unusual and damaged Examples."""
    try:
        entries = pb.RawExample.FromString(data).features.feature
    except DecodeError:
        raise MalformedError from None
    spans = {}
    for key, message in _messages_of(entries, wanted).items():
        try:
            spans[key] = _list(pb.Feature.FromString(_canonical_feature(message)))
        except DecodeError:
            raise MalformedError(key) from None
    return spans


def _messages_of(entries: Iterable[pb.RawEntry], wanted: Iterable[str]) -> dict[str, bytes]:
    """Returns the messages of the requested keys in a map, of which the last entry counts."""
    keys = {key.encode(): key for key in wanted}
    return {keys[entry.key]: b"".join(entry.value) for entry in entries if entry.key in keys}


def _any_list(message: bytes) -> List:
    """Returns the list of a Feature in any form. Raises DecodeError if it is damaged."""
    try:
        return _list(pb.Feature.FromString(message))
    except _UnusualError:
        return _list(pb.Feature.FromString(_canonical_feature(message)))


def _canonical_feature(message: bytes) -> bytes:
    """Converts a Feature to canonical form: numbers in one packed run, no unknown fields."""
    feature = pb.TypedFeature.FromString(message)
    feature.DiscardUnknownFields()
    return feature.SerializeToString()


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


def _encode_feature(kind: int, values: Sequence[Any]) -> bytes:
    """Serializes a list as a Feature, setting fields one by one, which is fastest."""
    if kind == INTEGERS:
        typed = pb.TypedFeature()
        integers = typed.int64_list
        integers.SetInParent()  # a list has a kind even if it is empty
        integers.value.extend(map(int, values))
        return typed.SerializeToString()
    feature = pb.Feature()
    if kind == BYTES:
        strings = feature.bytes_list
        strings.SetInParent()
        strings.value.extend([x.encode() if isinstance(x, str) else x for x in values])
    elif kind == FLOATS:
        with np.errstate(over="ignore"):
            feature.float_list.value.append(np.array(values, "<f4").tobytes())
    return feature.SerializeToString()

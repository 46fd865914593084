"""Typed records and keyword arguments in canonical MessagePack, decoded strictly.

msgspec encodes and decodes; types say what is accepted. Equal values are equal bytes: all fields in
the order of their declaration, maps in the order of their keys, the shortest form of each number.
msgspec accepts more than that (keys in another order or twice, an integer for a float), so what was
decoded is encoded again and compared.

Where a type is `Any`, msgspec would allocate what hostile bytes describe, without limits. So the
bytes of plain values, and all that are long enough to exceed a limit, are first read by their
headers (`_check_headers`).
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import struct
import sys
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from inspect import Parameter
from typing import Annotated, Any, ClassVar, Self

import msgspec
import numpy as np
from msgspec import Meta as Meta

from jflow.base.values import TensorSpec, is_key
from jflow.base.versions import OLDEST_VERSION, VERSION, converted, in_version, prepared
from jflow.errors import InvalidArgumentError

Size = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""An integer that is not negative."""

Word = Annotated[int, Meta(ge=0)]
"""An unsigned integer of 64 bits."""

Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
"""A float that is neither infinite nor NaN."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of an encoded record, the same for encoding and decoding.

    Attributes:
      n_bytes: bytes of the whole record.
      n_text: bytes of one string or one bytes object.
      n_items: items of all lists and maps together.
      depth: lists and maps around one plain value.
    """

    n_bytes: int = 1 << 20
    n_text: int = 1 << 16
    n_items: int = 1 << 16
    depth: int = 16


_PLAIN = Limits()


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of frozen structs that are encoded as a MessagePack map of their fields.

    The annotations of the fields say what is encoded and what is accepted: what msgspec supports,
    `TensorSpec`, dataclasses of these, and `Any` for plain values. A float is annotated as
    `Finite`. Records nest; the limits of the outermost one apply. A subclass checks what
    annotations cannot say in `__post_init__`, with an InvalidArgumentError.

    A snapshot of state is a record without its arrays: it holds numbers, texts, lists and the
    `TensorSpec`s of the arrays, and the arrays travel beside it, in an order that the record says.
    One whose texts or lists can be long sets wider `limits`.

    Attributes:
      what: what messages call such a record; the class's name if empty.
      limits: what it may take when it is encoded.
    """

    what: ClassVar[str] = ""
    limits: ClassVar[Limits] = _PLAIN

    def to_bytes(self, version: int = VERSION) -> bytes:
        """Encodes the record.

        Args:
          version: the version of the protocol that its reader speaks; what came later is left out.

        Raises:
          InvalidArgumentError: if a field has a value of another type, or a limit is exceeded.
        """
        own = type(self)
        kind = in_version(own, min(max(version, OLDEST_VERSION), VERSION))
        codec = _codec(own)
        data = codec.encode(self)
        codec.decode(data)  # A value of another type is refused here, not where it is read.
        return data if kind is own else codec.encode(converted(self, kind))

    def to_bytes_unchecked(self) -> bytes:
        """Like `to_bytes`, but does not check the types of fields; for records of hot paths."""
        return _codec(type(self)).encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Decodes a record that `to_bytes` encoded, for this version or the one before.

        Raises:
          InvalidArgumentError: if the bytes are anything else, in type, keys, order or size. It
            names the record, the field, what was expected and what was found.
        """
        codec, earlier = _codec(cls), in_version(cls, OLDEST_VERSION)
        try:
            record: Self = codec.decode(data)
        except InvalidArgumentError:
            if earlier is cls:
                raise
            with suppress(InvalidArgumentError, msgspec.MsgspecError):
                return converted(_codec(cls, OLDEST_VERSION).decode(data), cls)  # type: ignore[no-any-return]
            raise
        return record


def pack(values: Mapping[str, Any], what: str = "arguments") -> bytes:
    """Encodes a map of plain values as canonical bytes, for `unpack` or `unpack_keywords`.

    Args:
      values: None, bool, int, float, str, bytes, and lists, tuples and dicts of these.
      what: what messages call them.

    Raises:
      InvalidArgumentError: if there is another value, or the default limits are exceeded.
    """
    codec = _plain_codec(what)
    data = codec.encode(values)
    codec.check(data)
    return data


def unpack(data: bytes, what: str = "arguments") -> Any:
    """Decodes any record or map without its type, for display.

    Raises:
      InvalidArgumentError: if the bytes are malformed.
    """
    return _plain_codec(what, order=None).decode(data)


def unpack_keywords(data: bytes, function: Callable[..., Any], name: str) -> dict[str, Any]:
    """Decodes the keyword-only arguments of a function.

    The annotations of the parameters say what is accepted, as those of a record's fields do.
    Parameters of other kinds are not given by name. Those of a function with `**parameters` may
    have any name.

    Args:
      data: the arguments, as `pack` has encoded them.
      function: the function; its wrapped one if it has one.
      name: what messages call it.

    Raises:
      InvalidArgumentError: if the bytes are malformed, an argument is missing, unknown or of
        another type.
      TypeError: if the annotation of a keyword-only parameter is not supported.
    """
    named, codec = _keywords(function, name)
    content = codec.decode(data)
    if isinstance(content, dict):
        codec.convert(content, named)
        return content
    values = {name: getattr(content, name) for name in content.__struct_fields__}
    return {name: value for name, value in values.items() if value is not msgspec.UNSET}


@lru_cache(maxsize=1024)
def _keywords(function: Callable[..., Any], name: str) -> tuple[type[msgspec.Struct], _Codec]:
    """Returns a struct of a function's keyword-only parameters, and the codec of its arguments."""
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    fields: list[tuple[str, Any, Any]] = [
        (one.name, one.annotation, msgspec.NODEFAULT)
        if one.default is Parameter.empty
        else (one.name, one.annotation | msgspec.UnsetType, msgspec.UNSET)
        for one in sorted(parameters, key=lambda one: one.name)
        if one.kind is Parameter.KEYWORD_ONLY
    ]
    is_open = any(one.kind is Parameter.VAR_KEYWORD for one in parameters)
    struct_type = msgspec.defstruct(
        "Named", fields, kw_only=True, forbid_unknown_fields=not is_open
    )
    return struct_type, _Codec(dict[str, Any] if is_open else struct_type, f"arguments of {name!r}")


class _Codec:
    """Encodes and decodes values of one type.

    Args:
      kind: the type.
      what: what messages call a value.
      limits: what an encoded value may take.
      order: "deterministic" if the keys of maps must be in order, None if they are as they come.

    Raises:
      TypeError: if values of the type cannot be encoded.
    """

    def __init__(
        self,
        kind: Any,
        what: str,
        limits: Limits = _PLAIN,
        order: Any = "deterministic",
    ) -> None:
        self._what, self._limits = what, limits
        self._encoder = msgspec.msgpack.Encoder(enc_hook=_plain, order=order)
        self._decoder = msgspec.msgpack.Decoder(prepared(kind))
        self._n_unread = 0 if _is_open(kind) else min(limits.n_text, limits.n_items)

    def encode(self, value: Any) -> bytes:
        """Encodes a value; `check` or `decode` must then accept the bytes."""
        try:
            return self._encoder.encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise self._error(error) from None

    def check(self, data: bytes) -> None:
        """Raises InvalidArgumentError if data exceeds the limits."""
        if len(data) > self._limits.n_bytes:
            raise self._error(f"expected at most {self._limits.n_bytes} bytes, got {len(data)}")
        if len(data) > self._n_unread:
            try:
                _check_headers(data, self._limits)
            except ValueError as error:
                raise self._error(error) from None

    def decode(self, data: bytes) -> Any:
        """Decodes exactly one value. Raises InvalidArgumentError for anything else."""
        self.check(data)
        try:
            value = self._decoder.decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise self._error(error) from None
        if self._encoder.encode(value) != data:
            raise self._error("expected all fields, keys in order and once, no integer for a float")
        return value

    def convert(self, value: Any, kind: Any) -> Any:
        """Converts a decoded value to another type. Raises InvalidArgumentError if it cannot."""
        try:
            return msgspec.convert(value, prepared(kind))
        except (msgspec.MsgspecError, ValueError) as error:
            raise self._error(error) from None

    def _error(self, problem: object) -> InvalidArgumentError:
        return InvalidArgumentError(f"malformed {self._what}: {problem!s:.500}")


@cache
def _codec(record: type[Record], version: int = VERSION) -> _Codec:
    """Returns the codec of the form that a record has in a version of the protocol."""
    return _Codec(in_version(record, version), record.what or record.__name__, record.limits)


@lru_cache(maxsize=1024)
def _plain_codec(what: str, order: Any = "deterministic") -> _Codec:
    return _Codec(Any, what, order=order)


@cache
def _is_open(kind: Any) -> bool:
    """Whether values of a type can contain plain values."""
    if kind is TensorSpec:
        return False  # Its dtype is a name, which it looks up.
    is_record = dataclasses.is_dataclass(kind) or hasattr(kind, "__struct_fields__")
    inner = typing.get_type_hints(kind).values() if is_record else typing.get_args(kind)
    return kind is Any or any(map(_is_open, inner))


def _plain(value: Any) -> Any:
    """Converts a value to one that MessagePack has. Raises TypeError if that is impossible."""
    if isinstance(value, np.dtype) or is_key(value):
        return value.name
    for kind in (int, float, str, bytes):  # A subclass, such as np.float64.
        if isinstance(value, kind):
            return kind(value)  # type: ignore[arg-type]
    raise TypeError(f"expected plain values, got {value!r:.80}")


# First bytes of MessagePack's formats: the family of what follows, the bytes of its length or of
# its number, and its length if that is in the first byte.
_FORMATS: dict[int, tuple[str, int, int]] = {
    **dict.fromkeys((*range(128), 192, 194, 195, *range(224, 256)), ("scalar", 0, 0)),
    **{first: ("map", 0, first & 15) for first in range(0x80, 0x90)},
    **{first: ("list", 0, first & 15) for first in range(0x90, 0xA0)},
    **{first: ("text", 0, first & 31) for first in range(0xA0, 0xC0)},
    **{0xC4 + i: ("bytes", 1 << i, 0) for i in range(3)},
    0xCA: ("scalar", 4, 0),
    0xCB: ("double", 8, 0),
    **{first: ("scalar", 1 << (first & 3), 0) for first in range(0xCC, 0xD4)},
    **{0xD9 + i: ("text", 1 << i, 0) for i in range(3)},
    **{0xDC + i: ("list", 2 << i, 0) for i in range(2)},
    **{0xDE + i: ("map", 2 << i, 0) for i in range(2)},
}


def _check_headers(data: bytes, limits: Limits) -> None:
    """Checks the limits by walking the headers of values, without allocating what they announce.

    What is truncated is left to the decoder.

    Raises:
      ValueError: if they exceed a limit, or hold what plain values do not: floats that are not
        finite, keys that are not text, extension types.
    """
    at = n_items = 0
    left, are_maps = [1], [False]  # For each open container, the outermost first.
    while left and at < len(data):
        if not left[-1]:
            left.pop(), are_maps.pop()
            continue
        is_key_next = are_maps[-1] and left[-1] % 2 == 0
        left[-1] -= 1
        if data[at] not in _FORMATS:
            raise ValueError(f"expected a plain value, got the first byte {data[at]:#x}")
        family, width, length = _FORMATS[data[at]]
        if at + width >= len(data):
            return
        if is_key_next and family != "text":
            raise ValueError(f"expected text as a key, got a {family}")
        if len(left) > limits.depth + 1:
            raise ValueError(f"expected at most {limits.depth} nested lists and maps, got more")
        number = data[at + 1 : at + 1 + width]
        at += 1 + width
        if family in ("map", "list"):
            length = length or int.from_bytes(number, "big")
            n_items += length
            if n_items > limits.n_items:
                raise ValueError(f"expected at most {limits.n_items} items, got {n_items}")
            left.append(2 * length if family == "map" else length)
            are_maps.append(family == "map")
        elif family in ("text", "bytes"):
            length = length or int.from_bytes(number, "big")
            if length > limits.n_text:
                raise ValueError(f"expected at most {limits.n_text} bytes, got {length}")
            at += length
        elif family == "double" and not math.isfinite(*struct.unpack(">d", number)):
            raise ValueError("expected a finite float")

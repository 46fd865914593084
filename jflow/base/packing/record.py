"""`Record`: the base of dataclasses that travel or are stored as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import msgpack

from jflow.base.packing.decoder import Decoder, Limits, Where
from jflow.base.packing.forms import ANY, ANY_ORDER, Form, form_of

_PLAIN = Limits()


class Record:
    """Base of frozen dataclasses that are encoded as a MessagePack map of their fields.

    The annotations of the fields say what is encoded and what is accepted; `forms.form_of` lists
    what they may be. Records nest; the limits of the outermost one apply. A subclass checks what
    annotations cannot say in `__post_init__`, with an InvalidArgumentError.

    Encoding is canonical: all fields in the order of their declaration, maps in the order of their
    keys, the shortest form of each number. So equal records are equal bytes, and decoding refuses
    every other order of fields.

    A snapshot of state is a record without its arrays: it holds numbers, texts, lists and the
    `TensorSpec`s of the arrays, and the arrays travel beside it, in an order that the record says.
    One whose texts or lists can be long sets wider `limits`.

    Attributes:
      what: what messages call such a record; the class's name if empty.
      limits: what it may take when it is encoded.
    """

    what: ClassVar[str] = ""
    limits: ClassVar[Limits] = _PLAIN

    def to_bytes(self) -> bytes:
        """The record, encoded.

        Raises:
          InvalidArgumentError: if a field has a value of another type, or a limit is exceeded.
        """
        return _encode(self, form_of(type(self)), type(self)._root())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The record that `to_bytes` encoded.

        Raises:
          InvalidArgumentError: if the bytes are anything else, in type, keys, order or size. It
            names the record, the field, what was expected and what was found.
        """
        record: Self = decode(form_of(cls), data, cls._root())
        return record

    @classmethod
    def _root(cls) -> Where:
        return Where(cls.what or cls.__name__, cls.limits)


def pack(values: Mapping[str, Any], what: str = "arguments") -> bytes:
    """A map of plain values as canonical bytes, for `unpack` or `Keywords.unpack`.

    Args:
      values: None, bool, int, float, str, bytes, and lists, tuples and dicts of these.
      what: what messages call them.

    Raises:
      InvalidArgumentError: if there is another value, or the default limits are exceeded.
    """
    return _encode({**values}, ANY, Where(what, _PLAIN))


def unpack(data: bytes, what: str = "arguments") -> Any:
    """The values in any record or map without knowledge of its type, for text and pictures.

    Raises:
      InvalidArgumentError: if the bytes are malformed.
    """
    return decode(ANY_ORDER, data, Where(what, _PLAIN))


def decode(form: Form, data: bytes, where: Where) -> Any:
    """The one value that bytes hold. Raises InvalidArgumentError if they hold something else."""
    decoder = Decoder(data, where)
    value = form.read(decoder, where)
    decoder.finish(where)
    return value


def _encode(value: Any, form: Form, where: Where) -> bytes:
    data: bytes = msgpack.packb(form.plain(value, where))
    if len(data) > where.limits.n_bytes:
        raise where.error(f"at most {where.limits.n_bytes} bytes", str(len(data)))
    return data

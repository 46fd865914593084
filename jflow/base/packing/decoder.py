"""Decoding of MessagePack one value at a time, within limits.

Containers are read by their headers only, and only where the caller expects one. So nothing is
allocated for what a header merely announces: lists of lists that each announce 2**32 items would
make an ordinary decoder take gigabytes for a few bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, NoReturn

import msgpack

from jflow.errors import InvalidArgumentError


@dataclass(frozen=True)
class Limits:
    """What an encoded record may take at most; the same when it is written and when it is read.

    Attributes:
      n_bytes: bytes of the whole record.
      n_text: bytes of one string or one bytes object.
      n_items: items of all lists and maps together.
      depth: lists and maps around one value.
    """

    n_bytes: int = 1 << 20
    n_text: int = 1 << 16
    n_items: int = 1 << 16
    depth: int = 16


class Family(Enum):
    """The families of MessagePack's formats, as messages name them."""

    NIL = "None"
    FLAG = "true or false"
    INTEGER = "an integer"
    FLOAT = "a float"
    TEXT = "text"
    BYTES = "bytes"
    LIST = "a list"
    MAP = "a map"
    OTHER = "an extension type"


_FIRST_BYTES: tuple[tuple[range, Family], ...] = (
    (range(0x80), Family.INTEGER),
    (range(0x80, 0x90), Family.MAP),
    (range(0x90, 0xA0), Family.LIST),
    (range(0xA0, 0xC0), Family.TEXT),
    (range(0xC0, 0xC1), Family.NIL),
    (range(0xC2, 0xC4), Family.FLAG),
    (range(0xC4, 0xC7), Family.BYTES),
    (range(0xCA, 0xCC), Family.FLOAT),
    (range(0xCC, 0xD4), Family.INTEGER),
    (range(0xD9, 0xDC), Family.TEXT),
    (range(0xDC, 0xDE), Family.LIST),
    (range(0xDE, 0xE0), Family.MAP),
    (range(0xE0, 0x100), Family.INTEGER),
)
"""The first bytes of each family, as MessagePack specifies them; all others are `OTHER`."""

_FAMILIES = tuple(
    next((family for first, family in _FIRST_BYTES if byte in first), Family.OTHER)
    for byte in range(256)
)


def family_of(value: object) -> Family:
    """The family that a Python value is encoded in; dataclasses are maps."""
    for types, family in (
        (bool, Family.FLAG),
        (int, Family.INTEGER),
        (float, Family.FLOAT),
        (str, Family.TEXT),
        (bytes, Family.BYTES),
        ((list, tuple), Family.LIST),
        (dict, Family.MAP),
    ):
        if isinstance(value, types):
            return family
    if value is None:
        return Family.NIL
    return Family.MAP if hasattr(value, "__dataclass_fields__") else Family.OTHER


class Where:
    """A position in a record, for messages and for the depth limit.

    It is a link to the position around it and puts a path together only for a message: a hostile
    record has many items below a long key.

    Args:
      what: what the record describes, such as "queue".
      limits: the limits of the record.
      outer: the position of the list or map around this one, None at the root.
      part: the key or the item number in that.
    """

    __slots__ = ("_counted", "_depth", "_outer", "_part", "limits", "what")

    def __init__(
        self, what: str, limits: Limits, outer: Where | None = None, part: str | int = ""
    ) -> None:
        self.what = what
        self.limits = limits
        self._outer = outer
        self._part = part
        self._depth: int = 0 if outer is None else outer._depth + 1
        self._counted: list[int] = [0] if outer is None else outer._counted
        if self._depth > limits.depth:
            raise self.error(f"at most {limits.depth} nested lists and maps", "more")

    def inside(self, part: str | int) -> Where:
        """The position of a value in the map or list at this position."""
        return Where(self.what, self.limits, self, part)

    def count(self, n_items: int) -> None:
        """Counts the items of a list or map here. Raises InvalidArgumentError if too many."""
        self._counted[0] += n_items
        if self._counted[0] > self.limits.n_items:
            raise self.error(f"at most {self.limits.n_items} items", str(self._counted[0]))

    def error(self, expected: str, got: str) -> InvalidArgumentError:
        """The error for a value at this position that is not what is expected."""
        path = self._path()
        return InvalidArgumentError(
            f"malformed {self.what}: expected {expected}{path and f' as {path}'}, got {got:.80}"
        )

    def invalid(self, reason: object) -> InvalidArgumentError:
        """The error for a value at this position that cannot be, for a reason."""
        path = self._path()
        return InvalidArgumentError(f"malformed {self.what}: {path and f'{path}: '}{reason}")

    def _path(self) -> str:
        """Keys and item numbers down to the position, such as "components[0].shape"."""
        if self._outer is None:
            return ""
        path = self._outer._path()
        if isinstance(self._part, int):
            return f"{path}[{self._part}]"
        return f"{path and f'{path}.'}{self._part:.80}"


class Decoder:
    """Reads the values of an encoded record in order.

    Args:
      data: the record.
      where: its root.

    Raises:
      InvalidArgumentError: if the record is too long; likewise from every method if what comes
        next is malformed.
    """

    def __init__(self, data: bytes, where: Where) -> None:
        limits = where.limits
        if len(data) > limits.n_bytes:
            raise where.error(f"at most {limits.n_bytes} bytes", str(len(data)))
        self._data = data
        self._unpacker = msgpack.Unpacker(
            None,
            max_buffer_size=limits.n_bytes,
            max_str_len=limits.n_text,
            max_bin_len=limits.n_text,
            # Scalars only: the headers of containers are read one by one.
            max_array_len=0,
            max_map_len=0,
            max_ext_len=0,
        )
        self._unpacker.feed(data)

    def family(self, where: Where) -> Family:
        """The family of the next value."""
        at: int = self._unpacker.tell()
        if at >= len(self._data):
            self._end(where)
        return _FAMILIES[self._data[at]]

    def scalar(self, where: Where) -> Any:
        """The next value, which is neither a list nor a map."""
        try:
            return self._unpacker.unpack()
        except msgpack.OutOfData:
            self._end(where)
        except ValueError as error:
            raise where.error("a value", str(error) or "a reserved byte") from None

    def scalars(self, n_items: int, expected: str, where: Where) -> list[Any]:
        """The next values, the items of a list in which all are to be scalars of one kind."""
        unpack, found = self._unpacker.unpack, list[Any]()
        try:
            for _ in range(n_items):
                found.append(unpack())
        except msgpack.OutOfData:
            self._end(where.inside(len(found)))
        except ValueError:
            self.refuse(expected, where.inside(len(found)))
        return found

    def header(self, family: Family, where: Where) -> int:
        """The number of items of the next value, a list or map, whose items come next."""
        read = self._unpacker.read_map_header
        if family is Family.LIST:
            read = self._unpacker.read_array_header
        try:
            n_items = int(read())
        except msgpack.OutOfData:
            self._end(where)
        where.count(n_items)
        return n_items

    def refuse(self, expected: str, where: Where) -> NoReturn:
        """Raises the error for a next value that is not what is expected."""
        family = self.family(where)
        is_scalar = family not in (Family.LIST, Family.MAP, Family.OTHER)
        raise where.error(expected, repr(self.scalar(where)) if is_scalar else family.value)

    def finish(self, where: Where) -> None:
        """Checks that nothing follows the record."""
        n_left = len(self._data) - self._unpacker.tell()
        if n_left:
            raise where.error("nothing after its end", f"{n_left} bytes")

    def _end(self, where: Where) -> NoReturn:
        raise where.error("a value", "the end of the data")

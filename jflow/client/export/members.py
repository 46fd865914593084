"""Encoders and decoders for the members of collections; other packages register their classes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jflow.client.export.document import Member
from jflow.errors import InvalidArgumentError

Encode = Callable[[Any], Any]
Decode = Callable[[Any], Any]


@dataclass(frozen=True)
class MemberKind:
    """How the members of one class are written and read.

    Attributes:
      name: its name in files.
      type: the class.
      write: makes a plain value of a member; it gets a function that encodes operations, tensors,
        variables and plain values in it.
      read: the inverse; it gets the inverse function.
    """

    name: str
    type: type[Any]
    write: Callable[[Any, Encode], Any]
    read: Callable[[Any, Decode], Any]


_KINDS: dict[str, MemberKind] = {}


def register_member_kind(kind: MemberKind) -> None:
    """Makes the members of a class exportable. The name of the kind must be new."""
    if kind.name in _KINDS:
        raise ValueError(f"the kind {kind.name!r} is registered already")
    _KINDS[kind.name] = kind


def write_members(key: str, members: list[Any], encode: Encode) -> tuple[Member, ...]:
    """Writes the members of a collection; warns about those of unknown classes and omits them."""
    written_members = []
    for member in members:
        kind = next((one for one in _KINDS.values() if isinstance(member, one.type)), None)
        try:
            value = encode(member) if kind is None else kind.write(member, encode)
        except TypeError:
            warnings.warn(
                f"the collection {key!r} is exported without {member!r:.80} of type "
                f"{type(member).__name__}, which has no written form",
                stacklevel=2,
            )
            continue
        written_members.append(Member("" if kind is None else kind.name, value))
    return tuple(written_members)


def read_members(members: tuple[Member, ...], decode: Decode) -> list[Any]:
    """Reads the members of a collection. Raises InvalidArgumentError if one is malformed."""
    return [_member(member, decode) for member in members]


def _member(member: Member, decode: Decode) -> Any:
    if not member.kind:
        return decode(member.value)
    if member.kind not in _KINDS:
        raise InvalidArgumentError(
            f"malformed exported graph: {member.kind!r:.80} is not a kind of collection members; "
            f"expected one of {', '.join(_KINDS)}"
        )
    try:
        return _KINDS[member.kind].read(member.value, decode)
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise InvalidArgumentError(
            f"malformed exported graph: a member of the kind {member.kind!r}: {error}"
        ) from error

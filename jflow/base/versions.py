"""The versions of the protocol that this code speaks, and how what travels changes between them.

Two ends speak the lower of their versions, if it is one that both speak (`handshake.py`). So a
cluster is upgraded task by task, and these rules hold, which a test enforces
(tests/net/protocol/test_schemas.py):

* A field, parameter, method or message is added, with a default that means what earlier versions
  did; `Since` says with which version it came. None is removed, renamed, reordered or given another
  type or meaning while a version without the change is spoken.
* MessagePack records are strict: an end of an earlier version refuses a field that it does not
  know. So a record is sent as the type that it had in the version of the stream (`in_version`).
  Protobuf ignores unknown fields, so its messages are the same in all versions.
* What must not be left out is refused by name on a stream of an earlier version, and not sent.

When `VERSION` grows, the release that spoke the former version becomes what is compared: record its
schemas (tests/net/protocol/schemas.py) and its calls, and name its commit in
tests/upgrade/releases.py. What is marked with the version that then is the oldest needs no mark.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import threading
import types
import typing
from typing import Annotated, Any, NamedTuple, TypeVar, Union

import msgspec

T = TypeVar("T")

_PREPARING = threading.RLock()

VERSION = 12
"""The version of all that streams carry; it grows by 1 with the first change after a release."""

OLDEST_VERSION = VERSION - 1
"""The oldest version that is still spoken: that of the release before."""


class Since(NamedTuple):
    """Annotates a parameter, or a field of a record, with the version that introduced it.

    Attributes:
      version: the version of the protocol.
      absent: the value that it has if an end of an earlier version did not send it; UNSET for its
        default.
    """

    version: int
    absent: Any = msgspec.UNSET


def since_of(hint: Any) -> Since:
    """Returns the mark of an annotation; version 0 if it has none."""
    extras = typing.get_args(hint)[1:] if typing.get_origin(hint) is Annotated else ()
    return next((one for one in extras if isinstance(one, Since)), Since(0))


def versions_text() -> str:
    """Names the versions that are spoken."""
    return f"versions {OLDEST_VERSION} and {VERSION}"


def in_version(kind: Any, version: int) -> Any:
    """Returns the type that values of a type have in a version of the protocol.

    It is the type itself unless structs in it have fields that came later; those are left out.

    Raises:
      TypeError: if such a struct is in a dataclass, of which there is no earlier form.
    """
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct_in(kind, version)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        for name, hint in typing.get_type_hints(kind, include_extras=True).items():
            if in_version(hint, version) is not hint:
                raise TypeError(
                    f"{kind.__name__}.{name} has fields that version {version} does not know; "
                    "make the dataclass a record"
                )
        return kind
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        earlier = in_version(inner[0], version)
        return kind if earlier is inner[0] else Annotated[(earlier, *inner[1:])]
    earlier_inner = tuple(in_version(one, version) for one in inner)
    if all(one is other for one, other in zip(inner, earlier_inner, strict=True)):
        return kind
    if origin in (types.UnionType, Union):
        return functools.reduce(operator.or_, earlier_inner)
    return origin[earlier_inner]


def prepared(kind: type[T]) -> type[T]:
    """Returns a type with which any thread may decode.

    msgspec ends the process if two threads look at one class for the first time, so that is done
    here, by one thread at a time.
    """
    with _PREPARING:
        msgspec.msgpack.Decoder(kind)
    return kind


def converted(value: Any, kind: Any) -> Any:
    """Converts a value to the type that it has in another version, or from it."""
    return msgspec.convert(value, prepared(kind), from_attributes=True, dec_hook=lambda _, one: one)


@functools.cache
def _struct_in(kind: type[msgspec.Struct], version: int) -> type[msgspec.Struct]:
    hints = typing.get_type_hints(kind, include_extras=True)
    fields, names, absent = [], {}, {}
    is_same = True
    for field in msgspec.structs.fields(kind):
        mark = since_of(hints[field.name])
        if mark.version > version:
            is_same = False
            if mark.absent is not msgspec.UNSET:
                absent[field.name] = mark.absent
            continue
        earlier = in_version(hints[field.name], version)
        is_same = is_same and earlier is hints[field.name]
        fields.append((field.name, earlier, _default_of(field)))
        names[field.name] = field.encode_name
    if is_same:
        return kind
    config = kind.__struct_config__
    return msgspec.defstruct(
        kind.__name__,
        fields,
        namespace=absent,  # `converted` takes attributes
        rename=names,
        frozen=True,
        module=kind.__module__,
        array_like=config.array_like,
        omit_defaults=config.omit_defaults,
        forbid_unknown_fields=config.forbid_unknown_fields,
    )


def _default_of(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return msgspec.field(default_factory=field.default_factory)
    return field.default

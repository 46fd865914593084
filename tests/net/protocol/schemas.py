"""The schemas of all that travels, as texts by name; a file of them stands for an earlier version.

`python -m tests.net.protocol.schemas > tests/net/protocol/schemas_of_version_N.json` in a checkout
of the release that speaks version N, before the version grows.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import json
import sys
import typing
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import msgspec

from jflow.base.deadline import Deadline
from jflow.base.packing import Record
from jflow.base.versions import VERSION, Since, in_version, since_of
from jflow.net.protocol import MasterSession, WorkerSession
from jflow.net.protocol.signatures import rpcs_of
from jflow.net.protocol.v1 import handshake_pb2, plan_pb2, service_pb2, tensor_pb2
from jflow.state.resources.kinds import KERNELS
from jflow.task.execution import functions as host_functions

PROTOS = (handshake_pb2, plan_pb2, service_pb2, tensor_pb2)
SERVICES = {"master": MasterSession, "worker": WorkerSession}


def schemas(version: int) -> dict[str, str]:
    """The schemas of what travels in a version, by name."""
    found = [*_messages(), *_records(version), *_methods(version), *_functions()]
    return {name: json.dumps(schema) for name, schema in sorted(found)}


def _messages() -> Iterator[tuple[str, Any]]:
    """Every field of the messages, by its number, which must never be given to another one."""
    for proto in PROTOS:
        for message in proto.DESCRIPTOR.message_types_by_name.values():
            for field in message.fields:
                kind = field.message_type or field.enum_type
                oneof = field.containing_oneof
                yield (
                    f"message {message.name}.{field.number}",
                    [
                        field.name,
                        field.type,
                        bool(field.is_repeated),
                        kind.name if kind else "",
                        oneof.name if oneof else "",
                    ],
                )
        for one in proto.DESCRIPTOR.enum_types_by_name.values():
            for value in one.values:
                yield f"enum {one.name}.{value.number}", value.name


def _records(version: int) -> Iterator[tuple[str, Any]]:
    """Records, which travel in others, in records of calls, or as bytes."""
    for kind in _all_below(Record):
        if kind.__module__.startswith("jflow.") and "client" not in kind.__module__:
            name = f"{kind.__module__}.{kind.__qualname__}"
            yield f"record {name}", _described(in_version(kind, version))


def _all_below(kind: type[Any]) -> set[type[Any]]:
    below = {*kind.__subclasses__()}
    return below.union(*map(_all_below, below))


def _methods(version: int) -> Iterator[tuple[str, Any]]:
    for role, service in SERVICES.items():
        for method, rpc in rpcs_of(service).items():
            if method.__remote__.since <= version:
                yield f"method {role}'s {rpc.name}", _method(method, version)


def _method(method: Callable[..., Any], version: int) -> Any:
    hints = typing.get_type_hints(method, include_extras=True)
    _, *parameters = inspect.signature(method).parameters.values()
    sent = [
        [one.name, _described(in_version(hints[one.name], version))]
        for one in parameters
        if hints[one.name] is not Deadline and since_of(hints[one.name]).version <= version
    ]
    return {"parameters": sent, "returns": _described(in_version(hints["return"], version))}


def _functions() -> Iterator[tuple[str, Any]]:
    """The keyword-only parameters of the functions that plans call; they are strict as well."""
    for name, function in [*host_functions._FUNCTIONS.items(), *KERNELS.items()]:
        parameters = inspect.signature(function, eval_str=True).parameters.values()
        named = {one.name: one for one in parameters if one.kind is one.KEYWORD_ONLY}
        yield f"function {name}", sorted(named)
        for key, one in named.items():
            yield f"function {name}.{key}", _described(one.annotation)


def _described(kind: Any) -> Any:
    """What a type accepts, without the names of classes, which do not travel."""
    if isinstance(kind, type) and not typing.get_args(kind):
        return _described_class(kind)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        limits = [repr(one) for one in inner[1:] if not isinstance(one, Since)]
        return [_described(inner[0]), *limits] if limits else _described(inner[0])
    if origin is typing.Literal:
        return [*inner]
    return {_name(origin): [_described(one) for one in inner]} if inner else _name(kind)


def _described_class(kind: type[Any]) -> Any:
    if issubclass(kind, enum.Enum):
        return {one.name: one.value for one in kind}
    if issubclass(kind, msgspec.Struct):
        names = {one.name: one.encode_name for one in msgspec.structs.fields(kind)}
    elif dataclasses.is_dataclass(kind):
        names = {one.name: one.name for one in dataclasses.fields(kind)}
    elif hasattr(kind, "_fields"):
        names = {one: one for one in kind._fields}
    else:
        return _name(kind)
    hints = typing.get_type_hints(kind, include_extras=True)
    return [[sent, _described(hints[name])] for name, sent in names.items()]


def _name(kind: Any) -> str:
    return str(getattr(kind, "__name__", kind)).replace("UnionType", "Union")


if __name__ == "__main__":
    json.dump(schemas(VERSION), sys.stdout, indent=0, sort_keys=True)
    sys.stdout.write("\n")

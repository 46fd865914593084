"""Derives RPCs from the signatures of methods.

A method of a service that is marked `remote` is an RPC: its arguments and its result travel as
MessagePack records whose types its annotations say (msgspec), and arrays as the tensors of the
message, of which the record has the numbers. A record is canonical: what its values would not be
encoded as is refused.

A parameter that is annotated as a `Deadline` does not travel: each message says what is left of it.

How a service changes (`jflow.base.versions`): a method, and a parameter that has a default, say the
version of the protocol that they came with. A message for an earlier version leaves the parameter
out if it has that default, else the call is refused; one of an earlier version is read with it.
Within a version nothing may be missing, unknown, in another order or of another type.
"""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from inspect import Parameter
from operator import attrgetter
from typing import Annotated, Any

import msgspec
import numpy as np
from google.protobuf.message import DecodeError

from jflow.base.deadline import Deadline
from jflow.base.values import Array
from jflow.base.versions import VERSION, converted, in_version, prepared, since_of
from jflow.errors import InvalidArgumentError, OpError, UnimplementedError
from jflow.net.protocol.codec import error_of, error_to_status
from jflow.net.protocol.rpc import Incoming, Outgoing, Rpc
from jflow.net.protocol.v1 import service_pb2 as pb
from jflow.net.protocol.v1 import tensor_pb2 as pb_tensor
from jflow.state.core.remote import RemoteMark

CALL = "method_call"
"""The field of `Envelope` that holds the arguments of every RPC that follows from a method."""

_RETURNED = "method_result"
_BOUNDS = {
    float: Annotated[float, msgspec.Meta(ge=0.0, le=sys.float_info.max)],
    int: Annotated[int, msgspec.Meta(ge=0)],
}
"""The types of numeric parameters: finite and not negative."""


def rpc_of(method: Callable[..., Any]) -> Rpc[Any, ..., Any]:
    """Returns the RPC that `rpcs_of` has derived from a method of a service."""
    return _RPCS[method]


def rpcs_of(service: type[Any]) -> dict[Callable[..., Any], Rpc[Any, ..., Any]]:
    """Returns the RPCs of a service and its nested services (properties), keyed by method."""
    return dict(_derive_rpcs(service, ()))


_RPCS: dict[Callable[..., Any], Rpc[Any, ..., Any]] = {}


def _derive_rpcs(
    service: type[Any], path: tuple[str, ...]
) -> Iterator[tuple[Callable[..., Any], Rpc[Any, ..., Any]]]:
    for name in dir(service):
        member = inspect.getattr_static(service, name)
        if isinstance(member, property) and not path:
            inner = typing.get_type_hints(member.fget).get("return")
            if isinstance(inner, type):
                yield from _derive_rpcs(inner, (name,))
        elif (mark := getattr(member, "__remote__", None)) is not None:
            if member not in _RPCS:
                _RPCS[member] = _rpc(member, mark, (*path, name))
            yield member, _RPCS[member]


def _rpc(method: Callable[..., Any], mark: RemoteMark, path: tuple[str, ...]) -> Rpc[Any, ..., Any]:
    """Derives the RPC of a method that a session has under a path of attributes."""
    name = ".".join(path)
    signature, of_session = MethodSignature(method, name), attrgetter(name)

    @functools.cache
    def of_version(version: int) -> Rpc[Any, ..., Any]:
        own = _rpc_in(version, signature, mark, of_session)
        return replace(own, of_version=of_version)

    return of_version(VERSION)


def _rpc_in(
    version: int, signature: MethodSignature, mark: RemoteMark, of_session: Callable[[Any], Any]
) -> Rpc[Any, ..., Any]:
    """Returns the RPC of a method as a version of the protocol carries it."""
    name = signature.name

    def request(*args: Any, **kwargs: Any) -> Outgoing:
        arguments, tensors = signature.encode(args, kwargs, version)
        return pb.MethodCall(name=name, arguments=arguments), tensors

    async def serve(session: Any, call: Incoming) -> Outgoing:
        arguments = signature.decode(call.envelope.method_call.arguments, call.tensors, version)
        result = await of_session(session)(*signature.with_deadline(arguments, call.deadline))
        value, tensors = signature.encode_result(result, version)
        return pb.MethodResult(value=value), tensors

    def doing(body: pb.MethodCall) -> str:
        arguments = signature.decode(body.arguments, (), version)
        return mark.doing.format(
            **{key: _FormattedArgument(value) for key, value in arguments.items()}
        )

    return Rpc(
        name,
        request,
        serve,
        lambda message, tensors: signature.decode_result(message.value, tensors, version),
        _RETURNED,
        doing,
        method=of_session,
        body=CALL,
        needs=mark.needs,
        deadline_of=signature.deadline_of,
        since=mark.since,
    )


class MethodSignature:
    """Encodes and decodes the arguments and the result of a method.

    Args:
      method: the method, of which every parameter but `self` is annotated.
      name: its name in messages.

    Raises:
      TypeError: if values of an annotated type cannot travel.
    """

    def __init__(self, method: Callable[..., Any], name: str) -> None:
        hints = typing.get_type_hints(method, include_extras=True)
        _, *parameters = inspect.signature(method).parameters.values()
        self.name = name
        self._names = [one.name for one in parameters]
        self._defaults = {
            one.name: one.default for one in parameters if one.default is not Parameter.empty
        }
        self._deadline = next((one for one in self._names if hints[one] is Deadline), None)
        self._sent = [
            _SentParameter(one, hints[one.name]) for one in parameters if one.name != self._deadline
        ]
        self._arguments = functools.cache(self._arguments_of)
        self._arguments(VERSION)
        self._results = functools.cache(functools.partial(self._result_of, hints["return"]))

    def encode(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], version: int = VERSION
    ) -> tuple[bytes, Sequence[Array]]:
        """Encodes the arguments of a call for a version, as a record and its arrays.

        Raises:
          UnimplementedError: if that version has no such parameter, and the argument is not its
            default.
        """
        arguments = self._defaults | dict(zip(self._names, args, strict=False)) | dict(kwargs)
        codec = self._arguments(version)
        for one in self._sent:
            if one.since > version and arguments[one.name] != one.default:
                raise UnimplementedError(
                    f"{one.name!r} of the call {self.name!r} came with version {one.since} of "
                    f"jflow's protocol, and the other end speaks version {version}; upgrade it "
                    '(docs/operating.md, "Upgrading a cluster")'
                )
        values = (one.sent(arguments[one.name]) for one in self._sent if one.since <= version)
        return codec.encode(codec.kind(*values))

    def decode(
        self, record: bytes, tensors: Sequence[Array], version: int = VERSION
    ) -> dict[str, Any]:
        """Decodes arguments, by name. Raises InvalidArgumentError if they are malformed."""
        values = self._arguments(version).decode(record, tensors)
        return {one.name: getattr(values, one.name, one.default) for one in self._sent}

    def encode_result(self, result: Any, version: int = VERSION) -> tuple[bytes, Sequence[Array]]:
        """Encodes a result for a version, as a record and its arrays."""
        return self._results(version).encode(result)

    def decode_result(self, record: bytes, tensors: Sequence[Array], version: int = VERSION) -> Any:
        """Decodes a result. Raises InvalidArgumentError if it is malformed."""
        return self._results(version).decode(record, tensors)

    def with_deadline(self, arguments: Mapping[str, Any], deadline: Deadline) -> list[Any]:
        """Returns all arguments in order, with the deadline among them."""
        return [deadline if one == self._deadline else arguments[one] for one in self._names]

    def deadline_of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Deadline:
        """Returns the deadline among the arguments of a call."""
        assert self._deadline is not None, f"{self.name} has no deadline"
        arguments = dict(zip(self._names, args, strict=False)) | dict(kwargs)
        deadline: Deadline = arguments[self._deadline]
        return deadline

    def _arguments_of(self, version: int) -> _ArrayCodec:
        """Returns the codec for the arguments of a call in a version of the protocol."""
        fields = [(one.name, one.type) for one in self._sent if one.since <= version]
        kind = msgspec.defstruct(self.name.replace(".", "_"), fields, forbid_unknown_fields=True)
        return _ArrayCodec(kind, version, f"arguments of {self.name!r}")

    def _result_of(self, kind: Any, version: int) -> _ArrayCodec:
        return _ArrayCodec(kind, version, f"result of {self.name!r}")


class _SentParameter:
    """A parameter whose arguments are sent; all are, except the deadline."""

    def __init__(self, parameter: Parameter, hint: Any) -> None:
        self.name = parameter.name
        self.default = parameter.default
        self.since = since_of(hint).version
        plain = typing.get_args(hint)[0] if self.since else hint
        self.type = _BOUNDS.get(plain, plain)
        self._is_float = plain is float

    def sent(self, argument: Any) -> Any:
        """Converts an argument for encoding: seconds may be given as an integer."""
        return float(argument) if self._is_float else argument


class _FormattedArgument:
    """Formats an argument in the description of a call; a list with commas."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __format__(self, _: str) -> str:
        value = self._value
        return ", ".join(map(str, value)) if isinstance(value, list) else str(value)

    def __repr__(self) -> str:
        return repr(self._value)

    def __getitem__(self, key: Any) -> Any:
        return self._value[key]


class _ArrayCodec:
    """Encodes and decodes values of one type.

    Args:
      kind: the type.
      version: the version of the protocol, in which the type may be an earlier one.
      what: the name of a value in error messages.
    """

    def __init__(self, kind: Any, version: int, what: str) -> None:
        self.kind, self._sent_kind = prepared(kind), prepared(in_version(kind, version))
        self._what = what

    def encode(self, value: Any) -> tuple[bytes, Sequence[Array]]:
        """Encodes a value as a record and its arrays."""
        is_same = self._sent_kind is self.kind
        return self._encode(value if is_same else converted(value, self._sent_kind))

    def _encode(self, value: Any) -> tuple[bytes, Sequence[Array]]:
        table = _ArrayTable(())
        return msgspec.msgpack.encode(value, enc_hook=table.plain), table.arrays

    def decode(self, record: bytes, arrays: Sequence[Array]) -> Any:
        """Decodes a value. Raises InvalidArgumentError if the record is malformed."""
        table = _ArrayTable(arrays)
        try:
            value = msgspec.msgpack.decode(record, type=self._sent_kind, dec_hook=table.read)
        except (msgspec.MsgspecError, DecodeError, ValueError) as error:
            raise InvalidArgumentError(f"malformed {self._what}: {error}") from None
        again, used = self._encode(value)
        if again != record or len(used) != len(arrays):
            raise InvalidArgumentError(
                f"malformed {self._what}: it is not in its canonical form, which has "
                f"{len(again)} bytes and {len(used)} arrays, got {len(record)} and {len(arrays)}"
            )
        return value if self._sent_kind is self.kind else converted(value, self.kind)


class _ArrayTable:
    """The arrays of a value, which its record has by number; converts errors and arrays."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        self.arrays = [*arrays]
        self._n_read = 0

    def plain(self, value: Any) -> Any:
        """Returns the encoding of an error, its status, or of an array, its number."""
        if isinstance(value, OpError):
            return error_to_status(value, value.task or "").SerializeToString(deterministic=True)
        self.arrays.append(value)
        return len(self.arrays) - 1

    def read(self, kind: Any, plain: Any) -> Any:
        """Decodes an error or array from a plain value. Raises ValueError if it is none."""
        if kind is OpError:
            return error_of(pb_tensor.Status.FromString(plain))
        if kind != Array:
            raise TypeError(f"values of type {kind} cannot travel")
        if type(plain) is not int or plain != self._n_read or plain >= len(self.arrays):
            raise ValueError(f"expected the number of one of {len(self.arrays)} arrays, in order")
        self._n_read += 1
        return np.asarray(self.arrays[plain])

"""Encoding and decoding of messages, tensors and errors by protobuf."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from jflow.base.values import (
    ALIGNMENT,
    NUMBERS,
    Array,
    BlockArray,
    SentArray,
    is_string_tensor,
    raw_bytes,
    read_strings,
    string,
    type_name,
)
from jflow.errors import (
    InternalError,
    InvalidArgumentError,
    OpError,
    ResourceExhaustedError,
    UnknownError,
    class_name,
    from_code,
)
from jflow.net.protocol.frame import SMALL_BYTES, ByteBuffer, Encoder, F, Message, aligned
from jflow.net.protocol.v1 import service_pb2 as pb
from jflow.net.protocol.v1 import tensor_pb2 as pb_tensor
from jflow.state.effects import ConflictError, SupersededError
from jflow.state.moves import MovedError, StateId

_MOVED_CLASS = MovedError.__name__
_EFFECT_ERRORS = {one.__name__: one for one in (ConflictError, SupersededError)}
_MAX_RANK = 32
_MAX_SIZE = 1 << 48
_MAX_TEXT = 1 << 20
MAX_STRINGS = 1 << 22
"""Maximum number of strings of a message: each takes 8 bytes of it and some 50 bytes of a task."""
NAMES = {dtype: name for name, dtype in NUMBERS.items()}
"""The names of numeric dtypes in messages."""

# Messages --------------------------------------------------------------------------------------


def control_of(envelope: pb.Envelope, tensors: Sequence[SentArray]) -> bytes:
    """Encodes the control part of a message; sets `envelope.tensors` from the tensors."""
    del envelope.tensors[:]
    for tensor in tensors:
        name = NAMES.get(tensor.dtype) or type_name(np.asarray(tensor))
        if name == string.name:
            check_strings(tensor.size)
        envelope.tensors.add(dtype=name, shape=tensor.shape)
    return envelope.SerializeToString()


def frames_of(
    encoder: Encoder[F], frame_id: int, control: bytes, tensors: Sequence[SentArray]
) -> Iterator[F]:
    """Encodes a message as frames, in the form that the stream writes.

    Args:
      encoder: makes the frames, such as `frame.encode`.
      frame_id: identifies this message among those in flight on the stream.
      control: its control part, which describes the tensors.
      tensors: arrays of any dtype of JAX, and host values.
    """
    are_numbers = not any(map(is_string_tensor, tensors))
    payload = [*chain.from_iterable(map(_bytes_of, tensors))]
    return encoder(frame_id, control, payload, are_numbers)


def small_payload(tensors: Sequence[SentArray]) -> bytes | None:
    """Returns the payload of numeric tensors if it takes at most `SMALL_BYTES`, else None."""
    arrays, n_bytes = [], 0
    for tensor in tensors:
        size = -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT  # `aligned`, without a call
        n_bytes += size
        if n_bytes > SMALL_BYTES or tensor.dtype not in NAMES:
            return None
        arrays.append(tensor.tobytes().ljust(size, b"\0"))
    return b"".join(arrays)


def _bytes_of(tensor: SentArray) -> Iterator[ByteBuffer]:
    """Yields a tensor's bytes in row-major order; views of them unless the tensor is small.

    Encoders put each buffer at a multiple of `ALIGNMENT`, which those of a `BlockArray` fill.
    """
    if tensor.nbytes <= SMALL_BYTES and (tensor.dtype in NAMES or not is_string_tensor(tensor)):
        yield tensor.tobytes()
    elif isinstance(tensor, BlockArray):
        yield from (raw_bytes(block).data for block in tensor.blocks)
    else:
        yield raw_bytes(tensor).data


def open_message(message: Message) -> tuple[pb.Envelope, list[Array]]:
    """Decodes a message; its tensors are views of the payload, except for strings.

    Raises:
      InvalidArgumentError: if the control part or a tensor is malformed.
      ResourceExhaustedError: if it has too many strings.
    """
    envelope = open_control(message)
    return envelope, tensors_of(envelope, message)


def tensors_of(envelope: pb.Envelope, message: Message) -> list[Array]:
    """Returns the tensors of a message, given its envelope. Raises as `open_message`."""
    if message.tensors is not None:
        return [*message.tensors]
    return open_tensors(envelope, message.payload)


def open_control(message: Message) -> pb.Envelope:
    """Decodes the envelope of a message. Raises InvalidArgumentError if it is malformed."""
    envelope = pb.Envelope()
    try:
        envelope.ParseFromString(message.control)
    except Exception as error:
        raise InvalidArgumentError(f"malformed control message: {error}") from None
    if message.is_shared and any(one.dtype == string.name for one in envelope.tensors):
        # They have lengths, which the other end could change after they were checked.
        raise InvalidArgumentError("malformed message: strings lie in a segment of shared memory")
    return envelope


def decoding_cost(envelope: pb.Envelope, payload: Array) -> int:
    """Estimates how many bytes of a plan cost as much to decode as the tensors of a message.

    A tensor costs little and each string as much as some bytes of a plan; numbers are not touched.
    """
    cost = 16 * len(envelope.tensors)
    if len(payload) > SMALL_BYTES and any(one.dtype == string.name for one in envelope.tensors):
        cost += len(payload)
    return cost


def open_tensors(envelope: pb.Envelope, payload: Array) -> list[Array]:
    """Decodes the tensors of a message from its payload. Raises as `open_message`."""
    tensors = []
    start = n_strings = 0
    for meta in envelope.tensors:
        _check_rank(meta.shape)
        if meta.dtype == string.name:
            # What does not fit the payload is another error.
            n_strings += min(math.prod(meta.shape), len(payload))
            if n_strings * string.itemsize <= len(payload):
                check_strings(n_strings)
        tensor, n_bytes = _tensor(meta, payload, start)
        tensors.append(tensor)
        start += aligned(n_bytes)
    return tensors


def check_strings(n_strings: int) -> None:
    """Raises ResourceExhaustedError if a message has too many strings."""
    if n_strings > MAX_STRINGS:
        raise ResourceExhaustedError(
            f"a message has {n_strings} strings; the limit is {MAX_STRINGS}; pass them in several "
            "tensors and steps"
        )


def _tensor(meta: pb_tensor.TensorMeta, payload: Array, start: int) -> tuple[Array, int]:
    """Returns the tensor that begins at byte `start` of a payload, and its length in bytes."""
    shape = tuple(meta.shape)
    try:
        if meta.dtype == string.name:
            strings, n_bytes = read_strings(payload[start:], math.prod(shape))
            _check_sizes(shape)
            return strings.reshape(shape), n_bytes
        # Not np.dtype(name), which accepts many more names and evaluates some of them.
        dtype = NUMBERS.get(meta.dtype)
        if dtype is None:
            raise InvalidArgumentError(
                f"element type {meta.dtype!r} is neither string nor a dtype of JAX"
            )
        n_bytes = dtype.itemsize * math.prod(shape)
        if start + n_bytes > len(payload):
            raise ValueError(f"it has {n_bytes} bytes")
        _check_sizes(shape)
        return np.ndarray(shape, dtype, payload, start if n_bytes else 0), n_bytes
    except ValueError as error:
        n_left = max(len(payload) - start, 0)
        raise InvalidArgumentError(
            f"a tensor {meta.dtype}{shape} does not fit the {n_left} payload bytes that are left: "
            f"{error}"
        ) from None


def checked_shape(meta: pb_tensor.TensorMeta) -> tuple[int, ...]:
    """Returns the shape of a tensor. Raises InvalidArgumentError if no array can have it."""
    _check_rank(meta.shape)
    shape = tuple(meta.shape)
    _check_sizes(shape)
    return shape


def _check_rank(shape: Sequence[int]) -> None:
    """Refuses more dimensions than an array has, before their product takes long."""
    if len(shape) > _MAX_RANK:
        raise InvalidArgumentError(
            f"a tensor has {len(shape)} dimensions; at most {_MAX_RANK} are possible"
        )


def _check_sizes(shape: tuple[int, ...]) -> None:
    """Refuses sizes that NumPy cannot handle, which an empty tensor could have."""
    if any(size > _MAX_SIZE for size in shape):
        raise InvalidArgumentError(f"a tensor cannot have the shape {shape}")


# Errors ----------------------------------------------------------------------------------------


def error_to_status(error: BaseException, task: str) -> pb_tensor.Status:
    """Converts an error to a status; an exception other than an OpError becomes INTERNAL.

    Args:
      error: the exception.
      task: the task where it was raised, for errors that do not name one.
    """
    if not isinstance(error, OpError):
        error = InternalError(f"{type(error).__name__}: {error}")
    moved = error.moved if isinstance(error, MovedError) else {}
    return pb_tensor.Status(
        code=error.error_code,
        message=_text(error.message),
        op=_text(error.op or ""),
        task=error.task or task,
        error_class=_class_name(error),
        moved=map(state_to_proto, moved),
        devices=moved.values(),
        is_rolled_back=error.is_rolled_back,
    )


def _class_name(error: OpError) -> str:
    """Returns the name of the class as which `error_of` recreates an error."""
    name = type(error).__name__
    return name if name == _MOVED_CLASS or name in _EFFECT_ERRORS else class_name(error)


def state_to_proto(state: StateId) -> pb_tensor.StateId:
    """Converts the id of state to protobuf."""
    return pb_tensor.StateId(**state._asdict())


def state_from_proto(message: pb_tensor.StateId) -> StateId:
    """Converts the id of state from protobuf; InvalidArgumentError if its device is malformed."""
    state = StateId(message.device, message.kind, message.container, message.name, message.owner)
    try:
        _ = state.task  # parses the name
    except ValueError as error:
        raise InvalidArgumentError(f"the device of state cannot be read: {error}") from None
    return state


def _text(text: str) -> str:
    """Returns text that protobuf accepts: valid Unicode, truncated so that it can be sent."""
    return text[:_MAX_TEXT].encode(errors="replace").decode()


def error_of(status: pb_tensor.Status) -> OpError:
    """Converts a status other than success to an OpError."""
    error = _error_of(status)
    error.is_rolled_back = status.is_rolled_back
    return error


def _error_of(status: pb_tensor.Status) -> OpError:
    if not status.code:
        return UnknownError("expected the status of an error, got success")
    if status.error_class == _MOVED_CLASS:
        error = MovedError(status.message, op=status.op or None, task=status.task or None)
        error.moved = dict(zip(map(state_from_proto, status.moved), status.devices, strict=False))
        return error
    if status.error_class in _EFFECT_ERRORS:
        return _EFFECT_ERRORS[status.error_class](
            status.message, op=status.op or None, task=status.task or None
        )
    return from_code(
        status.code,
        status.message,
        op=status.op or None,
        task=status.task or None,
        class_name=status.error_class,
    )

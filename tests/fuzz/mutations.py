"""Seeded mutations of bytes, programs, plans and archives. Equal seeds give equal inputs."""

from __future__ import annotations

import dataclasses
import io
import random
import struct
import warnings
import zipfile
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import jax.export
import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_INTERESTING = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**32 - 1, 2**62, 2**64 - 1)
_NUMBERS = frozenset(
    {
        FieldDescriptor.CPPTYPE_INT32,
        FieldDescriptor.CPPTYPE_INT64,
        FieldDescriptor.CPPTYPE_UINT32,
        FieldDescriptor.CPPTYPE_UINT64,
    }
)
_MAX_INSERTED = 64
_DATE = (1980, 1, 1, 0, 0, 0)


class Mutator:
    """Mutates inputs of one seed.

    Args:
      seed: what its random numbers follow from.
    """

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def pick(self, choices: Sequence[Any]) -> Any:
        """One of some choices."""
        return self._random.choice(choices)

    def mutated(self, data: bytes, start: int = 0, end: int | None = None) -> bytes:
        """Bytes of which one to a few places are changed, within `data[start:end]`."""
        end = len(data) if end is None else end
        changed = bytearray(data[start:end])
        for _ in range(self._few()):
            self.pick(_BYTE_MUTATIONS)(self._random, changed)
        return data[:start] + bytes(changed) + data[end:]

    def program(self, data: bytes) -> bytes:
        """A serialized `jax.export.Exported` of which the module or the container is changed.

        Args:
          data: a valid one.
        """
        if self._random.random() < 0.2:
            return self.mutated(data)
        exported = _deserialized(data)
        if self._random.random() < 0.75:
            return self._module(exported)
        field = self.pick(sorted(_CONTAINER_FIELDS))
        changed = {field: _CONTAINER_FIELDS[field](self, getattr(exported, field))}
        try:
            return bytes(dataclasses.replace(exported, **changed).serialize())
        except Exception:  # JAX cannot serialize every such container
            return self.mutated(data)

    def message(self, message: Message) -> None:
        """Changes one to a few fields of a protobuf message, at any depth."""
        for _ in range(self._few()):
            if fields := self._fields(message):
                self._change(*self.pick(fields))

    def archive(self, data: bytes) -> bytes:
        """A ZIP archive of which one member is changed, with the right CRC, or any byte."""
        if self._random.random() < 0.25:
            return self.mutated(data)
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            members = [(entry.filename, packed.read(entry)) for entry in packed.infolist()]
        number = self._random.randrange(len(members))
        name, content = members[number]
        action = self._random.random()
        if action < 0.03:
            del members[number]
        elif action < 0.06:
            members.append((self.pick([name, f"{name}x", "programs/7", "../x"]), content))
        elif name.startswith("programs/"):
            members[number] = name, self.program(content)
        else:
            members[number] = name, self.mutated(content)
        return _zipped(members)

    def _few(self) -> int:
        return self.pick((1, 1, 1, 2, 3, 8))

    def _module(self, exported: jax.export.Exported) -> bytes:
        """A program whose module, in MLIR's bytecode, has changed bytes."""
        module = self.mutated(exported.mlir_module_serialized)
        return bytes(dataclasses.replace(exported, mlir_module_serialized=module).serialize())

    def _fields(self, message: Message) -> list[tuple[Message, FieldDescriptor]]:
        """The fields of a message, and some of each message within it, with their messages."""
        found = [(message, field) for field in message.DESCRIPTOR.fields]
        for field, value in message.ListFields():
            if field.type == FieldDescriptor.TYPE_MESSAGE and not _is_map(field):
                for one in list(value) if field.is_repeated else [value]:
                    found += self._fields(one)
        return found

    def _change(self, message: Message, field: FieldDescriptor) -> None:
        """Gives a field of a message another value."""
        name = field.name
        if _is_map(field) or self._random.random() < 0.1:
            message.ClearField(name)
        elif field.is_repeated:
            self._change_list(getattr(message, name), field)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            getattr(message, name).SetInParent()
        else:
            setattr(message, name, self._value(field, getattr(message, name)))

    def _change_list(self, items: Any, field: FieldDescriptor) -> None:
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if not items:
                items.add()
            elif self._random.random() < 0.5:
                items.add().CopyFrom(self.pick(items))
            else:
                del items[self._random.randrange(len(items))]
            return
        place = self._random.randrange(len(items) + 1)
        former = items[place] if place < len(items) else field.default_value
        if isinstance(former, list):  # the default of a repeated field
            former = "" if field.cpp_type == FieldDescriptor.CPPTYPE_STRING else 0
        value = self._value(field, former)
        if place < len(items):
            items[place] = value
        else:
            items.append(value)

    def _value(self, field: FieldDescriptor, former: Any) -> Any:
        if field.cpp_type in _NUMBERS:
            return self._number(field.cpp_type)
        match former:
            case bool():
                return not former
            case float():
                return self.pick((0.0, -1.0, 1e-9, 1e9, float("inf"), float("nan")))
            case bytes():
                return self.mutated(former or b"x")
            case str():
                return self._text(former)
            case _:
                return former

    def _number(self, kind: int) -> int:
        is_signed = kind in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64)
        is_long = kind in (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)
        most = 2 ** ((64 if is_long else 32) - is_signed) - 1
        value = min(self.pick(_INTERESTING), most)
        return -value if is_signed and self._random.random() < 0.3 else value

    def _text(self, former: str) -> str:
        place = self._random.randrange(len(former) + 1)
        inserted = self.pick(["\x1b[31m", "\u202e", "../", "/job:ps/task:0", "x" * 300, "\0", "9"])
        return self.pick(["", former[:place], former[:place] + inserted + former[place:]])


@cache
def _deserialized(data: bytes) -> jax.export.Exported:
    return jax.export.deserialize(bytearray(data))


def _flip(rng: random.Random, data: bytearray) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set(rng: random.Random, data: bytearray) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.choice(_INTERESTING) & 0xFF


def _write_number(rng: random.Random, data: bytearray) -> None:
    form = rng.choice(["<B", "<H", "<I", "<Q"])
    size = struct.calcsize(form)
    if len(data) >= size:
        value = rng.choice(_INTERESTING) & ((1 << 8 * size) - 1)
        struct.pack_into(form, data, rng.randrange(len(data) - size + 1), value)


def _step(rng: random.Random, data: bytearray) -> None:
    if data:
        place = rng.randrange(len(data))
        data[place] = (data[place] + rng.choice((-2, -1, 1, 2))) & 0xFF


def _insert(rng: random.Random, data: bytearray) -> None:
    place = rng.randrange(len(data) + 1)
    data[place:place] = rng.randbytes(rng.randrange(1, _MAX_INSERTED))


def _delete(rng: random.Random, data: bytearray) -> None:
    place = rng.randrange(len(data) + 1)
    del data[place : place + rng.randrange(1, _MAX_INSERTED)]


def _copy(rng: random.Random, data: bytearray) -> None:
    size = rng.randrange(1, _MAX_INSERTED)
    source, target = rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)
    data[target : target + size] = data[source : source + size]


def _cut(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(len(data) + 1) :]


_BYTE_MUTATIONS = (
    *(_flip, _flip, _flip, _set, _set, _step, _step, _step, _write_number),
    *(_insert, _delete, _copy, _cut),
)


def _avals(mutator: Mutator, avals: Sequence[Any]) -> tuple[Any, ...]:
    """Shapes and dtypes of which one is another one."""
    changed = [*avals]
    if not changed or mutator.pick((True, False, False)):
        return (*changed, jax.core.ShapedArray((3,), np.float32))
    number = mutator.pick(range(len(changed)))
    shape = mutator.pick([(), (0,), (2**31,), (2**40, 2**40), (3, 4), (1,) * 40])
    dtype = mutator.pick([np.float32, np.int8, np.uint64, np.bool_, np.complex64])
    changed[number] = jax.core.ShapedArray(shape, np.dtype(dtype))
    return (*changed,)


_CONTAINER_FIELDS: dict[str, Callable[[Mutator, Any], Any]] = {
    "fun_name": lambda mutator, name: mutator._text(name),
    "in_avals": _avals,
    "out_avals": _avals,
    "platforms": lambda mutator, _: mutator.pick([(), ("tpu",), ("cpu", "cpu"), ("cpu", "cuda")]),
    "nr_devices": lambda mutator, _: mutator.pick([0, 2, 2**31 - 1]),
    "module_kept_var_idx": lambda mutator, kept: mutator.pick([(), kept[:-1], (*kept, 0), (7,)]),
    "calling_convention_version": lambda mutator, _: mutator.pick([0, 1, 8, 11, 100]),
    "uses_global_constants": lambda _, former: not former,
}


def _is_map(field: FieldDescriptor) -> bool:
    kind = field.message_type
    return bool(kind is not None and kind.GetOptions().map_entry)


def _zipped(members: Sequence[tuple[str, bytes]]) -> bytes:
    """A ZIP archive with these members, as `jflow.export` writes it."""
    packed = io.BytesIO()
    with (
        warnings.catch_warnings(action="ignore"),  # some members have one name
        zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive,
    ):
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name, _DATE), content)
    return packed.getvalue()

"""Requests to the process that compiles: what a program is compiled for, as JSON before its bytes.

The process has as many devices as this one, and they have the same numbers.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.export
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from jflow.plan.xla.compilation import CompileRequest
from jflow.plan.xla.hardware import DeviceOrMesh, devices_of, mesh_on
from jflow.plan.xla.modules import ModuleFacts
from jflow.plan.xla.validation import ValidProgram

_LENGTH = struct.Struct("<I")

PLATFORM = "cpu"
"""The platform of the devices that the process compiles for."""


def n_devices() -> int:
    """Returns the number of CPU devices of this process."""
    return len(jax.devices(PLATFORM))


def encoded(request: CompileRequest) -> bytes | None:
    """Encodes a request; None if the other process cannot compile for what it is for."""
    devices = devices_of(request.on)
    if any(device.platform != PLATFORM for device in devices):
        return None
    written: dict[str, Any] = {
        "n_devices": n_devices(),
        "devices": [device.id for device in devices],
        "facts": [*vars(request.valid.facts).values()],
        "donated": request.donated,
        "sizes": request.sizes,
    }
    if isinstance(request.on, Mesh):
        axes = (*request.on.shape.items(),)
        shardings, kept = _written(request.shardings), _written(request.kept)
        written |= {"axes": axes, "shardings": shardings, "kept": kept}
        again = _for_mesh(request.on, written, request)
        if mesh_on(axes, devices) != request.on or again != request:
            return None  # such as a sharding that is not one by axes of the mesh
    head = json.dumps(written).encode()
    return _LENGTH.pack(len(head)) + head + request.valid.data


def warming() -> bytes:
    """Returns the request to prepare for programs, and to compile none."""
    head = json.dumps({"n_devices": n_devices()}).encode()
    return _LENGTH.pack(len(head)) + head


def number_of_devices(data: bytes) -> int:
    """Returns how many devices the process that sent a request has."""
    return int(_parts(data)[0]["n_devices"])


def decoded(data: bytes) -> CompileRequest | None:
    """Decodes a request, on the devices of this process; None if it is to compile no program."""
    written, program = _parts(data)
    if "devices" not in written:
        return None
    by_id = {device.id: device for device in jax.devices(PLATFORM)}
    devices = [by_id[number] for number in written["devices"]]
    on: DeviceOrMesh = mesh_on(written["axes"], devices) if "axes" in written else devices[0]
    exported = jax.export.deserialize(bytearray(program))
    valid = ValidProgram(program, ModuleFacts(*written["facts"]))
    sizes = None if written["sizes"] is None else tuple(map(tuple, written["sizes"]))
    request = CompileRequest(valid, exported, on, tuple(written["donated"]), sizes)
    return _for_mesh(on, written, request) if isinstance(on, Mesh) else request


def _parts(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Returns the two parts of a request: JSON, and the bytes of the program."""
    (length,) = _LENGTH.unpack_from(data)
    end = _LENGTH.size + length
    return json.loads(data[_LENGTH.size : end]), data[end:]


def _written(shardings: Sequence[Sharding | None]) -> list[Any]:
    """Returns shardings by axes of a mesh as lists; others become None as well."""
    return [
        [[*(_axes(part) for part in one.spec)], one.memory_kind]
        if isinstance(one, NamedSharding)
        else None
        for one in shardings
    ]


def _axes(part: Any) -> Any:
    return [*part] if isinstance(part, tuple) else part if isinstance(part, str) else None


def _for_mesh(mesh: Mesh, written: dict[str, Any], request: CompileRequest) -> CompileRequest:
    """Returns a request with the shardings that were written."""

    def read(one: Any) -> Sharding | None:
        if one is None:
            return None
        spec, memory_kind = one
        parts = (tuple(part) if isinstance(part, list) else part for part in spec)
        return NamedSharding(mesh, PartitionSpec(*parts), memory_kind=memory_kind)

    shardings, kept = (tuple(map(read, written[name])) for name in ("shardings", "kept"))
    return replace(request, shardings=shardings, kept=kept)

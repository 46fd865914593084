"""Names of tasks and devices: `/job:worker/task:0/device:GPU:0` and parts of it.

A *mesh* is a device, too: `/job:worker/task:0/device:MESH:0[data=2,model=2]` is several devices of
one task, of one type, arranged along named axes as in `jax.sharding.Mesh`. Meshes of n devices
follow each other without overlap: the index i means the devices from i n on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

_FIELD = re.compile(
    r"/(?:job:(?P<job>[A-Za-z][A-Za-z0-9_\-]*)"
    r"|replica:(?P<replica>\d+|\*)"
    r"|task:(?P<task>\d+|\*)"
    r"|device:(?P<type>[A-Za-z]\w*)(?::(?P<index>\d+|\*))?(?:\[(?P<axes>[^\]]*)\])?"
    r"|(?P<short>cpu|gpu|tpu|CPU|GPU|TPU)(?::(?P<short_index>\d+|\*))?)",
    re.ASCII,
)

_PATTERNS = {
    "job": re.compile(r"[A-Za-z][A-Za-z0-9_\-]*"),
    "task": re.compile(r"\d+"),
    "type": re.compile(r"[A-Z][A-Z0-9_]*"),
    "index": re.compile(r"\d+"),
}

_AXIS = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<size>[1-9]\d{0,6})", re.ASCII)
_MAX_AXES = 16

MESH = "MESH"
"""The type of meshes."""

Axes = tuple[tuple[str, int], ...]
"""The names and sizes of the axes of a mesh, in order."""


@dataclass(frozen=True, order=True)
class Task:
    """One process of a cluster."""

    job: str
    index: int

    def __str__(self) -> str:
        return f"/job:{self.job}/task:{self.index}"

    @classmethod
    def parse(cls, name: str) -> Task:
        """Parses the full name of a task.

        Raises:
          ValueError: if the job or the index is missing.
        """
        spec = DeviceSpec.parse(name)
        if spec.job is None or spec.task is None:
            raise ValueError(f"expected a task name with a job and an index, got {name!r}")
        return cls(spec.job, spec.task)


LOCAL_TASK = Task("localhost", 0)
"""The task of a session without a cluster."""


@dataclass(frozen=True, order=True)
class Device:
    """One device of one task, or a mesh of several.

    Attributes:
      task: the task.
      type: "CPU", "GPU", "TPU" or `MESH`.
      index: counts the devices of the type; for a mesh, those of its size.
      axes: of a mesh; empty otherwise.
    """

    task: Task
    type: str
    index: int
    axes: Axes = ()

    def __str__(self) -> str:
        return f"{self.task}/device:{self.type}:{self.index}{_axes_text(self.axes)}"

    @property
    def n_devices(self) -> int:
        """The number of devices of a mesh, else 1."""
        return math.prod(size for _, size in self.axes)

    def members(self, devices: Sequence[Device]) -> Sequence[Device]:
        """Returns the devices of a mesh, or this device itself.

        Args:
          devices: those of the task; accelerators are members rather than CPUs.

        Returns:
          Fewer than `n_devices` if the task does not have as many.
        """
        if not self.axes:
            return (self,)
        start = self.index * self.n_devices
        return _alike(devices)[start : start + self.n_devices]

    def is_among(self, devices: Sequence[Device]) -> bool:
        """Whether a task with these devices has this device, or all devices of this mesh."""
        members = self.members(devices)
        return len(members) == self.n_devices and {*members} <= {*devices}

    @classmethod
    def parse(cls, name: str) -> Device:
        """Parses the full name of a device.

        Raises:
          ValueError: if any field is missing.
        """
        spec = DeviceSpec.parse(name)
        if spec.job is None or spec.task is None or spec.type is None or spec.index is None:
            raise ValueError(
                f"expected a device name with a job, a task, a type and an index, got {name!r}"
            )
        return cls(Task(spec.job, spec.task), spec.type, spec.index, spec.axes or ())


def mesh_of_all(devices: Sequence[Device]) -> Device | None:
    """Returns the mesh of all devices of a task, with one axis; None if it has only one of a type.

    Args:
      devices: the devices of the task.
    """
    members = _alike(devices)
    if len(members) < 2:
        return None
    return Device(members[0].task, MESH, 0, (("devices", len(members)),))


def rank_of(device: Device) -> tuple[bool, str, int]:
    """Returns a key that orders the devices of a task, accelerators before CPUs."""
    return device.type == "CPU", device.type, device.index


def _alike(devices: Sequence[Device]) -> list[Device]:
    """Returns the devices of the type that comes first, in order."""
    ordered = sorted(devices, key=rank_of)
    return [device for device in ordered if device.type == ordered[0].type]


@dataclass(frozen=True)
class DeviceSpec:
    """A device name in which any field may be missing (None).

    A mesh without axes is that of all devices of the task.

    Raises:
      TypeError: if a field has the wrong type.
      ValueError: if a field has a value that cannot be part of a name.
    """

    job: str | None = None
    task: int | None = None
    type: str | None = None
    index: int | None = None
    axes: Axes | None = None

    def __post_init__(self) -> None:
        if self.axes is not None:
            _check_axes(self.axes, self.type)
        for field, kind in (("job", str), ("task", int), ("type", str), ("index", int)):
            value = getattr(self, field)
            if value is not None and type(value) is not kind:
                raise TypeError(
                    f"expected the {field} of a device to be of type {kind.__name__}, got {value!r}"
                )
            pattern = _PATTERNS[field]
            if value is not None and not pattern.fullmatch(str(value)):
                raise ValueError(f"{value!r} cannot be the {field} of a device")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses "/job:ps/task:0/device:CPU:0", any part of it, or the short "/cpu:0".

        The axes of a mesh follow its index, as in "/device:MESH:0[data=2,model=2]".

        A replica is accepted and ignored; `*` is the same as omitting the field.

        Raises:
          ValueError: if the text is not a device name.
        """
        parts: dict[str, str] = {}
        long_names = {"short": "type", "short_index": "index"}
        rest = text if text.startswith("/") or not text else "/" + text
        while rest:
            match = _FIELD.match(rest)
            if match is None or (match.end() < len(rest) and rest[match.end()] != "/"):
                raise ValueError(
                    f"{text!r} is not a device name: expected parts of "
                    "'/job:NAME/task:N/device:TYPE:N' (or '/cpu:N', '/gpu:N'), "
                    f"cannot read {rest!r}"
                )
            for group, value in match.groupdict().items():
                field = long_names.get(group, group)
                if value is not None and field in parts:
                    raise ValueError(f"{text!r} is not a device name: it has more than one {field}")
                if value is not None:
                    parts[field] = value
            rest = rest[match.end() :]
        return cls(
            job=parts.get("job"),
            task=_number(parts.get("task")),
            type=parts["type"].upper() if "type" in parts else None,
            index=_number(parts.get("index")),
            axes=_axes(parts["axes"], text) if "axes" in parts else None,
        )

    @property
    def is_empty(self) -> bool:
        """Whether all fields are missing."""
        return self == type(self)()

    def merge(self, inner: DeviceSpec) -> DeviceSpec:
        """Returns a spec with the fields of `inner`, and of this spec where `inner` lacks them.

        An index and axes go with their type if that is a mesh: they count and arrange devices.
        """
        outer = self
        if inner.type is not None and MESH in (self.type, inner.type):
            outer = DeviceSpec(self.job, self.task)
        chosen_fields = {}
        for field in fields(DeviceSpec):
            value = getattr(inner, field.name)
            chosen_fields[field.name] = getattr(outer, field.name) if value is None else value
        return DeviceSpec(**chosen_fields)

    def __str__(self) -> str:
        text = "" if self.job is None else f"/job:{self.job}"
        text += "" if self.task is None else f"/task:{self.task}"
        if self.type is not None:
            text += f"/device:{self.type}:{'*' if self.index is None else self.index}"
        return text + _axes_text(self.axes or ())


def _check_axes(axes: Axes, type_: str | None) -> None:
    if type_ != MESH:
        raise ValueError(f"only a device of the type {MESH} has axes, got the type {type_!r}")
    if not 1 <= len(axes) <= _MAX_AXES:
        raise ValueError(f"expected a mesh with 1 to {_MAX_AXES} axes, got {len(axes)}")
    names = [name for name, _ in axes]
    if len({*names}) < len(names):
        raise ValueError(f"expected different names of axes, got {names}")
    for name, size in axes:
        if type(size) is not int or not _AXIS.fullmatch(f"{name}={size}"):
            raise ValueError(
                "expected the axes of a mesh as names and positive sizes, got "
                f"{name!r} of size {size!r}"
            )


def _axes(text: str, name: str) -> Axes:
    matches = [_AXIS.fullmatch(part.strip()) for part in text.split(",")]
    if not all(matches):
        raise ValueError(
            f"{name!r} is not a device name: expected the axes of a mesh as "
            f"'[data=2,model=2]', cannot read '[{text}]'"
        )
    return tuple((found["name"], int(found["size"])) for found in matches if found)


def _axes_text(axes: Axes) -> str:
    return f"[{','.join(f'{name}={size}' for name, size in axes)}]" if axes else ""


def _number(text: str | None) -> int | None:
    return None if text is None or text == "*" else int(text)


OF_TASKS = ".jflow"
"""The suffix of the names in certificates, which no host name may have."""
CLIENT_NAME = f"client{OF_TASKS}"
"""The name in the certificate of clients."""


def certified_name(task: Task | None) -> str:
    """Returns the DNS name in a task's certificate, "worker-1.jflow"; that of clients for None.

    TLS compares names without regard to case, so certificates do not distinguish the jobs "ps" and
    "PS"; `write_certificates` refuses clusters that have both.
    """
    return CLIENT_NAME if task is None else f"{task.job}-{task.index}{OF_TASKS}".lower()

"""Names of tasks and devices: `/job:worker/task:0/device:GPU:0` and parts of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Self

_FIELD = re.compile(
    r"/(?:job:(?P<job>[A-Za-z][A-Za-z0-9_\-]*)"
    r"|replica:(?P<replica>\d+|\*)"
    r"|task:(?P<task>\d+|\*)"
    r"|device:(?P<type>[A-Za-z]\w*)(?::(?P<index>\d+|\*))?"
    r"|(?P<short>cpu|gpu|tpu|CPU|GPU|TPU)(?::(?P<short_index>\d+|\*))?)",
    re.ASCII,
)

_PATTERNS = {
    "job": re.compile(r"[A-Za-z][A-Za-z0-9_\-]*"),
    "task": re.compile(r"\d+"),
    "type": re.compile(r"[A-Z][A-Z0-9_]*"),
    "index": re.compile(r"\d+"),
}


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
    """One device of one task."""

    task: Task
    type: str
    index: int

    def __str__(self) -> str:
        return f"{self.task}/device:{self.type}:{self.index}"

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
        return cls(Task(spec.job, spec.task), spec.type, spec.index)


@dataclass(frozen=True)
class DeviceSpec:
    """A device name in which any field may be missing (None).

    Raises:
      TypeError: if a field has the wrong type.
      ValueError: if a field has a value that cannot be part of a name.
    """

    job: str | None = None
    task: int | None = None
    type: str | None = None
    index: int | None = None

    def __post_init__(self) -> None:
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
        )

    @property
    def is_empty(self) -> bool:
        """Whether all fields are missing."""
        return self == type(self)()

    def merge(self, inner: DeviceSpec) -> DeviceSpec:
        """Returns a spec with the fields of `inner`, and of this spec where `inner` lacks them."""
        chosen_fields = {}
        for field in fields(DeviceSpec):
            value = getattr(inner, field.name)
            chosen_fields[field.name] = getattr(self, field.name) if value is None else value
        return DeviceSpec(**chosen_fields)

    def __str__(self) -> str:
        text = "" if self.job is None else f"/job:{self.job}"
        text += "" if self.task is None else f"/task:{self.task}"
        if self.type is not None:
            text += f"/device:{self.type}:{'*' if self.index is None else self.index}"
        return text


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

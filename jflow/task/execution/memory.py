"""Finds the memory limits of the devices of this process."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import jax

from jflow.base.cluster import Device
from jflow.errors import InvalidArgumentError

VARIABLE = "JFLOW_DEVICE_MEMORY"
"""What each device of a process can keep, such as "4GiB", in place of what is found here."""

_SIZE = re.compile(r"(\d+(?:\.\d+)?)(B|KiB|MiB|GiB|TiB)?")
_UNITS = {None: 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def memory_limits(
    devices: Mapping[Device, jax.Device], environ: Mapping[str, str] = os.environ
) -> dict[Device, int]:
    """Returns the memory of each device of this process, in bytes; 0 if that is not known.

    An accelerator has what JAX's allocator may use of it. The CPU devices have equal parts of the
    memory that the operating system allows this process. Other processes may use that memory too.

    Args:
      devices: all devices of this process by name.
      environ: the environment, whose JFLOW_DEVICE_MEMORY comes first.

    Raises:
      InvalidArgumentError: if the environment variable is not a size above 0.
    """
    text = environ.get(VARIABLE, "")
    if text:
        return dict.fromkeys(devices, parse_size(text, VARIABLE))
    n_cpus = sum(device.platform == "cpu" for device in devices.values())
    return {
        name: host_memory() // n_cpus if device.platform == "cpu" else _allocator_limit(device)
        for name, device in devices.items()
    }


def program_limits(devices: Mapping[Device, jax.Device]) -> dict[Device, int]:
    """Returns how much memory a program on each device can use, in bytes; 0 if that is not known.

    Unlike `memory_limits`, which says what to plan with, all of it: that of the CPU devices is
    one, and JFLOW_DEVICE_MEMORY says only what a device can keep.
    """
    return {
        name: host_memory() if device.platform == "cpu" else _allocator_limit(device)
        for name, device in devices.items()
    }


@cache
def host_memory(root: Path = Path("/")) -> int:
    """Returns the memory that the system allows this process, in bytes; 0 if that is not known.

    It is that of the machine, or of the smallest Linux control group (version 2 or 1) around the
    process.

    Args:
      root: where /proc and /sys are.
    """
    limits = [int(text) for text in _group_limits(root) if text.isdecimal()]
    with suppress(AttributeError, OSError, ValueError):  # not a POSIX system
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min((limit for limit in limits if limit > 0), default=0)


def _group_limits(root: Path) -> Iterator[str]:
    """Yields the limits of the control groups around this process, as text; "max" for none.

    A line of /proc/self/cgroup is "number:controllers:path", without controllers in version 2.
    """
    groups = root / "proc/self/cgroup"
    for line in groups.read_text().splitlines() if groups.is_file() else ():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        base, name = {
            "": (root / "sys/fs/cgroup", "memory.max"),
            "memory": (root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        }[controllers]
        # In a container the path may be one of the host, so that only the first group exists.
        group = base / path.lstrip("/")
        for each in (group, *group.parents):
            limit = each / name
            if each.is_relative_to(base) and limit.is_file():
                yield limit.read_text().strip()


def _allocator_limit(device: jax.Device) -> int:
    try:
        stats = device.memory_stats() or {}
    except jax.errors.JaxRuntimeError:  # a backend without these figures
        return 0
    return int(stats.get("bytes_limit", 0))


def parse_size(text: str, what: str) -> int:
    """Parses a size in bytes, such as "512MiB".

    Args:
      text: the size.
      what: where it was given, for the message.

    Raises:
      InvalidArgumentError: if it is not a size above 0.
    """
    match = _SIZE.fullmatch(text.strip())
    n_bytes = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if not n_bytes:
        raise InvalidArgumentError(
            f"{what} must be a number of bytes above 0, or one with a unit such as 512MiB or "
            f"4GiB, got {text!r}"
        )
    return n_bytes

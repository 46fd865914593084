"""`ExecutionPlatform`: what the bits of a result depend on, beside program and arguments."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar

from jflow.base.packing import Record


class ExecutionPlatform(Record, frozen=True):
    """The processor and the libraries of a process.

    Attributes:
      processor: the name of the processor.
      features: its features, for which XLA compiles, such as "avx2"; empty if they are not known.
      n_cores: how many cores XLA divides a program among.
      jaxlib: the version of jaxlib.
      xla_flags: the flags of XLA, as the environment has them.
    """

    what: ClassVar[str] = "description of a processor"

    processor: str
    features: tuple[str, ...]
    n_cores: int
    jaxlib: str
    xla_flags: str

    def differences(self, other: ExecutionPlatform) -> Iterator[str]:
        """Yields why numbers that another machine has computed may have other bits here."""
        for name in ("jaxlib", "n_cores", "xla_flags"):
            own, others = getattr(self, name), getattr(other, name)
            if own != others:
                yield f"{name} {own or 'unset'} instead of {others or 'unset'}"
        missing = sorted({*other.features} - {*self.features})
        more = sorted({*self.features} - {*other.features})
        if missing or more:
            which = [*(f"without {one}" for one in missing), *(f"with {one}" for one in more)]
            yield f"a processor {', '.join(which)}"


@cache
def this_platform() -> ExecutionPlatform:
    """Returns the description of this process."""
    features = tuple(sorted(_cpuinfo("flags").split() or _cpuinfo("Features").split()))
    allowed = os.environ.get("NPROC", "")
    cores = int(allowed) if allowed.isdecimal() else n_cores()
    flags = os.environ.get("XLA_FLAGS", "")
    return ExecutionPlatform(processor_name(), features, cores, version("jaxlib"), flags)


def n_cores() -> int:
    """Returns how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor_name() -> str:
    """Returns the name of the processor, or what is known of it."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def _cpuinfo(field: str) -> str:
    """Returns a field of the first processor that Linux describes; "" if there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(field)), "")

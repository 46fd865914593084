"""Measured times of programs, kept on disk by what the programs are.

XLA's fusion cannot be predicted well, but a program's time can be measured, once for all equal
programs: the key is the digest of its canonical export, and what it runs on. Identical layers of a
model share it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jflow.client.runtime.calibration_file import cache_directory, this_machine, write_text
from jflow.compiler.lowering import Lowered, compile_all, export
from jflow.compiler.pipeline import CompiledStep
from jflow.compiler.placement.calibration import Machine
from jflow.errors import OpError
from jflow.lab.calibration.site import Clock
from jflow.plan.xla import digest_of, export_platform

CAPACITY = 4096
"""How many times are kept; those used longest ago go first."""

_RUNS = 7
_MOST_RUNS = 100
_SHORT_S = 0.02
"""Short programs run more often, because one delay is much of their time."""
_FORMAT = 1


class RegionTimes:
    """Seconds of programs by their digests, in a file.

    Args:
      path: the file; None for "regions.json" in the cache directory. One that is missing, or that
        cannot be read, is as an empty one.
      machine: what they were measured on; None for this one.
      capacity: how many are kept.
    """

    def __init__(
        self, path: Path | None = None, machine: Machine | None = None, capacity: int = CAPACITY
    ) -> None:
        here = machine or this_machine()
        self._path = path or cache_directory() / "regions.json"
        self._suffix = f"{here.processor}, {here.n_cores} cores, jaxlib {here.jaxlib}"
        self._capacity = capacity
        self._seconds = _read(self._path)

    def get(self, digest: str, platform: str) -> float | None:
        """Returns the time of a program; None if it is not known."""
        key = self._key(digest, platform)
        if key not in self._seconds:
            return None
        self._seconds[key] = self._seconds.pop(key)  # it was used last
        return self._seconds[key]

    def put(self, digest: str, platform: str, seconds: float) -> None:
        """Stores the time of a program."""
        self._seconds.pop(self._key(digest, platform), None)
        self._seconds[self._key(digest, platform)] = seconds
        for key in [*self._seconds][: max(0, len(self._seconds) - self._capacity)]:
            del self._seconds[key]

    def save(self) -> None:
        """Writes the file. Raises OSError if that fails."""
        write_text(json.dumps({"format": _FORMAT, "seconds": self._seconds}), self._path)

    def __len__(self) -> int:
        return len(self._seconds)

    def _key(self, digest: str, platform: str) -> str:
        return f"{digest} {platform} {self._suffix}"


def measured_programs(
    compiled: CompiledStep,
    known: RegionTimes,
    *,
    clock: Clock = time.perf_counter,
) -> dict[str, float]:
    """Returns the times of a step's programs without dispatch, in seconds; measures unknown ones.

    A program runs on the first device of this process, with arguments of ones, and its time is the
    least of at least seven runs. What takes arguments of unknown sizes, or cannot run here, is left
    out.

    Args:
      compiled: a step that was compiled without platforms.
      known: what is known; it is added to, and not saved.
      clock: gives seconds.

    Returns:
      As `jflow.compiler.pipeline.region_problem` takes them.
    """
    device = jax.devices()[0]
    platform = export_platform(device)
    empty = None
    seconds_of = {}
    for name, program in compiled.programs.items():
        digest = _digest(program, platform)
        if digest is None:
            continue
        seconds = known.get(digest, platform)
        if seconds is None:
            if empty is None:
                empty = _seconds_of(jax.jit(lambda x: x + 1.0), [jnp.zeros(())], clock)
            seconds = _measured(program, device, clock)
            if seconds is None:
                continue
            seconds = max(seconds - empty, 0.0)
            known.put(digest, platform, seconds)
        seconds_of[name] = seconds
    return seconds_of


def _digest(program: Lowered, platform: str) -> str | None:
    try:
        return digest_of(export(program.jaxpr, platform))
    except Exception:  # JAX raises errors of many classes for what it cannot export
        return None


def _measured(program: Lowered, device: jax.Device, clock: Clock) -> float | None:
    avals = program.jaxpr.in_avals
    if any(not isinstance(size, int) for aval in avals for size in aval.shape):
        return None
    n_arguments = len(avals) - len(program.constants)
    try:
        (executable,) = compile_all([(program, device, ())])
        arguments = [jnp.ones(aval.shape, aval.dtype) for aval in avals[:n_arguments]]
        placed = [jax.device_put(x, device) for x in (*arguments, *program.constants)]
        return _seconds_of(executable, placed, clock)
    except OpError:
        return None


def _seconds_of(executable: Callable[..., Any], arguments: list[jax.Array], clock: Clock) -> float:
    jax.block_until_ready(executable(*arguments))
    times: list[float] = []
    while len(times) < _RUNS or (len(times) < _MOST_RUNS and sum(times) < _SHORT_S):
        begin = clock()
        jax.block_until_ready(executable(*arguments))
        times.append(clock() - begin)
    return min(times)


def _read(path: Path) -> dict[str, float]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        seconds = data["seconds"] if data["format"] == _FORMAT else {}
        return {
            str(key): float(value)
            for key, value in seconds.items()
            if np.isfinite(value) and value >= 0
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}  # it is a cache

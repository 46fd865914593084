"""Programs of collectives on the meshes of a task, and what a message between their devices takes.

Each program runs one collective several times, with as little as possible between; a program of the
same sizes has none. Their difference is what the collectives take, and the constants are those with
which rings (`jflow/compiler/placement/spmd.py`) explain all differences best. An all-to-all is not
among them: between CPU devices it takes four times as long as a ring.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from jflow.base.cluster import MESH, Device, mesh_of_all
from jflow.compiler.placement.calibration import PRIOR
from jflow.compiler.placement.equations import Count
from jflow.compiler.placement.mesh_work import count_program_on_mesh
from jflow.lab.calibration.fit import Vector, fit_constants
from jflow.lab.calibration.site import Site, Time, TimedStep

_AXIS = "ring"
_SIZES = ((1 << 12, 64), (1 << 18, 16), (1 << 22, 4))
_QUICK_SIZES = ((1 << 12, 64), (1 << 20, 4))
"""Bytes of the array of each device, and how often a program runs its collective."""

_LEAST_S = 1e-6
_COUNTS = [Count.MESSAGES, Count.SENT_BYTES]
_NOTHING = "nothing"

_Collective = Callable[[Any, int], Any]
"""A function of the array of each device, and of their number."""


def _unchanged(x: Any, n: int) -> Any:
    return x


def _reduced(x: Any, n: int) -> Any:
    return jax.lax.psum(x, _AXIS)


def _gathered(x: Any, n: int) -> Any:
    return jax.lax.all_gather(x[: x.size // n], _AXIS, tiled=True)


def _scattered(x: Any, n: int) -> Any:
    return jnp.tile(jax.lax.psum_scatter(x, _AXIS, tiled=True), n)


def _passed_on(x: Any, n: int) -> Any:
    return jax.lax.ppermute(x, _AXIS, [(i, (i + 1) % n) for i in range(n)])


_COLLECTIVES: Mapping[str, _Collective] = {
    _NOTHING: _unchanged,
    "all-reduce": _reduced,
    "all-gather": _gathered,
    "reduce-scatter": _scattered,
    "permutation": _passed_on,
}


@dataclass(frozen=True)
class RingFit:
    """What programs on meshes and their collectives take.

    Attributes:
      start: seconds of a step of one program that computes next to nothing.
      message: seconds of each message of a collective.
      bandwidth: bytes a second that a device sends.
      median_error: the median of the relative errors of the differences, each by constants that
        were fitted without it.
    """

    start: float
    message: float
    bandwidth: float
    median_error: float


class Rings:
    """Programs of collectives between the devices of one type.

    Args:
      site: where to measure.
      kind: the type of the devices, such as "CPU".
      meshes: some meshes of them.
      quick: whether to measure less.

    Attributes:
      steps: the programs; those of one mesh and size begin with the one without collectives.
    """

    def __init__(self, site: Site, kind: str, meshes: Sequence[Device], quick: bool) -> None:
        self._site, self._kind = site, kind
        sizes = _QUICK_SIZES if quick else _SIZES
        self.steps = [
            step for mesh in meshes for size in sizes for step in _steps(site, mesh, *size)
        ]

    def fit(self, times: Sequence[Time]) -> RingFit:
        """Fits what collectives take to the times of the steps."""
        counts, seconds, without = [], [], 0.0
        for step, time in zip(self.steps, times, strict=True):
            if step.name == _NOTHING:
                without = time.seconds
                continue
            counts.append(self._counts(step))
            seconds.append(max(time.seconds - without, _LEAST_S))
        prior = PRIOR.rates_of(self._kind).seconds_per_count[_COUNTS]
        fit = fit_constants(np.array(counts), np.array(seconds), prior)
        message, byte = map(float, fit.seconds)
        return RingFit(times[0].seconds, message, 1 / byte, fit.median_error)

    def _counts(self, step: TimedStep) -> Vector:
        """Returns the messages of a step, and the bytes that share what sends them: f64[2]."""
        (program,) = self._site.compiled(step).programs.values()
        messages, n_bytes = count_program_on_mesh(program)[_COUNTS]
        n = 1 if self._kind == "CPU" else math.prod(size for _, size in program.axes)
        return np.array([messages, n_bytes / n])


def meshes_of(devices: Sequence[Device]) -> dict[str, list[Device]]:
    """Returns meshes of two and of all devices of a task, by the type of their devices."""
    found: dict[str, list[Device]] = {}
    for task in dict.fromkeys(device.task for device in devices):
        here = [device for device in devices if device.task == task]
        whole = mesh_of_all(here)
        if whole is not None:
            sizes = dict.fromkeys((2, whole.n_devices))
            meshes = [Device(task, MESH, 0, ((_AXIS, n),)) for n in sizes]
            found.setdefault(whole.members(here)[0].type, meshes)
    return found


def _steps(site: Site, mesh: Device, n_bytes: int, times: int) -> Iterator[TimedStep]:
    n = mesh.n_devices
    of_each = max(n_bytes // 4 // n, 1) * n  # it is divided again
    x = site.variable((n * of_each,), mesh, PartitionSpec(_AXIS))
    for name, collective in _COLLECTIVES.items():
        program = partial(_repeated, collective, n, times)
        yield TimedStep(name, (site.apply(program, x, at=mesh),))


def _repeated(collective: _Collective, n: int, times: int, x: Any) -> Any:
    """Returns a number of each device: f32[devices]."""

    def each(x: Any) -> Any:
        for _ in range(times):
            y = collective(x, n)
            x = jax.lax.optimization_barrier(x * 0.5 + jnp.resize(y, x.shape))
        return x.max(keepdims=True)

    along = PartitionSpec(_AXIS)
    return jax.shard_map(each, in_specs=along, out_specs=along, check_vma=False)(x)

"""`calibrate`: measures what the devices and links of a target do.

Every number comes from times of steps that a session runs, so it includes what jflow itself does.

* **Rates**: programs of known counts (`probes.py`) on one device of each type, fitted together with
  what a step takes.
* **Calls and dispatch**: chains of host functions, without and with programs between them.
* **Links**: steps in which two devices compute and send each other messages of several numbers and
  sizes (`exchanges.py`). The constants are those by which the model explains these steps best. One
  pair of tasks for each class of links.
* **Ports**: the time of two transfers out of one task, into one task, and one each way, over that
  of one.
* **Overlap**: a transfer and a computation that needs nothing of it, apart and together.
* **Meshes**: programs with and without collectives, where a task has several devices (`rings.py`).
* **The reference**: a program that is measured again where it matters how fast the machine is then.

The steps of all but the meshes are timed in the same turns. A shared machine has slow moments of
many seconds, and rates of a slow one beside links of a fast one would be a machine that does not
exist.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any, Protocol

import numpy as np

from jflow.base.cluster import Device
from jflow.client.runtime.calibration_file import this_machine
from jflow.compiler.graph import Tensor
from jflow.compiler.pipeline import region_problem
from jflow.compiler.placement.calibration import PRIOR, Calibration, Link, Rates
from jflow.compiler.placement.equations import Count
from jflow.compiler.placement.work import count_program
from jflow.lab.calibration.exchanges import EXCHANGES, exchange_step, fit_link, reference_step
from jflow.lab.calibration.fit import fit_constants, slope_of, upper_of
from jflow.lab.calibration.probes import PROBES, Probe
from jflow.lab.calibration.rings import RingFit, Rings, meshes_of
from jflow.lab.calibration.site import Clock, Site, Time, TimedStep

_LENGTHS = (2, 8, 16)
_QUICK_LENGTHS = (2, 8)
_PORT_BYTES = 1 << 23
_MOST_WORK_ERROR = 0.9
_LEAST_MESSAGE_ERROR = 1.0
"""What is sent in a training step takes up to two or three times what the exchanges tell, though
their own steps are explained within 10 % (docs/decisions/placement.md#0068)."""


@dataclass
class _Result:
    """The measurements so far; its fields are those of `Calibration`."""

    rates: dict[str, Rates] = field(default_factory=dict)
    links: dict[str, Link] = field(default_factory=dict)
    step_seconds: dict[str, float] = field(default_factory=dict)
    task_seconds: dict[str, float] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    work_error: float = 0.0
    message_error: float = 0.0
    collective_error: float = 0.0
    port_share: float = PRIOR.port_share
    duplex_share: float = PRIOR.duplex_share
    overlap: float = PRIOR.overlap


def calibrate(
    target: str = "",
    *,
    quick: bool = False,
    probes: Sequence[Probe] = PROBES,
    clock: Clock = time.perf_counter,
    now: Callable[[], float] = time.time,
    progress: Callable[[str], object] = lambda _: None,
) -> Calibration:
    """Measures what the devices and links of a target do.

    Nothing else should run meanwhile. All sessions of the target's server are closed at the end,
    because its variables are freed.

    Args:
      target: "grpc://host:port", or "" for this process, which has no links between tasks.
      quick: whether to measure less, in seconds instead of a minute.
      probes: the programs that rates are fitted to.
      clock: gives seconds for measuring.
      now: gives seconds since 1970.
      progress: called with what is measured next.

    Raises:
      OpError: if a step fails.
    """
    result = _Result()
    with Site(target, clock) as site:
        reference = reference_step(site, site.devices[0])
        studies = [*_studies(site, probes, quick, progress)]
        site.initialize()
        steps = [reference, *(step for study in studies for step in study.steps)]
        progress(f"times of {len(steps)} steps")
        times = iter(site.times(steps, 3 if quick else 9))
        reference_seconds = next(times).seconds
        for study in studies:
            study.conclude([next(times) for _ in study.steps], result)
        # After the others: from its first mesh on, a process computes one program at a time.
        for kind, meshes in meshes_of(site.devices).items():
            progress(f"collectives of {', '.join(map(str, meshes))}")
            rings = Rings(site, kind, meshes, quick)
            site.initialize()
            times_of_rings = site.times(rings.steps, 3 if quick else 9)
            _conclude(rings.fit(times_of_rings), kind, site.wiring.transport, result)
    result.work_error = min(result.work_error, _MOST_WORK_ERROR)
    result.message_error = max(result.message_error, _LEAST_MESSAGE_ERROR)
    return Calibration(
        **vars(result), made=now(), machine=this_machine(), reference_seconds=reference_seconds
    )


def _conclude(fit: RingFit, kind: str, transport: str, result: _Result) -> None:
    """Adds the conclusions from programs on meshes to a result."""
    rates = result.rates[kind]
    spent = result.step_seconds[transport] + rates.dispatch
    result.rates[kind] = replace(
        rates,
        mesh_dispatch=rates.dispatch + max(fit.start - spent, 0.0),
        message=fit.message,
        sent_bandwidth=fit.bandwidth,
    )
    result.collective_error = max(result.collective_error, fit.median_error)


class _Study(Protocol):
    """Steps, and what their times tell; all steps are there before any of them is timed."""

    @property
    def steps(self) -> Sequence[TimedStep]: ...

    def conclude(self, times: Sequence[Time], result: _Result) -> None:
        """Adds the conclusions from the step times to a result."""


def _studies(
    site: Site, probes: Sequence[Probe], quick: bool, progress: Callable[[str], object]
) -> Iterator[_Study]:
    """Yields the studies of a calibration; each needs results of earlier ones only."""
    for kind in dict.fromkeys(device.type for device in site.devices):
        device = next(device for device in site.devices if device.type == kind)
        progress(f"{kind} rates on {device}")
        yield _Rates(site, device, probes, quick)
    for name, (source, to) in _pairs(site).items():
        progress(f"link {name} from {source} to {to}")
        yield _Links(site, name, source, to, quick)
    group = _group(site)
    if group:
        progress(f"ports of {', '.join(map(str, group))}")
        yield _Ports(site, group, quick)


class _Rates:
    """Measures the rates of a device type, and the cost of calls and steps."""

    def __init__(self, site: Site, at: Device, probes: Sequence[Probe], quick: bool) -> None:
        self._site, self._at, self._quick = site, at, quick
        self._lengths = _QUICK_LENGTHS if quick else _LENGTHS
        self._calls = [*_call_steps(site, at, self._lengths)]
        self._programs = [
            _probe_step(site, at, probe) for probe in probes if probe.is_quick or not quick
        ]

    @property
    def steps(self) -> Sequence[TimedStep]:
        return [*self._calls, *self._programs]

    def conclude(self, times: Sequence[Time], result: _Result) -> None:
        kind, transport = self._at.type, self._site.wiring.transport
        call, dispatch = _calls(self._lengths, [each.seconds for each in times])
        probe_times = times[len(self._calls) :]
        counts = np.array([_counts(self._site, step) for step in self._programs])
        seconds = np.array([each.seconds for each in probe_times])
        # The last column is what a step takes, with the dispatch of its program.
        columns = np.concatenate([counts, np.ones((len(seconds), 1))], axis=1)
        prior_rates = PRIOR.rates_of(kind)
        prior = prior_rates.seconds_per_count
        prior[[Count.CALLS, Count.MESSAGES, Count.SENT_BYTES]] = 0.0
        fit = fit_constants(columns, seconds, np.append(prior, PRIOR.step_of(transport)))
        result.rates[kind] = _rates(fit.seconds, call, dispatch, prior_rates)
        if self._at.task == self._site.devices[0].task:
            step = max(float(fit.seconds[-1]) - dispatch, 1e-7)
            result.step_seconds.setdefault(transport, step)
        result.errors[f"{kind} rates, each program predicted from the others"] = fit.median_error
        result.errors[f"{kind} rates, repeated"] = _median_noise(probe_times)
        # Of few programs, each is needed to tell the constants: the others do not predict it.
        error = PRIOR.work_error if self._quick else upper_of(fit.errors)
        result.work_error = max(result.work_error, error)


def _probe_step(site: Site, at: Device, probe: Probe) -> TimedStep:
    arguments = [site.variable(shape, at) for shape in probe.shapes]
    return TimedStep(probe.name, (site.apply(probe.fun, *arguments, at=at),))


def _median_noise(times: Sequence[Time]) -> float:
    return float(np.median([each.noise for each in times]))


def _counts(site: Site, step: TimedStep) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Returns the sum over the programs of a step: f64[counts]."""
    programs = site.compiled(step).programs.values()
    total = sum(count_program(program.jaxpr.jaxpr) for program in programs)
    return np.asarray(total)


def _rates(seconds: np.ndarray[Any, Any], call: float, dispatch: float, prior: Rates) -> Rates:
    """Returns fitted rates; what meshes take is measured apart, and as in the prior until then."""

    def rate(count: Count) -> float:
        return float(1 / seconds[count])

    return Rates(
        flops=rate(Count.FLOPS),
        convolutions=rate(Count.CONVOLUTIONS),
        elements=rate(Count.ELEMENTS),
        transcendentals=rate(Count.TRANSCENDENTALS),
        near_bandwidth=rate(Count.NEAR_BYTES),
        far_bandwidth=rate(Count.FAR_BYTES),
        kernel=float(seconds[Count.KERNELS]),
        reduction=float(seconds[Count.REDUCTIONS]),
        iteration=float(seconds[Count.ITERATIONS]),
        call=call,
        dispatch=dispatch,
        mesh_dispatch=prior.mesh_dispatch,
        message=prior.message,
        sent_bandwidth=prior.sent_bandwidth,
    )


def _call_steps(site: Site, at: Device, lengths: Sequence[int]) -> Iterator[TimedStep]:
    """Returns chains of host calls, without and with programs between them."""
    for has_programs in (False, True):
        for length in lengths:
            x = site.apply(_first, site.variable((1,), at), at=at)
            for _ in range(length):
                x = site.as_text_and_back(x, at)
                if has_programs:
                    x = site.apply(_next, x, at=at)
            yield TimedStep(f"{length} calls", (x,))


def _calls(lengths: Sequence[int], times: Sequence[float]) -> tuple[float, float]:
    """Returns seconds of a host call, and of a program between two; from `_call_steps`."""
    n = len(lengths)
    alone, both = slope_of(lengths, times[:n]), slope_of(lengths, times[n : 2 * n])
    return max(alone / 2, 1e-7), max(both - alone, 1e-6)


def _pairs(site: Site) -> dict[str, tuple[Device, Device]]:
    """Two devices for each class of links."""
    pairs: dict[str, tuple[Device, Device]] = {}
    for source, target in permutations(site.devices, 2):
        pairs.setdefault(site.wiring.link_class(source.task, target.task), (source, target))
    return pairs


class _Links:
    """Measures the links of a class, by steps of two devices."""

    def __init__(self, site: Site, name: str, source: Device, target: Device, quick: bool) -> None:
        self._site, self._name = site, name
        self._between_tasks = source.task != target.task
        self._exchanges = [each for each in EXCHANGES if each.is_quick or not quick]
        self.steps = [exchange_step(site, each, source, target) for each in self._exchanges]

    def conclude(self, times: Sequence[Time], result: _Result) -> None:
        name, wiring = self._name, self._site.wiring
        base = Calibration(result.rates, {}, result.step_seconds)
        regions = [region_problem(self._site.compiled(step), base, wiring) for step in self.steps]
        seconds = [each.seconds for each in times]
        fit = fit_link(name, self._exchanges, regions, seconds, base, wiring)
        result.links[name] = fit.link
        result.work_error = max(result.work_error, fit.work_error)
        result.message_error = max(result.message_error, upper_of(fit.errors))
        if self._between_tasks:
            result.task_seconds.setdefault(wiring.transport, fit.task_seconds)
        result.errors[f"link {name}, each kind of step predicted from the others"] = (
            fit.median_error
        )
        result.errors[f"link {name}, the kind of step predicted worst"] = fit.worst_error
        result.errors[f"link {name}, repeated"] = _median_noise(times)


def _sent(site: Site, source: Device, target: Device, n_bytes: int) -> Tensor:
    return site.apply(_first, site.variable((n_bytes // 4,), source), at=target)


def _group(site: Site) -> tuple[Device, Device, Device] | None:
    """Three devices of different tasks, the first pairs of one class; None if there are fewer."""
    firsts = {device.task: device for device in reversed(site.devices)}
    for a, b, c in permutations([firsts[task] for task in sorted(firsts)], 3):
        link = site.wiring.link_class
        if link(a.task, b.task) == link(a.task, c.task) == link(b.task, c.task):
            return a, b, c
    return None


class _Ports:
    """How much transfers of three tasks slow each other, and hide behind computing."""

    def __init__(self, site: Site, group: tuple[Device, Device, Device], quick: bool) -> None:
        a, b, c = group
        size, small = (_PORT_BYTES // 4 if quick else _PORT_BYTES), 4
        self.steps = [
            _two_transfers(site, first, second, sizes)
            for first, second in (((a, b), (a, c)), ((b, a), (c, a)), ((a, b), (c, a)))
            for sizes in ((small, small), (size, small), (small, size), (size, size))
        ]
        self.steps += _overlapping(site, a, b, size)

    def conclude(self, times: Sequence[Time], result: _Result) -> None:
        seconds = [each.seconds for each in times]
        out, into, both_ways = (_port_share(seconds[i : i + 4]) for i in (0, 4, 8))
        result.port_share = float(np.mean([out, into]))
        result.errors["port_share, out of a task against into a task"] = abs(out - into)
        result.duplex_share = both_ways
        result.overlap = _overlap(seconds[12:])


def _two_transfers(
    site: Site, first: tuple[Device, Device], second: tuple[Device, Device], sizes: tuple[int, int]
) -> TimedStep:
    fetched = tuple(
        _sent(site, *pair, n_bytes) for pair, n_bytes in zip((first, second), sizes, strict=True)
    )
    return TimedStep("two transfers", fetched)


def _port_share(times: Sequence[float]) -> float:
    """Returns the fraction of a transfer for which another one waits.

    Args:
      times: of two small transfers, of the first one large, of the second one, of both.
    """
    neither, first, second, both = times
    shorter = max(min(first, second) - neither, 1e-9)
    waited = both - max(first, second)
    return float(np.clip(waited / shorter, 0.0, 1.0))


def _overlapping(site: Site, a: Device, b: Device, size: int) -> list[TimedStep]:
    """Steps with neither, with a transfer, with a computation, and with both."""
    small = _sent(site, a, b, 4)
    large = _sent(site, a, b, size)
    x = site.variable((512, 512), b)
    computed = site.apply(_computed, x, at=b)
    little = site.apply(_first, site.variable((4,), b), at=b)
    pairs = ((small, little), (large, little), (small, computed), (large, computed))
    return [TimedStep("overlap", pair) for pair in pairs]


def _overlap(times: Sequence[float]) -> float:
    """Returns how much of the shorter of a transfer and a computation the other one hides."""
    neither, sent, computed, both = times
    shorter = max(min(sent, computed) - neither, 1e-9)
    return float(np.clip((sent + computed - neither - both) / shorter, 0.0, 1.0))


def _first(x: Any) -> Any:
    return x.ravel()[0]


def _next(x: Any) -> Any:
    return x + 1.0


def _computed(x: Any) -> Any:
    for _ in range(4):
        x = x @ x * 1e-3
    return x[0, 0]

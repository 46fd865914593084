"""Steps in which two devices compute and send, and the link that explains what they take.

A message is not the same cost everywhere: after a program of some milliseconds the caches of a
processor hold nothing of the code that sends, a receiver that has waited must be woken, and what is
sent competes with what is computed. So the constants of a link are not read off messages alone.
They are those with which the model, as it predicts steps (`region_problem`, `StageTimes`),
explains a set of small steps best: programs of some milliseconds with messages of several numbers
and sizes between them. What they leave unexplained is the error of the model.

Some of these steps compute next to nothing. Between long programs, what a second task adds to a
step cannot be told from programs that take longer there; these steps tell it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.optimize import least_squares

from jflow.base.cluster import Device, Wiring
from jflow.base.handles import Closing
from jflow.compiler.graph import Tensor
from jflow.compiler.placement.calibration import Calibration, Link
from jflow.compiler.schedule import Problem, Schedule
from jflow.compiler.schedule.stages import StageTimes
from jflow.lab.calibration.fit import MOST, PULL, Vector, median_of
from jflow.lab.calibration.site import Site, TimedStep

_PRODUCTS = 12
"""Of matrices of 256 by 256, in each program that computes for some milliseconds."""

_EVALUATIONS, _FEW_EVALUATIONS = 20, 8
"""Of the model, at most: in a fit, and in one that begins at the result of another one."""


class Pattern(StrEnum):
    """The order in which the two devices of a probe compute and send."""

    NOTHING = "nothing"
    """The first one computes alone."""

    AWAY = "away"
    """The second one computes alone."""

    THERE = "there"
    """The first one sends its results to the second one, which computes with them."""

    BACK = "back"
    """The second one also sends its own results back."""

    SWAP = "swap"
    """Both compute, send each other their results, and compute with what they received."""

    BESIDE = "beside"
    """The first one sends, and computes something else."""


@dataclass(frozen=True)
class LinkProbe:
    """What two devices send each other, between programs of some milliseconds.

    Attributes:
      pattern: what they do.
      number: of messages at once.
      n_bytes: of each message.
      products: of matrices in each program that computes; 0 for one that takes microseconds.
      is_quick: whether `jflow calibrate --quick` runs it.
    """

    pattern: Pattern
    number: int = 0
    n_bytes: int = 0
    products: int = _PRODUCTS
    is_quick: bool = False

    @property
    def kind(self) -> tuple[Pattern, bool]:
        """What the probe shares with others: its pattern, and whether it computes for long."""
        return self.pattern, self.products > 0

    def __str__(self) -> str:
        programs = "" if self.products else ", short programs"
        return f"{self.number} x {self.n_bytes} {self.pattern}{programs}"


_QUICK = ((1, 1 << 12), (4, 1 << 20))

EXCHANGES: tuple[LinkProbe, ...] = (
    LinkProbe(Pattern.NOTHING, is_quick=True),
    LinkProbe(Pattern.AWAY, is_quick=True),
    LinkProbe(Pattern.AWAY, products=0, is_quick=True),
    *(
        LinkProbe(pattern, *sizes, is_quick=sizes in _QUICK and pattern is not Pattern.BACK)
        for pattern in (Pattern.THERE, Pattern.BACK, Pattern.SWAP, Pattern.BESIDE)
        for sizes in ((1, 1 << 12), (1, 1 << 20), (4, 1 << 17), (12, 1 << 14), (4, 1 << 20))
    ),
    LinkProbe(Pattern.THERE, 1, 1 << 23),
    *(
        LinkProbe(pattern, *sizes, products=0, is_quick=sizes[0] == 1 and pattern is Pattern.THERE)
        for pattern in (Pattern.THERE, Pattern.BACK)
        for sizes in ((1, 1 << 12), (4, 1 << 17), (12, 1 << 14))
    ),
)


@dataclass(frozen=True)
class LinkFit:
    """The result of fitting a link.

    Attributes:
      link: what transfers over it take.
      task_seconds: what a second task adds to a step.
      work_error: how far off the estimates of all programs of these steps are together.
      errors: the relative error of the prediction of each step of two tasks, by constants that
        were fitted without the steps of its kind.
      worst_error: the median of those of the kind that is predicted worst.
    """

    link: Link
    task_seconds: float
    work_error: float
    errors: Vector
    worst_error: float

    @property
    def median_error(self) -> float:
        """The median of the errors."""
        return median_of(self.errors)


def reference_step(site: Site, device: Device) -> TimedStep:
    """Returns a step of some milliseconds of a device that needs no other one."""
    return exchange_step(site, LinkProbe(Pattern.NOTHING), device, device)


def exchange_step(site: Site, exchange: LinkProbe, source: Device, target: Device) -> TimedStep:
    """Returns the step of an exchange between two devices."""
    at = {device: site.variable((256, 256), device) for device in (source, target)}
    produce, consume = _producer(exchange), _used(exchange)

    def given(device: Device, *values: Tensor) -> list[Tensor]:
        return [*site.apply_all(produce, at[device], *values, at=device)]

    def used(device: Device, *values: Tensor) -> Tensor:
        return site.apply(consume, at[device], *values, at=device)

    fetched: tuple[Tensor, ...]
    match exchange.pattern:
        case Pattern.AWAY:
            fetched = (used(target),)
        case Pattern.THERE:
            fetched = (used(target, *given(source)),)
        case Pattern.BACK:
            fetched = (used(source, *given(target, *given(source))),)
        case Pattern.SWAP:
            there, back = given(source), given(target)
            fetched = (used(target, *there), used(source, *back))
        case Pattern.BESIDE:
            little = site.apply_all(_copies(exchange), at[source], at=source)
            fetched = (used(target, *little), used(source))
        case _:
            fetched = (used(source),)
    return TimedStep(str(exchange), fetched)


def fit_link(
    name: str,
    exchanges: Sequence[LinkProbe],
    steps: Sequence[tuple[Problem, Schedule]],
    times: Sequence[float],
    base: Calibration,
    wiring: Wiring,
) -> LinkFit:
    """Fits the link with which the model explains the times of exchanges best.

    Args:
      name: the class of the link.
      exchanges: what was run.
      steps: the regions of each step.
      times: of each step, in seconds.
      base: the other constants.
      wiring: how the tasks reach each other.
    """
    model = _Model(name, steps, np.array(times), base, wiring)
    every = np.arange(len(times))
    values = model.fitted(every, model.start)
    errors = []
    for kind in dict.fromkeys(each.kind for each in exchanges):
        if kind[0] is Pattern.NOTHING:
            continue
        out = np.array([each.kind == kind for each in exchanges])
        without = model.fitted(every[~out], values, _FEW_EVALUATIONS)
        predicted = model.predicted(every[out], without)
        errors.append(abs(predicted / model.times[out] - 1))
    link, task, factor = model.constants(values)
    worst = max(map(median_of, errors))
    return LinkFit(link, task, abs(factor - 1), np.concatenate(errors), worst)


class _Model:
    """Predicted step times, as a function of the logarithms of constants.

    The constants are the part of the latency on the way, the overhead, the seconds a byte on the
    way and of a processor, what a second task adds, and a factor for all computing: how fast
    programs are, that are not what is asked here.
    """

    def __init__(
        self,
        name: str,
        steps: Sequence[tuple[Problem, Schedule]],
        times: Vector,
        base: Calibration,
        wiring: Wiring,
    ) -> None:
        self._steps = steps
        self.times = times
        prior = base.link_of(name)
        way = max(prior.latency - 2 * prior.overhead, 1e-6)
        self._prior = np.array(
            [way, max(prior.overhead, 1e-6), 1 / prior.bandwidth, base.task_of(wiring.transport)]
        )
        self.start = np.zeros(6)

    def constants(self, logs: Vector) -> tuple[Link, float, float]:
        """Returns the link, what a second task adds, and the factor for computing."""
        way, overhead, byte_seconds, task = self._prior * np.exp(logs[:4])
        # The part of the time for which processors are busy; it starts at 0.5.
        busy = 1 / (1 + np.exp(-logs[4]))
        link = Link(
            float(way + 2 * overhead), float(1 / byte_seconds), float(overhead), float(busy)
        )
        return link, float(task), float(np.exp(logs[5]))

    def predicted(self, which: Any, logs: Vector) -> Vector:
        """Returns the predicted times of some of the steps: f64[steps]."""
        link, task, factor = self.constants(logs)
        step_times = []
        for number in which:
            problem, schedule = self._steps[number]
            devices = problem.devices
            off = 1.0 - np.eye(len(devices))
            computing = off * [[a.type == b.type == "CPU" for b in devices] for a in devices]
            costs = replace(
                problem.costs,
                seconds=problem.costs.seconds * factor,
                latency=off * link.latency,
                byte_seconds=off / link.bandwidth,
                overhead=computing * link.overhead,
                processor_share=computing * link.processor_share,
                task_seconds=task,
            )
            times = StageTimes(problem._replace(costs=costs))
            step_times.append(times.seconds(schedule.devices) + costs.step_seconds)
        return np.array(step_times)

    def fitted(self, which: Any, begin: Vector, most: int = _EVALUATIONS) -> Vector:
        """The constants that explain some of the steps, as logarithms relative to the prior."""

        def residuals(logs: Vector) -> Vector:
            errors = np.log(self.predicted(which, logs) / self.times[which])
            return np.concatenate([errors, PULL * logs])

        solved = least_squares(
            residuals,
            begin,
            bounds=(-MOST, MOST),
            diff_step=0.02,
            loss="soft_l1",
            f_scale=0.2,
            max_nfev=most,
        )
        values: Vector = solved.x
        return values


def _producer(exchange: LinkProbe) -> Any:
    copies = _copies(exchange)

    def fun(x: Any, *values: Any) -> list[Any]:
        copied: list[Any] = copies(_computed(x, values, exchange.products))
        return copied

    return fun


def _copies(exchange: LinkProbe) -> Any:
    def fun(x: Any) -> list[Any]:
        shape = (exchange.n_bytes // 4,)
        return [jnp.full(shape, x[0, 0]) + i for i in range(exchange.number)]

    return fun


def _used(exchange: LinkProbe) -> Any:
    def fun(x: Any, *values: Any) -> Any:
        return _computed(x, values, exchange.products)[0, 0]

    return fun


def _computed(x: Any, values: Sequence[Any], products: int) -> Any:
    y = x + sum((value[0] for value in values), jnp.float32(0)) * 1e-3
    for _ in range(products):
        y = y @ x * 1e-2
    return y


class Reference(Closing):
    """The reference program on the first device of a target. Ends with its `with` block.

    What it takes over `Calibration.reference_seconds` is how much slower the machine is by now:
    processors that are shared with other machines change their speed within minutes.

    Args:
      target: "grpc://host:port", or "" for this process. Its other sessions must have ended when
        the block ends: the variables of the program are freed.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self._site = Site(target, time.perf_counter)
        step = reference_step(self._site, self._site.devices[0])
        self._site.initialize()
        self._call = self._site.callable(step)

    def run_step(self) -> None:
        """Runs it once."""
        self._call()

    def _leave(self, failed: bool) -> None:
        self._site.__exit__(None, None, None)

    def __repr__(self) -> str:
        return f"<Reference of {self._target or 'this process'}>"

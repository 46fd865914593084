"""Runs workloads under placement strategies on real processes, and times their steps.

Each device is a task in a process of its own, pinned to a core where there are enough; all devices
of one process together are no faster than one. Strategies take turns, so that what else the machine
does hits them alike.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Self

import jflow as tf
from jflow.calibration import calibrate
from jflow.closing import Closing
from jflow.lab.fused import FusedProcess
from jflow.lab.workloads import Workload, WorkloadStep
from jflow.launch import LocalCluster
from jflow.placement.calibration import Calibration
from jflow.placement.named import RULES
from jflow.placement.scheduled import ByFunction
from jflow.runtime.calibration_file import VARIABLE, write_calibration
from jflow.runtime.steps import named_strategy
from jflow.schedule import (
    PlaceFunction,
    Problem,
    Schedule,
    scheduled,
    simulate,
)
from jflow.schedule.problem import classes_of
from jflow.schedule.schedule import name_of
from jflow.schedule.stages import simulate_stages

ROUNDS = 7
"""How many times each placement is timed by default."""

TOLERANCE = 1e-5
"""The relative difference to the loss of a single device that rounding explains."""

SINGLE = "single"
"""The strategy that uses one device. Its variables are there, too."""

FUSED = "fused"
"""The name of the step as one program, without a runtime."""

_ROUND_S = 0.05
"""A round of one placement runs as many steps as take about this long."""


@dataclass(frozen=True)
class Measurement:
    """A placement as it was predicted and as it ran.

    Attributes:
      placement: the name of the strategy.
      times: the mean time of a step in each round, in seconds.
      predicted: by the simulator, in seconds.
      staged: the same for the stages that the runtime makes of the placement.
      error: the largest relative difference of its losses to those of a single device.
      n_devices_used: how many devices have operations.
      placing: seconds that the strategy took; NaN for the rules.
    """

    placement: str
    times: tuple[float, ...]
    predicted: float
    staged: float
    error: float
    n_devices_used: int
    placing: float

    @property
    def minimum(self) -> float:
        """The time of the fastest round."""
        return min(self.times)

    @property
    def median(self) -> float:
        """The median time of a round."""
        return median(self.times)

    @property
    def noise(self) -> float:
        """The median distance of a round from the median round, relative to it."""
        return median(abs(each - self.median) for each in self.times) / self.median

    @property
    def is_correct(self) -> bool:
        """Whether it computed what a single device computes, but for rounding."""
        return self.error <= TOLERANCE


@dataclass(frozen=True)
class CheckedAlternative:
    """A prediction of `explain`, and the step that it predicts, run.

    Attributes:
      operation: the operation that was moved, with all that is colocated with it.
      device: where to.
      is_chosen: whether that is where the strategy had put it.
      predicted: seconds by the simulator.
      staged: the same for the stages that the runtime makes.
      times: the mean time of a step in each round, in seconds.
    """

    operation: str
    device: str
    is_chosen: bool
    predicted: float
    staged: float
    times: tuple[float, ...]


class RecordedStrategy:
    """A strategy, what it was given last, and what it answered.

    Args:
      placement: the name of a strategy, or a function.

    Attributes:
      name: how tables call it.
      strategy: the same strategy, which records; the rules are no function and do not.
      seconds: that its last answer took; NaN for the rules.
      predicted: seconds of the step by the simulator, for the operations and for the stages of its
        last answer; NaN for the rules until `complete`.
      n_devices: how many devices its last answer uses.

    Raises:
      InvalidArgumentError: if there is no strategy of this name.
    """

    def __init__(self, placement: str | PlaceFunction) -> None:
        found = named_strategy(placement)
        self._place = found.function if isinstance(found, ByFunction) else None
        self.name = RULES if self._place is None else name_of(self._place)
        self.strategy: str | PlaceFunction = RULES if self._place is None else self._record
        self.seconds = math.nan
        self.predicted = math.nan, math.nan
        self.n_devices = 0
        self._answered: tuple[Problem, Schedule] | None = None

    def _record(self, *parts: Any) -> Schedule:
        assert self._place is not None
        problem = Problem(*parts)
        begun = time.perf_counter()
        schedule = scheduled(problem, self._place)
        self.seconds = time.perf_counter() - begun
        self._answered = problem, schedule
        self.n_devices = len({*schedule.devices})
        return schedule

    def answered(self) -> tuple[Problem, Schedule]:
        """The last problem, and the schedule of it. Raises ValueError if there is none."""
        if self._answered is None:
            raise ValueError(f"the placement {self.name!r} has chosen among no alternatives")
        return self._answered

    def complete(self, step: WorkloadStep, session: tf.Session) -> None:
        """Predicts the training step that the strategy has placed last, in a session."""
        if self._answered is not None:
            self.predicted = _predicted(*self._answered)
            return
        explanation = session.explain(step.train)
        self.predicted = _predicted(explanation.problem, explanation.schedule)
        self.n_devices = len({*explanation.schedule.devices})


class MeasuringCluster(Closing):
    """A cluster of processes for measurements. Ends with its `with` block.

    Args:
      n_devices: how many processes, each with one CPU device.
      is_pinned: whether each process has one core: of its own if there are enough, else in turns.
    """

    def __init__(self, n_devices: int, *, is_pinned: bool = True) -> None:
        self.n_devices = n_devices
        self._cores = cores_for(n_devices) if is_pinned else None
        self._cluster = LocalCluster(ps=0, workers=n_devices, cores=self._cores)

    @property
    def devices(self) -> list[str]:
        """The names of the devices."""
        return [f"/job:worker/task:{i}/device:CPU:0" for i in range(self.n_devices)]

    @property
    def has_own_cores(self) -> bool:
        """Whether each process has a core that no other one is pinned to."""
        return self._cores is not None and len({*self._cores}) == self.n_devices

    def pid(self, index: int) -> int:
        """The process id of a task."""
        return self._cluster.pid("worker", index)

    @contextmanager
    def calibrated(self) -> Iterator[Calibration]:
        """A block whose sessions estimate costs by what this cluster does, measured at the start.

        It is the calibration of the process meanwhile: JFLOW_CALIBRATION names its file.
        """
        found = calibrate(self._cluster.target("worker", 0), quick=True)
        before = os.environ.get(VARIABLE)
        with TemporaryDirectory() as folder:
            path = Path(folder) / "calibration.json"
            write_calibration(found, path)
            os.environ[VARIABLE] = str(path)
            try:
                yield found
            finally:
                if before is None:
                    del os.environ[VARIABLE]
                else:
                    os.environ[VARIABLE] = before

    def session(self, step: WorkloadStep, placement: str | PlaceFunction) -> tf.Session:
        """A session on the first task."""
        config = tf.ConfigProto(placement=placement)
        return tf.Session(self._cluster.target("worker", 0), graph=step.graph, config=config)

    def measure(
        self,
        workload: Workload[Any],
        scale: Any,
        placements: Sequence[str | PlaceFunction],
        *,
        rounds: int = ROUNDS,
        is_spread: bool = True,
        with_fused: bool = False,
    ) -> dict[str, Measurement]:
        """Times a step of a workload under several placements, in turns.

        Args:
          workload: what to run.
          scale: its size or the name of one.
          placements: names of strategies, or functions.
          rounds: how many times each of them runs.
          is_spread: whether the variables are distributed over the devices, as the workload
            divides them, except for the strategy "single"; if not, they are where the placement
            rules put them.
          with_fused: whether one program of `jax.jit` takes turns with them, in a process that is
            pinned to a core; its name is `FUSED`. The scale must be the name of one.

        Returns:
          A measurement for each placement, by its name.
        """
        alone = workload.build(scale)
        spread = workload.build(scale, self.devices) if is_spread else alone
        wanted = single_device_losses(alone)
        recorded = [RecordedStrategy(placement) for placement in placements]
        steps = [alone if each.name == SINGLE else spread for each in recorded]
        with self._sessions(steps, [each.strategy for each in recorded]) as sessions:
            errors = []
            for step, session in zip(steps, sessions, strict=True):
                self.initialize(step)
                errors.append(_difference(step.losses(session), wanted))
            runs = [
                partial(session.run, step.train)
                for step, session in zip(steps, sessions, strict=True)
            ]
            fused = FusedProcess(workload.name, scale, cores_for(1)[0]) if with_fused else None
            with fused or nullcontext():
                times = alternated([*runs, *([fused.run] if fused else [])], rounds)
            for each, step, session in zip(recorded, steps, sessions, strict=True):
                each.complete(step, session)
        found = {
            each.name: Measurement(
                each.name, taken, *each.predicted, error, each.n_devices, each.seconds
            )
            for each, taken, error in zip(recorded, times, errors, strict=False)
        }
        if with_fused:
            found[FUSED] = Measurement(FUSED, times[-1], math.nan, math.nan, 0.0, 1, math.nan)
        return found

    def check_alternatives(
        self,
        workload: Workload[Any],
        scale: Any,
        placement: str | PlaceFunction = "auto",
        *,
        n_operations: int = 3,
        rounds: int = ROUNDS,
        seed: int = 0,
    ) -> list[CheckedAlternative]:
        """Moves operations to each device that they may go to, and times the step.

        Args:
          workload, scale, rounds: as for `measure`.
          placement: a strategy that is a function of a problem.
          n_operations: how many operations to move, each by itself.
          seed: chooses them.

        Returns:
          What `explain` predicts for the alternatives of these operations, and what they took. The
          chosen device of each operation is among them.
        """
        step = workload.build(scale, self.devices)
        recorded = RecordedStrategy(placement)
        with self.session(step, recorded.strategy) as session:
            session.placement(step.train)
        problem, schedule = recorded.answered()
        moves = _moves(problem, schedule, n_operations, seed)
        every = [_always(move.schedule) for move in moves]
        with self._sessions([step] * len(moves), every) as sessions:
            self.initialize(step)
            times = alternated([partial(session.run, step.train) for session in sessions], rounds)
        return [
            CheckedAlternative(
                getattr(problem.graph.operations[move.operation], "name", ""),
                str(problem.devices[move.device]),
                move.device == schedule.devices[move.operation],
                *_predicted(problem, move.schedule),
                taken,
            )
            for move, taken in zip(moves, times, strict=True)
        ]

    def initialize(self, step: WorkloadStep) -> None:
        """Sets the variables of a step to their initial values."""
        with self.session(step, RULES) as session:
            session.run(step.initialize)

    @contextmanager
    def _sessions(
        self, steps: Sequence[WorkloadStep], placements: Sequence[str | PlaceFunction]
    ) -> Iterator[list[tf.Session]]:
        """A session for each step and placement; at the end all variables and queues are freed."""
        with ExitStack() as stack:
            stack.callback(tf.Session.reset, self._cluster.target("worker", 0))
            yield [
                stack.enter_context(self.session(step, each))
                for step, each in zip(steps, placements, strict=True)
            ]

    def _leave(self, failed: bool) -> None:
        self._cluster.stop()

    def __enter__(self) -> Self:
        return self


def measure(
    workload: Workload[Any],
    scale: Any,
    placement: str | PlaceFunction,
    n_devices: int,
    rounds: int = ROUNDS,
) -> Measurement:
    """Times a step of a workload under one placement, on a cluster of its own.

    Arguments as for `MeasuringCluster.measure`, which compares several.
    """
    with MeasuringCluster(n_devices) as cluster:
        (measured,) = cluster.measure(workload, scale, [placement], rounds=rounds).values()
        return measured


def cores_for(n_devices: int) -> list[int]:
    """The core of each process: one of its own if there are enough, else in turns."""
    available = sorted(os.sched_getaffinity(0))
    return [available[i % len(available)] for i in range(n_devices)]


def single_device_losses(step: WorkloadStep, n_steps: int = 3) -> list[float]:
    """The losses of the first steps on one device of this process."""
    config = tf.ConfigProto(placement=SINGLE)
    with tf.Session(graph=step.graph, config=config) as session:
        session.run(step.initialize)
        return step.losses(session, n_steps)


def alternated(runs: Sequence[Callable[[], object]], rounds: int) -> list[tuple[float, ...]]:
    """Times functions in turns.

    Args:
      runs: functions without arguments. Each is called a few times before, uncounted.
      rounds: how many turns each has.

    Returns:
      For each function the mean time of a call in each of its turns, in seconds.
    """
    repeats = [max(1, round(_ROUND_S / _warm_time(run))) for run in runs]
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, repeat, found in zip(runs, repeats, times, strict=True):
            begun = time.perf_counter()
            for _ in range(repeat):
                run()
            found.append((time.perf_counter() - begun) / repeat)
    return [tuple(found) for found in times]


def _warm_time(run: Callable[[], object]) -> float:
    taken = []
    for _ in range(3):
        begun = time.perf_counter()
        run()
        taken.append(time.perf_counter() - begun)
    return min(taken)


def _difference(found: Sequence[float], wanted: Sequence[float]) -> float:
    return max(abs(a - b) / max(abs(b), 1e-30) for a, b in zip(found, wanted, strict=True))


def _predicted(problem: Problem, schedule: Schedule) -> tuple[float, float]:
    return (
        simulate(problem, schedule).makespan,
        simulate_stages(problem, schedule).makespan,
    )


@dataclass(frozen=True)
class _Move:
    """A schedule in which one operation, and what is colocated with it, is on a device."""

    operation: int
    device: int
    schedule: Schedule


def _moves(problem: Problem, schedule: Schedule, n: int, seed: int) -> list[_Move]:
    classes, every = classes_of(problem), tuple(range(len(problem.devices)))
    options: Mapping[int, tuple[int, ...]] = {
        i: allowed
        for i, number in enumerate(classes)
        if len(allowed := problem.constraints.allowed.get(number, every)) > 1
    }
    chosen = random.Random(seed).sample(sorted(options), min(n, len(options)))
    found = []
    for operation in chosen:
        for device in options[operation]:
            devices = tuple(
                device if number == classes[operation] else at
                for number, at in zip(classes, schedule.devices, strict=True)
            )
            found.append(_Move(operation, device, Schedule(devices, schedule.order)))
    return found


def _always(schedule: Schedule) -> PlaceFunction:
    """The strategy that gives a schedule of the same operations on the same devices."""

    def given(*_: Any) -> Schedule:
        return schedule

    return given

"""Runs workloads under placement strategies on real processes, and times their steps.

Each device is a task in a process of its own, pinned to a core where there are enough; all devices
of one process together are no faster than one. Strategies take turns, so that what else the machine
does hits them alike. Each of them has variables in a container of its own, and chooses their
devices too, unless the workload pins them: then they are pinned for all strategies.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import jflow as tf
from jflow.base.cluster import MESH, Device, Task
from jflow.base.handles import Closing
from jflow.client.runtime.calibration_file import VARIABLE, write_calibration
from jflow.client.runtime.steps import named_strategy
from jflow.compiler.placement.calibration import Calibration
from jflow.compiler.placement.explain import Explanation
from jflow.compiler.placement.named import RULES
from jflow.compiler.placement.scheduled import ByFunction
from jflow.compiler.schedule import (
    PlaceFunction,
    Problem,
    Schedule,
    predicted_seconds,
    scheduled,
    simulate,
)
from jflow.compiler.schedule.schedule import name_of
from jflow.lab.calibration import Reference, calibrate
from jflow.lab.calibration.site import alternated
from jflow.lab.fused import FusedProcess
from jflow.lab.moved import moved_operations, pinned_as
from jflow.lab.workloads import Workload, WorkloadStep
from jflow.launch import LocalCluster, TaskResources

ROUNDS = 7
"""How many times each placement is timed by default."""

TOLERANCE = 1e-5
"""The relative difference to the loss of a single device that rounding explains."""

SINGLE = "single"
"""The strategy that uses one device, as far as pins let it."""

FUSED = "fused"
"""The name of the step as one program, without a runtime."""


@dataclass(frozen=True)
class Measurement:
    """A placement as it was predicted and as it ran.

    Attributes:
      placement: the name of the strategy.
      times: the mean time of a step in each round, in seconds.
      predicted: by the simulator for single operations, in seconds.
      staged: as `explain` predicts it: in the stages that the runtime makes of the placement, with
        what messages take of processors.
      error: the largest relative difference of its losses to those of a single device.
      n_devices_used: how many devices have operations.
      placing: seconds that the strategy took; NaN for the rules.
      slowdown: what the reference program took in the same turns, over what it took when the
        cluster was calibrated: how much slower the machine is now; 1 if it was not calibrated.
    """

    placement: str
    times: tuple[float, ...]
    predicted: float
    staged: float
    error: float
    n_devices_used: int
    placing: float
    slowdown: float = 1.0

    @property
    def minimum(self) -> float:
        """The time of the fastest round in seconds."""
        return min(self.times)

    @property
    def median(self) -> float:
        """The median time of a round in seconds."""
        return median(self.times)

    @property
    def noise(self) -> float:
        """The median relative deviation of a round from the median round."""
        return median(abs(each - self.median) for each in self.times) / self.median

    @property
    def is_correct(self) -> bool:
        """Whether the results equal those of a single device, up to rounding."""
        return self.error <= TOLERANCE


@dataclass(frozen=True)
class CheckedAlternative:
    """A prediction of `explain`, and the step that it predicts, run.

    Attributes:
      operation: the operation that was moved, with all that is colocated with it.
      device: where to.
      is_chosen: whether that is where the strategy had put it.
      predicted, staged: as of a `Measurement`.
      times: the mean time of a step in each round, in seconds.
      slowdown: as of a `Measurement`.
    """

    operation: str
    device: str
    is_chosen: bool
    predicted: float
    staged: float
    times: tuple[float, ...]
    slowdown: float


class RecordedStrategy:
    """A strategy that also places state, and records its first result.

    Where it is asked about the same operations again, once their state is somewhere, it gives the
    same schedule.

    Args:
      placement: the name of a strategy, or a function.

    Attributes:
      name: how tables call it.
      strategy: what sessions take as their placement.
      seconds: that its first answer took; NaN for the rules.

    Raises:
      InvalidArgumentError: if there is no strategy of this name.
    """

    def __init__(self, placement: str | PlaceFunction) -> None:
        strategy = named_strategy(placement)
        self.name = RULES
        self.strategy: str | ByFunction = RULES
        if isinstance(strategy, ByFunction):
            self._place = strategy.function
            self.name = name_of(self._place)
            self.strategy = replace(strategy, function=self.place, places_state=True)
        self.seconds = math.nan
        self._answers: dict[tuple[Hashable, ...], tuple[Problem, Schedule]] = {}

    def place(self, *parts: Any) -> Schedule:
        """Returns the schedule of a problem, given by its parts."""
        problem = Problem(*parts)
        names = tuple(getattr(each, "name", each) for each in problem.graph.operations)
        if names not in self._answers:
            start = time.perf_counter()
            schedule = scheduled(problem, self._place)
            if not self._answers:
                self.seconds = time.perf_counter() - start
            self._answers[names] = problem, schedule
        return self._answers[names][1]

    def answered(self) -> tuple[Problem, Schedule]:
        """Returns the first problem and its schedule. Raises ValueError if there is none."""
        for answer in self._answers.values():
            return answer
        raise ValueError(f"the placement {self.name!r} has chosen among no alternatives")


class MeasuringCluster(Closing):
    """A cluster of processes for measurements. Ends with its `with` block.

    Args:
      n_devices: how many processes, each with one CPU device, or one mesh of several.
      is_pinned: whether each process has one core: of its own if there are enough, else in turns.
      mesh: the sizes of the axes of a mesh of CPU devices, by name; None for one device.
    """

    def __init__(
        self, n_devices: int, *, is_pinned: bool = True, mesh: Mapping[str, int] | None = None
    ) -> None:
        self.n_devices = n_devices
        self._axes = tuple((mesh or {}).items())
        self._cores = cores_for(n_devices) if is_pinned else None
        resources = TaskResources(cpu_devices=math.prod((mesh or {}).values()))
        self._cluster = LocalCluster(
            ps=0, workers=n_devices, cores=self._cores, resources=resources
        )
        self._calibration: Calibration | None = None

    @property
    def devices(self) -> list[str]:
        """The names of the devices, or meshes."""
        kind = MESH if self._axes else "CPU"
        tasks = [Task("worker", i) for i in range(self.n_devices)]
        return [str(Device(task, kind, 0, self._axes)) for task in tasks]

    def pid(self, index: int) -> int:
        """Returns the process id of a task."""
        return self._cluster.pid("worker", index)

    @contextmanager
    def calibrated(self, *, quick: bool = True) -> Iterator[Calibration]:
        """A block whose sessions estimate costs by what this cluster does, measured at the start.

        That takes seconds, or a minute if it is not to be quick. It is the calibration of the
        process meanwhile: JFLOW_CALIBRATION names its file.
        """
        calibration = calibrate(self._cluster.target("worker", 0), quick=quick)
        before = os.environ.get(VARIABLE)
        with TemporaryDirectory() as folder:
            path = Path(folder) / "calibration.json"
            write_calibration(calibration, path)
            os.environ[VARIABLE] = str(path)
            self._calibration = calibration
            try:
                yield calibration
            finally:
                self._calibration = None
                if before is None:
                    del os.environ[VARIABLE]
                else:
                    os.environ[VARIABLE] = before

    def session(
        self, step: WorkloadStep, placement: str | PlaceFunction | ByFunction
    ) -> tf.Session:
        """Returns a session on the first task."""
        config = tf.ConfigProto(placement=placement)
        return tf.Session(self._cluster.target("worker", 0), graph=step.graph, config=config)

    def measure(
        self,
        workload: Workload[Any],
        scale: Any,
        placements: Sequence[str | PlaceFunction],
        *,
        rounds: int = ROUNDS,
        is_spread: bool = False,
        with_fused: bool = False,
    ) -> dict[str, Measurement]:
        """Times a step of a workload under several placements, in turns.

        Args:
          workload: what to run.
          scale: its size or the name of one.
          placements: names of strategies, or functions.
          rounds: how many times each of them runs.
          is_spread: whether the variables are pinned to all devices, as the workload divides
            them; if not, strategies place them, and the rules put them where they put all state.
          with_fused: whether one program of `jax.jit` takes turns with them, in a process that is
            pinned to a core; its name is `FUSED`. The scale must be the name of one.

        Returns:
          A measurement for each placement, by its name.
        """
        wanted = single_device_losses(workload.build(scale))
        pins = self.devices if is_spread else []
        recorded = [RecordedStrategy(placement) for placement in placements]
        steps = [workload.build(scale, pins, _container(i)) for i in range(len(recorded))]
        strategies = [each.strategy for each in recorded]
        with self._reference() as reference, self._sessions(steps, strategies) as opened:
            errors = [_difference(step.losses(session), wanted) for step, session in opened]
            runs = [partial(session.run, step.train) for step, session in opened]
            fused = FusedProcess(workload.name, scale, cores_for(1)[0]) if with_fused else None
            with fused or nullcontext():
                others: list[Callable[[], object]] = [fused.run_step] if fused else []
                times, slowdown = self._times([*runs, *others], rounds, reference)
            explained = [session.explain(step.train) for step, session in opened]
        measurements = {
            each.name: _measurement(each, seconds, explanation, error, slowdown)
            for each, seconds, error, explanation in zip(
                recorded, times, errors, explained, strict=False
            )
        }
        if with_fused:
            measurements[FUSED] = Measurement(
                FUSED, times[-1], math.nan, math.nan, 0.0, 1, math.nan
            )
        return measurements

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
        step = workload.build(scale)
        recorded = RecordedStrategy(placement)
        with self.session(step, recorded.strategy) as session:
            session.placement(step.train)
        problem, schedule = recorded.answered()
        moves = moved_operations(problem, schedule, n_operations, seed)
        steps = [workload.build(scale, (), _container(i)) for i in range(len(moves))]
        every = [ByFunction(pinned_as(problem, move.schedule), places_state=True) for move in moves]
        with self._reference() as reference, self._sessions(steps, every) as opened:
            runs = [partial(session.run, step.train) for step, session in opened]
            times, slowdown = self._times(runs, rounds, reference)
        return [
            CheckedAlternative(
                getattr(problem.graph.operations[move.operation], "name", ""),
                str(problem.devices[move.device]),
                move.device == schedule.devices[move.operation],
                *_predicted(problem, move.schedule),
                seconds,
                slowdown,
            )
            for move, seconds in zip(moves, times, strict=True)
        ]

    @contextmanager
    def _sessions(
        self, steps: Sequence[WorkloadStep], placements: Sequence[str | ByFunction]
    ) -> Iterator[list[tuple[WorkloadStep, tf.Session]]]:
        """Each step with a session under its placement, and state where the training step has it.

        Steps have containers of their own. At the end these are freed.
        """
        with ExitStack() as stack:
            containers = [_container(i) for i in range(len(steps))]
            stack.callback(tf.Session.reset, self._cluster.target("worker", 0), containers)
            opened = []
            for step, each in zip(steps, placements, strict=True):
                session = stack.enter_context(self.session(step, each))
                session.placement(step.train)  # the first step decides where state is
                session.run(step.initialize)
                opened.append((step, session))
            yield opened

    def _reference(self) -> AbstractContextManager[Reference | None]:
        """Returns the program that tells the slowdown, if the cluster is calibrated.

        Its block is around those of other sessions, as its end closes them.
        """
        if self._calibration is None or not self._calibration.reference_seconds:
            return nullcontext()
        return Reference(self._cluster.target("worker", 0))

    def _times(
        self, runs: Sequence[Callable[[], object]], rounds: int, reference: Reference | None
    ) -> tuple[list[tuple[float, ...]], float]:
        """Returns times of functions in turns, and the slowdown meanwhile; see `Measurement`."""
        if reference is None or self._calibration is None:
            return alternated(runs, rounds), 1.0
        *times, reference_times = alternated([*runs, reference.run_step], rounds)
        return times, median(reference_times) / self._calibration.reference_seconds

    def _leave(self, failed: bool) -> None:
        self._cluster.stop()


def cores_for(n_devices: int) -> list[int]:
    """Returns the core of each process: one of its own if there are enough, else in turns."""
    available = sorted(os.sched_getaffinity(0))
    return [available[i % len(available)] for i in range(n_devices)]


def single_device_losses(step: WorkloadStep, n_steps: int = 3) -> list[float]:
    """Returns the losses of the first steps on one device of this process."""
    config = tf.ConfigProto(placement=SINGLE)
    with tf.Session(graph=step.graph, config=config) as session:
        session.run(step.initialize)
        return step.losses(session, n_steps)


def _measurement(
    strategy: RecordedStrategy,
    times: tuple[float, ...],
    explanation: Explanation,
    error: float,
    slowdown: float,
) -> Measurement:
    schedule = explanation.schedule
    return Measurement(
        strategy.name,
        times,
        *_predicted(explanation.problem, schedule),
        error,
        len({*schedule.devices}),
        strategy.seconds,
        slowdown,
    )


def _difference(losses: Sequence[float], wanted: Sequence[float]) -> float:
    return max(abs(a - b) / max(abs(b), 1e-30) for a, b in zip(losses, wanted, strict=True))


def _container(number: int) -> str:
    return f"measured-{number}"


def _predicted(problem: Problem, schedule: Schedule) -> tuple[float, float]:
    """Returns seconds of the step by single operations, and as `explain` predicts it."""
    step = problem.costs.step_seconds
    return (
        simulate(problem, schedule).makespan + step,
        predicted_seconds(problem, schedule) + step,
    )

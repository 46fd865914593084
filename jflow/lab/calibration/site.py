"""`Site`: builds, runs and times the steps of a calibration on one target.

What is timed runs in turns, so that a slow moment of the machine does not fall on one of it.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from jflow.base.cluster import Device, Wiring
from jflow.base.deadline import FOREVER
from jflow.base.handles import Closing
from jflow.base.options import ConfigProto
from jflow.client.ops import Variable, as_string, string_to_number, variables_initializer
from jflow.client.runtime.target import open_backend
from jflow.client.session import Session
from jflow.compiler.graph import Graph, Tensor, container, device
from jflow.compiler.pipeline import CompiledStep, StepRequest, compile_placed

Clock = Callable[[], float]
"""Gives seconds from any fixed time."""

_SHORT_S = 2e-3
_MOST_AT_ONCE = 10


@dataclass(frozen=True)
class Time:
    """The time of a step.

    Attributes:
      seconds: the median of all runs.
      noise: the relative difference of the medians of the first and of the second half of the runs.
    """

    seconds: float
    noise: float


def typical_times(steps: Sequence[Callable[[], object]], n_runs: int, clock: Clock) -> list[Time]:
    """Returns the times of steps.

    Each is run before. Then all have `n_runs` turns, so that a slow moment of the machine does not
    fall on one of them. In a turn a step runs once uncounted, because other steps have filled the
    caches, and then twice, or more often if it is short: a step of a program follows itself, too.
    The median counts, because it is what steps take: of one that sends, the least is a rare case
    in which every thread was awake.
    """
    repeats = []
    for step in steps:
        step()
        begin = clock()
        step()
        spent = max(clock() - begin, 1e-9)
        repeats.append(max(2, min(_MOST_AT_ONCE, int(_SHORT_S / spent))))
    every: list[list[float]] = [[] for _ in steps]
    for _ in range(max(2, n_runs)):
        for step, times, repeat in zip(steps, every, repeats, strict=True):
            step()
            for _ in range(repeat):
                begin = clock()
                step()
                times.append(clock() - begin)
    return [_time(times) for times in every]


def _time(times: Sequence[float]) -> Time:
    half = len(times) // 2
    first, second = median(times[:half]), median(times[half:])
    return Time(median(times), abs(first - second) / max(median(times), 1e-12))


_ROUND_S = 0.05
"""In each turn a function runs as often as takes about this long."""


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
        for run, repeat, durations in zip(runs, repeats, times, strict=True):
            start = time.perf_counter()
            for _ in range(repeat):
                run()
            durations.append((time.perf_counter() - start) / repeat)
    return [tuple(durations) for durations in times]


def _warm_time(run: Callable[[], object]) -> float:
    durations = []
    for _ in range(3):
        start = time.perf_counter()
        run()
        durations.append(time.perf_counter() - start)
    return min(durations)


class TimedStep(NamedTuple):
    """A step of a calibration.

    Attributes:
      name: for messages.
      fetched: what it computes.
    """

    name: str
    fetched: tuple[Tensor, ...]


class Site(Closing):
    """A session with a graph and a container of its own.

    Args:
      target: of the session; "" for this process.
      clock: measures.

    Attributes:
      devices: all devices, those of the session's server first.
      wiring: how the tasks reach each other.
    """

    def __init__(self, target: str, clock: Clock) -> None:
        self._clock = clock
        self._target = target
        self._graph = Graph()
        self._container = f"calibration-{secrets.token_hex(4)}"
        self._variables: list[Variable] = []
        self._stack = ExitStack()
        backend = open_backend(target, ConfigProto())
        self._stack.callback(backend.close)
        self.wiring: Wiring = backend.inventory((), FOREVER).wiring
        self._session = Session(target, self._graph)
        self._stack.callback(self._session.close)
        listed = [Device.parse(each.name) for each in self._session.list_devices()]
        self.devices = [device for device in listed if not device.axes]

    def _leave(self, failed: bool) -> None:
        self._stack.close()
        if self._target:
            Session.reset(self._target, [self._container])

    def variable(
        self, shape: tuple[int, ...], at: Device, sharding: PartitionSpec | None = None
    ) -> Tensor:
        """Returns the value of a new variable, f32 of that shape, whose elements differ."""
        with self._graph.as_default(), container(self._container), device(str(at)):
            initial = self._graph.apply(lambda: _initial(shape), ())
            variable = Variable(initial, sharding=sharding)
            self._variables.append(variable)
            value: Tensor = variable.value()
            return value

    def apply(self, fun: Callable[..., Any], *args: Tensor, at: Device) -> Tensor:
        """Returns the result of a JAX function on a device."""
        (result,) = self.apply_all(lambda *args: [fun(*args)], *args, at=at)
        return result

    def apply_all(
        self, fun: Callable[..., Sequence[Any]], *args: Tensor, at: Device
    ) -> list[Tensor]:
        """Returns the results of a JAX function that gives several, on a device."""
        with self._graph.as_default(), device(str(at)):
            results: list[Tensor] = self._graph.apply(fun, args)
            return results

    def as_text_and_back(self, x: Tensor, at: Device) -> Tensor:
        """Returns a number after two host calls, to text and back."""
        with self._graph.as_default(), device(str(at)):
            return string_to_number(as_string(x))

    def initialize(self) -> None:
        """Initializes the variables that were created since the last call."""
        with self._graph.as_default():
            initializer = variables_initializer(self._variables)
        self._variables = []
        self._session.run(initializer)

    def times(self, steps: list[TimedStep], n_runs: int) -> list[Time]:
        """Returns the times of steps, see `typical_times`."""
        return typical_times([self.callable(step) for step in steps], n_runs, self._clock)

    def callable(self, step: TimedStep) -> Callable[[], object]:
        """Returns a function that runs a step."""
        call: Callable[[], object] = self._session.make_callable(list(step.fetched))
        return call

    def compiled(self, step: TimedStep) -> CompiledStep:
        """Returns the step as it runs, with its programs."""
        placement = self._session.placement(list(step.fetched))
        return compile_placed(StepRequest((), step.fetched, ()), placement)


def _initial(shape: tuple[int, ...]) -> jax.Array:
    n = math.prod(shape)
    return jnp.sin(jnp.arange(n, dtype=jnp.float32)).reshape(shape)

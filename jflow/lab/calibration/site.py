"""`Site`: builds and runs the steps of a calibration on one target."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jflow.base.closing import Closing
from jflow.base.cluster import Device, Wiring
from jflow.base.deadline import FOREVER
from jflow.base.options import ConfigProto
from jflow.client.ops import Variable, as_string, string_to_number, variables_initializer
from jflow.client.runtime import open_backend
from jflow.client.session import Session
from jflow.compiler.graph import Graph, Tensor, container, device
from jflow.compiler.pipeline import CompiledStep, StepRequest, compile_placed
from jflow.lab.calibration.timing import Clock, Time, typical_times


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
        self.devices = [Device.parse(each.name) for each in self._session.list_devices()]

    def _leave(self, failed: bool) -> None:
        self._stack.close()
        if self._target:
            Session.reset(self._target, [self._container])

    def variable(self, shape: tuple[int, ...], at: Device) -> Tensor:
        """The value of a new variable, f32 of that shape, whose elements differ."""
        with self._graph.as_default(), container(self._container), device(str(at)):
            variable = Variable(self._graph.apply(lambda: _initial(shape), ()))
            self._variables.append(variable)
            value: Tensor = variable.value()
            return value

    def apply(self, fun: Callable[..., Any], *args: Tensor, at: Device) -> Tensor:
        """The result of a JAX function on a device."""
        (result,) = self.apply_all(lambda *args: [fun(*args)], *args, at=at)
        return result

    def apply_all(
        self, fun: Callable[..., Sequence[Any]], *args: Tensor, at: Device
    ) -> list[Tensor]:
        """The results of a JAX function that gives several, on a device."""
        with self._graph.as_default(), device(str(at)):
            results: list[Tensor] = self._graph.apply(fun, args)
            return results

    def as_text_and_back(self, x: Tensor, at: Device) -> Tensor:
        """The same number after two calls of functions of the host."""
        with self._graph.as_default(), device(str(at)):
            return string_to_number(as_string(x))

    def initialize(self) -> None:
        """Initializes the variables that were made since the last call."""
        with self._graph.as_default():
            initializer = variables_initializer(self._variables)
        self._variables = []
        self._session.run(initializer)

    def times(self, steps: list[TimedStep], n_runs: int) -> list[Time]:
        """The times of steps, see `typical_times`."""
        return typical_times([self.callable(step) for step in steps], n_runs, self._clock)

    def callable(self, step: TimedStep) -> Callable[[], object]:
        """What runs a step."""
        call: Callable[[], object] = self._session.make_callable(list(step.fetched))
        return call

    def compiled(self, step: TimedStep) -> CompiledStep:
        """The step as it runs, with its programs."""
        placement = self._session.placement(list(step.fetched))
        return compile_placed(StepRequest((), step.fetched, ()), placement)


def _initial(shape: tuple[int, ...]) -> jax.Array:
    n = math.prod(shape)
    return jnp.sin(jnp.arange(n, dtype=jnp.float32)).reshape(shape)

"""`Workload`: a model whose training step is placed, run and measured; and what models share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

import jflow as tf
from jflow.base.cluster import Device, DeviceSpec, Task
from jflow.base.values import Array
from jflow.compiler.pipeline import StepRequest, prune_step
from jflow.compiler.placement import Inventory
from jflow.compiler.placement.place import assign
from jflow.compiler.placement.scheduled import ScheduledAssignment
from jflow.compiler.schedule import Problem
from jflow.compiler.schedule.strategies import STRATEGIES
from jflow.errors import InvalidArgumentError

S = TypeVar("S")


@dataclass(frozen=True)
class WorkloadStep:
    """A step of a workload, in a graph of its own.

    Attributes:
      graph: the graph.
      initialize: sets all of its variables, always to the same values.
      train: what is timed: forward, backward and update.
      loss: f32[], computed with the variables before the update.
    """

    graph: tf.Graph
    initialize: tf.Operation
    train: tf.Operation
    loss: tf.Tensor

    def losses(self, session: tf.Session, n_steps: int = 3) -> list[float]:
        """Runs some steps; their losses. The variables have to be initialized."""
        return [float(session.run([self.loss, self.train])[0]) for _ in range(n_steps)]


@dataclass(frozen=True)
class Workload(Generic[S]):
    """A model of one kind, in several sizes.

    Attributes:
      name: how tables and command lines call it.
      about: what it is, and what it stresses.
      scales: its sizes by name: "small" for tests, "cpu" for two to eight processes of this
        machine, "large" for simulated clusters.
      graph: adds the step to the default graph; takes the size and where variables are kept.
      is_one_program: whether its step can be one program; one that uses queues, or checks
        indices, cannot.
      compiles_for_minutes: whether XLA takes minutes to compile what strategies make of it at the
        size "cpu", so that it is run for real only if it is asked for by name.
    """

    name: str
    about: str
    scales: Mapping[str, S]
    graph: Callable[[S, Servers], tuple[tf.Tensor, tf.Operation]]
    is_one_program: bool = True
    compiles_for_minutes: bool = False

    def build(
        self, scale: str | S = "small", servers: Sequence[str] = (), container: str = ""
    ) -> WorkloadStep:
        """Returns the step of a size, in a new graph. Equal arguments give equal graphs.

        Args:
          scale: a name in `scales`, or a size.
          servers: devices that the variables are distributed over, such as "/job:ps/task:0"; if
            there are none, nothing pins them.
          container: where state is kept; "" for the default one.

        Raises:
          InvalidArgumentError: if there is no such scale.
        """
        size = scale
        if isinstance(scale, str):
            if scale not in self.scales:
                raise InvalidArgumentError(
                    f"workload {self.name} has no scale {scale!r}, but {', '.join(self.scales)}"
                )
            size = self.scales[scale]
        graph = tf.Graph()
        with graph.as_default(), tf.container(container), tf.name_scope(self.name):
            loss, train = self.graph(size, Servers(servers))  # type: ignore[arg-type]
            initialize = tf.global_variables_initializer()
        return WorkloadStep(graph, initialize, train, loss)


class Servers:
    """Where a workload keeps its variables, and their initial values.

    Args:
      devices: the devices to distribute them over; none for where the placement rules say.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        self._devices = devices
        self._n_variables = 0

    def at(self, position: float) -> AbstractContextManager[Any]:
        """Returns a context manager under which variables are on the device at `position`.

        Layers of equal positions are together; those of a model that is divided into as many
        pieces as there are devices are apart.
        """
        if not self._devices:
            return nullcontext()
        return tf.device(self._devices[int(position * len(self._devices))])

    def _axes(self, position: float) -> tuple[str, ...]:
        """Returns the axes of the mesh at `position`; none if it is a device."""
        if not self._devices:
            return ()
        device = DeviceSpec.parse(self._devices[int(position * len(self._devices))])
        return tuple(name for name, _ in device.axes or ())

    def weights(
        self, position: float, name: str, *shape: int, divided: int | None = None
    ) -> tf.Variable:
        """Returns a variable f32[shape] of random numbers with the variance of 1 / shape[-2].

        Args:
          position: see `at`.
          name: of the variable.
          shape: its sizes.
          divided: the dimension that a mesh divides.
        """
        self._n_variables += 1
        axes = self._axes(position)
        sharding = PartitionSpec(*[None] * divided, axes) if axes and divided is not None else None
        with self.at(position):
            n_in = shape[-2] if len(shape) > 1 else shape[-1]
            value = apply(_uniform, self._n_variables, shape, n_in**-0.5)
            return tf.Variable(value, name=name, sharding=sharding)

    def zeros(self, position: float, name: str, *shape: int) -> tf.Variable:
        """Returns a variable f32[shape] of zeros."""
        with self.at(position):
            return tf.Variable(apply(_zeros, shape), name=name)


def apply(fun: Callable[..., Any], *args: Any) -> Any:
    """Adds a call of a JAX function to the default graph, as one operation."""
    return tf.get_default_graph().apply(fun, args)


def data(seed: int, *shape: int) -> tf.Tensor:
    """Returns a constant f32[shape] of normal random numbers."""
    values = np.random.default_rng(seed).normal(size=shape)
    return tf.constant(values.astype(np.float32), name="data")


def labels(seed: int, n_classes: int, *shape: int) -> tf.Tensor:
    """Returns a constant i32[shape] of random classes."""
    values: Array = np.random.default_rng(seed).integers(0, n_classes, shape).astype(np.int32)
    return tf.constant(values, name="labels")


def descend(
    loss: tf.Tensor, variables: Sequence[tf.Variable], rate: float
) -> tuple[tf.Tensor, tf.Operation]:
    """Returns the loss, and a step of gradient descent."""
    slopes = tf.gradients(loss, list(variables))
    return loss, update(variables, slopes, rate)


def update(
    variables: Sequence[tf.Variable], slopes: Sequence[tf.Tensor], rate: float, *others: Any
) -> tf.Operation:
    """Returns an operation that subtracts slopes, and does `others`."""
    done = [
        variable.assign_sub(rate * slope) for variable, slope in zip(variables, slopes, strict=True)
    ]
    return tf.group(*done, *others, name="train")


def mean(values: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the mean of tensors of one shape."""
    result: tf.Tensor = apply(_mean, *values)
    return result


def layer(x: jax.Array, weights: jax.Array, bias: jax.Array) -> jax.Array:
    """Returns a dense layer of x f32[batch, in], followed by ReLU: f32[batch, out]."""
    return jax.nn.relu(x @ weights + bias)


def joined(*parts: jax.Array) -> jax.Array:
    """Returns arrays side by side, along their last dimension."""
    return jnp.concatenate(parts, axis=-1)


def error(x: jax.Array, wanted: jax.Array) -> jax.Array:
    """Returns the mean squared error: f32[]."""
    return jnp.mean((x - wanted) ** 2)


def cross_entropy(logits: jax.Array, classes: jax.Array) -> jax.Array:
    """Returns the mean cross entropy of logits f32[n, classes] and classes i32[n]."""
    chances = jax.nn.log_softmax(logits)
    return -jnp.mean(jnp.take_along_axis(chances, classes[:, None], axis=1))


def _mean(*values: jax.Array) -> jax.Array:
    return sum(values[1:], values[0]) / len(values)


def _uniform(seed: int, shape: tuple[int, ...], deviation: float) -> jax.Array:
    """Returns random numbers f32[shape] with the mean 0.

    They are a hash of their positions (lowbias32 of Wellons, "Prospecting for hash functions",
    2018): XLA takes seconds to compile one of JAX's own generators for each variable.
    """
    x = jax.lax.iota(jnp.uint32, math.prod(shape)) + jnp.uint32(seed * 0x9E3779B9 % 2**32)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ (x >> shift)) * jnp.uint32(factor)
    x ^= x >> 16
    between: jax.Array = x.astype(jnp.float32) / 2.0**31 - 1.0
    return jnp.reshape(deviation * 3**0.5 * between, shape)


def _zeros(shape: tuple[int, ...]) -> jax.Array:
    return jnp.zeros(shape)


def simulated_devices(n_devices: int) -> list[Device]:
    """Returns the devices of a cluster with a task for each CPU device, and no job "ps"."""
    return [Device(Task("worker", i), "CPU", 0) for i in range(n_devices)]


def problem_of(step: WorkloadStep, n_devices: int) -> Problem:
    """Returns the placement problem of the training step of a workload.

    It is what a session on the first task of such a cluster asks, so a strategy's answer can be
    simulated for any number of devices without running one.

    Args:
      step: the step; its graph may name the devices of `simulated_devices`.
      n_devices: how many tasks with a CPU device each.

    Raises:
      InvalidArgumentError: if the graph requests a device that is not there.
    """
    devices = {device.task: (device,) for device in simulated_devices(n_devices)}
    inventory = Inventory(Task("worker", 0), tuple(devices), devices)
    ops = prune_step(step.graph, StepRequest((step.train,), (), ()))
    rules = assign(ops, inventory)
    # The strategy is not called: the problem is the same for all of them.
    return ScheduledAssignment(STRATEGIES["single"], rules, inventory.tasks).problem(devices)

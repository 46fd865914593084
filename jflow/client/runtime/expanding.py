"""Steps that feed tensors of unknown rank, compiled for the shapes of each signature."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import jax

from jflow.base.deadline import Deadline
from jflow.base.values import Array, TensorSpec
from jflow.client.runtime.backend import Executable
from jflow.compiler.graph import Tensor
from jflow.compiler.pipeline import StepRequest
from jflow.plan import Plan
from jflow.plan.trace.measured import StepNames
from jflow.plan.trace.record import TaskRecord
from jflow.plan.xla.compile import CompiledProgram
from jflow.state.effects import Effect

MAX_SIGNATURES = 64
"""The number of signatures of a step that stay registered; the least recently used is dropped."""

FedShapes = tuple[tuple[int, ...], ...]
"""The shapes that are fed for the tensors of unknown rank."""


class ExpandingExecutable:
    """A step with recorded calls, which is compiled for each signature of fed shapes.

    Args:
      request: what the step computes.
      register: compiles and registers the step for the shapes of what is fed with unknown rank.
      registering: held meanwhile, so that the steps of a session agree where state is.
    """

    def __init__(
        self,
        request: StepRequest,
        register: Callable[[Mapping[Tensor, Sequence[Any]], Deadline], Executable],
        registering: threading.Lock,
    ) -> None:
        self._request, self._register = request, register
        self._unknown = [i for i, tensor in enumerate(request.fed) if tensor.aval.shape is None]
        self._lock = threading.Lock()
        self._registering = registering
        self._known: OrderedDict[FedShapes, Executable] = OrderedDict()
        self._latest = threading.local()

    @property
    def names(self) -> StepNames:
        """See `Executable.names`; those of this thread's last step."""
        names: StepNames = self._latest.executable.names
        return names

    @property
    def plans(self) -> Sequence[Plan]:
        """See `Executable.plans`; those of this thread's last step."""
        plans: Sequence[Plan] = self._latest.executable.plans
        return plans

    def prepare(self, deadline: Deadline) -> None:
        """Does nothing: what to register depends on the shapes of the fed values."""

    def run(
        self,
        feeds: Sequence[Array],
        deadline: Deadline,
        *,
        effect: Effect | None = None,
        records: list[TaskRecord] | None = None,
    ) -> list[Array]:
        """See `Executable.run`."""
        executable = self._executable(feeds, deadline)
        return executable.run(feeds, deadline, effect=effect, records=records)

    def run_steps(
        self, feeds: Sequence[Array], deadline: Deadline, n_steps: int, is_stacked: bool
    ) -> tuple[int, list[Array]]:
        """See `Executable.run_steps`."""
        executable = self._executable(feeds, deadline)
        return executable.run_steps(feeds, deadline, n_steps, is_stacked)

    def start(
        self,
        feeds: Sequence[Array],
        deadline: Deadline,
        *,
        effect: Effect | None = None,
        records: list[TaskRecord] | None = None,
    ) -> Future[list[Array]]:
        """See `Executable.start`."""
        executable = self._executable(feeds, deadline)
        return executable.start(feeds, deadline, effect=effect, records=records)

    def compute(
        self, feeds: Sequence[Any], deadline: Deadline, *, records: list[TaskRecord] | None = None
    ) -> list[jax.Array]:
        """See `Executable.compute`."""
        return self._executable(feeds, deadline).compute(feeds, deadline, records=records)

    def single_program(self, n_feeds: int) -> CompiledProgram | None:
        """Returns None: each signature has a program of its own."""

    def _executable(self, feeds: Sequence[Any], deadline: Deadline) -> Executable:
        """Returns the executable for the shapes of the feeds, compiling it if necessary.

        Raises:
          InvalidArgumentError: if a call does not take values of such shapes.
        """
        signature: FedShapes = tuple([feeds[i].shape for i in self._unknown])
        with self._lock:
            executable = self._known.get(signature)
            if executable is not None:
                self._known.move_to_end(signature)
        if executable is None:
            with deadline.holding(self._registering, "waiting for other steps to be registered"):
                executable = self._known.get(signature)
                if executable is None:
                    executable = self._register_signature(signature, deadline)
                    self._keep(signature, executable)
            deadline.check("compiling the step")
        self._latest.executable = executable
        return executable

    def _keep(self, signature: FedShapes, executable: Executable) -> None:
        with self._lock:
            self._known[signature] = executable
            if len(self._known) > MAX_SIGNATURES:
                self._known.popitem(last=False)

    def _register_signature(self, signature: FedShapes, deadline: Deadline) -> Executable:
        fed = [self._request.fed[i] for i in self._unknown]
        shapes = {t: _logical(t, shape) for t, shape in zip(fed, signature, strict=True)}
        return self._register(shapes, deadline)


def _logical(tensor: Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the logical shape of a value from its physical shape."""
    n_added = len(TensorSpec((), tensor.dtype).physical.shape or ())
    return shape[: len(shape) - n_added]

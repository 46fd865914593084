"""`SessionSteps`: caches the steps that a session has run, to place and compile each only once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jflow.base.deadline import Deadline
from jflow.base.values import Array
from jflow.client.runtime.backend import Backend
from jflow.client.runtime.moving import MovingExecutable
from jflow.client.runtime.steps import add_origin, register_step
from jflow.client.runtime.tracing import TracingExecutable
from jflow.client.session.fetches import FeedSlot, Fetches, parse_feeds, parse_fetches
from jflow.client.session.repetition import Repetition
from jflow.client.session.settings import SessionSettings
from jflow.client.session.started import StartedStep
from jflow.compiler.graph import Graph, Tensor
from jflow.compiler.pipeline import StepRequest
from jflow.errors import OpError
from jflow.plan.xla import internals
from jflow.state.moves import states_of

RunExecutable = Callable[[TracingExecutable, Sequence[Any], Deadline], list[Any]]
"""Runs a step with its fed values, in place of `Executable.run`, to trace or cancel it."""


class KnownStep(NamedTuple):
    """A step that has run before and that its `key_of` finds."""

    executable: TracingExecutable
    slots: tuple[FeedSlot, ...]
    fetches: Fetches
    graph: Graph

    def run(
        self, feed_dict: Mapping[Any, Any], deadline: Deadline, run: RunExecutable | None
    ) -> Any:
        """Runs the step with other values fed. Raises as `Session.run`."""
        feeds = [
            slot.physical(value) for slot, value in zip(self.slots, feed_dict.values(), strict=True)
        ]
        try:
            step = self.executable
            values = run(step, feeds, deadline) if run else step.run(feeds, deadline)
        except OpError as error:
            add_origin(error, self.graph)
            raise
        return self.fetches.fill_fetched(values)


class _PreparedStep(NamedTuple):
    """A step that is compiled, and what it is fed.

    Attributes:
      executable: the step.
      fetches: what is fetched.
      feeds: the fed values.
      fetched: the tensors that are fetched and not fed.
      deadline: the deadline of the call.
      checks_nans: whether it checks its results for NaN.
      is_same: whether each call with these keys fetches and feeds the same tensors.
    """

    executable: TracingExecutable
    fetches: Fetches
    feeds: dict[Tensor, Array]
    fetched: tuple[Tensor, ...]
    deadline: Deadline
    checks_nans: bool
    is_same: bool

    @property
    def fed(self) -> list[Array]:
        """The fed values, in order."""
        return list(self.feeds.values())

    def filled(self, values: Sequence[Array]) -> Any:
        """Returns the structure of the fetches with the values of a run."""
        return self.fetches.fill(self.feeds | dict(zip(self.fetched, values, strict=True)))


class SessionSteps:
    """The steps of a session: executables by request, and known steps by the key of their call.

    Args:
      graph: the graph that the session runs.
      backend: registers and runs its steps.
      settings: the options of the session.
    """

    def __init__(self, graph: Graph, backend: Backend, settings: SessionSettings) -> None:
        self._graph = graph
        self._backend = backend
        self._settings = settings
        self._executables: dict[StepRequest, TracingExecutable] = {}
        # Two tables, because a step has another executable while `jax_debug_nans` is on.
        self._known: tuple[dict[Any, KnownStep], dict[Any, KnownStep]] = ({}, {})
        self._registering = threading.Lock()

    def find(self, key: Any) -> KnownStep | None:
        """Returns the step of an earlier call with this key, if any; the key is not None."""
        return self._known[internals.debug_nans.value].get(key)

    def run(
        self,
        key: Any,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None,
        deadline: Deadline,
        run: RunExecutable | None,
    ) -> Any:
        """Runs a step, and caches it for `find` unless `key` is None.

        Raises as `Session.run`.
        """
        step = self._prepared(fetches, feed_dict, deadline)
        values = self._run(step, run)
        if key is not None and step.is_same:
            slots = tuple(map(FeedSlot, step.feeds))
            known = KnownStep(step.executable, slots, step.fetches, self._graph)
            self._known[step.checks_nans][key] = known
        return step.filled(values)

    def repeat(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None,
        deadline: Deadline,
        repetition: Repetition,
    ) -> Any:
        """Runs a step several times. Raises as `Session.run_many`."""
        step = self._prepared(fetches, feed_dict, deadline)
        values = self._run(step, repetition.run)
        fetched = step.fetches.tensors
        fed = {x: repetition.repeated(step.feeds[x]) for x in fetched if x in step.feeds}
        return step._replace(feeds=fed).filled(values)

    def _run(self, step: _PreparedStep, run: RunExecutable | None) -> list[Any]:
        executable, fed = step.executable, step.fed
        try:
            if run is not None:
                return run(executable, fed, step.deadline)
            return executable.run(fed, step.deadline)
        except OpError as error:
            add_origin(error, self._graph)
            raise

    def start(
        self, fetches: Any, feed_dict: Mapping[Any, Any] | None, deadline: Deadline
    ) -> StartedStep:
        """Starts a step without waiting for it. Raises as `Session.run` before it begins."""
        step = self._prepared(fetches, feed_dict, deadline)
        try:
            # Copies: the caller may write to its arrays while the step runs.
            started = step.executable.start([np.array(x) for x in step.fed], step.deadline)
        except OpError as error:
            add_origin(error, self._graph)
            raise
        return StartedStep(started, step.filled, self._graph)

    def _prepared(
        self, fetches: Any, feed_dict: Mapping[Any, Any] | None, deadline: Deadline
    ) -> _PreparedStep:
        """Returns a step that is compiled, with what it is fed. Raises as `Session.run`."""
        parsed = parse_fetches(self._graph, fetches)
        feeds = parse_feeds(self._graph, feed_dict)
        if self._graph.is_empty:
            raise RuntimeError("The Session graph is empty; add operations before calling run()")
        checks_nans = internals.debug_nans.value
        fetched = parsed.tensors
        if feeds:
            fetched = tuple(tensor for tensor in fetched if tensor not in feeds)
        try:
            deadline = self._settings.complete(deadline)
            request = StepRequest(parsed.targets, fetched, tuple(feeds), checks_nans)
            executable = self._executable(request, deadline)
        except OpError as error:
            add_origin(error, self._graph)
            raise
        is_same = len(fetched) == len(parsed.tensors) and len(feeds) == len(feed_dict or ())
        return _PreparedStep(executable, parsed, feeds, fetched, deadline, checks_nans, is_same)

    def requests(self) -> list[StepRequest]:
        """Returns the steps that were run, the first one first."""
        return [*self._executables.copy()]

    def n_runs(self) -> dict[StepRequest, int]:
        """Returns how often each step with movable state has run; omits those that have not run."""
        return {
            request: step.n_runs
            for request, step in [(key, one.inner) for key, one in self._executables.copy().items()]
            if isinstance(step, MovingExecutable) and step.n_runs and states_of(step.plans)
        }

    def _executable(self, request: StepRequest, deadline: Deadline) -> TracingExecutable:
        executable = self._executables.get(request)
        if executable is None:
            with deadline.holding(self._registering, "waiting for other steps to be registered"):
                executable = self._executables.get(request)
                if executable is None:
                    executable = register_step(
                        self._graph,
                        request,
                        self._backend,
                        self._settings.placer,
                        deadline,
                        self._registering,
                    )
                    self._executables[request] = executable
            deadline.check("compiling the step")
        return executable

"""`SessionSteps`: caches the steps that a session has run, to place and compile each only once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jflow.base.deadline import Deadline
from jflow.client.runtime.backend import Backend, Executable
from jflow.client.runtime.moving import MovingExecutable
from jflow.client.runtime.steps import add_origin, register_step
from jflow.client.runtime.tracing import TracingExecutable
from jflow.client.session.fetches import FeedSlot, Fetches, parse_feeds, parse_fetches
from jflow.client.session.settings import SessionSettings
from jflow.compiler.graph import Graph
from jflow.compiler.pipeline import StepRequest
from jflow.errors import OpError
from jflow.plan.xla import internals

RunExecutable = Callable[[Executable, Sequence[Any], Deadline], list[Any]]
"""Runs a step with its fed values, in place of `Executable.run`, to trace or cancel it."""


class KnownStep(NamedTuple):
    """A step that has run before and that its `key_of` finds."""

    executable: Executable
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
            fed = list(feeds.values())
            values = run(executable, fed, deadline) if run else executable.run(fed, deadline)
        except OpError as error:
            add_origin(error, self._graph)
            raise
        is_same = len(fetched) == len(parsed.tensors) and len(feeds) == len(feed_dict or ())
        if key is not None and is_same:
            slots = tuple(map(FeedSlot, feeds))
            self._known[checks_nans][key] = KnownStep(executable, slots, parsed, self._graph)
        return parsed.fill(feeds | dict(zip(fetched, values, strict=True)))

    def requests(self) -> list[StepRequest]:
        """Returns the steps that were run, the first one first."""
        return [*self._executables.copy()]

    def n_runs(self) -> dict[StepRequest, int]:
        """Returns how often each step with movable state has run; omits those that have not run."""
        return {
            request: step.n_runs
            for request, step in [(key, one.inner) for key, one in self._executables.copy().items()]
            if isinstance(step, MovingExecutable) and step.n_runs
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

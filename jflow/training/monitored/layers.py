"""What a monitored session runs its steps on: hooks, threads of a coordinator, recovery.

`Coordinated` is one session with its hooks and threads. `Recoverable` makes another one after a
failure, so it lives as long as the monitored session.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jflow.base.options import RunOptions
from jflow.client.runtime.tracing import RunMetadata
from jflow.client.session import Session
from jflow.client.session.fetches import parse_feed_list
from jflow.compiler.graph import Graph, Tensor
from jflow.errors import AbortedError, UnavailableError
from jflow.training.input_queues.queue_runner import QUEUE_RUNNERS, start_queue_runners
from jflow.training.monitored.creators import SessionCreator
from jflow.training.monitored.run_hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from jflow.training.threads import Coordinator

_LOG = logging.getLogger(__name__)

LOST = (AbortedError, UnavailableError)
"""Errors that mean that a task was lost: a new session may succeed where this one failed."""

_PAUSE_S = 0.2
"""Pause between attempts to open a session, in seconds."""


class StepContext:
    """What a step function of `MonitoredSession.run_step_fn` is given.

    Args:
      session: the session without hooks.
      run_with_hooks: `run` of the monitored session.
    """

    def __init__(self, session: Session, run_with_hooks: Callable[..., Any]) -> None:
        self._session = session
        self._run_with_hooks = run_with_hooks

    @property
    def session(self) -> Session:
        """The session; its steps call no hooks."""
        return self._session

    def run_with_hooks(self, *args: Any, **kwargs: Any) -> Any:
        """Runs a step with hooks; takes, returns and raises as `MonitoredSession.run`."""
        return self._run_with_hooks(*args, **kwargs)

    def request_stop(self) -> None:
        """Ends the step function and the training.

        Raises:
          StopIteration: always; the step function must not catch it.
        """
        raise StopIteration("the step function has requested a stop")

    def __repr__(self) -> str:
        return f"<jflow.train.StepContext of {self._session!r}>"


StepFn = Callable[[StepContext], Any]


class Live(NamedTuple):
    """A session with the coordinator of its threads."""

    session: Session
    coord: Coordinator


class Coordinated:
    """Runs the steps of a session with hooks and the threads of its queue runners.

    Args:
      live: the session and the coordinator of its threads.
      hooks: the hooks, which know the session, in the order in which they are called.
      stop_grace_period_secs: how long to wait for threads at the end, in seconds.
    """

    def __init__(
        self, live: Live, hooks: Sequence[SessionRunHook], stop_grace_period_secs: float
    ) -> None:
        self._session, self._coord = live
        self._hooks = hooks
        self._stop_requested = False
        self._stop_grace_period_secs = stop_grace_period_secs

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Runs a step with hooks."""
        return self._attempt(self._run_with_hooks, *args, **kwargs)

    def run_step_fn(self, step_fn: StepFn) -> Any:
        """Calls a step function."""
        return self._attempt(step_fn, StepContext(self._session, self.run))

    def _run_with_hooks(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: RunOptions | None = None,
        run_metadata: RunMetadata | None = None,
    ) -> Any:
        """Runs a step with hooks, as `MonitoredSession.run`."""
        if self._stop_requested:
            raise RuntimeError("run was called after a stop was requested; check should_stop()")
        context = SessionRunContext(SessionRunArgs(fetches, feed_dict), self._session)
        added = [hook.before_run(context) or SessionRunArgs() for hook in self._hooks]
        feeds = _merged_feeds(self._session.graph, feed_dict or {}, added)
        options = _merged_options(options, added)
        metadata = RunMetadata() if run_metadata is None else run_metadata
        records = options.trace_level or options.output_partition_graphs
        # An empty list stands for nothing, which is not a fetch.
        wanted = [[] if args.fetches is None else args.fetches for args in added]
        result, hook_values = self._session.run(
            (fetches, wanted), feeds, options, metadata if records else None
        )
        for hook, args, values in zip(self._hooks, added, hook_values, strict=True):
            results = None if args.fetches is None else values
            hook.after_run(context, SessionRunValues(results, options, metadata))
        if context.stop_requested:
            self._stop_requested = True
        return result

    def _attempt(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except LOST:
            raise
        except Exception:
            # A step may fail because a thread of the session has lost a task: that is the cause.
            try:
                self._coord.raise_requested_exception()
            except LOST as lost:
                raise lost from None
            except Exception:
                _LOG.debug("the error of the step is raised, not that of a thread", exc_info=True)
            raise

    def should_stop(self) -> bool:
        """Whether the training has to end; raises what a thread of the session has raised."""
        self._coord.raise_requested_exception()
        return self._stop_requested or self._coord.should_stop()

    def close(self) -> None:
        """Stops the threads and closes the session."""
        self._coord.request_stop()
        try:
            self._coord.join(
                stop_grace_period_secs=self._stop_grace_period_secs, ignore_live_threads=True
            )
        finally:
            self._session.close()


class Opener:
    """Opens sessions with hooks and threads.

    Args:
      creator: opens the sessions.
      graph: the graph that is the default one while it does.
      hooks: the hooks.
      stop_grace_period_secs: as for `Coordinated`.

    Attributes:
      live: the last session that was opened.
    """

    def __init__(
        self,
        creator: SessionCreator,
        graph: Graph,
        hooks: Sequence[SessionRunHook],
        stop_grace_period_secs: float,
    ) -> None:
        self._creator = creator
        self._graph = graph
        self._hooks = hooks
        self._stop_grace_period_secs = stop_grace_period_secs
        self.live: Live | None = None

    def open(self) -> Coordinated:
        """Opens a session, starts its queue runners and notifies the hooks.

        Raises what any of these raises; the session is closed then.
        """
        with self._graph.as_default():
            # Of errors in its threads, all are raised: the session may end early because of one.
            live = Live(self._creator.create_session(), Coordinator(clean_stop_exception_types=()))
            opened = Coordinated(live, self._hooks, self._stop_grace_period_secs)
            try:
                if self._graph.get_collection(QUEUE_RUNNERS):
                    start_queue_runners(live.session, live.coord)
                for hook in self._hooks:
                    hook.after_create_session(*live)
            except BaseException:
                _close_quietly(opened)
                raise
        self.live = live
        return opened


class Recoverable:
    """As `Coordinated`, but opens a new session after the loss of a task and runs the step again.

    Args:
      opener: opens the sessions.
    """

    def __init__(self, opener: Opener) -> None:
        self._opener = opener
        self._layer: Coordinated | None = self._open()

    def run(self, *args: Any, **kwargs: Any) -> Any:
        return self._until_done(lambda layer: layer.run(*args, **kwargs))

    def run_step_fn(self, step_fn: StepFn) -> Any:
        # Steps of the function do not recover: the function as a whole is called again.
        return self._until_done(lambda layer: layer.run_step_fn(step_fn))

    def _until_done(self, call: Callable[[Coordinated], Any]) -> Any:
        while True:
            try:
                if self._layer is None:
                    self._layer = self._open()
                return call(self._layer)
            except LOST as error:
                _LOG.info("opening a new session and running the step again, because %s", error)
                self._discard()

    def should_stop(self) -> bool:
        if self._layer is None:
            return False
        try:
            return self._layer.should_stop()
        except LOST as error:
            _LOG.info("opening a new session, because %s", error)
            self._discard()
            self._layer = self._open()
            return False
        except Exception:
            # The next step, or closing, raises it.
            return True

    def close(self) -> None:
        layer, self._layer = self._layer, None
        if layer is not None:
            try:
                layer.close()
            except LOST as error:
                _LOG.info("closed a session whose cluster had failed: %s", error)

    def _open(self) -> Coordinated:
        while True:
            try:
                return self._opener.open()
            except LOST as error:
                _LOG.info("trying again to open a session, because %s", error)
                time.sleep(_PAUSE_S)

    def _discard(self) -> None:
        layer, self._layer = self._layer, None
        if layer is not None:
            _close_quietly(layer)


Layer = Coordinated | Recoverable
"""What a monitored session runs its steps on."""


def _close_quietly(layer: Coordinated) -> None:
    """Closes a session after an error, which matters more than what closing raises."""
    try:
        layer.close()
    except Exception as error:
        _LOG.info("closed a session that had failed: %s", error)


def _merged_feeds(
    graph: Graph, own: Mapping[Any, Any], added: Sequence[SessionRunArgs]
) -> dict[Tensor, Any]:
    """The feeds of the caller and the hooks; RuntimeError if two of them feed the same tensor."""
    feeds: dict[Tensor, Any] = {}
    for args in added:
        _feed(feeds, graph, args.feed_dict or {}, "the same tensor is fed by two hooks")
    _feed(feeds, graph, own, "the same tensor is fed by a SessionRunHook and user")
    return feeds


def _feed(feeds: dict[Tensor, Any], graph: Graph, more: Mapping[Any, Any], conflict: str) -> None:
    tensors = parse_feed_list(graph, more)
    for tensor in tensors:
        if tensor in feeds:
            raise RuntimeError(f"{conflict}: {tensor!r}")
    feeds.update(zip(tensors, more.values(), strict=True))


def _merged_options(own: RunOptions | None, added: Sequence[SessionRunArgs]) -> RunOptions:
    options = own or RunOptions()
    for other in (args.options for args in added if args.options is not None):
        options = dataclasses.replace(
            options,
            timeout_in_ms=max(options.timeout_in_ms, other.timeout_in_ms),
            trace_level=max(options.trace_level, other.trace_level),
            output_partition_graphs=options.output_partition_graphs
            or other.output_partition_graphs,
        )
    return options

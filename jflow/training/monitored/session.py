"""Monitored sessions: training loops with hooks, checkpoints and recovery from failures."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from jflow.base.options import ConfigProto, RunOptions
from jflow.client.runtime.tracing import RunMetadata
from jflow.client.session import Session
from jflow.compiler.graph import Graph, get_default_graph
from jflow.errors import OutOfRangeError
from jflow.training.input_queues.queue_runner import StartsQueueRunners
from jflow.training.monitored.creators import ChiefSessionCreator, SessionCreator
from jflow.training.monitored.layers import Layer, Opener, Recoverable, StepContext, StepFn
from jflow.training.monitored.run_hook import SessionRunHook
from jflow.training.monitored.scaffold import Scaffold


class _Monitored(StartsQueueRunners):
    """What both monitored sessions share; `layered` opens the session."""

    StepContext = StepContext

    def __init__(
        self,
        session_creator: SessionCreator,
        hooks: Sequence[SessionRunHook] | None,
        stop_grace_period_secs: float,
        layered: Callable[[Opener], Layer],
    ) -> None:
        self._graph = get_default_graph()
        self._was_finalized = self._graph.finalized
        self._hooks = list(hooks or ())
        for hook in self._hooks:
            hook.begin()
        self._opener = Opener(session_creator, self._graph, self._hooks, stop_grace_period_secs)
        self._layer: Layer | None = None
        try:
            self._layer = layered(self._opener)
        except BaseException:
            self._unfinalize()
            raise

    @property
    def graph(self) -> Graph:
        """The graph that it runs, final while the session is open."""
        return self._graph

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: RunOptions | None = None,
        run_metadata: RunMetadata | None = None,
    ) -> Any:
        """Runs one step with the hooks around it.

        Args:
          fetches, feed_dict, options, run_metadata: as for `Session.run`; hooks add to them.

        Returns:
          The values of `fetches`, as `Session.run`.

        Raises:
          RuntimeError: if it is closed, if a stop was requested, or if two of the hooks and the
            caller feed the same tensor.
          OpError: as `Session.run`.
        """
        return self._open_layer().run(fetches, feed_dict, options, run_metadata)

    def run_step_fn(self, step_fn: StepFn) -> Any:
        """Calls a function that runs one or several steps, some without hooks.

        Args:
          step_fn: function of one argument that is named `step_context`, a `StepContext`, or a
            method of such an argument.

        Returns:
          What the function returns.

        Raises:
          ValueError: if it takes other arguments.
          StopIteration: if the function requests a stop; it ends the `with` block.
          RuntimeError, OpError: as `run`.
        """
        names = list(inspect.signature(step_fn).parameters)
        if names != ["step_context"]:
            raise ValueError(
                f"step_fn may only have the argument step_context, got {names} of {step_fn!r}"
            )
        return self._open_layer().run_step_fn(step_fn)

    def should_stop(self) -> bool:
        """Whether the training loop has to end: a hook or thread asked for it, or it is closed."""
        return self._layer is None or self._layer.should_stop()

    def close(self) -> None:
        """Calls `end` of the hooks, stops the threads and closes the session.

        Raises:
          RuntimeError: if it is closed already.
          Exception: what a hook, or a thread of the session, has raised.
        """
        self._close(calls_end=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        is_end = isinstance(error, OutOfRangeError | StopIteration)
        if error is not None and self._layer is None:
            return is_end  # the body has closed it, and its error says more than that
        self._close(calls_end=error is None or is_end)
        return is_end

    def __repr__(self) -> str:
        state = "closed" if self._layer is None else "open"
        return f"<jflow.train.{type(self).__name__} {state}, {len(self._hooks)} hooks>"

    def _open_layer(self) -> Layer:
        if self._layer is None:
            raise RuntimeError("the monitored session is closed")
        return self._layer

    def _close(self, *, calls_end: bool) -> None:
        layer = self._open_layer()
        live = self._opener.live
        try:
            if calls_end and live is not None:
                for hook in self._hooks:
                    hook.end(live.session)
        finally:
            self._layer = None
            try:
                layer.close()
            finally:
                self._unfinalize()

    def _unfinalize(self) -> None:
        if not self._was_finalized:
            self._graph._unsafe_unfinalize()


class MonitoredSession(_Monitored):
    """A session with hooks that is opened again, and restored, when a task was lost.

    After an `AbortedError` or `UnavailableError` of a step, a hook or the creation of the session,
    the session is closed and created again, `after_create_session` of the hooks is called again,
    and the same step is run again. Other errors are raised. The graph is final while it is open.

    Used as a `with` block, it ends quietly at an OutOfRangeError or StopIteration, after which
    `end` of the hooks is called; other errors are raised, and `end` is not called.

    Args:
      session_creator: what opens the session; None for `ChiefSessionCreator()`.
      hooks: hooks, in the order in which they are called.
      stop_grace_period_secs: how long to wait for threads at the end, in seconds.
    """

    def __init__(
        self,
        session_creator: SessionCreator | None = None,
        hooks: Sequence[SessionRunHook] | None = None,
        stop_grace_period_secs: float = 120,
    ) -> None:
        creator = session_creator or ChiefSessionCreator()
        super().__init__(creator, hooks, stop_grace_period_secs, Recoverable)


class SingularMonitoredSession(_Monitored):
    """A `MonitoredSession` that does not recover: all errors are raised.

    Args:
      hooks: hooks, in the order in which they are called.
      scaffold: what the session needs in addition to its steps; None for the defaults.
      master: target of the session.
      config: options of the session.
      checkpoint_dir: directory whose latest checkpoint is restored.
      stop_grace_period_secs: how long to wait for threads at the end, in seconds.
      checkpoint_filename_with_path: the checkpoint to restore, instead of a directory.
    """

    def __init__(
        self,
        hooks: Sequence[SessionRunHook] | None = None,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: ConfigProto | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        stop_grace_period_secs: float = 120,
        checkpoint_filename_with_path: str | None = None,
    ) -> None:
        creator = ChiefSessionCreator(
            scaffold, master, config, checkpoint_dir, checkpoint_filename_with_path
        )
        super().__init__(creator, hooks, stop_grace_period_secs, Opener.open)

    def raw_session(self) -> Session | None:
        """Returns the session without hooks; None once it is closed."""
        live = self._opener.live
        return None if live is None or self._layer is None else live.session

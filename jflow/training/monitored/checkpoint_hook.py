"""`CheckpointSaverHook`: saves checkpoints at the start, periodically and at the end."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

from jflow.client.session import Session
from jflow.compiler.graph import GraphKeys, get_default_graph
from jflow.state.records.graph_def import GraphDef
from jflow.training.checkpoints.meta_graph import GRAPH_FILE, write_graph
from jflow.training.event_files import FileWriterCache, can_write_events
from jflow.training.monitored.control_hooks import required_global_step
from jflow.training.monitored.run_hook import (
    SecondOrStepTimer,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from jflow.training.monitored.scaffold import Scaffold
from jflow.training.threads import Coordinator

_LOG = logging.getLogger(__name__)


class CheckpointSaverListener:
    """Base of what is called around each save of a `CheckpointSaverHook`."""

    def __repr__(self) -> str:
        return f"<jflow.train.{type(self).__name__}>"

    def begin(self) -> None:
        """Called once, before the session is created."""

    def before_save(self, session: Session, global_step_value: int) -> None:
        """Called before a save, with the session and its global step."""

    def after_save(self, session: Session, global_step_value: int) -> bool | None:
        """Called after a save; the training stops if it returns True."""

    def end(self, session: Session, global_step_value: int) -> None:
        """Called once at the end, after the last save."""


class CheckpointSaverHook(SessionRunHook):
    """Saves a checkpoint when a session is created, periodically, and at the end.

    Args:
      checkpoint_dir: directory of the checkpoints.
      save_secs: seconds between two saves.
      save_steps: steps between two saves; exactly one of both.
      saver: a `Saver`.
      checkpoint_basename: first part of the names of checkpoints.
      scaffold: a `Scaffold`, whose saver is used. Without it and a saver, that of the graph's
        collection "savers" is.
      listeners: what is called around each save.
      save_graph_def: whether a save writes the graph too, and the file "graph.pbtxt" has its
        definition, which TensorBoard draws; without it only an event file has that.

    Raises:
      ValueError: if there are both a saver and a scaffold, or not exactly one interval.
    """

    def __init__(
        self,
        checkpoint_dir: str | os.PathLike[str],
        save_secs: float | None = None,
        save_steps: int | None = None,
        saver: Any = None,
        checkpoint_basename: str = "model.ckpt",
        scaffold: Scaffold | None = None,
        listeners: Sequence[CheckpointSaverListener] | None = None,
        save_graph_def: bool = True,
    ) -> None:
        if saver is not None and scaffold is not None:
            raise ValueError("you cannot provide both saver and scaffold; a scaffold has its own")
        self._timer = SecondOrStepTimer(every_secs=save_secs, every_steps=save_steps)
        self._directory = os.fspath(checkpoint_dir)
        self._is_local = "://" not in self._directory
        self._prefix = os.path.join(checkpoint_dir, checkpoint_basename)
        self._saver = saver
        self._scaffold = scaffold
        self._listeners = list(listeners or ())
        self._writes_graph = save_graph_def

    def begin(self) -> None:
        """Finds the global step."""
        self._global_step = required_global_step(self)
        if self._is_local:
            os.makedirs(self._directory, exist_ok=True)
        for listener in self._listeners:
            listener.begin()

    def after_create_session(self, session: Session, coord: Coordinator) -> None:
        """Writes the definition of the graph, and saves the state that the session starts from."""
        step = int(session.run(self._global_step))
        if self._is_local:
            self._write_definition(session.graph.as_graph_def(add_shapes=True))
        self._save(session, step)
        self._timer.update_last_triggered_step(step)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Reads the global step."""
        return SessionRunArgs(self._global_step)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Saves if it is due; a listener may request a stop."""
        if not self._timer.should_trigger_for_step(int(run_values.results) + 1):
            return
        # The step may have read it before it was incremented, and others increment it too.
        step = int(run_context.session.run(self._global_step))
        if self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            if self._save(run_context.session, step):
                run_context.request_stop()

    def end(self, session: Session) -> None:
        """Saves unless the last step is saved already."""
        step = int(session.run(self._global_step))
        if step != self._timer.last_triggered_step():
            self._save(session, step)
        for listener in self._listeners:
            listener.end(session, step)

    def _write_definition(self, definition: GraphDef) -> None:
        if self._writes_graph:
            write_graph(definition, self._directory, GRAPH_FILE)
        if can_write_events():
            FileWriterCache.get(self._directory).add_graph(definition)

    def _save(self, session: Session, step: int) -> bool:
        """Saves a checkpoint; returns whether a listener wants the training to stop."""
        _LOG.info("saving a checkpoint for step %d as %s", step, self._prefix)
        for listener in self._listeners:
            listener.before_save(session, step)
        self._the_saver().save(
            session, self._prefix, global_step=step, write_meta_graph=self._writes_graph
        )
        answers = [listener.after_save(session, step) for listener in self._listeners]
        return any(answers)

    def _the_saver(self) -> Any:
        if self._saver is None:
            self._saver = self._scaffold.saver if self._scaffold else _saver_of_graph()
        return self._saver


def _saver_of_graph() -> Any:
    savers = get_default_graph().get_collection(GraphKeys.SAVERS)
    if len(savers) != 1:
        raise RuntimeError(
            f"expected one saver in the collection {GraphKeys.SAVERS!r}, found {len(savers)}; pass "
            "saver= or scaffold= to the CheckpointSaverHook"
        )
    return savers[0]

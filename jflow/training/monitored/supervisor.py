"""`Supervisor`: TensorFlow's forerunner of monitored sessions, on the parts of these."""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

from jflow.base.options import ConfigProto, RunOptions
from jflow.client.session import Session
from jflow.compiler.graph import Graph, get_default_graph
from jflow.errors import OpError
from jflow.training.checkpoints.meta_graph import GRAPH_FILE, write_graph
from jflow.training.event_files import FileWriter, can_write_events
from jflow.training.input_queues.queue_runner import QUEUE_RUNNERS, QueueRunner
from jflow.training.monitored.global_step import get_global_step
from jflow.training.monitored.scaffold import Scaffold
from jflow.training.monitored.session_manager import SessionManager
from jflow.training.threads import Coordinator, LooperThread

_LOG = logging.getLogger(__name__)
_DEFAULT: Any = 0


class Supervisor:
    """Prepares sessions, saves checkpoints and summaries, and stops threads; deprecated.

    New programs use `MonitoredTrainingSession`, which also recovers from lost tasks. Making a
    supervisor finalizes the graph. What is `USE_DEFAULT` is made as `Scaffold` makes it, and what
    is None is left out.

    Args:
      graph: the graph; None for the default one.
      ready_op, ready_for_local_init_op, init_op, init_feed_dict, local_init_op, summary_op, saver:
        as for `Scaffold`.
      is_chief: whether this process initializes the variables and saves; others wait for it.
      logdir: directory of checkpoints and event files; None for neither.
      global_step: the number of steps; by default that of the graph.
      save_summaries_secs, save_model_secs: the seconds between two summaries and two checkpoints; 0
        for none.
      recovery_wait_secs: how long a process that waits pauses at most before it looks again whether
        the chief is done.
      stop_grace_secs: how long threads may take to end.
      checkpoint_basename: the name of checkpoints in the directory.
      session_manager: what opens sessions; None for a `SessionManager` of these operations.
      summary_writer: a `FileWriter`; by default one for the directory, if tensorboardX is there.
      init_fn: function of the session that is called after `init_op`.
      local_init_run_options: options of the step that runs `local_init_op`.

    Attributes:
      coord: the `Coordinator` of its threads.
      is_chief, saver, init_op, ready_op, summary_op, summary_writer, session_manager, global_step,
        save_model_secs, save_summaries_secs: likewise.
      save_path: the path of checkpoints; None without a directory.
    """

    USE_DEFAULT: ClassVar[Any] = _DEFAULT

    def __init__(  # noqa: PLR0913, PLR0917 - the arguments are TensorFlow's
        self,
        graph: Graph | None = None,
        ready_op: Any = _DEFAULT,
        ready_for_local_init_op: Any = _DEFAULT,
        is_chief: bool = True,
        init_op: Any = _DEFAULT,
        init_feed_dict: Mapping[Any, Any] | None = None,
        local_init_op: Any = _DEFAULT,
        logdir: str | os.PathLike[str] | None = None,
        summary_op: Any = _DEFAULT,
        saver: Any = _DEFAULT,
        global_step: Any = _DEFAULT,
        save_summaries_secs: float = 120,
        save_model_secs: float = 600,
        recovery_wait_secs: float = 30,
        stop_grace_secs: float = 120,
        checkpoint_basename: str = "model.ckpt",
        session_manager: SessionManager | None = None,
        summary_writer: Any = _DEFAULT,
        init_fn: Callable[[Session], object] | None = None,
        local_init_run_options: RunOptions | None = None,
    ) -> None:
        warnings.warn(
            "Supervisor is deprecated: jflow.train.MonitoredTrainingSession does the same, and "
            "goes on when a task is lost",
            DeprecationWarning,
            stacklevel=2,
        )
        self._graph = get_default_graph() if graph is None else graph
        given = {
            "init_op": init_op,
            "ready_op": ready_op,
            "ready_for_local_init_op": ready_for_local_init_op,
            "local_init_op": local_init_op,
            "summary_op": summary_op,
            "saver": saver,
        }
        own = _finalized(self._graph, given)
        self.is_chief, self.coord = is_chief, Coordinator()
        self.init_op, self.ready_op = own["init_op"], own["ready_op"]
        self.saver, self.summary_op = own["saver"], own["summary_op"]
        self.save_summaries_secs, self.save_model_secs = save_summaries_secs, save_model_secs
        self._init_feed_dict, self._init_fn = init_feed_dict, init_fn
        self._stop_grace_secs = stop_grace_secs
        self._logdir = None if logdir is None else os.fspath(logdir)
        self.save_path = self._logdir and os.path.join(self._logdir, checkpoint_basename)
        is_given = global_step is not _DEFAULT
        self.global_step = global_step if is_given else get_global_step(self._graph)
        is_default = summary_writer is _DEFAULT
        self.summary_writer: Any = self._writer() if is_default else summary_writer
        self._is_graph_written = False
        self.session_manager = session_manager or SessionManager(
            own["local_init_op"],
            own["ready_op"],
            own["ready_for_local_init_op"] if own["local_init_op"] is not None else None,
            self._graph,
            recovery_wait_secs,
            local_init_run_options,
        )

    def __repr__(self) -> str:
        role = "chief" if self.is_chief else "worker"
        return f"<jflow.train.Supervisor of a {role}, {self.coord!r}>"

    @contextmanager
    def managed_session(
        self,
        master: str = "",
        config: ConfigProto | None = None,
        start_standard_services: bool = True,
        close_summary_writer: bool = True,
    ) -> Iterator[Session]:
        """Context manager of a session that is ready; stops all threads in the end.

        The end of the input (OutOfRangeError) ends the block quietly.

        Args:
          master: target of the session.
          config: options of the session.
          start_standard_services: whether to save checkpoints and summaries, and to start the
            threads of queues.
          close_summary_writer: whether to close the writer in the end.

        Raises:
          Exception: what the block raises, or a thread.
        """
        session = self.prepare_or_wait_for_session(
            master, config, start_standard_services=start_standard_services
        )
        try:
            with self.coord.stop_on_exception():
                yield session
        finally:
            try:
                self.stop(close_summary_writer=close_summary_writer)
            finally:
                with suppress(OpError):
                    session.close()

    def prepare_or_wait_for_session(
        self,
        master: str = "",
        config: ConfigProto | None = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        start_standard_services: bool = True,
    ) -> Session:
        """Opens a session: the chief restores or initializes the variables, others wait for it.

        The chief writes the definition of the graph, which TensorBoard draws, into the directory,
        as "graph.pbtxt", and once into the event file.

        Args:
          master, config, start_standard_services: as for `managed_session`.
          wait_for_checkpoint, max_wait_secs: as for `SessionManager.prepare_session`.
        """
        self.coord.clear_stop()
        if self.is_chief:
            session = self.session_manager.prepare_session(
                master,
                init_op=self.init_op,
                saver=self.saver,
                checkpoint_dir=self._logdir,
                wait_for_checkpoint=wait_for_checkpoint,
                max_wait_secs=max_wait_secs,
                config=config,
                init_feed_dict=self._init_feed_dict,
                init_fn=self._init_fn,
            )
            self._write_definition()
            if start_standard_services:
                self.start_standard_services(session)
        else:
            session = self.session_manager.wait_for_session(master, config, max_wait_secs)
        if start_standard_services:
            self.start_queue_runners(session)
        return session

    def start_standard_services(self, sess: Session) -> list[LooperThread]:
        """Starts the threads that save checkpoints and summaries of a session.

        Raises:
          RuntimeError: if this is not the chief.
        """
        if not self.is_chief:
            raise RuntimeError("Only chief supervisor can start standard services.")
        if not self._logdir:
            _LOG.warning("standard services need a logdir, and do nothing without one")
            return []
        started = []
        if self.save_summaries_secs and self.summary_op is not None and self.summary_writer:
            started.append(self.loop(self.save_summaries_secs, self._write_summary, (sess,)))
        if self.save_summaries_secs and self.global_step is not None and self.summary_writer:
            counter = _StepRate(self, sess)
            started.append(self.loop(self.save_summaries_secs, counter.write))
        if self.save_model_secs and self.saver is not None:
            started.append(self.loop(self.save_model_secs, self._save, (sess,)))
        return started

    def start_queue_runners(
        self, sess: Session, queue_runners: Iterable[QueueRunner] | None = None
    ) -> list[Any]:
        """Starts the threads of queue runners, by default of all that the graph has."""
        runners = queue_runners
        if runners is None:
            runners = self._graph.get_collection(QUEUE_RUNNERS)
        return [
            thread
            for runner in runners
            for thread in runner.create_threads(sess, coord=self.coord, daemon=True, start=True)
        ]

    def loop(
        self,
        timer_interval_secs: float | None,
        target: Callable[..., object],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> LooperThread:
        """Starts a thread that calls a function again and again; see `LooperThread`."""
        return LooperThread.loop(self.coord, timer_interval_secs, target, args, kwargs)

    def should_stop(self) -> bool:
        """Returns whether a stop was requested."""
        return self.coord.should_stop()

    def request_stop(self, ex: Any = None) -> None:
        """Requests that all threads stop; see `Coordinator.request_stop`."""
        self.coord.request_stop(ex)

    def wait_for_stop(self) -> None:
        """Waits until a stop is requested."""
        self.coord.wait_for_stop()

    def stop(
        self,
        threads: Iterable[Any] | None = None,
        close_summary_writer: bool = True,
        ignore_live_threads: bool = False,
    ) -> None:
        """Stops the threads and waits for their end. Raises what one of them has raised."""
        self.coord.request_stop()
        try:
            self.coord.join(threads, self._stop_grace_secs, ignore_live_threads)
        finally:
            if close_summary_writer and self.summary_writer:
                self.summary_writer.close()

    def summary_computed(
        self, sess: Session, summary: bytes, global_step: int | None = None
    ) -> None:
        """Writes a summary that the program has fetched.

        Raises:
          RuntimeError: if there is no writer.
        """
        if not self.summary_writer:
            raise RuntimeError(
                "Writing a summary requires a summary writer: pass logdir=, and install "
                "jflow[summaries]"
            )
        if global_step is None and self.global_step is not None:
            global_step = int(sess.run(self.global_step))
        self.summary_writer.add_summary(summary, global_step)

    PrepareSession = prepare_or_wait_for_session
    StartQueueRunners = start_queue_runners
    StartStandardServices = start_standard_services
    Loop = loop
    ShouldStop = should_stop
    RequestStop = request_stop
    WaitForStop = wait_for_stop
    Stop = stop
    SummaryComputed = summary_computed

    def _writer(self) -> FileWriter | None:
        if self.is_chief and self._logdir is not None and can_write_events():
            return FileWriter(self._logdir)
        return None

    def _write_definition(self) -> None:
        definition = self._graph.as_graph_def(add_shapes=True)
        if self._logdir and "://" not in self._logdir:
            write_graph(definition, self._logdir, GRAPH_FILE)
        if self.summary_writer and not self._is_graph_written:
            self.summary_writer.add_graph(definition)
            self._is_graph_written = True

    def _write_summary(self, sess: Session) -> None:
        fetched = [self.summary_op, *([] if self.global_step is None else [self.global_step])]
        summary, *steps = sess.run(fetched)
        self.summary_writer.add_summary(summary, int(steps[0]) if steps else None)

    def _save(self, sess: Session) -> None:
        if self._logdir is not None:
            os.makedirs(self._logdir, exist_ok=True)
        self.saver.save(sess, self.save_path, global_step=self.global_step)


class _StepRate:
    """Writes how many steps there are in a second."""

    def __init__(self, supervisor: Supervisor, sess: Session) -> None:
        self._supervisor, self._sess = supervisor, sess
        self._last: tuple[float, int] | None = None

    def write(self) -> None:
        """Writes the rate since the last call."""
        step, now = int(self._sess.run(self._supervisor.global_step)), time.monotonic()
        if self._last is not None and now > self._last[0]:
            rate = (step - self._last[1]) / (now - self._last[0])
            self._supervisor.summary_writer.add_scalar("global_step/sec", rate, step)
        self._last = now, step


def _finalized(graph: Graph, given: Mapping[str, Any]) -> dict[str, Any]:
    """Makes what is `USE_DEFAULT`, and finalizes the graph."""
    with graph.as_default():
        chosen = {name: None if value is _DEFAULT else value for name, value in given.items()}
        scaffold = Scaffold(**chosen).finalize()
    return {
        name: getattr(scaffold, name) if value is _DEFAULT else value
        for name, value in given.items()
    }

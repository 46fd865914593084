"""`SessionManager`: opens sessions whose variables are initialized, restored or awaited."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from jflow.base.deadline import backoff
from jflow.base.deadline.notices import WaitNotice
from jflow.base.options import ConfigProto, RunOptions
from jflow.client.session import Session
from jflow.compiler.graph import Graph, get_default_graph
from jflow.errors import DeadlineExceededError, FailedPreconditionError
from jflow.training.checkpoints.checkpoint_state import get_checkpoint_state

_LOG = logging.getLogger(__name__)
_FIRST_PAUSE_S = 0.25
"""How long to wait before looking again the first time; twice as long each time after."""


class SessionManager:
    """Opens sessions on a graph and sees to it that its variables are ready.

    Args:
      local_init_op: what to run once the model is ready for it, in every session.
      ready_op: gives the names of variables that are not initialized; None if nothing has to be
        ready. The model is ready if it gives an empty vector or None.
      ready_for_local_init_op: the same, before `local_init_op`.
      graph: the graph; None for the default one.
      recovery_wait_secs: how long to wait at most before looking again, in seconds.
      local_init_run_options: options of the step that runs `local_init_op`.
      local_init_feed_dict: what to feed to it.

    Raises:
      ValueError: if there is a `ready_for_local_init_op` but no `local_init_op`.
    """

    def __init__(
        self,
        local_init_op: Any = None,
        ready_op: Any = None,
        ready_for_local_init_op: Any = None,
        graph: Graph | None = None,
        recovery_wait_secs: float = 30,
        local_init_run_options: RunOptions | None = None,
        local_init_feed_dict: Mapping[Any, Any] | None = None,
    ) -> None:
        if ready_for_local_init_op is not None and local_init_op is None:
            raise ValueError(
                "a ready_for_local_init_op requires a local_init_op, which it is checked for; pass "
                "local_init_op= too"
            )
        self._graph = get_default_graph() if graph is None else graph
        self._local_init_op = local_init_op
        self._ready_op = ready_op
        self._ready_for_local_init_op = ready_for_local_init_op
        self._recovery_wait_secs = recovery_wait_secs
        self._local_init_run_options = local_init_run_options
        self._local_init_feed_dict = local_init_feed_dict

    def __repr__(self) -> str:
        return f"<jflow.train.SessionManager of {self._graph!r}>"

    def prepare_session(  # noqa: PLR0913, PLR0917 - the arguments are TensorFlow's
        self,
        master: str,
        init_op: Any = None,
        saver: Any = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: ConfigProto | None = None,
        init_feed_dict: Mapping[Any, Any] | None = None,
        init_fn: Callable[[Session], object] | None = None,
    ) -> Session:
        """Opens a session and restores or initializes the variables; for the chief.

        Args:
          master: target of the session.
          init_op: what to run if no checkpoint is restored.
          saver: what restores a checkpoint.
          checkpoint_dir: directory whose latest checkpoint to restore, if there is one.
          checkpoint_filename_with_path: the checkpoint to restore, instead of a directory.
          wait_for_checkpoint: whether to wait until the directory has a checkpoint.
          max_wait_secs: how long to wait for it, in seconds.
          config: options of the session.
          init_feed_dict: what to feed to `init_op`.
          init_fn: function of the session to call after `init_op`.

        Raises:
          RuntimeError: if nothing is restored and nothing initializes, or the model is not ready
            afterwards.
          ValueError: if there are both a directory and a checkpoint.
        """
        with self._opened(master, config) as session:
            is_restored = self._restore(
                session,
                saver,
                checkpoint_dir,
                checkpoint_filename_with_path,
                max_wait_secs if wait_for_checkpoint else 0,
            )
            if not is_restored:
                if init_op is None and init_fn is None and self._local_init_op is None:
                    raise RuntimeError(
                        "model is not initialized: there is no checkpoint to restore, and no "
                        "init_op, init_fn or local_init_op was given"
                    )
                if init_op is not None:
                    session.run(init_op, feed_dict=init_feed_dict)
                if init_fn is not None:
                    init_fn(session)
            self._check(self._initialize_locally(session), "ready for local_init", init_op, init_fn)
            self._check(self._missing(session, self._ready_op), "ready", init_op, init_fn)
        return session

    def recover_session(
        self,
        master: str,
        saver: Any = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: ConfigProto | None = None,
    ) -> tuple[Session, bool]:
        """Opens a session and restores a checkpoint, if there is one.

        Args:
          master, saver, checkpoint_dir, checkpoint_filename_with_path, wait_for_checkpoint,
            max_wait_secs, config: as for `prepare_session`.

        Returns:
          The session, and whether its variables were restored and are ready.
        """
        with self._opened(master, config) as session:
            is_restored = self._restore(
                session,
                saver,
                checkpoint_dir,
                checkpoint_filename_with_path,
                max_wait_secs if wait_for_checkpoint else 0,
            )
            missing = self._initialize_locally(session)
            if is_restored and missing is None:
                missing = self._missing(session, self._ready_op)
            if is_restored and missing is not None:
                source = checkpoint_dir or checkpoint_filename_with_path
                _LOG.info("restoring from %s did not make the model ready: %s", source, missing)
        return session, is_restored and missing is None

    def wait_for_session(
        self, master: str, config: ConfigProto | None = None, max_wait_secs: float | None = None
    ) -> Session:
        """Opens sessions until another process has initialized the variables; not for the chief.

        Args:
          master: target of the session.
          config: options of the session.
          max_wait_secs: how long to wait, in seconds; None for no limit.

        Raises:
          DeadlineExceededError: if the model is not ready after that time.
        """
        limit = math.inf if max_wait_secs is None else max_wait_secs
        deadline, missing = time.monotonic() + limit, None
        pauses = self._pauses()
        notice = WaitNotice(
            lambda: f"for the model to be ready: {missing}; the chief initializes the variables"
        )
        with notice.timed():
            while True:
                with self._opened(master, config) as session:
                    missing = self._initialize_locally(session)
                    if missing is None:
                        missing = self._missing(session, self._ready_op)
                if missing is None:
                    return session
                session.close()
                left = deadline - time.monotonic()
                if left <= 0:
                    raise DeadlineExceededError(
                        f"session was not ready after waiting {limit:g} s: {missing}; the chief "
                        "initializes the variables, see whether it runs"
                    )
                _LOG.info("waiting for the model to be ready: %s", missing)
                time.sleep(min(next(pauses), left))
                notice.tell()

    def _pauses(self) -> Iterator[float]:
        return backoff(min(_FIRST_PAUSE_S, self._recovery_wait_secs), self._recovery_wait_secs)

    @contextmanager
    def _opened(self, master: str, config: ConfigProto | None) -> Iterator[Session]:
        """Opens a session, which an error in the block closes."""
        session = Session(master, graph=self._graph, config=config)
        try:
            yield session
        except BaseException:
            session.close()
            raise

    def _restore(
        self,
        session: Session,
        saver: Any,
        checkpoint_dir: str | None,
        checkpoint: str | None,
        max_wait_secs: float,
    ) -> bool:
        """Restores a checkpoint if there is one, and returns whether there was."""
        if checkpoint_dir and checkpoint:
            raise ValueError(
                "expected checkpoint_dir or checkpoint_filename_with_path, got both: "
                f"{checkpoint_dir!r} and {checkpoint!r}"
            )
        if saver is None or not (checkpoint_dir or checkpoint):
            return False
        if checkpoint:
            saver.restore(session, checkpoint)
            return True
        assert checkpoint_dir is not None
        deadline = time.monotonic() + max_wait_secs
        notice = WaitNotice(lambda: f"for a checkpoint in {checkpoint_dir}")
        pauses = self._pauses()
        while not ((state := get_checkpoint_state(checkpoint_dir)) and state.model_checkpoint_path):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            _LOG.info("waiting for a checkpoint in %s", checkpoint_dir)
            time.sleep(min(next(pauses), left))
            notice.tell()
        saver.restore(session, state.model_checkpoint_path)
        saver.recover_last_checkpoints(state.all_model_checkpoint_paths)
        return True

    def _initialize_locally(self, session: Session) -> str | None:
        """Runs the local initialization; returns what is missing for it, else None."""
        if self._local_init_op is None:
            return None
        missing = self._missing(session, self._ready_for_local_init_op)
        if missing is None:
            session.run(
                self._local_init_op,
                feed_dict=self._local_init_feed_dict,
                options=self._local_init_run_options,
            )
        return missing

    def _check(self, missing: str | None, what: str, init_op: Any, init_fn: Any) -> None:
        """Raises RuntimeError if something is missing after the initialization."""
        if missing is not None:
            raise RuntimeError(
                f"init operations did not make the model {what}: {missing} (init_op {init_op!r}, "
                f"init_fn {init_fn!r}, local_init_op {self._local_init_op!r})"
            )

    def _missing(self, session: Session, ready_op: Any) -> str | None:
        """Returns what a ready operation says is missing, None if nothing is."""
        if ready_op is None:
            return None
        try:
            names = session.run(ready_op)
        except FailedPreconditionError as error:
            if "uninitialized" not in str(error):
                _LOG.warning("a ready operation failed: %s", error)
                raise
            return str(error)
        if names is None or not np.size(names):
            return None
        return "variables not initialized: " + ", ".join(
            name.decode() if isinstance(name, bytes) else str(name) for name in np.ravel(names)
        )

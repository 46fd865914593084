"""How monitored sessions open their sessions: as the chief, or as another worker."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod

from jflow.base.options import ConfigProto
from jflow.client.session import Session
from jflow.compiler.graph import get_default_graph
from jflow.training.monitored.scaffold import Scaffold
from jflow.training.monitored.session_manager import SessionManager


class SessionCreator(ABC):
    """What opens the session of a monitored session, again after each failure."""

    def __repr__(self) -> str:
        return f"<jflow.train.{type(self).__name__}>"

    @abstractmethod
    def create_session(self) -> Session:
        """Returns a session whose variables are ready."""


class ChiefSessionCreator(SessionCreator):
    """Opens a session and restores or initializes its variables.

    Args:
      scaffold: what the session needs in addition to its steps; None for the defaults.
      master: target of the session.
      config: options of the session.
      checkpoint_dir: directory whose latest checkpoint is restored.
      checkpoint_filename_with_path: the checkpoint to restore, instead of a directory.
    """

    def __init__(
        self,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: ConfigProto | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        checkpoint_filename_with_path: str | None = None,
    ) -> None:
        self._scaffold = scaffold or Scaffold()
        self._master = master
        self._config = None if config is None else config.copy()
        self._checkpoint_dir = os.fspath(checkpoint_dir) if checkpoint_dir else None
        self._checkpoint_filename_with_path = checkpoint_filename_with_path

    def create_session(self) -> Session:
        """Opens a session on the default graph, which is final from then on."""
        scaffold = self._scaffold.finalize()
        return _manager_of(scaffold).prepare_session(
            self._master,
            saver=scaffold.saver,
            checkpoint_dir=self._checkpoint_dir,
            checkpoint_filename_with_path=self._checkpoint_filename_with_path,
            config=self._config,
            init_op=scaffold.init_op,
            init_feed_dict=scaffold.init_feed_dict,
            init_fn=scaffold.init_fn,
        )


class WorkerSessionCreator(SessionCreator):
    """Opens a session once the chief has made its variables ready.

    Args:
      scaffold: what the session needs in addition to its steps; None for the defaults.
      master: target of the session.
      config: options of the session.
      max_wait_secs: how long to wait for the chief, in seconds.
      recovery_wait_secs: how long to wait at most before looking again, in seconds.
    """

    def __init__(
        self,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: ConfigProto | None = None,
        max_wait_secs: float = 30 * 60,
        recovery_wait_secs: float = 30,
    ) -> None:
        self._scaffold = scaffold or Scaffold()
        self._master = master
        self._config = None if config is None else config.copy()
        self._max_wait_secs = max_wait_secs
        self._recovery_wait_secs = recovery_wait_secs

    def create_session(self) -> Session:
        """Opens a session on the default graph, which is final from then on.

        Raises:
          DeadlineExceededError: if the variables are not ready in time.
        """
        manager = _manager_of(self._scaffold.finalize(), self._recovery_wait_secs)
        return manager.wait_for_session(self._master, self._config, self._max_wait_secs)


def _manager_of(scaffold: Scaffold, recovery_wait_secs: float = 30) -> SessionManager:
    return SessionManager(
        local_init_op=scaffold.local_init_op,
        ready_op=scaffold.ready_op,
        ready_for_local_init_op=scaffold.ready_for_local_init_op,
        graph=get_default_graph(),
        recovery_wait_secs=recovery_wait_secs,
        local_init_feed_dict=scaffold.local_init_feed_dict,
    )

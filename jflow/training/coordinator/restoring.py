"""`StateRestorer`: saves the variables of a strategy, restores those of lost parameter servers."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

from jflow.base.cluster import Task
from jflow.base.deadline import Deadline, backoff
from jflow.base.options import ConfigProto
from jflow.base.text import seconds_text
from jflow.client.functions import Connection
from jflow.client.runtime.saving import SaveReport, StateToSave
from jflow.errors import (
    DeadlineExceededError,
    NotFoundError,
    OpError,
    RestartedError,
    UnavailableError,
)
from jflow.state.checkpoint_files import open_checkpoint
from jflow.state.fencing import CLAIMS
from jflow.training.parameter_servers import ParameterServerStrategy

_LOG = logging.getLogger(__name__)

RETURNS_WITHIN_S = 3600.0
"""How long a lost parameter server is waited for, in seconds, as TensorFlow waits for workers."""

N_IN_VAIN = 3
"""How often restoring may fail although no parameter server is lost meanwhile."""

PROBE_S = 2.0
"""How long a parameter server has to answer whether it is there, in seconds."""


class StateRestorer:
    """The variables on the parameter servers of a strategy, and their checkpoint. Thread-safe
    except that one thread restores at a time.

    Args:
      strategy: the strategy.
      path: of the checkpoint, as the parameter servers see it; None if there is none.
      patience: how long a lost parameter server is waited for, in seconds.

    Attributes:
      path: as given.
    """

    def __init__(
        self,
        strategy: ParameterServerStrategy,
        path: str | os.PathLike[str] | None = None,
        patience: float = RETURNS_WITHIN_S,
    ) -> None:
        self._strategy = strategy
        self.path = None if path is None else os.fspath(path)
        self._patience = patience
        self._lives: dict[Task, int] = {}

    def note_lives(self) -> None:
        """Records the incarnations of parameter servers that are not known. Raises as `life_of`."""
        present = self._strategy.present_ps_tasks
        known = {task: life for task, life in self._lives.items() if task in present}
        self._lives = known | {one: self.life_of(one) for one in present if one not in known}

    def life_of(self, task: Task) -> int:
        """Returns the incarnation of a task that answers.

        Raises:
          UnavailableError: if it does not.
        """
        config = ConfigProto(
            connect_timeout_in_ms=int(PROBE_S * 1000), operation_timeout_in_ms=int(PROBE_S * 1000)
        )
        with Connection(self._strategy.target_of(task), config) as connection:
            try:
                return connection.incarnation()
            except (DeadlineExceededError, UnavailableError) as error:
                raise UnavailableError(
                    f"{task} at {self._strategy.target_of(task)} does not answer: {error.message}",
                    task=str(task),
                ) from None

    def is_there(self, task: Task) -> bool:
        """Whether a parameter server answers and has not restarted since it got the variables.

        One that has left the cluster counts as there: its variables are on its successor.
        """
        with suppress(OpError, RuntimeError):
            members = self._strategy.connection.members(Deadline(PROBE_S))
            if members is not None and task in members.left:
                return True
        try:
            life = self.life_of(task)
        except UnavailableError:
            return False
        return self._lives.setdefault(task, life) == life

    def save(self, about: Mapping[str, str] | None = None) -> SaveReport:
        """Saves all variables; each step is in the checkpoint as a whole or not at all.

        Raises:
          NotFoundError: if there is no path, or no such directory.
          OpError: as `jflow.checkpoint.save`.
        """
        states = self._states(self._strategy.present_ps_tasks)
        return self._strategy.connection.save_state(
            self._checked(), states, is_consistent=True, about=about
        )

    def about(self) -> dict[str, str] | None:
        """The texts that were passed to `save`; None without a checkpoint. Raises as `restore`."""
        path = self._checked()
        try:
            with open_checkpoint(path) as checkpoint:
                about = dict(checkpoint.about)
        except NotFoundError:
            return None
        about.pop(CLAIMS, None)
        return about

    def restore(self) -> None:
        """Restores all variables and records the present incarnations of the parameter servers.

        Raises:
          NotFoundError: if there is no checkpoint, or it lacks a variable.
          OpError: as `jflow.checkpoint.restore`.
        """
        lives = {task: self.life_of(task) for task in self._strategy.present_ps_tasks}
        self._restore(lives)
        self._lives.update(lives)

    def _restore(self, tasks: Collection[Task]) -> None:
        """Restores the variables of some parameter servers."""
        if states := self._states(tasks):
            self._strategy.connection.restore_state(self._checked(), states)

    def bring_back(self, closing: threading.Event) -> None:
        """Waits until all parameter servers answer, and restores the variables of those that were
        lost since `note_lives`; also of those that are lost while others are restored.

        Args:
          closing: ends the wait when it is set.

        Raises:
          UnavailableError: if one does not come back, or its variables cannot be restored.
          FencedError: if another program has taken over.
        """
        deadline, n_in_vain = Deadline(self._patience), 0
        while True:
            lives = {task: self._awaited(task, deadline, closing) for task in self._lives}
            try:
                self._reopened(lives)
            except (RestartedError, UnavailableError) as error:
                n_in_vain += self._are_in(lives)
                if n_in_vain == N_IN_VAIN or closing.is_set() or deadline.remaining() == 0:
                    raise
                _LOG.warning("the variables are restored again: %s", error.message)
            except NotFoundError as error:
                lost = next(task for task in lives if lives[task] != self._lives[task])
                raise UnavailableError(
                    f"{lost} was lost with its variables, which cannot be restored: "
                    f"{error.message}; save them with ClusterCoordinator.save",
                    task=str(lost),
                ) from error
            else:
                if self._are_in(lives):
                    self._lives = lives
                    return

    def _reopened(self, lives: Mapping[Task, int]) -> None:
        """Reconnects to the parameter servers and restores those that have restarted."""
        lost = [task for task, life in lives.items() if life != self._lives[task]]
        self._strategy.connection.reopen()
        if lost:
            _LOG.warning("%s restarted; its variables are restored", ", ".join(map(str, lost)))
            self._restore(lost)

    def _are_in(self, lives: Mapping[Task, int]) -> bool:
        """Whether all servers answer with these incarnations, so that none was lost since."""
        try:
            return all(self.life_of(task) == life for task, life in lives.items())
        except UnavailableError:
            return False

    def _awaited(self, task: Task, deadline: Deadline, closing: threading.Event) -> int:
        pauses = backoff(0.05, 1.0)
        while True:
            try:
                return self.life_of(task)
            except UnavailableError as error:
                if closing.is_set() or deadline.remaining() == 0:
                    raise UnavailableError(
                        f"{error.message}; it did not come back within "
                        f"{seconds_text(self._patience)}",
                        task=str(task),
                    ) from None
            closing.wait(next(pauses))

    def _states(self, tasks: Iterable[Task]) -> list[StateToSave]:
        """Returns the variables that are on some parameter servers now."""
        wanted, strategy = {*tasks}, self._strategy
        return [
            one
            for one in strategy.connection.variables
            if strategy.successor_of(Task.parse(str(one.ref.spec))) in wanted
        ]

    def _checked(self) -> str:
        if self.path is None:
            raise NotFoundError("there is no checkpoint: give the coordinator a checkpoint path")
        return self.path

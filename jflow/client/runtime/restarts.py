"""`Restarts`: lets a connection continue after tasks of its cluster have restarted."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable

from jflow.base.cluster import Task
from jflow.errors import RestartedError
from jflow.plan import Plan
from jflow.state.moves import states_of

_N_NAMES = 5


class Restarts:
    """The state that a connection uses on each task, to tell what a restart has lost.

    A task that restarts has lost its state. If a connection used some of it there, one call fails
    and names it; any other call registers its step on the new life of the task. A session fails
    permanently, because its graph cannot know which of its variables are initialized.

    Thread-safe.

    Attributes:
      are_outlived: whether it belongs to a connection, which continues after restarts.
    """

    def __init__(self) -> None:
        self.are_outlived = False
        self._used: dict[Task, dict[str, None]] = {}
        self._known: set[Task] = set()
        self._lock = threading.Lock()

    def uses(self, plans: Iterable[Plan], server: Task) -> None:
        """Records the state that the plans use.

        Args:
          plans: the plans.
          server: the task that the connection is to; state of the connection alone ends with it.
        """
        with self._lock:
            for state in states_of(plans):
                for task in {state.task, server} if state.session else {state.task}:
                    self._used.setdefault(task, {})[state.name] = None

    def known(self, tasks: Collection[Task]) -> list[Task]:
        """Returns those of the tasks whose restart the server must be told of, each only once."""
        with self._lock:
            restarted_tasks = sorted(self._known.intersection(tasks))
            self._known.difference_update(restarted_tasks)
            return restarted_tasks

    def go_on(self, error: RestartedError, *, is_rolled_back: bool) -> None:
        """Returns if the failed call can be retried on the restarted task; raises otherwise.

        Args:
          error: the error of the failed call.
          is_rolled_back: whether it is certain that the call has done nothing.

        Raises:
          RestartedError: if it cannot. The next call of a connection can succeed.
        """
        if not self.are_outlived or error.task is None:
            raise error
        task = Task.parse(error.task)
        with self._lock:
            self._known.add(task)
            lost_state = [*self._used.pop(task, {})]
        if is_rolled_back and not lost_state:
            return
        what = error.message.partition(";")[0]
        raise RestartedError(
            f"{what}; {_advice(lost_state)}", op=error.op, task=error.task
        ) from None


def _advice(lost: Collection[str]) -> str:
    if not lost:
        return "a part of the call may have been done; this connection goes on with the next one"
    names = ", ".join(map(repr, [*lost][:_N_NAMES]))
    more = f" and {len(lost) - _N_NAMES} more" if len(lost) > _N_NAMES else ""
    return (
        f"this connection used {names}{more} there: set or restore what is lost, then call again "
        "(what uses nothing of it goes on as before)"
    )

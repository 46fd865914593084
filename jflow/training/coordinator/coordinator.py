"""`ClusterCoordinator`: functions scheduled onto workers that may fail."""

from __future__ import annotations

import inspect
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax

from jflow.base import forks
from jflow.base.cards import Card, Carded
from jflow.base.cluster import Task
from jflow.base.handles import Closing
from jflow.base.options import ConfigProto
from jflow.base.progress import LONG_S, Progress, is_watched
from jflow.base.text import seconds_text
from jflow.client.functions import Connection
from jflow.client.runtime.saving import SaveReport
from jflow.compiler.graph.members import visible
from jflow.errors import (
    CancelledError,
    FailedPreconditionError,
    RestartedError,
    UnavailableError,
)
from jflow.state.members import MemberList
from jflow.training.coordinator.engine import Engine
from jflow.training.coordinator.exchange import exchange_with_cluster
from jflow.training.coordinator.metrics import CoordinatorMetrics
from jflow.training.coordinator.per_worker import PerWorkerDataset, dataset_maker
from jflow.training.coordinator.recovery import RecoveryOptions
from jflow.training.coordinator.remote_value import RemoteValue
from jflow.training.coordinator.restoring import StateRestorer
from jflow.training.coordinator.scheduling import (
    AT_LEAST_ONCE,
    ClosureSource,
    ScheduleOptions,
    check_owner,
)
from jflow.training.parameter_servers import ParameterServerStrategy
from jflow.training.parameter_servers.roles import WORKER_JOB

_RAISE, _RESTORE = "raise", "restore"

_WATCHDOG = "TF_CLUSTER_COORDINATOR_WATCH_DOG_TIMEOUT"

_CONNECT_TIMEOUT_MS = 5000
"""How long a worker's connection waits for a task, at most: other workers can be asked."""

_by_strategy: weakref.WeakKeyDictionary[
    ParameterServerStrategy, weakref.ReferenceType[ClusterCoordinator]
] = weakref.WeakKeyDictionary()
_creating = threading.Lock()


class _OnePerStrategy(type):
    """Returns the coordinator that a strategy has, or makes it."""

    def __call__(cls, strategy: Any = None, **options: Any) -> Any:
        if not isinstance(strategy, ParameterServerStrategy):
            raise ValueError(
                "ClusterCoordinator requires a jflow.distribute.ParameterServerStrategy, got "
                f"{strategy!r:.80}"
            )
        with _creating:
            reference = _by_strategy.get(strategy)
            known = None if reference is None else reference()
            if known is None or known.is_closed:
                known = super().__call__(strategy, **options)
                _by_strategy[strategy] = weakref.ref(known)
            return known

    @property
    def __signature__(cls) -> inspect.Signature:
        signature = inspect.signature(cls.__init__)  # type: ignore[misc]
        _, *own = signature.parameters.values()
        return signature.replace(parameters=own, return_annotation=signature.empty)


@forks.guarded("schedule", "join", "done", "fetch", ignored=("close",))
class ClusterCoordinator(Carded, Closing, metaclass=_OnePerStrategy):
    """Schedules functions onto the workers of a cluster, some of which may fail.

    A function runs on any worker that is free; its variables are on parameter servers. If its
    worker is lost, it runs again on another one. A worker that returns, at its address, takes part
    again; its datasets begin anew first. Workers that join the cluster take part within seconds,
    and those that are drained leave. A lost parameter server is an `UnavailableError` of
    `schedule`, `join` and `done`, or a pause in which its variables are restored.

    A coordinator that is started later takes over: everything that the former one still does fails
    with a `FencedError`.

    There is one coordinator for a strategy: a second call returns the first one. Its methods may be
    called on any thread. It ends with the `with` block, with `close`, or when it is no longer used.

    Args:
      strategy: knows the cluster and owns the variables.
      name: what it claims (`Connection.claim`); a coordinator of the same name that was started
        before is refused from now on. None for no claim.
      on_ps_failure: "raise", or "restore": when a parameter server is lost, workers stop until it
        is back and its variables are restored from the checkpoint.
      checkpoint: the path of the checkpoint of `save` and `restore`, as this program and the
        parameter servers see it.
      watchdog_timeout: after how many seconds without an ended function the stacks of all threads
        are logged, again and again; by default TF_CLUSTER_COORDINATOR_WATCH_DOG_TIMEOUT, else
        never.

    Attributes:
      strategy: as given.

    Raises:
      ValueError: if the strategy is not a `ParameterServerStrategy`, or `on_ps_failure` is
        neither.
      UnavailableError: if a parameter server does not answer.
    """

    def __init__(
        self,
        strategy: ParameterServerStrategy,
        *,
        name: str | None = "coordinator",
        on_ps_failure: str = "raise",
        checkpoint: str | os.PathLike[str] | None = None,
        watchdog_timeout: float | None = None,
    ) -> None:
        if on_ps_failure not in (_RAISE, _RESTORE):
            raise ValueError(
                f"expected on_ps_failure={_RAISE!r} or {_RESTORE!r}, got {on_ps_failure!r}"
            )
        self.strategy = strategy
        self._restorer = StateRestorer(strategy, checkpoint)
        claim = None if name is None else (name, strategy.connection.claim(name))
        self._restorer.note_lives()
        recovery = RecoveryOptions(
            strategy.ps_tasks, self._restorer, on_ps_failure == _RESTORE, claim
        )
        config = _worker_config(strategy.config)
        if watchdog_timeout is None:
            watchdog_timeout = float(os.environ.get(_WATCHDOG) or 0) or None
        targets = {task: strategy.target_of(task) for task in strategy.worker_tasks}
        # The engine's threads must not keep this object alive.
        self._engine = Engine(
            strategy.worker_tasks,
            lambda task: Connection(targets[task], config),
            strategy.prepare_worker,
            watchdog_timeout,
            recovery,
        )
        exchange_with_cluster(
            strategy.connection,
            self._engine.closed,
            partial(self._engine.status, name or ""),
            partial(_follow, weakref.ref(self)),
        )
        self._source = ClosureSource(self._engine, strategy.connection)
        self._targets = targets
        self._end = weakref.finalize(self, self._engine.close)

    # Closures -----------------------------------------------------------------------------------

    def schedule(
        self,
        fn: Any,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        effects: str = AT_LEAST_ONCE,
        priority: int = 0,
        worker: int | None = None,
        timeout: float | None = None,
    ) -> RemoteValue:
        """Schedules a function to run on a worker, and returns at once.

        The function is traced here, once for each kind of arguments, so errors of tracing are
        raised here. It waits only while 262,144 functions are scheduled and have not ended, or
        while another thread is in `join`.

        Arguments can be a `RemoteValue`, the result of another scheduled function, which runs
        first; and `PerWorkerValues`, such as an iterator of `create_per_worker_dataset`, of which
        the function gets that of its worker. A result of 64 KiB or more stays on its worker, where
        the functions that take it read it; docs/distribute.md says when this process has a copy.

        Args:
          fn: a `jflow.function`, or a method that is one.
          args, kwargs: its arguments.
          effects: "at_least_once": if its worker is lost, it may have run in part or whole before
            it runs again, so it may write twice; "exactly_once": its writes are applied once.
          priority: functions of a higher priority run first.
          worker: the index of the only worker that may run it; None for any.
          timeout: after how many seconds it fails with a `DeadlineExceededError`; None for never.

        Returns:
          Its future result.

        Raises:
          TypeError: if `fn` is not a `jflow.function`, an argument or a result is not an array, or
            it captures what has to be an argument.
          ValueError: if it uses variables of another cluster or graph, values of workers differ
            in shape, or an argument is a `RemoteValue` of another coordinator.
          UnimplementedError: if it is to have its effects exactly once, and uses a queue or reader.
          ClosureInputError: if an argument is a `RemoteValue` that has failed.
          Exception: the first error of functions since the last one that was raised, when all that
            were scheduled have ended or are cancelled; and what tracing raises.
        """
        options = ScheduleOptions(effects, priority, worker, timeout)
        options.check()
        self._check_open()
        self._engine.raise_error()
        return self._source.schedule(self, fn, tuple(args or ()), dict(kwargs or {}), options)

    def join(self, timeout: float | None = None, *, progress: bool | None = None) -> None:
        """Waits until all scheduled functions have ended; then nothing is running.

        It may be called again, and returns at once if nothing is scheduled. Calls of `schedule` on
        other threads wait meanwhile. While all workers are down, it waits for one to return.

        Args:
          timeout: the longest time to wait in seconds; None for no limit.
          progress: whether to show how many functions have ended; None for where a user sees it
            and after two seconds.

        Raises:
          DeadlineExceededError: if the timeout passes; the functions go on.
          Exception: the first error of functions since the last one that was raised. All others
            have ended or are cancelled then, and functions can be scheduled again.
        """
        self._check_open()
        if (progress is None and not is_watched()) or progress is False:
            self._engine.join(timeout, None)
            return
        n_open = sum(self._engine.numbers())
        after_s = 0.0 if progress else LONG_S
        with Progress(n_open, "scheduled functions", "function", after_s) as bar:
            shown = n_open

            def show(now_open: int) -> None:
                nonlocal shown
                while shown > now_open:
                    shown -= 1
                    bar.advance(f"{now_open} open")

            self._engine.join(timeout, show)
            show(0)

    def done(self) -> bool:
        """Returns whether all scheduled functions have ended.

        Raises:
          Exception: the first error of functions, as `join`.
        """
        self._check_open()
        return self._engine.is_done()

    def fetch(self, val: Any, timeout: float | None = None) -> Any:
        """Waits for results and returns them as NumPy arrays.

        Args:
          val: a structure of `RemoteValue`s and other values, which are returned as they are.
          timeout: the longest time to wait for each in seconds; None for no limit.

        Raises:
          ValueError: if a `RemoteValue` belongs to another coordinator.
          Exception: as `RemoteValue.fetch`.
        """

        def fetched(leaf: Any) -> Any:
            if not isinstance(leaf, RemoteValue):
                return leaf
            check_owner(leaf, self)
            return leaf.fetch(timeout)

        return jax.tree.map(fetched, val, is_leaf=lambda node: isinstance(node, RemoteValue))

    # Data ---------------------------------------------------------------------------------------

    def create_per_worker_dataset(self, dataset_fn: Any) -> PerWorkerDataset:
        """Makes a dataset for each worker; `iter` of it gives what functions take as argument.

        Functions call `next` on that argument, and get the next element of their worker. The
        elements are made in this process, read ahead by a thread for each worker, and sent with
        the functions that take them. A worker that was lost and returns begins at the beginning.
        The end of a dataset is an `OutOfRangeError` of the function that takes the element, which
        cancels the others; so repeat it, and schedule as many functions as are wanted.

        Args:
          dataset_fn: a function without arguments that returns a dataset, called for each worker;
            or a dataset, or one that a strategy distributes.

        Raises:
          TypeError: if it is none of them, or its elements are strings.
          ValueError: if it makes variables, or elements of workers differ in shape or dtype.
        """
        self._check_open()
        return PerWorkerDataset(
            dataset_maker(dataset_fn), self._engine.workers, self._engine.iterators.add
        )

    # Workers ------------------------------------------------------------------------------------

    def add_worker(self, index: int, address: str) -> None:
        """Adds a worker that has joined the cluster.

        Args:
          index: its index in the job "worker", which no other worker has.
          address: its address, "host:port". Its server must know the parameter servers.

        Raises:
          ValueError: if there is a worker of that index, perhaps one that is still to leave.
        """
        self._check_open()
        if index in self._engine.workers():
            raise ValueError(f"there is a worker {index} already; remove it first")
        task = Task(WORKER_JOB, index)
        self._targets[task] = f"grpc://{address}"
        self._engine.add_worker(task)

    def remove_worker(self, index: int, timeout: float | None = None) -> None:
        """Removes a worker, once what it is doing has ended; functions run on the others.

        Functions that only it may run fail with an `UnavailableError`.

        Args:
          index: its index.
          timeout: the longest time to wait in seconds; None for no limit.

        Raises:
          ValueError: if there is no such worker.
          DeadlineExceededError: if the timeout passes.
        """
        self._check_open()
        self._engine.remove_worker(index, timeout)

    def _follow(self, members: MemberList) -> None:
        """Lets workers that have joined the cluster take part, and those that have left leave."""
        self.strategy.take_members(members)
        self._restorer.note_lives()
        self._engine.replace_servers(self.strategy.present_ps_tasks)
        present = {task for task in members.cluster.tasks() if task.job == WORKER_JOB}
        known = self._engine.workers()
        for task in present:
            self._targets[task] = self.strategy.target_of(task)
            if task.index not in known:
                self._engine.add_worker(task)
        left = {task.index for task in members.left if task.job == WORKER_JOB}
        for index in left.intersection(known):
            # Raises an error while it runs closures, and this is called again.
            self._engine.remove_worker(index, timeout=0.0)

    # State --------------------------------------------------------------------------------------

    def save(self, about: Mapping[str, str] | None = None) -> SaveReport:
        """Saves the variables of the strategy as the checkpoint that this was made with.

        Functions go on meanwhile; each is in the checkpoint whole or not at all. With
        `on_ps_failure="restore"` it is saved again if a parameter server is lost meanwhile.

        Args:
          about: short texts that `restore` gives back.

        Raises:
          NotFoundError: if there is no checkpoint path, or no such directory.
          OpError: as `jflow.checkpoint.save`.
        """
        self._check_open()
        while True:
            try:
                return self._restorer.save(about)
            except (CancelledError, RestartedError, UnavailableError) as error:
                # Cancelled, because the recovery has begun to bring a parameter server back.
                self._engine.recovery.repair(error)
            except FailedPreconditionError as error:
                # A parameter server that has just restarted has no values yet.
                if all(map(self._restorer.is_there, self.strategy.present_ps_tasks)):
                    raise
                self._engine.recovery.repair(error)

    def restore(self) -> dict[str, str] | None:
        """Restores all variables of the strategy from the checkpoint, if there is one.

        Call it when the variables are made and before functions are scheduled. The path of the
        checkpoint is one that this program and the parameter servers see.

        Returns:
          The texts that were passed to `save`; None if there is no checkpoint.

        Raises:
          NotFoundError: if the checkpoint lacks a variable, or there is no checkpoint path.
          OpError: as `jflow.checkpoint.restore`.
        """
        self._check_open()
        about = self._restorer.about()
        if about is not None:
            self._restorer.restore()
        return about

    @property
    def n_restored(self) -> int:
        """How often variables of lost parameter servers were restored while functions ran."""
        return self._engine.recovery.n_restored

    def metrics(self) -> CoordinatorMetrics:
        """Returns what was counted and measured so far."""
        return self._engine.meter.metrics(*self._engine.numbers())

    # End ----------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """Whether the coordinator was closed."""
        return not self._end.alive

    def close(self) -> None:
        """Cancels open functions and ends the threads and connections. May be called again."""
        self._end()

    def _leave(self, failed: bool) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed " if self.is_closed else ""
        return f"<jflow.ClusterCoordinator {state}of {len(self._engine.workers())} workers>"

    def _card(self) -> Card:
        metrics = self.metrics()
        times = metrics.closure_execution
        ended = f"{metrics.succeeded:,} well, {metrics.failed:,} failed"
        facts = (
            ("state", "closed" if self.is_closed else "open"),
            ("workers", f"{len(self._engine.workers()):,}"),
            ("closures", f"{metrics.queued:,} wait, {metrics.running:,} run"),
            ("ended", f"{ended}, {metrics.cancelled:,} cancelled"),
            ("run again", f"{metrics.put_back:,} after a worker was lost"),
            ("workers lost", f"{metrics.worker_failures:,} times"),
            ("a closure takes", seconds_text(times.mean) if times.count else None),
        )
        return Card("ClusterCoordinator", "", facts)

    def __dir__(self) -> list[str]:
        return visible(super().__dir__(), "is_closed")

    def _check_open(self) -> None:
        if self.is_closed:
            raise RuntimeError(f"{self!r} cannot be used any more; make another one")


def _worker_config(config: ConfigProto | None) -> ConfigProto:
    own = config or ConfigProto()
    timeout = min(own.connect_timeout_in_ms, _CONNECT_TIMEOUT_MS)
    return replace(own, connect_timeout_in_ms=timeout)


def _follow(reference: weakref.ref[ClusterCoordinator], members: MemberList) -> None:
    coordinator = reference()
    if coordinator is not None:
        coordinator._follow(members)

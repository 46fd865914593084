"""`RemoteExecutable`: a step that runs on a cluster."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from functools import partial
from typing import Any, Protocol

import jax

from jflow.base import forks
from jflow.base.cluster import Task
from jflow.base.deadline import Deadline
from jflow.base.failpoints import failpoint
from jflow.base.progress import shown_if_long
from jflow.base.text import bytes_text
from jflow.base.values import Array, narrowed
from jflow.client.recording import SessionRecorder, StepRecorder
from jflow.client.runtime.restarts import Restarts
from jflow.compiler.pipeline import CompiledStep
from jflow.errors import (
    InternalError,
    OpError,
    RestartedError,
    UnavailableError,
    UnimplementedError,
)
from jflow.net.protocol import MasterClient, MasterSession
from jflow.plan.trace.record import TaskRecord
from jflow.plan.xla import internals
from jflow.state.effects import Effect, unsupported, writes_once
from jflow.task.execution.repeated import run_repeatedly


class Numbering:
    """Issues the sequence numbers of a session's steps; thread-safe.

    Args:
      client: the name of the session.
    """

    def __init__(self, client: str) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._n_begun = 0
        # Those that have not ended, in ascending order.
        self._open: dict[int, None] = {}

    def first_attempt(self) -> Effect:
        """Returns the first attempt of a new step; `end_step` must follow its last attempt."""
        with self._lock:
            sequence = self._n_begun
            self._n_begun += 1
            self._open[sequence] = None
            acknowledged = next(iter(self._open))
        return Effect(self._client, 0, sequence, acknowledged=acknowledged, is_saved=False)

    def end_step(self, sequence: int) -> None:
        """Notes that all attempts of a step have ended, so that its number can be acknowledged."""
        with self._lock:
            del self._open[sequence]


_STALE = (None, 0)
"""Put in front of a registration that must not be used again."""
_MAX_OFFERS = 3
_MAX_REPEATS = 100
_REPEATED_WITHIN_S = 2.0
_PAUSE_S = 0.01


class StepRegistry(Protocol):
    """What a step needs of the backend of a cluster.

    Attributes:
      numbering: the numbers of steps that are repeated.
      restarts: what it does when tasks have restarted.
      recording: what records its steps; None if they are not recorded.
    """

    numbering: Numbering
    restarts: Restarts
    recording: SessionRecorder | None

    def connection(self, deadline: Deadline) -> MasterClient:
        """Returns the connection to the master; connects, or reconnects, if necessary."""

    def offer(self, step: RemoteExecutable, client: MasterClient, deadline: Deadline) -> int:
        """Registers a step with the master and returns its handle."""

    def outlive(self, error: RestartedError, *, is_rolled_back: bool) -> None:
        """Makes steps register again on a task that has restarted. Raises as `Restarts.go_on`."""


def _release(registrations: list[tuple[MasterClient | None, int]]) -> None:
    """Releases the registrations of a step with their masters."""
    for client, handle in registrations:
        if client is not None:
            client.release(handle)


def _note_returned(recorder: StepRecorder, step_id: int, ended: Future[list[Array]]) -> None:
    if not ended.cancelled() and ended.exception() is None:
        recorder.returned(step_id, ended.result())


@forks.guarded("prepare", "run", "start", "compute")
class RemoteExecutable:
    """A step that is registered with the master when it first runs, and after a reconnect.

    Args:
      compiled: the step.
      backend: what has the connection.
    """

    def __init__(self, compiled: CompiledStep, backend: StepRegistry) -> None:
        self.plans, self.names = compiled.plans, compiled.names
        self._n_fetches = compiled.n_fetches
        self._artifacts = compiled.artifacts
        self._callbacks = compiled.callbacks
        self._backend = backend
        self._refusal = unsupported(compiled.plans)
        self._is_numbered = writes_once(compiled.plans)
        self._recorder: StepRecorder | None = None
        if (recording := backend.recording) is not None:
            self._recorder = recording.step(self.plans, self._artifacts)
        self._lock = threading.Lock()
        self._registrations: list[tuple[MasterClient | None, int]] = []
        # The finalizer has the list only: a reference to this object would keep it alive.
        weakref.finalize(self, _release, self._registrations).atexit = False

    def prepare(self, deadline: Deadline) -> None:
        self._register(deadline)

    def run(
        self,
        feeds: Sequence[Array],
        deadline: Deadline,
        *,
        effect: Effect | None = None,
        records: list[TaskRecord] | None = None,
    ) -> list[Array]:
        if effect is None and self._is_numbered:
            numbered = self._backend.numbering.first_attempt()
            try:
                return self._run_numbered(feeds, deadline, numbered, records)
            finally:
                self._backend.numbering.end_step(numbered.sequence)
        if effect is not None and self._refusal is not None:
            raise self._refusal
        client, handle = self._register(deadline)
        try:
            return self._run_on(client, handle, feeds, deadline, records, effect)
        except RestartedError as error:
            self._outlive(error, (client, handle))
        return self.run(feeds, deadline, effect=effect, records=records)

    def _run_on(
        self,
        client: MasterClient,
        handle: int,
        feeds: Sequence[Array],
        deadline: Deadline,
        records: list[TaskRecord] | None,
        effect: Effect | None,
    ) -> list[Array]:
        """Runs the step once, by its registration, and records that if the session is recorded."""
        recorder = self._recorder
        if recorder is None:
            return client.run_step(handle, feeds, deadline, self._callbacks, records, effect)
        step_id, attempt = recorder.next_run(), 1 if effect is None else effect.attempt
        if not recorder.begin(step_id, feeds, attempt):
            step_id = 0
        functions = recorder.functions(step_id, self._callbacks)
        values = client.run_step(handle, feeds, deadline, functions, records, effect, step_id)
        recorder.returned(step_id, values)
        return values

    def _run_numbered(
        self,
        feeds: Sequence[Array],
        deadline: Deadline,
        effect: Effect,
        records: list[TaskRecord] | None,
    ) -> list[Array]:
        """Runs a step that is applied once; retries if the connection is lost before the reply."""
        client, handle = self._register(deadline)
        while True:
            try:
                return self._run_on(client, handle, feeds, deadline, records, effect)
            except RestartedError as restarted:
                self._outlive(restarted, (client, handle))
                client, handle = self._register(deadline)
                continue
            except UnavailableError as error:
                if client.is_open or effect.attempt == _MAX_REPEATS:
                    raise
                lost = error
            failpoint("client.before_repeat")
            effect = effect.again()
            client, handle = self._register_again(lost, deadline)

    def _register_again(
        self, lost: UnavailableError, deadline: Deadline
    ) -> tuple[MasterClient, int]:
        """Registers the step over a new connection, retrying for a while if that is lost, too.

        Raises:
          UnavailableError: `lost`, if that fails. Then it is unknown whether the step was applied.
        """
        limit = Deadline(_REPEATED_WITHIN_S)
        while True:
            try:
                return self._register(deadline)
            except OpError as error:
                if isinstance(error, RestartedError) and self._backend.restarts.are_outlived:
                    raise  # it says once what is lost
                if not isinstance(error, UnavailableError) or limit.remaining() == 0:
                    raise lost from None
            time.sleep(_PAUSE_S)

    def run_steps(
        self, feeds: Sequence[Array], deadline: Deadline, n_steps: int, is_stacked: bool
    ) -> tuple[int, list[Array]]:
        if self._callbacks or self._recorder is not None:
            # The client takes part in each run.
            return run_repeatedly(lambda _: self.run(feeds, deadline), n_steps, is_stacked)
        client, handle = self._register(deadline)
        try:
            n_done, values = client.call(
                MasterSession.run_steps, handle, n_steps, is_stacked, feeds, deadline
            )
        except RestartedError as error:
            self._outlive(error, (client, handle))
            return self.run_steps(feeds, deadline, n_steps, is_stacked)
        return n_done, [*values]

    def start(
        self,
        feeds: Sequence[Array],
        deadline: Deadline,
        *,
        effect: Effect | None = None,
        records: list[TaskRecord] | None = None,
    ) -> Future[list[Array]]:
        if effect is not None and self._refusal is not None:
            raise self._refusal
        if self._callbacks:
            raise UnimplementedError(
                "a step that calls Python functions cannot be started without blocking; use run"
            )
        client, handle = self._register(deadline)
        recorder = self._recorder
        if recorder is None:
            return client.start(handle, feeds, deadline, effect, records)
        step_id = recorder.next_run()
        started = client.start(handle, feeds, deadline, effect, records, step_id)
        # Afterwards, so that a worker does not wait for it. The feeds do not change meanwhile.
        recorder.begin(step_id, feeds, 1 if effect is None else effect.attempt)
        started.add_done_callback(partial(_note_returned, recorder, step_id))
        return started

    def compute(
        self, feeds: Sequence[Any], deadline: Deadline, *, records: list[TaskRecord] | None = None
    ) -> list[jax.Array]:
        internals.release_host_memory()  # that of a large result is received into again
        values = self.run([narrowed(feed) for feed in feeds], deadline, records=records)
        # Nothing writes to the memory of a received array, so JAX can use it without a copy.
        return [internals.to_device(value) for value in values]

    def single_program(self, n_feeds: int) -> None:
        """Returns None: the programs are in other processes."""

    def forget(self, task: Task) -> None:
        """Makes the next run register the step again, if the step uses `task`."""
        if any(plan.device.task == task for plan in self.plans):
            self._registrations.insert(0, _STALE)

    def _outlive(self, error: RestartedError, used: tuple[MasterClient, int]) -> None:
        """Returns if the step can be run again after a restart; raises the error otherwise."""
        if self._registrations[:1] == [used]:
            self._backend.outlive(error, is_rolled_back=error.is_rolled_back)
        elif not error.is_rolled_back:
            raise error

    def offer(
        self,
        client: MasterClient,
        connect_timeout: float,
        deadline: Deadline,
        restarted: Sequence[Task],
    ) -> int:
        """Registers the plans with the master; sends only the artifacts that the cluster lacks."""
        sent: dict[str, Array] = {}
        for _ in range(_MAX_OFFERS):
            n_bytes = sum(artifact.nbytes for artifact in sent.values())
            label = f"sending {len(sent)} programs ({bytes_text(n_bytes)}) to be compiled"
            with shown_if_long(label) if sent else nullcontext():
                registered = client.register(
                    self.plans, self._n_fetches, sent, connect_timeout, deadline, restarted
                )
            if not registered.missing:
                return registered.handle
            sent |= {digest: self._artifacts[digest] for digest in registered.missing}
        raise InternalError(
            f"the cluster still requests artifacts after {_MAX_OFFERS} offers: {registered.missing}"
        )

    def _register(self, deadline: Deadline) -> tuple[MasterClient, int]:
        """Returns the current connection and the step's handle on it; registers if necessary."""
        client = self._backend.connection(deadline)
        # Replaced as a whole and never emptied, so it can be read without the lock.
        if self._registrations and (current := self._registrations[0])[0] is client:
            return client, current[1]
        with deadline.holding(self._lock, "waiting for the step to be registered"):
            former_registrations = [*self._registrations]
            if former_registrations and former_registrations[0][0] is client:
                return client, former_registrations[0][1]
            handle = self._backend.offer(self, client, deadline)
            self._registrations[:] = [(client, handle)]
            # Only now: the new plans keep what is the session's alone.
            _release([one for one in former_registrations if one[0] is client])
            return client, handle

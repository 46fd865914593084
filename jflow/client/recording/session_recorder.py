"""`SessionRecorder`: numbers the steps of a session, and writes them into the log."""

from __future__ import annotations

import itertools
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from jflow.base.deadline import Deadline
from jflow.base.values import Array, raw_bytes
from jflow.client.recording.former_values import reading_plans
from jflow.client.recording.recorder import RunRecorder
from jflow.client.run_log import LogWriter
from jflow.client.run_log.records import LogCall, LogResults, LogRun, LogStep
from jflow.errors import OpError, UnimplementedError
from jflow.net.protocol import MasterClient, plan_to_bytes
from jflow.plan import Plan, uses_state
from jflow.plan import Run as ProgramRun
from jflow.state.journal import N_ATTEMPTS, N_IDS, RECORDED
from jflow.state.records.crc32c import checksum
from jflow.state.watch import VariableStatus

_LOG = logging.getLogger(__name__)

_TITLE_LENGTH = 80

ClientFunction = Callable[[Sequence[Array]], Sequence[Array]]


class SessionRecorder:
    """Records the steps of one session; thread-safe.

    Args:
      recorder: writes the log.
    """

    def __init__(self, recorder: RunRecorder) -> None:
        self._recorder = recorder
        # At random, and not in ranges of sessions: two sessions must not run steps of one number.
        first = RECORDED + N_ATTEMPTS * secrets.randbelow((RECORDED - N_IDS) // N_ATTEMPTS)
        self._ids = itertools.count(first, N_ATTEMPTS)

    def step(self, plans: Sequence[Plan], artifacts: Mapping[str, Array]) -> StepRecorder:
        """Returns what records the runs of a step.

        Raises:
          UnimplementedError: if a loop in it uses state; a log has a step's uses, not a loop's.
        """
        for loop in (loop for plan in plans for loop in plan.loops):
            if uses_state(loop):
                raise UnimplementedError(
                    f"a recorded session cannot run {loop.op!r}, a branch or loop that uses "
                    "variables or queues in its iterations: run it in a session without a log",
                    op=loop.op or None,
                )
        return StepRecorder(self._recorder, self._ids, plans, artifacts)

    def joined(
        self,
        client: MasterClient,
        variables: Callable[[], Iterable[VariableStatus]],
        connect_timeout: float,
        deadline: Deadline,
    ) -> None:
        """Takes the connection of the session; see `read_values` for the other arguments.

        If no other session of this process is recorded, the values of all variables are read.
        """
        recorder = self._recorder
        recorder.join(self, client)
        if recorder.has_former:
            return
        with deadline.holding(recorder.former, "waiting for the values of variables to be read"):
            if not recorder.has_former:
                self.read_values(client, variables(), connect_timeout, deadline)
                recorder.has_former = True

    def read_values(
        self,
        client: MasterClient,
        variables: Iterable[VariableStatus],
        connect_timeout: float,
        deadline: Deadline,
    ) -> None:
        """Writes the values of variables, which no recorded step has made.

        Args:
          client: the connection of the session.
          variables: the variables.
          connect_timeout: how long to wait for a task that does not answer, in seconds.
          deadline: of the call.
        """
        try:
            plans = [*reading_plans(variables)]
        except OpError as error:
            _LOG.warning("the run log lacks values that variables had before: %s", error.message)
            return
        for plan in plans:
            try:
                self._read_values(client, plan, connect_timeout, deadline)
            except OpError as error:
                _LOG.warning(
                    "the run log lacks values that variables on %s had before: %s",
                    *(plan.device, error.message),
                )

    def _read_values(
        self, client: MasterClient, plan: Plan, connect_timeout: float, deadline: Deadline
    ) -> None:
        step = self.step([plan], {})
        registered = client.register([plan], len(plan.variables), {}, connect_timeout, deadline)
        try:
            run = step.next_run()
            step.begin(run, [])
            values = client.run_step(registered.handle, [], deadline, step_id=run)
            step.returned(run, values, with_values=True)
        finally:
            client.release(registered.handle)

    def leave(self) -> None:
        """Ends the recording of the session, whose connection must still be open."""
        self._recorder.leave(self)


class StepRecorder:
    """Records the runs of one step; thread-safe.

    Args:
      recorder: writes the log.
      ids: numbers for runs.
      plans, artifacts: the step.
    """

    def __init__(
        self,
        recorder: RunRecorder,
        ids: Iterable[int],
        plans: Sequence[Plan],
        artifacts: Mapping[str, Array],
    ) -> None:
        self._recorder, self._ids = recorder, iter(ids)
        self._plans, self._artifacts = plans, artifacts
        self._number: int | None = None

    def next_run(self) -> int:
        """Returns the number of the next run; 0 if the log has ended. `begin` must follow."""
        if self._number is None:
            self._recorder.use({plan.device.task for plan in self._plans})
            if not self._recorder.write(self._step):
                return 0
        return next(self._ids) if self._recorder.is_open else 0

    def begin(self, run: int, feeds: Sequence[Array], attempt: int = 1) -> bool:
        """Writes that a run begins, with the values that it is fed; returns whether it did.

        Args:
          run: the number of the run.
          feeds: the values.
          attempt: of a step that is applied once: how often it was sent.
        """
        if not run:
            return False
        arrays, begun = [*map(np.asarray, feeds)], time.time()

        def record(writer: LogWriter) -> LogRun:
            assert self._number is not None
            return LogRun(run, self._number, writer.values(arrays), begun, attempt)

        return self._recorder.write(record)

    def functions(self, run: int, functions: Sequence[ClientFunction]) -> Sequence[ClientFunction]:
        """Returns the functions of the client that a run calls, so that their results are kept."""
        if not run:
            return functions
        return [self._kept(run, number, one) for number, one in enumerate(functions)]

    def returned(self, run: int, values: Sequence[Array], *, with_values: bool = False) -> None:
        """Writes the checksums of what a run has returned, and the values if they are wanted."""
        if not run:
            return
        checksums = tuple(checksum(raw_bytes(np.asarray(value))) for value in values)
        kept = values if with_values else ()
        self._recorder.add(lambda writer: LogResults(run, checksums, writer.values(kept)))

    def _kept(self, run: int, number: int, function: ClientFunction) -> ClientFunction:
        def call(operands: Sequence[Array]) -> Sequence[Array]:
            results = [*map(np.asarray, function(operands))]
            self._recorder.write(lambda writer: LogCall(run, number, writer.values(results)))
            return results

        return call

    def _step(self, writer: LogWriter) -> LogStep:
        """Returns the record of the step; two threads may write it, and either one is used."""
        plans, artifacts = self._plans, self._artifacts
        digests = dict.fromkeys(
            digest
            for plan in plans
            for digest in (*(program.digest for program in plan.programs), *plan.constants)
        )
        numbers = writer.values(artifacts[digest] for digest in digests)
        self._number = writer.n_steps
        return LogStep(
            tuple(map(plan_to_bytes, plans)),
            dict(sorted(zip(digests, numbers, strict=True))),
            _title_of(plans),
        )


def _title_of(plans: Iterable[Plan]) -> str:
    """Returns the names of the operations that write, or else of all that programs compute."""
    runs = [one for plan in plans for one in plan.instructions if isinstance(one, ProgramRun)]
    writing = [run.op for run in runs if run.writes]
    title = ", ".join(dict.fromkeys(writing or [run.op for run in runs]))
    return title if len(title) <= _TITLE_LENGTH else f"{title[: _TITLE_LENGTH - 1]}…"

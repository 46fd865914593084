"""Several runs of one step, for one call: their time slices and results, and which has failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from jflow.base.cluster import MESH
from jflow.base.deadline.clock import now
from jflow.base.values import Array
from jflow.errors import InvalidArgumentError, OpError, RestartedError
from jflow.plan import Feed, Fetch, Plan, Run
from jflow.state.moves import MovedError

MAX_STEPS = 1_000_000_000
"""The most steps of one call."""
_MAX_BYTES = 1 << 26
"""How large the stacked results of one request become; the caller requests the other runs."""
_VALUE_BYTES = 128
"""What an array takes beside its elements."""
_SLICE_S = 0.001
"""How long the steps of one call run before others may run."""
_GROWTH = 4
"""How much longer than the last slice one can be, of steps whose time is not known well."""


def is_repeatable(plans: Sequence[Plan]) -> bool:
    """Whether a step can run again on its own results without giving its variables back.

    It is one program that updates variables. No other instruction may need values that they have
    before an update, and they must be initialized.
    """
    every = [one for plan in plans for one in plan.all_instructions]
    instructions = [one for one in every if not isinstance(one, Feed | Fetch)]
    if len(instructions) != 1 or plans[0].device.type == MESH:
        return False
    (run,) = instructions
    if not isinstance(run, Run) or run.program is None or not run.writes:
        return False
    return not (run.initializes or run.before or run.defaults)


class RepeatedRun:
    """Divides the runs of a step into time slices, and collects their results.

    In a time slice a repeatable step runs as often as one millisecond lets it, and keeps its
    variables meanwhile; others run once. Stacked results are limited in size, so the last runs
    may be left to the caller.

    Args:
      n_steps: the number of runs.
      is_stacked: whether the results of all of them are wanted, or those of the last one.
      plans: the plans of the step.

    Raises:
      InvalidArgumentError: if there is no run, or there are too many.
    """

    def __init__(self, n_steps: int, is_stacked: bool, plans: Sequence[Plan] = ()) -> None:
        if not 1 <= n_steps <= MAX_STEPS:
            raise InvalidArgumentError(f"expected from 1 to {MAX_STEPS:,} steps, got {n_steps}")
        self._n_steps = n_steps
        self._is_stacked = is_stacked
        self._is_repeatable = not is_stacked and is_repeatable(plans)
        self._rows: list[list[Array]] = []
        self._n_bytes = 0
        self._last: Sequence[Array] = ()
        self._next = 1
        self._since = self._shared_at = now()
        self.n_done = 0

    @property
    def is_done(self) -> bool:
        """Whether there is no run left, or no room for its results."""
        return self.n_done == self._n_steps or self._n_bytes >= _MAX_BYTES

    def begin_slice(self) -> int:
        """Returns how often to run the step in the next slice."""
        self._since = now()
        return min(self._next, self._n_steps - self.n_done)

    def end_slice(self, values: Sequence[Array], n_steps: int) -> bool:
        """Takes the results of the last run of a slice; returns whether others may run now."""
        end = now()
        self.n_done += n_steps
        self._last = values
        if self._is_stacked:
            # Copies: the next run may update a variable in the memory of a result.
            self._rows.append([np.array(value) for value in values])
            self._n_bytes += sum(value.nbytes + _VALUE_BYTES for value in values)
        if self._is_repeatable:
            step_s = max((end - self._since) / n_steps, 1e-9)
            self._next = max(1, min(int(_SLICE_S / step_s), _GROWTH * n_steps))
        is_over = end - self._shared_at >= _SLICE_S
        if is_over:
            self._shared_at = end
        return is_over

    def is_interrupted(self, error: OpError) -> bool:
        """Whether the caller has to begin the rest of the runs anew.

        A step whose state has moved, or that a task has forgotten, is registered again. Those that
        have run must not run again, so the caller gets their results first.
        """
        return isinstance(error, MovedError | RestartedError) and self.n_done > 0

    def explain(self, error: OpError) -> None:
        """Says in an error which run has failed."""
        if not isinstance(error, MovedError | RestartedError):
            error.with_context(doing=_text(self.n_done, self._n_steps))

    def results(self) -> list[Array]:
        """Returns the results so far: each with a first axis for the runs, or those of the last.

        Raises:
          InvalidArgumentError: if they are wanted of all runs and differ in shape.
        """
        if not self._is_stacked:
            return list(self._last)
        columns = list(zip(*self._rows, strict=True))
        for column in columns:
            if len({value.shape for value in column}) > 1:
                shapes = sorted({value.shape for value in column})
                raise InvalidArgumentError(
                    f"results of different shapes cannot be stacked: {shapes}; the "
                    f"{self.n_done} steps were applied"
                )
        return [np.stack(column) for column in columns]


def _text(n_done: int, n_steps: int) -> str:
    before = {0: "none was applied before", 1: "the one before was applied"}
    return f"step {n_done + 1} of {n_steps} ({before.get(n_done, 'those before were applied')})"


def run_repeatedly(
    run: Callable[[int], Sequence[Array]],
    n_steps: int,
    is_stacked: bool,
    plans: Sequence[Plan] = (),
) -> tuple[int, list[Array]]:
    """Runs a step several times, and returns how often it has run, and its results.

    Args:
      run: runs it a number of times; more than once only if the plans are repeatable.
      n_steps, is_stacked, plans: as for `RepeatedRun`.

    Raises:
      OpError: what the step raises, with its number.
    """
    runs = RepeatedRun(n_steps, is_stacked, plans)
    while not runs.is_done:
        n_now = runs.begin_slice()
        try:
            values = run(n_now)
        except OpError as error:
            if runs.is_interrupted(error):
                break
            runs.explain(error)
            raise
        runs.end_slice(values, n_now)
    return runs.n_done, runs.results()

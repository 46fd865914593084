"""Steps on the master's own task, begun in the call that read their request; many of one step."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence

from jflow.base.drivers.coroutines import Started
from jflow.base.values import Array
from jflow.errors import OpError
from jflow.state.effects import Effect
from jflow.state.moves import Gate, Use
from jflow.task.execution.repeated import RepeatedRun
from jflow.task.master.step_runner import RegisteredStep, single_write_staging


def begin_inline(
    gate: Gate,
    step: RegisteredStep,
    step_ids: Iterator[int],
    feeds: Sequence[Array],
    effect: Effect | None,
    n_steps: int = 1,
) -> Started[Sequence[Array]] | None:
    """Begins a step if its only plan is on the master's own task and can run inline.

    Args:
      gate: makes steps wait while the state that they use moves.
      step: the step.
      step_ids: numbers for it.
      feeds, effect: as for `MasterSession.run_step`.
      n_steps: how often to run it, as for `WorkerService.begin_plans`.

    Returns:
      None if it cannot be begun so, or something holds its state; nothing was done then.

    Raises:
      MovedError: if its state has moved.
      OpError: as `WorkerService.run_plans`.
    """
    only, use = step.only, step.use
    if only is None or not only.proxy.is_direct:
        return None
    staging = None if effect is None else single_write_staging(step, effect)
    if effect is not None and staging is None:
        return None
    own_feeds, begin = only.feeds_of(feeds), only.proxy.begin_plans
    if not gate.directory.enter(use):
        return None
    started = None
    try:
        started = begin(next(step_ids), only.handle, own_feeds, staging, n_steps)
    finally:
        if started is None or started.is_done:
            gate.leave(use)
    if started is None or started.is_done:
        return started
    return Started(_leave_after(gate, use, started.rest()))


async def _leave_after(gate: Gate, use: Use, rest: Awaitable[Sequence[Array]]) -> Sequence[Array]:
    """Awaits the rest of a step, then leaves the gate that it has entered."""
    try:
        return await rest
    finally:
        gate.leave(use)


async def run_each(
    runs: RepeatedRun,
    begin: Callable[[int], Started[Sequence[Array]] | None],
    run: Callable[[], Awaitable[Sequence[Array]]],
) -> Sequence[Array]:
    """Runs a step several times, and lets others run between its time slices.

    Args:
      runs: collects the results.
      begin: begins a number of runs inline; returns None if that cannot be, as `begin_inline`.
      run: runs the step once.

    Raises:
      OpError: as the step; not if it has to be registered again, and has run.
    """
    while not runs.is_done:
        n_now = runs.begin_slice()
        try:
            started = begin(n_now)
            if started is None:
                n_now = 1
                values = await run()
            else:
                values = started.result if started.is_done else await started.rest()
        except OpError as error:
            if runs.is_interrupted(error):
                break
            raise
        if runs.end_slice(values, n_now):
            await asyncio.sleep(0)
    return runs.results()

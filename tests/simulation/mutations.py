"""Faults that are put into jflow on purpose: the simulator has to find each of them.

`MUTATIONS` says which seed is the first of 0, 1, ... that finds each; `test_simulation.py` runs
these. If what schedules are made of changes, `python -m tests.simulation.mutations` looks again.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from jflow.net.protocol.peer_link import PeerLink
from jflow.state.core import commits
from jflow.state.core import effects as task_effects
from jflow.state.core.commits import EffectRunner
from jflow.state.core.moves import StateMoves
from jflow.state.effects import Ledger
from jflow.state.effects.outcome import Earlier, Phase
from jflow.state.fencing import Fences
from jflow.state.moves import Directory, Gate
from jflow.state.resources.cell import Cell
from jflow.state.resources.queue.attempts import Dequeue
from jflow.task.worker.rendezvous import Rendezvous
from tests.simulation.loop import collect
from tests.simulation.schedules import Outcome, run_schedule

Change = tuple[Any, str, Any]


async def _nothing(*_: Any, **__: Any) -> None:
    """In place of a wait."""


def _forgetting_ledger() -> list[Change]:
    former = Ledger.take_over

    def take_over(self: Ledger, effect: Any) -> Earlier:
        earlier = former(self, effect)
        if earlier.phase is Phase.COMMITTED:
            entry = self._entry(effect)
            entry.phase = Phase.UNKNOWN
            return Earlier(Phase.UNKNOWN)
        return earlier

    return [(Ledger, "take_over", take_over)]


def _no_verdict() -> list[Change]:
    return [(task_effects, "verdict", lambda reports: [*reports].clear())]


def _hasty_verdict() -> list[Change]:
    """What one task has staged counts as applied."""

    def verdict(reports: Any) -> Earlier | None:
        ended = [one for one in reports if one.phase in (Phase.STAGED, Phase.COMMITTED)]
        return max(ended, key=lambda one: one.attempt) if ended else None

    return [(task_effects, "verdict", verdict)]


def _lost_decision_counts() -> list[Change]:
    """A commit whose answer is lost counts as done, and then is not asked for."""
    former = EffectRunner._run_staged

    async def run_staged(self: EffectRunner, run: Any) -> Any:
        try:
            return await former(self, run)
        except commits.OpError as error:
            if "cannot be reached" in error.message and not self._staging.is_alone:
                return [np.float32(0)] * 2
            raise

    return [(EffectRunner, "_run_staged", run_staged)]


def _no_fences() -> list[Change]:
    return [
        (Fences, "check", lambda self, claim: None),
        (Ledger, "_check_epoch", lambda self, effect: None),
    ]


def _open_gate() -> list[Change]:
    """Steps begin although their state is held."""
    former = Directory.enter

    def enter(self: Directory, use: Any) -> bool:
        held, self._held = self._held, {}
        try:
            return former(self, use)
        finally:
            self._held = held

    return [(Directory, "enter", enter)]


def _unpaused_saves() -> list[Change]:
    """A save does not wait for steps of which a task may have seen a part."""
    return [(Gate, "quiet", _nothing), (Directory, "pause", lambda *_, **__: None)]


def _parked_for_ever() -> list[Change]:
    """A dequeue whose caller is gone goes on waiting, and takes an element."""
    former = Cell.cancel

    def cancel(self: Cell, attempt: Any, error: Any) -> None:
        if not isinstance(attempt, Dequeue):
            former(self, attempt, error)

    return [(Cell, "cancel", cancel)]


def _uncancelled_calls() -> list[Change]:
    """A call that is cancelled goes on at the other end."""
    return [(PeerLink, "_cancel", _nothing)]


def _undecided_steps() -> list[Change]:
    """What was staged for a master that is gone is never decided."""
    return [(task_effects.TaskEffects, "_ask_others", lambda self, key: None)]


def _unended_steps() -> list[Change]:
    return [(Rendezvous, "end_step", lambda self, step: None)]


def _silence_about_the_past() -> list[Change]:
    """What jflow did until the simulation found it."""
    return [(Ledger, "_is_past", lambda self, effect: False)]


class Mutation(NamedTuple):
    """A fault.

    Attributes:
      changes: gives what is changed: where, the name there, and what it is.
      seed: the first one that finds it.
    """

    changes: Callable[[], list[Change]]
    seed: int


def _unended_holds() -> list[Change]:
    def leave_task(self: StateMoves, task: Any, successor: Any) -> None:
        for gate in (self.steps, self.plans):
            gate.leave_task(task, successor)

    return [(StateMoves, "leave_task", leave_task)]


MUTATIONS: Mapping[str, Mutation] = {
    "a ledger forgets what is applied": Mutation(_forgetting_ledger, 20),
    "a later attempt does not ask what earlier ones have applied": Mutation(_no_verdict, 20),
    "what one task has staged counts as applied": Mutation(_hasty_verdict, 18),
    "a lost answer counts as a success": Mutation(_lost_decision_counts, 5),
    "fences and epochs are not checked": Mutation(_no_fences, 45),
    "steps begin although their state is held": Mutation(_open_gate, 115),
    "a save does not wait for running steps": Mutation(_unpaused_saves, 540),
    "a dequeue goes on when its caller is gone": Mutation(_parked_for_ever, 14),
    "a call goes on that was cancelled": Mutation(_uncancelled_calls, 14),
    "what a lost master has left is not decided": Mutation(_undecided_steps, 113),
    "values of steps that have ended are kept": Mutation(_unended_steps, 0),
    "a task does not tell what it has applied of steps that are past": Mutation(
        _silence_about_the_past, 392
    ),
    "a successor waits for what a task that has left would say": Mutation(_unended_holds, 1708),
}


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """A context in which jflow has a fault."""
    changes = MUTATIONS[name].changes()
    former = [(where, what, vars(where)[what]) for where, what, _ in changes]
    for where, what, value in changes:
        setattr(where, what, value)
    try:
        yield
    finally:
        for where, what, value in former:
            setattr(where, what, value)


def found(name: str, most: int, first: int = 0) -> Outcome | None:
    """Returns the outcome of the first schedule that finds a fault; None if none does."""
    with mutated(name):
        for seed in range(first, first + most):
            outcome = run_schedule(seed)
            if outcome.violations:
                return outcome
            if seed % 20 == 19:
                collect()
    return None


def main() -> int:
    """Prints which seed finds which fault."""
    logging.getLogger("jflow").setLevel(logging.CRITICAL)
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    run_schedule(0)
    gc.freeze()
    n_missed = 0
    for name in sys.argv[2:] or MUTATIONS:
        outcome = found(name, most)
        n_missed += outcome is None
        what = "not found" if outcome is None else f"{outcome.seed}: {outcome.violations[0]:.160}"
        print(f"{name}: {what}", flush=True)
    return 1 if n_missed else 0


if __name__ == "__main__":
    sys.exit(main())

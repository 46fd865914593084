"""The protocol as a whole, against arbitrary orders, losses and repeats of its messages.

Ledgers of three tasks; masters that run attempts and may stop anywhere; takeovers by the masters
of later attempts and by the tasks themselves. Each call is an action of a simulation,
which orders them at random, leaves some out for ever and repeats others.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from jflow.errors import AbortedError
from jflow.state.effects import Earlier, Effect, Ledger, Phase, verdict

TASKS = (0, 1, 2)
PARTICIPANTS = tuple(map(str, TASKS))
LAST = 5
"""The number of the attempt that is left alone at the end."""


def step(attempt: int) -> Effect:
    return Effect("client", 0, 0, attempt)


@dataclass
class Master:
    """The master of one attempt: what each task has answered it.

    Attributes:
      found: what it has found when it took over, by task.
      has_run: whether it has taken over, if it had to, and lets its attempt begin.
      answer: the attempt whose results it gave the client.
    """

    found: dict[int, Earlier] = field(default_factory=dict)
    decided: set[int] = field(default_factory=set)
    has_run: bool = False
    staged: set[int] = field(default_factory=set)
    committed: set[int] = field(default_factory=set)
    answer: int | None = None


class Protocol:
    """One step that is attempted by several masters."""

    def __init__(self) -> None:
        self.ledgers = {task: Ledger() for task in TASKS}
        self.masters = {attempt: Master() for attempt in range(1, LAST + 1)}
        self.masters[1].has_run = True
        # The attempts whose writes each task has applied, in order.
        self.applied: dict[int, list[int]] = {task: [] for task in TASKS}

    def take_over(self, attempt: int, task: int) -> None:
        if attempt == 1 or self.masters[attempt].has_run:
            return
        try:
            found = self.ledgers[task].take_over(step(attempt))
        except AbortedError:
            return
        self.masters[attempt].found.setdefault(task, found)

    def decide_what_was_taken_over(self, attempt: int, task: int) -> None:
        master = self.masters[attempt]
        if master.found.keys() != {*TASKS}:
            return
        applied, earlier = verdict(master.found.values()), master.found[task]
        if earlier.phase is Phase.STAGED:
            is_commit = applied is not None and applied.attempt == earlier.attempt
            try:
                self._decide(task, earlier.attempt, attempt, is_commit=is_commit)
            except AbortedError:
                return
        master.decided.add(task)
        if master.decided == {*TASKS}:
            if applied is not None:
                master.answer = applied.attempt
            else:
                master.has_run = True

    def begin(self, attempt: int, task: int) -> None:
        if self.masters[attempt].has_run:
            try:
                self.ledgers[task].begin_attempt(step(attempt), PARTICIPANTS)
            except AbortedError:
                return

    def stage(self, attempt: int, task: int) -> None:
        try:
            self.ledgers[task].stage(step(attempt))
        except AbortedError:
            return
        self.masters[attempt].staged.add(task)

    def commit(self, attempt: int, task: int) -> None:
        master = self.masters[attempt]
        if master.staged != {*TASKS}:
            return
        try:
            self._decide(task, attempt, attempt, is_commit=True)
        except AbortedError:
            return
        master.committed.add(task)
        if master.committed == {*TASKS}:
            master.answer = attempt

    def abort(self, attempt: int, task: int) -> None:
        """A master gives up before it has told any task to commit, and does not go on."""
        master = self.masters[attempt]
        if not master.committed and master.staged != {*TASKS}:
            master.staged.add(-1)
            self._decide(task, attempt, attempt, is_commit=False)

    def _decide(self, task: int, attempt: int, by: int, *, is_commit: bool) -> None:
        if not is_commit:
            self.ledgers[task].abort(step(attempt), by)
        elif self.ledgers[task].commit(step(attempt), by):
            self.applied[task].append(attempt)

    def act(self, rng: random.Random) -> None:
        """Does something, if it can be done."""
        # The masters of the first attempts do more, so that there is something to take over.
        attempt, task = rng.choice((1, 1, 1, 2, 2, 3, 4)), rng.choice(TASKS)
        acts = (
            *(self.take_over, self.decide_what_was_taken_over),
            *(self.begin, self.stage, self.commit, self.begin, self.stage, self.commit),
        )
        rng.choice(acts if rng.random() > 0.02 else (self.abort,))(attempt, task)

    def heal(self) -> None:
        """One more attempt, which nothing disturbs."""
        for act in (
            *(self.take_over, self.decide_what_was_taken_over),
            *(self.begin, self.stage, self.commit),
        ):
            for task in TASKS:
                act(LAST, task)

    def check(self) -> None:
        """What is applied is applied once, and what a client was answered is applied everywhere."""
        applied = {attempt for found in self.applied.values() for attempt in found}
        assert all(len(found) <= 1 for found in self.applied.values())
        assert len(applied) <= 1
        for master in self.masters.values():
            if master.answer is not None:
                assert all(found == [master.answer] for found in self.applied.values())


@pytest.mark.parametrize("first_seed", range(0, 2000, 500))
def test_a_step_is_applied_once_on_all_tasks_whatever_is_lost_or_repeated(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 500):
        rng, protocol = random.Random(seed), Protocol()
        for _ in range(rng.choice((20, 60, 200))):
            protocol.act(rng)
            protocol.check()
        protocol.heal()
        protocol.check()
        assert all(len(found) == 1 for found in protocol.applied.values()), f"seed {seed}"

"""The protocol as a whole, against arbitrary orders, losses and repeats of its messages.

Ledgers of three tasks; masters that run attempts and may stop anywhere; whoever takes over, which
are the masters of later attempts and the tasks themselves. Every call is one rule, so hypothesis
orders them as it likes, leaves some out for ever and repeats others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from jflow.effects import Earlier, Effect, Ledger, Phase, verdict
from jflow.errors import AbortedError

TASKS = (0, 1, 2)
PARTICIPANTS = tuple(map(str, TASKS))
ATTEMPTS = st.integers(1, 4)


def step(attempt: int) -> Effect:
    return Effect("client", 0, 0, attempt)


@dataclass
class Master:
    """Who runs one attempt: what each task has answered it.

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


class Protocol(RuleBasedStateMachine):
    """The invariant: all tasks that have committed have committed the same attempt, once."""

    def __init__(self) -> None:
        super().__init__()
        self.ledgers = {task: Ledger() for task in TASKS}
        self.masters = {attempt: Master() for attempt in range(1, 6)}
        self.masters[1].has_run = True
        # The attempts whose writes each task has applied, in order.
        self.applied: dict[int, list[int]] = {task: [] for task in TASKS}

    @rule(attempt=ATTEMPTS, task=st.sampled_from(TASKS))
    def take_over(self, attempt: int, task: int) -> None:
        if attempt == 1 or self.masters[attempt].has_run:
            return
        try:
            found = self.ledgers[task].take_over(step(attempt))
        except AbortedError:
            return
        self.masters[attempt].found.setdefault(task, found)

    @rule(attempt=ATTEMPTS, task=st.sampled_from(TASKS))
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

    @rule(attempt=ATTEMPTS, task=st.sampled_from(TASKS))
    def begin(self, attempt: int, task: int) -> None:
        if self.masters[attempt].has_run:
            try:
                self.ledgers[task].begin(step(attempt), PARTICIPANTS)
            except AbortedError:
                return

    @rule(attempt=ATTEMPTS, task=st.sampled_from(TASKS))
    def stage(self, attempt: int, task: int) -> None:
        try:
            self.ledgers[task].stage(step(attempt))
        except AbortedError:
            return
        self.masters[attempt].staged.add(task)

    @rule(attempt=ATTEMPTS, task=st.sampled_from(TASKS))
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

    @rule(attempt=ATTEMPTS, task=st.sampled_from(TASKS))
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

    @invariant()
    def what_is_applied_is_applied_once(self) -> None:
        assert all(len(applied) <= 1 for applied in self.applied.values())
        assert len({*self._all_applied()}) <= 1

    @invariant()
    def what_a_client_was_answered_is_applied_on_all_tasks(self) -> None:
        for master in self.masters.values():
            if master.answer is not None:
                assert all(applied == [master.answer] for applied in self.applied.values())

    def teardown(self) -> None:
        """Liveness: one more attempt that is left alone ends with the step applied everywhere."""
        last = 5
        for act in (
            *(self.take_over, self.decide_what_was_taken_over),
            *(self.begin, self.stage, self.commit),
        ):
            for task in TASKS:
                act(last, task)
        assert all(len(applied) == 1 for applied in self.applied.values())
        self.what_is_applied_is_applied_once()

    def _all_applied(self) -> Iterator[int]:
        for applied in self.applied.values():
            yield from applied


Protocol.TestCase.settings = settings(max_examples=30, stateful_step_count=50, deadline=None)
TestProtocol = Protocol.TestCase

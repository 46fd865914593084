"""One move over several tasks: every order of events, and every failure."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jflow.base.cluster import Task
from jflow.errors import AbortedError, CancelledError, UnavailableError
from jflow.state.moves import (
    End,
    EndHold,
    Failed,
    HoldState,
    Move,
    MoveAction,
    Moved,
    PutState,
    SaveState,
)

A, B, C = (Task("worker", i) for i in range(3))
LOST = UnavailableError("it is lost")


def test_a_move_holds_saves_puts_and_tells_the_source_first() -> None:
    move = Move([A, B, C], source=B, target=C)
    assert move.begin() == [HoldState(A), HoldState(B), HoldState(C)]
    assert move.done(HoldState(C)) == []
    assert move.done(HoldState(A)) == []
    assert move.done(HoldState(B)) == [SaveState(B)]
    assert move.done(SaveState(B)) == [PutState(C)]
    assert move.done(PutState(C)) == [EndHold(B, End.MOVED)]
    assert move.done(EndHold(B, End.MOVED)) == [EndHold(A, End.MOVED), EndHold(C, End.MOVED)]
    assert move.done(EndHold(C, End.MOVED)) == []
    assert move.done(EndHold(A, End.MOVED)) == [Moved()]


def test_a_task_that_cannot_hold_keeps_the_state_where_it_is() -> None:
    move = Move([A, B], source=A, target=B)
    move.begin()
    assert move.failed(HoldState(B), LOST) == [EndHold(A, End.KEPT), EndHold(B, End.KEPT)]
    assert move.done(HoldState(A)) == [], "the hold that was on its way changes nothing"
    assert move.done(EndHold(A, End.KEPT)) == []
    (failed,) = move.failed(EndHold(B, End.KEPT), AbortedError("it holds nothing"))
    assert isinstance(failed, Failed)
    assert failed.error is LOST


def test_if_the_source_is_lost_while_it_decides_all_others_have_to_ask_it() -> None:
    move = Move([A, B], source=A, target=B)
    move.begin()
    for action in (HoldState(A), HoldState(B), SaveState(A), PutState(B)):
        move.done(action)
    unknown = [EndHold(A, End.UNKNOWN), EndHold(B, End.UNKNOWN)]
    assert move.failed(EndHold(A, End.MOVED), LOST) == unknown


def test_a_caller_that_gives_up_after_the_decision_changes_nothing() -> None:
    move = Move([A, B], source=A, target=B)
    move.begin()
    for action in (HoldState(A), HoldState(B), SaveState(A), PutState(B)):
        move.done(action)
    move.done(EndHold(A, End.MOVED))
    assert move.cancelled(CancelledError("given up")) == []
    assert move.done(EndHold(B, End.MOVED)) == [Moved()]


@given(st.data())
def test_whatever_fails_no_copy_is_dropped_before_the_other_one_exists(data: Any) -> None:
    tasks = [A, B, C]
    source, target = data.draw(st.permutations(tasks))[:2]
    if data.draw(st.booleans()):
        target = source
    move = Move(tasks, source, target)
    cluster = _Cluster(source, target)
    pending: list[MoveAction] = move.begin()
    outcomes: list[MoveAction] = []
    while pending:
        action = pending.pop(data.draw(st.integers(0, len(pending) - 1)))
        if isinstance(action, Moved | Failed):
            outcomes.append(action)
            continue
        if data.draw(st.integers(0, 9)) == 0:
            pending += move.cancelled(CancelledError("given up"))
        works = data.draw(st.integers(0, 5)) != 0
        # A failed call may have been carried out.
        if works or data.draw(st.booleans()):
            works = cluster.does(action) and works
        elif isinstance(action, EndHold):
            cluster.unreached.add(action.task)
        pending += move.done(action) if works else move.failed(action, LOST)
    assert len(outcomes) == 1, "it ends once"
    assert cluster.has_old or cluster.has_copy
    if isinstance(outcomes[0], Moved):
        assert cluster.has_moved
    assert cluster.ended | cluster.unreached == set(tasks), "every hold ends, or does so by itself"


class _Cluster:
    """What the tasks do with the actions."""

    def __init__(self, source: Task, target: Task) -> None:
        self.source, self.target = source, target
        self.held: set[Task] = set()
        self.ended: set[Task] = set()
        self.has_old, self.has_copy, self.has_moved = True, False, False
        self.unreached: set[Task] = set()

    def does(self, action: MoveAction) -> bool:
        """Carries an action out; returns whether it succeeded."""
        if getattr(action, "task", None) in self.ended:
            return False
        match action:
            case HoldState(task):
                self.held.add(task)
            case SaveState():
                assert self.held == {A, B, C}, "nothing uses what is saved"
                assert self.has_old
            case PutState():
                self.has_copy = True
            case EndHold(task, End.MOVED) if task == self.source:
                assert self.has_copy, "the old copy is dropped only now"
                self.has_old, self.has_moved = False, True
                self.ended.add(task)
            case EndHold(task, end):
                assert end is not End.MOVED or self.has_moved
                assert end is not End.KEPT or not self.has_moved
                if task == self.target and end is End.KEPT:
                    self.has_copy = False
                self.ended.add(task)
        return True

"""What one task knows of the steps that it applies once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jflow.errors import AbortedError, InvalidArgumentError, OpError, ResourceExhaustedError
from jflow.state.effects import (
    Earlier,
    Effect,
    Ledger,
    Phase,
    SavedLedger,
    SupersededError,
    verdict,
)
from jflow.state.effects.saved import MovedLedger

STEP = Effect("client", 0, 7)
RESULTS = (np.float32(3.0),)


def staged(ledger: Ledger, effect: Effect = STEP, *participants: str) -> None:
    ledger.begin_attempt(effect, participants)
    ledger.stage(effect)


def committed(ledger: Ledger, effect: Effect = STEP) -> None:
    staged(ledger, effect)
    ledger.commit(effect, effect.attempt, RESULTS)


def phase(ledger: Ledger, effect: Effect) -> Phase:
    """How far the attempt before this one has come."""
    return ledger.take_over(effect.again()).phase


def test_a_commit_can_be_repeated_and_applies_once() -> None:
    ledger = Ledger()
    staged(ledger)
    assert ledger.commit(STEP, 1, RESULTS)
    assert not ledger.commit(STEP, 1, RESULTS)


def test_a_repeat_of_a_committed_step_is_answered_with_its_results() -> None:
    ledger = Ledger()
    committed(ledger)
    earlier = ledger.take_over(STEP.again())
    assert (earlier.phase, earlier.attempt, earlier.results) == (Phase.COMMITTED, 1, RESULTS)
    with pytest.raises(SupersededError, match=r"attempt 2 .* attempt 1 is applied"):
        ledger.begin_attempt(STEP.again())


def test_what_was_not_staged_is_not_committed() -> None:
    ledger = Ledger()
    with pytest.raises(AbortedError, match="has not staged it"):
        ledger.commit(STEP, 1)
    ledger.begin_attempt(STEP)
    with pytest.raises(AbortedError, match="has not staged it"):
        ledger.commit(STEP, 1)


def test_an_attempt_that_begins_after_a_later_one_has_taken_over_is_refused() -> None:
    ledger = Ledger()
    assert ledger.take_over(STEP.again()).phase is Phase.UNKNOWN
    with pytest.raises(SupersededError, match="superseded by attempt 2"):
        ledger.begin_attempt(STEP)


def test_a_running_attempt_from_which_a_later_one_takes_over_is_not_staged() -> None:
    ledger = Ledger()
    ledger.begin_attempt(STEP)
    assert ledger.take_over(STEP.again()).phase is Phase.UNKNOWN
    with pytest.raises(SupersededError):
        ledger.stage(STEP)
    ledger.begin_attempt(STEP.again())


def test_a_staged_attempt_is_decided_by_the_one_that_took_over_and_by_no_other() -> None:
    ledger = Ledger()
    staged(ledger, STEP, "a", "b")
    earlier = ledger.take_over(STEP.again())
    assert (earlier.phase, earlier.participants) == (Phase.STAGED, ("a", "b"))
    with pytest.raises(SupersededError, match="attempt 2 took over"):
        ledger.commit(STEP, 1)
    assert not ledger.abort(STEP, 1)
    assert ledger.commit(STEP, 2, RESULTS)
    assert phase(ledger, STEP.again()) is Phase.COMMITTED


def test_an_attempt_that_a_later_one_has_aborted_is_superseded_and_not_at_fault() -> None:
    ledger = Ledger()
    staged(ledger)
    ledger.take_over(STEP.again())
    assert ledger.abort(STEP, 2)
    with pytest.raises(SupersededError, match="attempt 2 took over"):
        ledger.commit(STEP, 1)
    staged(ledger, STEP.again())
    assert ledger.commit(STEP.again(), 2, RESULTS)
    with pytest.raises(SupersededError, match="attempt 2 took over"):
        ledger.commit(STEP, 1)


def test_an_attempt_that_was_given_up_can_begin_again() -> None:
    ledger = Ledger()
    ledger.begin_attempt(STEP)
    assert ledger.abort(STEP, 1)
    assert not ledger.abort(STEP, 1)
    ledger.begin_attempt(STEP)


def test_an_attempt_does_not_begin_twice() -> None:
    ledger = Ledger()
    ledger.begin_attempt(STEP)
    with pytest.raises(SupersededError, match="has begun"):
        ledger.begin_attempt(STEP)


def test_an_applied_step_stays_applied_when_it_fails_afterwards() -> None:
    ledger, error = Ledger(), InvalidArgumentError("no")
    ledger.begin_attempt(STEP)
    ledger.apply(STEP)
    assert ledger.take_over(STEP.again()).phase is Phase.APPLYING
    assert not ledger.abort(STEP, 1)
    ledger.finish(STEP, None, error)
    earlier = ledger.take_over(STEP.again())
    assert (earlier.phase, earlier.error) == (Phase.COMMITTED, error)


def test_a_step_that_failed_before_it_was_applied_is_forgotten() -> None:
    ledger = Ledger()
    ledger.begin_attempt(STEP)
    ledger.apply(STEP)
    ledger.revert(STEP)
    ledger.finish(STEP, None, InvalidArgumentError("no"))
    assert phase(ledger, STEP) is Phase.UNKNOWN


def test_a_lower_epoch_begins_nothing_for_ever() -> None:
    ledger = Ledger()
    ledger.begin_attempt(STEP)
    new = replace(STEP, epoch=3, sequence=0)
    ledger.begin_attempt(new)
    for act in (ledger.begin_attempt, ledger.stage):
        with pytest.raises(AbortedError, match="epoch 3 of 'client' has begun"):
            act(STEP)  # type: ignore[operator]
    saved = SavedLedger.of(ledger)
    restored = Ledger()
    saved.restore(restored)
    with pytest.raises(AbortedError, match="epoch 3"):
        restored.begin_attempt(replace(STEP, sequence=8))


def test_the_epochs_of_clients_do_not_touch_each_other() -> None:
    ledger = Ledger()
    ledger.begin_attempt(replace(STEP, epoch=3))
    ledger.begin_attempt(replace(STEP, client="other"))


def test_acknowledged_steps_are_forgotten_and_late_messages_of_them_refused() -> None:
    ledger = Ledger()
    committed(ledger)
    ledger.begin_attempt(replace(STEP, sequence=9, acknowledged=8))
    assert SavedLedger.of(ledger).saved.windows[0].effects == ()
    with pytest.raises(SupersededError, match="acknowledged all steps before 8"):
        ledger.begin_attempt(STEP.again())


@pytest.mark.parametrize(
    "later", [Effect("client", 0, 9, acknowledged=8), Effect("client", 1, 0)], ids=["ack", "epoch"]
)
def test_a_task_learns_what_another_one_has_applied_of_a_step_that_is_past(later: Effect) -> None:
    """Its client has not waited for all decisions: the step has failed, or the client has ended."""
    first, other, aborted = Ledger(), Ledger(), replace(STEP, sequence=6)
    for ledger in (first, other):
        staged(ledger, STEP, "first", "other")
        staged(ledger, aborted, "first", "other")
    first.commit(STEP, 1, RESULTS)
    first.abort(aborted, 1)
    for ledger in (first, other):
        ledger.begin_attempt(later)
    for step, decided in {STEP: Phase.COMMITTED, aborted: Phase.UNKNOWN}.items():
        reports = [ledger.take_over(step.again()) for ledger in (first, other)]
        assert [one.phase for one in reports] == [decided, Phase.STAGED]
        applied = verdict(reports)
        assert (applied is reports[0]) == (decided is Phase.COMMITTED)
        with pytest.raises((SupersededError, AbortedError)):
            first.begin_attempt(step.again())
    assert other.commit(STEP, 2)
    assert other.abort(aborted, 2)


def test_steps_that_are_past_are_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jflow.state.effects.ledger.MAX_PAST", 2)
    ledger = Ledger()
    for sequence in range(3):
        step = Effect("client", 0, sequence)
        staged(ledger, step, "first", "other")
        ledger.commit(step, 1)
    ledger.begin_attempt(Effect("client", 0, 3, acknowledged=3))
    phases = [phase(ledger, Effect("client", 0, sequence)) for sequence in range(3)]
    assert phases == [Phase.UNKNOWN, Phase.COMMITTED, Phase.COMMITTED]


def test_a_step_that_is_active_is_not_forgotten() -> None:
    ledger = Ledger()
    staged(ledger)
    ledger.begin_attempt(replace(STEP, sequence=9, acknowledged=8))
    assert ledger.commit(STEP, 1)


def test_a_client_that_acknowledges_nothing_is_refused_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jflow.state.effects.ledger.MAX_UNACKNOWLEDGED", 3)
    ledger = Ledger()
    for sequence in range(3):
        committed(ledger, Effect("client", 0, sequence))
    with pytest.raises(ResourceExhaustedError, match="has not acknowledged 3 steps"):
        ledger.begin_attempt(Effect("client", 0, 3))


def test_the_oldest_results_are_dropped_if_there_are_too_many_but_not_what_was_applied() -> None:
    ledger = Ledger(max_results=2 * RESULTS[0].nbytes)
    steps = [Effect("client", 0, sequence) for sequence in range(3)]
    for step in steps:
        committed(ledger, step)
    found = [ledger.take_over(step.again()) for step in steps]
    assert [one.phase for one in found] == [Phase.COMMITTED] * 3
    assert [one.results is None for one in found] == [True, False, False]


def test_the_client_that_was_idle_for_the_longest_time_is_forgotten_first() -> None:
    ledger = Ledger(max_clients=2)
    old, active, new = (Effect(name, 0, 0) for name in ("old", "active", "new"))
    ledger.begin_attempt(active)
    committed(ledger, old)
    committed(ledger, new)
    assert phase(ledger, old) is Phase.UNKNOWN
    assert ledger.abort(active, 1)


def test_a_user_with_many_clients_does_not_end_the_memory_of_others() -> None:
    ledger = Ledger(max_clients=4)
    own, of_bob = STEP, Effect("@bob/run", 0, 7)
    committed(ledger, own)
    committed(ledger, of_bob)
    for number in range(10):
        committed(ledger, Effect(f"@ann/{number}", 0, 7))
    assert phase(ledger, own) is phase(ledger, of_bob) is Phase.COMMITTED
    assert phase(ledger, Effect("@ann/9", 0, 7)) is Phase.COMMITTED
    ledger.begin_attempt(replace(of_bob, sequence=8))
    ledger.begin_attempt(Effect("@ann/8", 0, 8))
    ledger.begin_attempt(Effect("@ann/9", 0, 8))
    committed(ledger, Effect("@ann/10", 0, 7))
    assert phase(ledger, own) is Phase.UNKNOWN, "those of all others are active"


def test_windows_of_sessions_are_not_saved() -> None:
    ledger = Ledger()
    committed(ledger, replace(STEP, is_saved=False))
    assert SavedLedger.of(ledger).saved.windows == ()


@pytest.mark.parametrize("is_saved", [True, False])
def test_a_ledger_answers_for_steps_of_another_one_that_were_added(is_saved: bool) -> None:
    source, target = Ledger(), Ledger()
    step, own = replace(STEP, is_saved=is_saved), replace(STEP, sequence=STEP.sequence + 1)
    committed(source, step)
    committed(target, replace(own, is_saved=is_saved))
    packed = MovedLedger.of(source).packed()
    for _ in range(2):  # a move that failed is tried again
        MovedLedger.unpacked(*packed).add_to(target)
    for one in (step, own):
        earlier = target.take_over(one.again())
        assert (earlier.phase, earlier.attempt) == (Phase.COMMITTED, one.attempt)
        assert earlier.results == RESULTS
    assert (SavedLedger.of(target).saved.windows != ()) == is_saved
    with pytest.raises(InvalidArgumentError, match="have 1 results, got 0"):
        MovedLedger.unpacked(packed[0], [])


def test_a_ledger_tells_other_tasks_of_wide_steps_that_were_added() -> None:
    tasks = ("/job:ps/task:0", "/job:ps/task:1")
    source, target = Ledger(), Ledger()
    past, present = STEP, replace(STEP, sequence=9, acknowledged=8)
    for step in (past, present):
        staged(source, step, *tasks)
        source.commit(step, step.attempt, RESULTS)
    MovedLedger.unpacked(*MovedLedger.of(source).packed()).add_to(target)
    found = target.take_over(past.again())
    assert (found.phase, found.attempt) == (Phase.COMMITTED, past.attempt)
    found = target.take_over(present.again())
    assert (found.phase, found.participants) == (Phase.COMMITTED, tasks)


def test_steps_that_are_added_bring_back_nothing_that_was_acknowledged_or_fenced_off() -> None:
    source, target = Ledger(), Ledger()
    committed(source)
    target.begin_attempt(replace(STEP, sequence=9, acknowledged=8))
    MovedLedger.of(source).add_to(target)
    with pytest.raises(SupersededError, match="acknowledged all steps before 8"):
        target.begin_attempt(STEP.again())
    target.begin_attempt(replace(STEP, epoch=3, sequence=0))
    MovedLedger.of(source).add_to(target)
    with pytest.raises(AbortedError, match="epoch 3"):
        target.begin_attempt(STEP)


def test_steps_that_are_added_count_where_an_attempt_was_given_up_but_not_where_one_is_open() -> (
    None
):
    source, target = Ledger(), Ledger()
    committed(source)
    assert phase(target, STEP.again()) is Phase.UNKNOWN
    MovedLedger.of(source).add_to(target)
    with pytest.raises(SupersededError, match="attempt 3"):
        target.take_over(STEP.again())
    assert phase(target, STEP.again().again()) is Phase.COMMITTED
    undecided = Ledger()
    staged(undecided)
    with pytest.raises(AbortedError, match="not decided yet"):
        MovedLedger.of(source).add_to(undecided)
    assert undecided.commit(STEP, 1)


def test_a_restored_ledger_answers_as_the_one_that_was_saved() -> None:
    ledger = Ledger()
    committed(ledger)
    committed(ledger, replace(STEP, sequence=8))
    ledger.begin_attempt(replace(STEP, sequence=9, acknowledged=7))
    saved = SavedLedger.of(ledger)
    committed(ledger, replace(STEP, sequence=10))
    saved.restore(ledger)
    assert phase(ledger, STEP) is Phase.COMMITTED
    assert phase(ledger, replace(STEP, sequence=10)) is Phase.UNKNOWN
    ledger.stage(replace(STEP, sequence=9))  # what is active goes on
    with pytest.raises(SupersededError):
        ledger.begin_attempt(replace(STEP, sequence=6))


@pytest.mark.parametrize(
    "fields",
    [{"client": ""}, {"client": "x" * 257}, {"attempt": 0}, {"sequence": -1}, {"epoch": 2**63}],
)
def test_an_effect_out_of_range_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidArgumentError, match="of an effect"):
        replace(STEP, **fields)


def test_a_step_is_committed_everywhere_if_one_task_has_committed_it() -> None:
    done = Earlier(Phase.COMMITTED, 1)
    assert verdict([Earlier(Phase.STAGED, 1), done]) is done
    assert verdict([Earlier(Phase.STAGED, 1), Earlier(Phase.UNKNOWN)]) is None
    with_results = Earlier(Phase.COMMITTED, 1, results=RESULTS)
    assert verdict([done, with_results]) is with_results


def test_errors_are_of_the_classes_that_the_wire_knows() -> None:
    assert issubclass(SupersededError, AbortedError)
    assert issubclass(AbortedError, OpError)

"""A step's state machine: whatever happens in whatever order, it ends once, and rightly."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jflow.base.cluster import Task
from jflow.errors import AbortedError, CancelledError, InternalError, UnavailableError
from jflow.task.master.step import Fail, StartTask, Step, StopTask, Succeed
from tests.drawn import examples

A, B, C = (Task("worker", index) for index in range(3))
LOST = UnavailableError("lost")
UNWANTED = CancelledError("not wanted any more")


def test_a_step_begins_everywhere_at_once():
    assert Step([A, B]).begin() == [StartTask(A), StartTask(B)]


def test_a_step_of_no_task_is_done_at_once():
    assert Step([]).begin() == [Succeed()]


def test_a_step_succeeds_when_every_task_has_finished():
    step = Step([A, B])
    step.begin()
    assert step.task_finished(B) == []
    assert step.task_finished(A) == [Succeed()]


def test_after_a_failure_the_others_are_stopped_and_waited_for():
    step = Step([A, B, C])
    step.begin()
    assert step.task_failed(B, LOST) == [StopTask(A), StopTask(C)]
    assert step.task_failed(A, CancelledError("stopped")) == []
    assert step.task_finished(C) == [Fail(LOST)]


def test_the_first_error_is_the_step_s():
    step = Step([A, B])
    step.begin()
    step.task_failed(A, LOST)
    assert step.task_failed(B, AbortedError("later")) == [Fail(LOST)]


def test_the_only_share_s_failure_is_the_step_s_at_once():
    step = Step([A])
    step.begin()
    assert step.task_failed(A, LOST) == [Fail(LOST)]


def test_a_cancelled_step_fails_when_every_task_has_stopped():
    step = Step([A, B])
    step.begin()
    assert step.cancelled(UNWANTED) == [StopTask(A), StopTask(B)]
    assert step.cancelled(CancelledError("again")) == []
    assert step.task_finished(A) == []
    assert step.task_failed(B, LOST) == [Fail(UNWANTED)]


def test_cancelling_what_is_over_changes_nothing():
    step = Step([A])
    step.begin()
    step.task_finished(A)
    assert step.cancelled(UNWANTED) == []


def test_a_share_that_ends_twice_is_a_fault_of_ours():
    step = Step([A, B])
    step.begin()
    step.task_finished(A)
    for again in (lambda: step.task_finished(A), lambda: step.task_failed(A, LOST)):
        with pytest.raises(InternalError, match="does not run"):
            again()
    with pytest.raises(InternalError, match="does not run"):
        step.task_finished(C)


class StepMachine(RuleBasedStateMachine):
    """Shares end in any order and in any way; now and then the whole step is cancelled."""

    @initialize(n_tasks=st.integers(0, 5))
    def begin(self, n_tasks):
        self.running = [Task("worker", index) for index in range(n_tasks)]
        self.first_error = None
        self.stopped = set()
        self.outcomes = []
        self.step = Step(self.running)
        actions = self.step.begin()
        if n_tasks:
            assert actions == [StartTask(task) for task in self.running]
        else:
            self._take(actions)

    def _take(self, actions):
        for action in actions:
            match action:
                case StopTask(task):
                    assert task in self.running, "only tasks that run can be stopped"
                    assert task not in self.stopped, "no task is stopped twice"
                    self.stopped.add(task)
                case Succeed() | Fail():
                    self.outcomes.append(action)
                case _:
                    raise AssertionError(action)

    def _draw(self, data):
        task = data.draw(st.sampled_from(self.running))
        self.running.remove(task)
        return task

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data):
        self._take(self.step.task_finished(self._draw(data)))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def fail(self, data):
        task = self._draw(data)
        error = UnavailableError(f"{task} was lost")
        self.first_error = self.first_error or error
        self._take(self.step.task_failed(task, error))

    @rule()
    def cancel(self):
        error = CancelledError("not wanted any more")
        if self.running:
            self.first_error = self.first_error or error
        self._take(self.step.cancelled(error))

    @invariant()
    def it_ends_once_and_only_when_nothing_runs(self):
        assert len(self.outcomes) == (0 if self.running else 1)

    @invariant()
    def the_first_error_decides(self):
        for outcome in self.outcomes:
            if self.first_error is None:
                assert outcome == Succeed()
            else:
                assert outcome.error is self.first_error

    @invariant()
    def after_an_error_all_that_runs_has_been_stopped(self):
        if self.first_error is not None:
            assert self.stopped.issuperset(self.running)
        else:
            assert not self.stopped


TestStepMachine = StepMachine.TestCase
TestStepMachine.settings = settings(max_examples=examples(80), stateful_step_count=12)

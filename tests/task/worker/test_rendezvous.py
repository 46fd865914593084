"""The rendezvous against a model of it that has no limits but the documented ones."""

import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jflow.errors import InternalError, UnavailableError
from jflow.task.worker.rendezvous import MAX_EARLY_BYTES, EarlyValue, Rendezvous
from tests.drawn import examples

STEPS, EDGES, SENDERS = range(6), range(2), range(2)


def test_a_value_that_comes_first_is_kept_for_its_receiver():
    rendezvous = Rendezvous()
    rendezvous.open(1)
    assert rendezvous.deliver(1, 5, "value") is None
    assert rendezvous.receive(1, 5, "waiter") == EarlyValue("value")


def test_a_waiter_that_comes_first_is_given_back_when_the_value_comes():
    rendezvous = Rendezvous()
    rendezvous.open(1)
    assert rendezvous.receive(1, 5, "waiter") is None
    assert rendezvous.deliver(1, 5, "value") == "waiter"


def test_a_bare_signal_is_a_value_too():
    rendezvous = Rendezvous()
    rendezvous.deliver(1, 5, None)
    rendezvous.open(1)
    assert rendezvous.receive(1, 5, "waiter") == EarlyValue(None)


def test_steps_and_edges_are_kept_apart():
    rendezvous = Rendezvous()
    for step, edge in [(1, 1), (1, 2), (2, 1)]:
        rendezvous.open(step)
        rendezvous.deliver(step, edge, (step, edge))
    for step, edge in [(2, 1), (1, 2), (1, 1)]:
        assert rendezvous.receive(step, edge, "waiter") == EarlyValue((step, edge))
    assert rendezvous.receive(2, 2, "waiter") is None


def test_a_value_that_comes_before_its_step_is_opened_is_kept():
    rendezvous = Rendezvous()
    rendezvous.deliver(1, 5, "early")
    rendezvous.open(1)
    assert rendezvous.receive(1, 5, "waiter") == EarlyValue("early")


def test_a_value_that_comes_after_its_step_has_ended_is_dropped():
    rendezvous = Rendezvous()
    rendezvous.open(1)
    rendezvous.end_step(1)
    assert rendezvous.deliver(1, 5, "late") is None
    assert len(rendezvous) == 0


def test_two_values_under_one_edge_are_a_fault():
    rendezvous = Rendezvous()
    rendezvous.deliver(0x2A, 5, "one")
    with pytest.raises(InternalError, match="edge 5 of step 2a was sent twice"):
        rendezvous.deliver(0x2A, 5, "two")


def test_an_early_value_of_an_unknown_step_is_forgotten_and_open_steps_are_not():
    rendezvous = Rendezvous(memory=3)
    rendezvous.open(100)
    rendezvous.deliver(100, 0, "kept")
    for step in range(10):
        rendezvous.deliver(step, 0, "early")
        assert len(rendezvous) <= 4
    for step in range(10):
        rendezvous.open(step)
        if step >= 7:
            assert rendezvous.receive(step, 0, "waiter") == EarlyValue("early")
        elif step >= 4:  # it remembers which steps have lost a value
            with pytest.raises(UnavailableError, match="dropped"):
                rendezvous.receive(step, 0, "waiter")
        else:
            assert rendezvous.receive(step, 0, "waiter") is None
    assert rendezvous.receive(100, 0, "waiter") == EarlyValue("kept")


def test_early_values_go_with_the_stream_that_brought_them():
    rendezvous = Rendezvous()
    rendezvous.deliver(1, 0, "of a", "a")
    rendezvous.deliver(1, 1, "of b", "b")
    rendezvous.drop_sender("a")
    rendezvous.open(1)
    assert rendezvous.receive(1, 1, "waiter") == EarlyValue("of b")
    with pytest.raises(UnavailableError, match="run the step again"):
        rendezvous.receive(1, 0, "waiter")


def test_what_a_running_step_has_got_does_not_go_with_a_stream():
    rendezvous = Rendezvous()
    rendezvous.deliver(1, 0, "early", "a")
    rendezvous.open(1)
    rendezvous.deliver(1, 1, "in time", "a")
    rendezvous.drop_sender("a")
    assert rendezvous.receive(1, 0, "waiter") == EarlyValue("early")
    assert rendezvous.receive(1, 1, "waiter") == EarlyValue("in time")


def test_room_is_made_by_the_oldest_values_of_the_stream_that_needs_it():
    rendezvous, half = Rendezvous(), MAX_EARLY_BYTES // 2
    for step in range(3):
        rendezvous.deliver(step, 0, "of b", "b", half // 2)
        rendezvous.deliver(step, 1, "of a", "a", half)
    assert rendezvous.is_crowded("a")
    assert not rendezvous.is_crowded("b")
    rendezvous.make_room("a")
    assert not rendezvous.is_crowded("a")
    for step in range(3):
        rendezvous.open(step)
        assert rendezvous.receive(step, 0, "waiter") == EarlyValue("of b")
    assert rendezvous.receive(2, 1, "waiter") == EarlyValue("of a")
    with pytest.raises(UnavailableError):
        rendezvous.receive(0, 1, "waiter")


class RendezvousMachine(RuleBasedStateMachine):
    """Steps begin, end and are sent values in any order, against tables of what is promised.

    Promised is to keep all of an open step, the newest of the steps that were not opened yet, and
    the names of the newest ended ones and of the newest that have lost a value.
    """

    MEMORY = 2

    def __init__(self):
        super().__init__()
        self.real = Rendezvous(self.MEMORY)
        self.opened = []
        self.early = []
        self.ended = []
        self.lost = []
        self.senders = {}
        self.swept = set()
        self.values = {}
        self.waiters = {}
        self.numbers = itertools.count()

    def _drop(self, step):
        for table in (self.values, self.waiters):
            for edge in EDGES:
                table.pop((step, edge), None)

    def _lose(self, step):
        self._drop(step)
        if step not in self.lost:
            self.lost.append(step)
            del self.lost[: -self.MEMORY]

    @rule(step=st.sampled_from(STEPS))
    def open(self, step):
        if step in self.ended or step in self.opened:
            return  # a step has one name and one life
        self.real.open(step)
        self.opened.append(step)
        if step in self.early:
            self.early.remove(step)

    @rule(sender=st.sampled_from(SENDERS))
    def drop_sender(self, sender):
        self.real.drop_sender(sender)
        for step in list(self.early):
            theirs = [edge for edge in EDGES if self.senders.get((step, edge)) == sender]
            dropped = [self.values.pop((step, edge), None) for edge in theirs]
            if any(value is not None for value in dropped):
                left = {key: value for key, value in self.values.items() if key[0] == step}
                self._lose(step)
                self.values |= left
                if not left:
                    self.early.remove(step)

    @rule()
    def sweep(self):
        self.real.sweep()
        for step in [step for step in self.early if step in self.swept]:
            self.early.remove(step)
            self._lose(step)
        self.swept = set(self.early)

    @rule(step=st.sampled_from(STEPS), edge=st.sampled_from(EDGES), sender=st.sampled_from(SENDERS))
    def deliver(self, step, edge, sender):
        key, value = (step, edge), next(self.numbers)
        if key not in self.values:
            self.senders[key] = sender
        if step in self.ended:
            assert self.real.deliver(step, edge, value, sender, 100) is None
        elif key in self.values:
            with pytest.raises(InternalError, match="sent twice"):
                self.real.deliver(step, edge, value, sender, 100)
        elif key in self.waiters:
            assert self.real.deliver(step, edge, value, sender, 100) == self.waiters.pop(key)
        else:
            assert self.real.deliver(step, edge, value, sender, 100) is None
            self.values[key] = value
            if step not in self.opened and step not in self.early:
                self.early.append(step)
                self.swept.discard(step)
                if len(self.early) > self.MEMORY:
                    self._lose(self.early.pop(0))

    @precondition(lambda self: self.opened)
    @rule(data=st.data(), edge=st.sampled_from(EDGES))
    def take(self, data, edge):
        step = data.draw(st.sampled_from(self.opened))
        key, waiter = (step, edge), f"waiter {next(self.numbers)}"
        if key in self.waiters:
            return  # an edge has one consumer
        if key in self.values:
            assert self.real.receive(step, edge, waiter) == EarlyValue(self.values.pop(key))
        elif step in self.lost:
            with pytest.raises(UnavailableError, match="dropped"):
                self.real.receive(step, edge, waiter)
        else:
            assert self.real.receive(step, edge, waiter) is None
            self.waiters[key] = waiter

    @rule(step=st.sampled_from(STEPS))
    def end(self, step):
        if step in self.ended:
            return
        self.real.end_step(step)
        self._drop(step)
        for steps in (self.opened, self.early, self.lost):
            if step in steps:
                steps.remove(step)
        self.ended.append(step)
        del self.ended[: -self.MEMORY]

    @invariant()
    def memory_is_bounded(self):
        assert len(self.real) == len(self.opened) + len(self.early)
        assert len(self.early) <= self.MEMORY
        assert len(self.real._ended) == len(self.ended) <= self.MEMORY

    def teardown(self):
        for step in list(self.opened):
            for edge in EDGES:
                if (step, edge) not in self.waiters and step not in self.lost:
                    found = self.real.receive(step, edge, "last")
                    kept = (step, edge) in self.values
                    assert found == (EarlyValue(self.values[step, edge]) if kept else None)
            self.end(step)
        for step in list(self.early):
            self.end(step)
        assert len(self.real) == 0
        assert self.real._n_bytes == {}


TestRendezvousMachine = RendezvousMachine.TestCase
TestRendezvousMachine.settings = settings(max_examples=examples(60), stateful_step_count=60)

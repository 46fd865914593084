"""Accumulators against lists of the gradients they were given."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jflow.errors import AbortedError, CancelledError
from jflow.state.resources.accumulator import (
    Accumulator,
    AccumulatorSpec,
    ApplyGradient,
    ApplySparse,
    SetGlobalStep,
    TakeGradient,
)
from tests.drawn import examples

STEPS = st.integers(0, 4)
NUMBERS = st.integers(-50, 50)
ROWS = st.lists(st.tuples(st.integers(0, 5), NUMBERS), max_size=4)


class AccumulatorMachine(RuleBasedStateMachine):
    """The model keeps every gradient as a dict from index to number, and takes as they wait."""

    is_sparse = False
    reduction = "MEAN"

    def __init__(self):
        super().__init__()
        spec = AccumulatorSpec("float64", (6,), self.reduction, self.is_sparse)
        self.acc = Accumulator(spec, "acc")
        self.step = self.n_dropped = 0
        self.gradients = []
        self.waiting = []  # (attempt, count)
        self.saved = None
        self.end = None

    def expected_gradient(self):
        """What a take would bring: for each index that occurred, the number."""
        indices = sorted({index for gradient in self.gradients for index in gradient})
        mean = {}
        for index in indices:
            given = [gradient[index] for gradient in self.gradients if index in gradient]
            mean[index] = sum(given) / (len(given) if self.reduction == "MEAN" else 1)
        return mean

    def check(self, completed, *first):
        """The attempts that completed are `first`, then the takes that have enough, in order."""
        expected = [*first]
        gone = []
        while self.waiting and len(self.gradients) >= self.waiting[0][1]:
            attempt, _ = self.waiting.pop(0)
            expected.append(attempt)
            gone.append((attempt, self.expected_gradient()))
            self.gradients = []
            self.step += 1
        assert completed == expected
        for attempt, gradient in gone:
            if self.is_sparse:
                indices, slices, shape = attempt.result()
                assert (indices.dtype, shape.tolist()) == (np.int64, [6])
                assert dict(zip(indices.tolist(), slices.tolist(), strict=True)) == gradient
                assert indices.tolist() == [*gradient]
            else:
                assert attempt.result()[0].tolist() == [gradient[i] for i in range(6)]

    def apply(self, attempt, gradient, step):
        completed = self.acc.submit(attempt)
        if self.end is not None:
            assert (completed, attempt.error) == ([attempt], self.end)
            return
        assert attempt.result() == ()
        if step < self.step:
            self.n_dropped += 1
        else:
            self.gradients.append(gradient)
        self.check(completed, attempt)

    @precondition(lambda self: not self.is_sparse)
    @rule(gradient=st.lists(NUMBERS, min_size=6, max_size=6), step=STEPS)
    def apply_dense(self, gradient, step):
        attempt = ApplyGradient(np.array(gradient, np.float64), step)
        self.apply(attempt, dict(enumerate(gradient)), step)

    @precondition(lambda self: self.is_sparse)
    @rule(rows=ROWS, step=STEPS, has_shape=st.booleans())
    def apply_sparse(self, rows, step, has_shape):
        indices = np.array([index for index, _ in rows], np.int64)
        values = np.array([value for _, value in rows], np.float64)
        gradient = {}
        for index, value in rows:
            gradient[index] = gradient.get(index, 0) + value
        shape = np.array([6]) if has_shape else None
        self.apply(ApplySparse(indices, values, shape, step), gradient, step)

    @rule(count=st.integers(1, 4))
    def take(self, count):
        attempt = TakeGradient(count)
        completed = self.acc.submit(attempt)
        if self.end is not None:
            assert (completed, attempt.error) == ([attempt], self.end)
        else:
            self.waiting.append((attempt, count))
            self.check(completed)

    @rule(step=STEPS)
    def set_step(self, step):
        attempt = SetGlobalStep(step)
        completed = self.acc.submit(attempt)
        if self.end is None:
            self.step = step
            self.check(completed, attempt)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def cancel(self, data):
        attempt, _ = self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1)))
        error = CancelledError("TakeGrad operation was cancelled")
        self.check(self.acc.cancel(attempt, error), attempt)
        assert attempt.error is error
        assert self.acc.cancel(attempt, error) == []

    @precondition(lambda self: self.end is None)
    @rule()
    def save(self):
        self.saved = self.acc.snapshot(), [*self.gradients], self.step, self.n_dropped

    @precondition(lambda self: self.end is None and self.saved)
    @rule(is_fresh=st.booleans())
    def restore(self, is_fresh):
        """Into this one, where takes may go on, or into another one, which takes its place."""
        snapshot, gradients, self.step, self.n_dropped = self.saved
        self.gradients = [*gradients]
        if is_fresh:
            for attempt, _ in self.waiting:
                self.acc.cancel(attempt, CancelledError("it is gone"))
            self.waiting = []
            self.acc = type(self.acc)(self.acc.spec, "fresh")
        self.check(self.acc.restore(snapshot))

    @precondition(lambda self: self.waiting and len(self.waiting) > 2)
    @rule()
    def free_all(self):
        self.end = AbortedError("reset")
        assert self.acc.close(self.end) == [attempt for attempt, _ in self.waiting]
        assert all(attempt.error is self.end for attempt, _ in self.waiting)
        self.waiting, self.gradients = [], []

    @invariant()
    def counts_are_those_of_the_model(self):
        assert self.acc.n_accumulated == len(self.gradients)
        assert self.acc.global_step == self.step
        assert self.acc.n_dropped == self.n_dropped
        assert self.acc.n_waiting == (0, len(self.waiting))


class SparseMachine(AccumulatorMachine):
    is_sparse = True


class SparseSumMachine(SparseMachine):
    reduction = "SUM"


TestDense = AccumulatorMachine.TestCase
TestSparse = SparseMachine.TestCase
TestSparseSum = SparseSumMachine.TestCase

TestDense.settings = TestSparse.settings = TestSparseSum.settings = settings(
    max_examples=examples(25), stateful_step_count=30
)

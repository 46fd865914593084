"""Accesses to variables against a model: a list of those that came, in their order."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jflow.errors import CancelledError, FailedPreconditionError
from jflow.state.resources import Access, AccessQueue, Attempt
from tests.drawn import examples

KEYS = st.sampled_from([frozenset(keys) for keys in ("", "a", "b", "c", "ab", "bc", "abc")])


class Numbered(Access):
    """An access that says when it is granted."""

    def __init__(self, number: int, reads: Any, writes: Any, *, fails: bool) -> None:
        super().__init__(sorted(reads - writes), sorted(writes))
        self.number = number
        self.fails = fails
        self.n_taken = 0

    def take(self) -> None:
        self.n_taken += 1
        if self.fails:
            raise FailedPreconditionError("not initialized")

    def put(self) -> None:
        pass

    def rollback(self) -> None:
        self.n_taken = -1

    def reason(self, ahead: Access, writer: Access) -> str:
        assert isinstance(writer, Numbered)
        return f"{writer.number}"


def conflict(one: Access, other: Access) -> bool:
    """Whether two accesses to one variable cannot be granted side by side."""
    written = {*one.writes, *other.writes}
    return bool({*one.all_keys()} & {*other.all_keys()} & written)


class AccessMachine(RuleBasedStateMachine):
    """An access is granted as soon as nothing that came before it is in its way.

    In its way is what writes a variable in common, and what waits and is to write one, or to read
    one that it writes. What reads is never in the way once it is granted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.queue = AccessQueue()
        self.n = 0
        self.waiting: list[Numbered] = []
        self.writing: list[Numbered] = []

    def _expected(self) -> list[Numbered]:
        """Grants in the model what can be granted; gives what was."""
        granted: list[Numbered] = []
        for access in [*self.waiting]:
            held = any(
                {*access.all_keys()} & ({*other.writes} - {*other.lost}) for other in self.writing
            )
            earlier = self.waiting[: self.waiting.index(access)]
            if held or any(conflict(access, other) for other in earlier):
                continue
            self.waiting.remove(access)
            granted.append(access)
            if not access.fails and access.writes:
                self.writing.append(access)
        return granted

    def _check(self, completed: list[Attempt], *others: Numbered) -> None:
        expected = {id(access) for access in (*self._expected(), *others)}
        assert {id(attempt) for attempt in completed} == expected
        assert len(completed) == len(expected)

    def _new(self, reads: Any, writes: Any, *, fails: bool) -> Numbered:
        access = Numbered(self.n, reads, writes, fails=fails)
        self.n += 1
        self.waiting.append(access)
        return access

    @rule(reads=KEYS, writes=KEYS)
    def submit(self, reads: Any, writes: Any) -> None:
        self._check(self.queue.submit(self._new(reads, writes, fails=False)))

    @rule(reads=KEYS)
    def submit_a_reader(self, reads: Any) -> None:
        self._check(self.queue.submit(self._new(reads, frozenset(), fails=False)))

    @rule(key=st.sampled_from("abc"), fails=st.booleans())
    def submit_a_writer(self, key: str, fails: bool) -> None:
        self._check(self.queue.submit(self._new(frozenset(), frozenset(key), fails=fails)))

    @rule(reads=KEYS, writes=KEYS)
    def try_to_have(self, reads: Any, writes: Any) -> None:
        access = self._new(reads, writes, fails=False)
        granted = self.queue.try_grant(access)
        assert self._expected() == [access] * granted
        if not granted:
            self.waiting.remove(access)

    @precondition(lambda self: self.writing)
    @rule(data=st.data())
    def end(self, data: Any) -> None:
        access = self.writing.pop(data.draw(st.integers(0, len(self.writing) - 1)))
        self._check(self.queue.end_access(access))
        assert self.queue.end_access(access) == []

    @precondition(lambda self: self.writing)
    @rule(data=st.data())
    def unread(self, data: Any) -> None:
        access = self.writing.pop(data.draw(st.integers(0, len(self.writing) - 1)))
        self._check(self.queue.unread(access))
        assert access.n_taken == -1

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def cancel(self, data: Any) -> None:
        access = self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1)))
        self._check(self.queue.cancel(access, CancelledError("x")), access)
        assert self.queue.cancel(access, CancelledError("x")) == []

    @rule(keys=st.sampled_from(["a", "bc"]))
    def free(self, keys: Any) -> None:
        lost = [{*access.lost} | ({*access.writes} & {*keys}) for access in self.writing]
        completed = self.queue.free(lambda key: key in keys)
        assert [{*access.lost} for access in self.writing] == lost
        self._check(completed)

    @invariant()
    def those_that_wait_were_granted_nothing_and_can_say_why(self) -> None:
        for access in self.waiting:
            assert not access.is_complete
            assert access.n_taken == 0
            writer = int(self.queue.reason(access))
            assert writer in {other.number for other in self.writing}
        for access in self.writing:
            assert access.is_complete
            assert access.n_taken == 1

    @invariant()
    def nothing_is_kept_of_what_has_ended(self) -> None:
        held = {key for access in self.writing for key in access.writes if key not in access.lost}
        assert self.queue._writers.keys() == held
        assert self.queue._queues.keys() == {
            key for access in self.waiting for key in access.all_keys()
        }


TestAccessMachine = AccessMachine.TestCase
TestAccessMachine.settings = settings(max_examples=examples(50), stateful_step_count=30)

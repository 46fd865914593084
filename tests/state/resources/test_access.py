"""Accesses to variables: what is granted side by side, and what wakes what."""

from __future__ import annotations

from jflow.errors import CancelledError
from jflow.state.resources import Access, AccessQueue


class Plain(Access):
    """An access that takes nothing."""

    def take(self) -> None:
        pass

    def put(self) -> None:
        pass

    def rollback(self) -> None:
        pass

    def reason(self, ahead: Access, writer: Access) -> str:
        return f"{'/'.join(map(str, ahead.all_keys()))} then {'/'.join(map(str, writer.writes))}"


def test_readers_do_not_wait_for_each_other_and_hold_nothing() -> None:
    queue = AccessQueue()
    for _ in range(3):
        assert queue.try_grant(Plain("ab", ""))
    assert queue.try_grant(Plain("", "a"))
    assert not queue.try_grant(Plain("a", ""))
    assert queue.try_grant(Plain("", "b"))


def test_a_writer_behind_a_reader_goes_on_when_that_has_left_for_another_reason() -> None:
    queue = AccessQueue()
    first, reader, writer = Plain("", "a"), Plain("ab", ""), Plain("", "b")
    assert queue.submit(first) == [first]
    assert queue.submit(reader) == []
    assert queue.submit(writer) == [], "it came later than the reader of the same variable"
    assert queue.end_access(first) == [reader, writer]


def test_what_is_withdrawn_lets_those_behind_it_go_on() -> None:
    queue = AccessQueue()
    first, both, reader = Plain("", "a"), Plain("", "ab"), Plain("b", "")
    queue.submit(first)
    queue.submit(both)
    assert queue.submit(reader) == []
    assert queue.reason(reader) == "a/b then a"
    assert queue.cancel(both, CancelledError("x")) == [both, reader]
    assert queue.end_access(first) == []


def test_steps_on_several_variables_go_one_after_the_other_in_their_order() -> None:
    queue = AccessQueue()
    accesses = [Plain("", "ab"), Plain("", "ba"), Plain("a", "b"), Plain("b", "a")]
    assert [bool(queue.submit(access)) for access in accesses] == [True, False, False, False]
    assert queue.end_access(accesses[0]) == [accesses[1]]
    assert queue.end_access(accesses[1]) == [accesses[2]]
    assert queue.end_access(accesses[2]) == [accesses[3]]

"""The order between snapshots and steps that write more than once."""

from __future__ import annotations

from jflow.errors import AbortedError
from jflow.state.resources import CloseWriting, EnterWriting, Writing
from jflow.state.resources.writing import WritingOrder

GIVEN_UP = AbortedError("given up")


def test_a_close_waits_for_what_is_inside_and_holds_back_what_is_not() -> None:
    order = WritingOrder()
    inside, late = Writing(), Writing()
    assert order.try_enter(inside)
    close, enter = CloseWriting(), EnterWriting(late)
    assert order.submit(close) == []
    assert not order.try_enter(late)
    assert order.submit(enter) == []
    assert order.try_enter(inside), "it goes on with its writes"
    assert order.leave(inside) == [close]
    assert order.unread(close) == [enter]
    again = CloseWriting()
    assert order.submit(again) == [], "the late one is inside now"
    assert order.leave(late) == [again]


def test_several_closes_hold_at_once_and_the_last_one_lets_go() -> None:
    order = WritingOrder()
    first, second = CloseWriting(), CloseWriting()
    assert order.submit(first) == [first]
    assert order.submit(second) == [second]
    enter = EnterWriting(Writing())
    assert order.submit(enter) == []
    assert order.unread(first) == []
    assert order.unread(first) == [], "ending it again changes nothing"
    assert order.unread(second) == [enter]


def test_a_close_that_is_given_up_lets_everything_go_on() -> None:
    order = WritingOrder()
    inside = Writing()
    assert order.try_enter(inside)
    close, enter = CloseWriting(), EnterWriting(Writing())
    order.submit(close)
    order.submit(enter)
    assert order.cancel(close, GIVEN_UP) == [close, enter]
    assert close.error is not None
    assert order.cancel(close, GIVEN_UP) == []
    assert order.leave(inside) == []


def test_a_step_that_ends_while_it_waits_never_enters() -> None:
    order = WritingOrder()
    close, enter = CloseWriting(), EnterWriting(Writing())
    order.submit(close)
    order.submit(enter)
    assert order.cancel(enter, GIVEN_UP) == [enter]
    assert order.leave(enter.writing) == []
    assert order.unread(close) == []
    assert order.submit(CloseWriting()) != [], "nothing is inside"


def test_what_has_left_does_not_enter_again() -> None:
    """The programs of an attempt may go on for a while after another one has taken over from it."""
    order = WritingOrder()
    superseded, late = Writing(), Writing()
    assert order.leave(superseded) == []
    assert order.try_enter(superseded), "it need not wait to find out that it is over"
    close, enter = CloseWriting(), EnterWriting(late)
    assert order.submit(close) == [close]
    order.submit(enter)
    assert order.leave(late) == []
    assert order.unread(close) == [enter]
    again = CloseWriting()
    assert order.submit(again) == [again], "nothing is inside"


def test_what_waits_says_for_what() -> None:
    order = WritingOrder()
    order.try_enter(Writing())
    close = CloseWriting()
    order.submit(close)
    assert order.reason(close) == "waited for 1 steps that write several times"
    assert order.reason(EnterWriting(Writing())) == "waited for a snapshot of the variables"

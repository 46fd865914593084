"""The context stack: blocks before values of all threads, and those before the fallback."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeVar

import pytest

from jflow.base.context import Fallback, Stack

T = TypeVar("T")


def on_a_thread(fun: Callable[[], T]) -> T:
    found: list[T] = []
    thread = threading.Thread(target=lambda: found.append(fun()))
    thread.start()
    thread.join()
    return found[0]


def test_the_innermost_block_of_this_thread_is_current() -> None:
    stack: Stack[str] = Stack()
    assert (stack.top, stack.current, stack.depth) == (None, None, 0)
    with stack.pushed("outer") as outer:
        assert outer == stack.top == "outer"
        with stack.pushed("inner"):
            assert (stack.top, stack.current, stack.depth) == ("inner", "inner", 2)
            assert on_a_thread(lambda: (stack.top, stack.current, stack.depth)) == (None, None, 0)
        assert stack.top == "outer"
    assert stack.top is None


def test_a_value_of_all_threads_is_current_where_no_block_is_open() -> None:
    stack: Stack[str] = Stack()
    stack.add_everywhere("first")
    stack.add_everywhere("second")
    assert (stack.top, stack.current) == (None, "second")
    assert on_a_thread(lambda: stack.current) == "second"
    with stack.pushed("block"):
        assert stack.current == "block"
    stack.discard_everywhere(lambda value: value == "second")
    assert stack.current == "first"
    stack.discard_everywhere(lambda value: value == "first")
    assert stack.current is None


def test_an_exception_ends_a_block() -> None:
    stack: Stack[str] = Stack()
    with pytest.raises(KeyError), stack.pushed("block"):
        raise KeyError
    assert stack.top is None


def test_a_strict_stack_refuses_blocks_that_end_in_another_order() -> None:
    stack: Stack[str] = Stack()
    outer, inner = ExitStack(), ExitStack()
    outer.enter_context(stack.pushed("outer"))
    inner.enter_context(stack.pushed("inner"))
    with pytest.raises(AssertionError, match="Nesting violated: 'outer' is not the innermost"):
        outer.close()


def test_a_lenient_stack_drops_the_value_of_the_block_that_ends() -> None:
    stack: Stack[str] = Stack(is_strict=False)
    outer, inner = ExitStack(), ExitStack()
    outer.enter_context(stack.pushed("outer"))
    inner.enter_context(stack.pushed("inner"))
    outer.close()
    assert (stack.top, stack.depth) == ("inner", 1)
    inner.close()
    assert stack.depth == 0


def test_a_fallback_is_made_once_for_all_threads() -> None:
    made: list[object] = []

    def make() -> object:
        made.append(object())
        return made[-1]

    fallback = Fallback(make)
    assert not made
    assert fallback.get() is fallback.get() is on_a_thread(fallback.get)
    assert len(made) == 1
    fallback.discard()
    assert fallback.get() is made[1]

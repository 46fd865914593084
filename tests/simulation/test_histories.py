"""The checkers of histories: what they accept, and what they reject."""

from __future__ import annotations

import itertools

import pytest

from tests.simulation.histories import (
    NEVER,
    History,
    Operation,
    check_count,
    check_queue,
    check_register,
    fifo,
    is_linearizable,
    register,
)


def _history(*calls: tuple[str, object, float, float]) -> History:
    history = History(itertools.count())
    history.operations += [
        Operation(f"client {i}", kind, value, invoked, ended)  # type: ignore[arg-type]
        for i, (kind, value, invoked, ended) in enumerate(calls)
    ]
    return history


GOOD_REGISTERS = [
    [("write", 1, 0, 1), ("read", 1, 2, 3)],
    [("write", 1, 0, 5), ("read", 0, 1, 2), ("read", 1, 3, 4)],
    [("write", 1, 0, NEVER), ("read", 0, 1, 2), ("read", 1, 3, 4)],
    [("write", 1, 0, NEVER), ("read", 0, 10, 12)],
    [("write", 1, 0, 9), ("write", 2, 0, 9), ("read", 2, 10, 11), ("read", 2, 12, 13)],
]
BAD_REGISTERS = [
    [("write", 1, 0, 1), ("read", 0, 2, 3)],  # a stale read
    [("write", 1, 0, 5), ("read", 1, 1, 2), ("read", 0, 3, 4)],  # read and gone again
    [("write", 1, 0, NEVER), ("read", 1, 1, 2), ("read", 0, 3, 4)],
    [("write", 1, 0, 1), ("write", 2, 2, 3), ("read", 1, 4, 5)],  # a lost write
    [("read", 7, 0, 1)],  # never written
    [("write", 1, 0, 9), ("write", 2, 0, 9), ("read", 1, 10, 11), ("read", 2, 12, 13)],
]


@pytest.mark.parametrize("calls", GOOD_REGISTERS)
def test_a_variable_may_do_this(calls) -> None:  # type: ignore[no-untyped-def]
    assert [*check_register(_history(*calls), 0)] == []


@pytest.mark.parametrize("calls", BAD_REGISTERS)
def test_a_variable_may_not_do_this(calls) -> None:  # type: ignore[no-untyped-def]
    assert [*check_register(_history(*calls), 0)]


GOOD_QUEUES = [
    [("put", 1, 0, 1), ("put", 2, 2, 3), ("get", 1, 4, 5), ("get", 2, 6, 7)],
    [("put", 1, 0, 9), ("put", 2, 0, 9), ("get", 2, 4, 5), ("get", 1, 6, 7)],
    [("put", 1, 0, NEVER), ("put", 2, 2, 3), ("get", 2, 4, 5)],
    [("put", 1, 0, 1), ("get", None, 2, NEVER)],  # the get may have taken it
]
BAD_QUEUES = [
    [("put", 1, 0, 1), ("put", 2, 2, 3), ("get", 2, 4, 5), ("get", 1, 6, 7)],  # order
    [("put", 1, 0, 1), ("get", 1, 4, 5), ("get", 1, 6, 7)],  # twice
    [("put", 1, 0, 1), ("put", 2, 2, 3), ("get", 2, 4, 5)],  # lost
    [("put", 1, 0, 1), ("get", 1, 4, 5), ("get", 3, 6, 7)],  # from nowhere
    [("get", 1, 0, 1), ("put", 1, 2, 3)],  # before it was put
]


@pytest.mark.parametrize("calls", GOOD_QUEUES)
def test_a_queue_may_do_this(calls) -> None:  # type: ignore[no-untyped-def]
    assert [*check_queue(_history(*calls))] == []


@pytest.mark.parametrize("calls", BAD_QUEUES)
def test_a_queue_may_not_do_this(calls) -> None:  # type: ignore[no-untyped-def]
    assert [*check_queue(_history(*calls))]


def test_a_counter_counts_each_call_once() -> None:
    calls = [("count", 1, 0, 1), ("count", 2, 2, 3), ("count", None, 4, NEVER)]
    for final in (2, 3):
        assert [*check_count(_history(*calls), final, "x")] == []
    for final in (1, 4):
        assert [*check_count(_history(*calls), final, "x")]
    twice = [("count", 1, 0, 1), ("count", 1, 0, 3)]
    assert [*check_count(_history(*twice), 2, "x")]
    backwards = [("count", 2, 0, 1), ("count", 1, 2, 3)]
    assert [*check_count(_history(*backwards), 2, "x")]


def test_the_search_agrees_with_trying_every_order() -> None:
    """Four calls of two kinds with all intervals that differ, by brute force."""
    intervals = [(0, 3), (1, 2), (4, 6), (5, 7)]
    kinds = [("write", 1), ("write", 2), ("read", 0), ("read", 1), ("read", 2)]
    for chosen in itertools.product(kinds, repeat=len(intervals)):
        calls = [
            Operation("c", kind, value, *interval)  # type: ignore[arg-type]
            for (kind, value), interval in zip(chosen, intervals, strict=True)
        ]
        assert is_linearizable(calls, 0, register) == any(map(_is_order, _orders(calls)))


def _orders(calls: list[Operation]) -> list[tuple[Operation, ...]]:
    return [
        order
        for order in itertools.permutations(calls)
        if not any(b.ended < a.invoked for a, b in itertools.combinations(order, 2))
    ]


def _is_order(order: tuple[Operation, ...]) -> bool:
    state = 0
    for one in order:
        if one.kind == "write":
            state = one.value
        elif one.value != state:
            return False
    return True


def test_an_empty_history_is_fine() -> None:
    assert is_linearizable([], (), fifo)

"""The checker finds what was done to a good history, and nothing in one that was not touched."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.checker import check
from tests.chaos.history import FAIL, OK, OPEN, Call, Element, Recorder, read_calls

NEVER = float("inf")


def put(number: int, invoked: float, ended: float, outcome: str = OK, producer: int = 0) -> Call:
    return Call("put", invoked, ended, outcome, (Element(producer, number),))


def get(numbers: Sequence[int], invoked: float, ended: float, n: int = 0) -> Call:
    elements = tuple(Element(0, number) for number in numbers)
    return Call("get", invoked, ended, OK, elements, n or len(numbers))


def killed_get(invoked: float, n: int = 1) -> Call:
    return Call("get", invoked, NEVER, OPEN, (), n)


THREE_PUTS = [put(0, 0, 1), put(1, 2, 3), put(2, 4, 5)]


def test_a_good_history_is_good() -> None:
    findings = check([*THREE_PUTS, get([0, 1], 1, 6), get([2], 7, 8)])
    assert not findings.violations
    assert (findings.n_acknowledged, findings.n_delivered, findings.n_excused) == (3, 3, 0)


@pytest.mark.parametrize(
    ("gets", "violation"),
    [
        ([get([0], 6, 7), get([2], 8, 9)], "0.1 is lost"),
        ([get([0, 1], 6, 7)], "0.2 is lost"),
        ([get([0, 1], 6, 7), get([1, 2], 8, 9)], "0.1 came out 2 times"),
        ([get([0, 1, 2, 3], 6, 7)], "0.3 came out and was never put"),
        ([get([1], 6, 7), get([0, 2], 8, 9)], "0.0 came out after one that was put later"),
        ([get([0, 2, 1], 6, 7)], "0.1 came out after one that was put later"),
        ([get([0, 1, 2], 6, 7, n=2)], "a get of 2 brought 3"),
    ],
    ids=["lost", "lost at the end", "twice", "invented", "reordered", "in a batch", "too many"],
)
def test_a_fault_is_found(gets: list[Call], violation: str) -> None:
    assert check([*THREE_PUTS, *gets]).violations == [violation]


def test_gets_at_the_same_time_may_come_in_any_order() -> None:
    assert not check([*THREE_PUTS, get([1], 6, 9), get([0], 7, 8), get([2], 7, 9)]).violations


def test_puts_at_the_same_time_may_come_out_in_any_order() -> None:
    puts = [put(0, 0, 9), put(0, 1, 8, producer=1)]
    other = Call("get", 10, 11, OK, (Element(1, 0),))
    assert not check([*puts, other, get([0], 12, 13)]).violations


def test_the_put_of_a_killed_producer_may_or_may_not_be_there() -> None:
    puts = [put(0, 0, 1), put(1, 2, NEVER, OPEN)]
    assert not check([*puts, get([0], 6, 7)]).violations
    assert not check([*puts, get([0], 6, 7), get([1], 8, 9)]).violations
    twice = [get([0], 6, 7), get([1], 8, 9), get([1], 10, 11)]
    assert check([*puts, *twice]).violations == ["0.1 came out 2 times"]


def test_a_put_that_failed_put_nothing() -> None:
    findings = check([put(0, 0, 1, FAIL), get([0], 2, 3)])
    assert findings.violations == ["0.0 came out, though its put had failed"]


def test_a_killed_get_takes_as_much_as_it_asked_for() -> None:
    gets = [get([0], 6, 7)]
    assert not check([*THREE_PUTS, *gets, killed_get(8, n=2)]).violations
    findings = check([*THREE_PUTS, *gets, killed_get(8)])
    assert findings.n_excused == 1
    assert len(findings.violations) == 1


def test_what_a_killed_get_gave_back_may_come_late() -> None:
    gets = [get([1], 6, 7), get([0, 2], 8, 9)]
    assert not check([*THREE_PUTS, *gets, killed_get(5)]).violations


@pytest.mark.parametrize(
    ("invoked", "ended", "n_violations"), [(5, 6.5, 0), (1, 5.5, 1), (7.5, 8, 1)]
)
def test_what_a_get_gave_back_whose_time_was_over_may_come_late(
    invoked: float, ended: float, n_violations: int
) -> None:
    """It gives back what another get passed meanwhile, and no more than it asked for."""
    failed = Call("get", invoked, ended, FAIL, (), 1)
    late = [get([1], 6, 7), get([0, 2], 8, 9)]
    assert len(check([*THREE_PUTS, *late, failed]).violations) == n_violations
    both = [get([2], 6, 7), get([0, 1], 8, 9)]
    assert len(check([*THREE_PUTS, *both, failed]).violations) == 1 + n_violations
    lost = [get([1], 6, 7), get([2], 8, 9)]
    assert check([*THREE_PUTS, *lost, failed]).violations == ["0.0 is lost"]


def test_a_get_that_began_when_the_queue_was_past_an_element_has_not_taken_it() -> None:
    gets = [get([0], 6, 7), get([2], 8, 9)]
    findings = check([*THREE_PUTS, *gets, killed_get(10)])
    assert findings.violations == ["0.1 is lost"]


def simulated(seed: int, n_clients: int = 3) -> list[Call]:
    """What clients of a right queue see; some are killed, and the queue is drained in the end."""
    rng = random.Random(seed)
    queue: deque[Element] = deque()
    calls = []
    free_at = [0.0] * (2 * n_clients)
    numbers = [0] * n_clients
    for at in range(1, 60):  # the times at which the queue does something
        client = rng.choice([i for i, free in enumerate(free_at) if free < at] or [None])
        if client is None:
            continue
        begun = rng.uniform(free_at[client], at)
        ended = at + rng.random() * 3
        outcome = rng.choice([OK, OK, OK, FAIL, OPEN])
        if client < n_clients:
            call = Call("put", begun, ended, outcome, (Element(client, numbers[client]),))
            numbers[client] += 1
            if outcome == OK or (outcome == OPEN and rng.random() < 0.5):
                queue.append(call.elements[0])
        else:
            n = rng.randint(1, 3)
            taken = tuple(queue.popleft() for _ in range(min(n, len(queue))))
            if outcome == FAIL or (outcome == OPEN and rng.random() < 0.3):
                queue.extendleft(reversed(taken))
            call = Call("get", begun, ended, outcome, taken if outcome == OK else (), n)
        # A client that is killed is replaced by one of the same number.
        free_at[client] = ended
        calls.append(replace(call, ended=NEVER) if outcome == OPEN else call)
    return [*calls, Call("get", 99, 100, OK, tuple(queue), len(queue))]


@given(st.integers(0, 2**32))
def test_no_fault_is_found_where_there_is_none(seed: int) -> None:
    assert not check(simulated(seed)).violations


@given(st.integers(0, 2**32), st.data())
def test_an_element_that_vanishes_is_found(seed: int, data: st.DataObject) -> None:
    calls = [call for call in simulated(seed) if (call.kind, call.outcome) != ("get", OPEN)]
    known = {
        e for call in calls if call.kind == "put" and call.outcome == OK for e in call.elements
    }
    out = {e for call in calls if call.kind == "get" for e in call.elements}
    # Without the killed gets nothing is excused; what they took with them is lost now.
    assert {violation.split()[0] for violation in check(calls).violations} >= {
        str(e) for e in known - out
    }
    if known & out:
        victim = data.draw(st.sampled_from(sorted(known & out)))
        damaged = [
            replace(c, elements=tuple(e for e in c.elements if e != victim))
            if c.kind == "get"
            else c
            for c in calls
        ]
        assert f"{victim} is lost" in check(damaged).violations


def test_a_history_survives_its_file(tmp_path) -> None:
    recorder = Recorder(tmp_path / "history")
    recorder.put("invoke", Element(3, 0))
    recorder.put(OK, Element(3, 0))
    recorder.invoke_get(5)
    recorder.end_get(FAIL)
    recorder.invoke_get(2)
    recorder.end_get(OK, [Element(3, 0)])
    recorder.invoke_get(4)
    recorder.close()
    calls = [*read_calls((tmp_path / "history").read_text().splitlines())]
    assert [(c.kind, c.outcome, c.elements, c.n) for c in calls] == [
        ("put", OK, (Element(3, 0),), 1),
        ("get", FAIL, (), 5),
        ("get", OK, (Element(3, 0),), 2),
        ("get", OPEN, (), 4),
    ]
    times = [time for call in calls for time in (call.invoked, call.ended)]
    assert times == sorted(times)
    assert times[-1] == NEVER

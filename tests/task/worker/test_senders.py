"""Which waits end when the connection of a sender ends."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jflow.base.cluster import Task
from jflow.task.worker.senders import Senders
from tests.drawn import examples

A, B = Task("a", 0), Task("b", 0)


@pytest.fixture
def senders() -> Senders[str]:
    return Senders()


def test_what_waits_for_a_task_ends_with_its_connection(senders: Senders[str]) -> None:
    of_a, of_b = senders.connected(A), senders.connected(B)
    senders.add_wait(A, "one")
    senders.add_wait(B, "other")
    senders.add_wait(A, "two")
    senders.remove_wait(A, "two")
    assert senders.lost(of_a) == ["one"]
    assert senders.lost(of_b) == ["other"]


def test_what_began_before_a_task_connected_ends_with_it_too(senders: Senders[str]) -> None:
    senders.add_wait(A, "one")
    assert senders.lost(senders.connected(A)) == ["one"]


def test_what_waits_while_a_task_has_no_connection_waits_for_the_next_one(
    senders: Senders[str],
) -> None:
    senders.lost(senders.connected(A))
    senders.add_wait(A, "one")
    later = senders.connected(A)
    assert senders.lost(senders.connected(B)) == []
    assert senders.lost(later) == ["one"]


def test_what_began_after_a_task_connected_again_does_not_end_with_the_former_connection(
    senders: Senders[str],
) -> None:
    former = senders.connected(A)
    senders.add_wait(A, "before")
    later = senders.connected(A)
    senders.add_wait(A, "after")
    assert senders.lost(former) == ["before"]
    senders.remove_wait(A, "before")
    assert senders.lost(later) == ["after"]


def test_a_caller_that_is_not_a_task_sends_nothing_that_is_waited_for(
    senders: Senders[str],
) -> None:
    client = senders.connected()
    senders.add_wait(A, "one")
    assert senders.lost(client) == []


@settings(max_examples=examples(40))
@given(st.lists(st.tuples(st.sampled_from("cblw"), st.integers(0, 3)), max_size=30))
def test_no_wait_is_left_that_only_an_ended_connection_could_have_ended(
    events: list[tuple[str, int]],
) -> None:
    """A wait ends at the first end of a connection that was the latest one since it began."""
    senders: Senders[int] = Senders()
    connections, waiting = [], {}
    for number, (event, choice) in enumerate(events):
        if event == "c":
            connections.append((number, senders.connected(A)))
        elif event == "b":
            waiting[number] = number
            senders.add_wait(A, number)
        elif event == "w" and waiting:
            ended = list(waiting)[choice % len(waiting)]
            senders.remove_wait(A, waiting.pop(ended))
        elif event == "l" and connections:
            opened, sender = connections.pop(choice % len(connections))
            later = [at for at, _ in connections if at > opened]
            expected = [at for at in waiting if not later or at < min(later)]
            assert senders.lost(sender) == expected
            for at in expected:
                senders.remove_wait(A, waiting.pop(at))

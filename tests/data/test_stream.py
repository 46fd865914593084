"""Properties of iterators on which transforms of a pipeline rely."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from jflow.data import Dataset
from tests.data.chains import Chain, Transform, as_lists, chains, few, modelled_transforms, shuffles

ENDED = Transform("interleave", lambda d: d.interleave(few, 2), None)


@given(chains(modelled_transforms() | shuffles()), st.lists(st.integers(0, 20), max_size=3))
@example(Chain(Transform("3", lambda _: Dataset.range(3), None), (ENDED,)), [0])
@example(Chain(Transform("3", lambda _: few(3).concatenate(few(2)).skip(0), None), ()), [0])
def test_a_cursor_goes_anywhere_from_anywhere(chain, numbers) -> None:
    cursor = chain.build().filter(lambda _: True)._start()
    states = [cursor.get_state()]
    everything = []
    for element in cursor:
        everything.append(element)
        states.append(cursor.get_state())
    for number in numbers:
        cursor.set_state(states[number % len(states)])
        assert as_lists(cursor) == as_lists(everything[number % len(states) :])
    cursor.close()

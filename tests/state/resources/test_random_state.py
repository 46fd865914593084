"""Random states: keys that follow from a seed, and go on from a snapshot."""

from jflow.state.resources.random_state import DrawKey, RandomState, RandomStateSpec


def _drawn(state, n=3):
    keys = []
    for _ in range(n):
        attempt = DrawKey()
        state.submit(attempt)
        keys.append(tuple(attempt.result()[0].tolist()))
    return keys


def test_keys_follow_from_the_seed_and_are_all_different():
    first = _drawn(RandomState(RandomStateSpec((1, 2)), "a"), 50)
    assert first == _drawn(RandomState(RandomStateSpec((1, 2)), "b"), 50)
    assert len(set(first)) == 50
    assert not {*first} & {*_drawn(RandomState(RandomStateSpec((2, 1)), "a"), 50)}


def test_without_a_seed_each_state_has_other_keys():
    assert _drawn(RandomState(RandomStateSpec(), "a")) != _drawn(
        RandomState(RandomStateSpec(), "a")
    )


def test_a_restored_state_goes_on_where_it_was_saved():
    state = RandomState(RandomStateSpec(), "a")
    _drawn(state)
    saved = state.snapshot()
    expected = _drawn(state)
    other = RandomState(RandomStateSpec(), "b")
    other.restore(saved)
    assert _drawn(other) == expected

"""Fences: epochs of names, as one task knows them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jflow.errors import DataLossError, FencedError, InvalidArgumentError, ResourceExhaustedError
from jflow.state.fencing import Claim, Fences, next_epoch

EPOCHS = st.integers(1, 2**63 - 1)


@given(st.lists(st.tuples(st.sampled_from("ab"), EPOCHS), max_size=20))
def test_only_the_highest_epoch_of_a_name_passes_whatever_the_order(claims):
    fences = Fences()
    for name, epoch in claims:
        is_higher = epoch > fences.epoch(name)
        assert fences.learn(Claim(name, epoch)) == is_higher
    for name, epoch in claims:
        if epoch == max(one for other, one in claims if other == name):
            fences.check(Claim(name, epoch))
        else:
            with pytest.raises(FencedError, match="another program has claimed"):
                fences.check(Claim(name, epoch))


@given(st.dictionaries(st.text(min_size=1, max_size=9), EPOCHS, max_size=9))
def test_a_checkpoint_brings_back_every_claim_and_lowers_none(epochs):
    before, after = Fences(), Fences()
    for name, epoch in epochs.items():
        before.learn(Claim(name, epoch))
        after.learn(Claim(name, 2**62))
    after.learn_text(before.to_text())
    for name, epoch in epochs.items():
        assert after.epoch(name) == max(epoch, 2**62)


NOW = 1_800_000_000.0
NUMBERS = st.integers(0, 2**32 - 1)


@given(st.integers(0, 2**62), st.floats(0, 1e11), NUMBERS)
def test_the_next_epoch_is_higher_whatever_the_time_and_the_random_number(highest, time, number):
    assert next_epoch(highest, time, number) > highest


@given(NUMBERS, NUMBERS, st.floats(1, 1e8))
def test_the_epoch_of_a_new_cluster_is_above_those_of_the_past(number, later_number, elapsed):
    assert next_epoch(0, NOW + elapsed, later_number) > next_epoch(0, NOW, number)
    assert next_epoch(0, NOW + elapsed, later_number) < 2**63


@given(st.floats(0, 1e11), NUMBERS)
def test_an_epoch_is_in_range_whatever_the_clock_says(time, number):
    Claim("a", next_epoch(0, time, number))


def test_programs_that_claim_at_once_get_different_epochs():
    assert next_epoch(0, NOW, 1) != next_epoch(0, NOW, 2)


@pytest.mark.parametrize("text", ["{", "[1]", '{"a": "b"}', '{"a": 1.5}', '{"a": true}'])
def test_malformed_claims_of_a_checkpoint_are_lost_data(text):
    with pytest.raises(DataLossError, match="claims in a checkpoint"):
        Fences().learn_text(text)


@pytest.mark.parametrize(("name", "epoch"), [("", 1), ("a" * 257, 1), ("a", 0), ("a", 2**63)])
def test_a_claim_has_a_name_and_an_epoch_in_range(name, epoch):
    with pytest.raises(InvalidArgumentError, match="expected"):
        Claim(name, epoch)


def test_a_task_keeps_a_bounded_number_of_names_and_never_those_in_use():
    fences, used = Fences(limit=3), [Claim("used", 5)]
    fences.add_user(lambda: used)
    for number, name in enumerate(["used", "a", "b", "c", "d"]):
        assert fences.learn(Claim(name, 5 + number))
    assert fences.epoch("used") == 5
    used += [Claim("c", 8), Claim("d", 9)]
    with pytest.raises(ResourceExhaustedError, match=r"in use.*'another' would be one more"):
        fences.learn(Claim("another", 100))
    assert fences.learn(Claim("c", 10)), "those that are known can still be claimed"
    used.clear()
    assert fences.learn(Claim("another", 100))


def test_what_was_done_under_a_forgotten_claim_is_refused_and_a_new_one_is_higher():
    fences = Fences(limit=2)
    for number, name in enumerate(["a", "b", "c", "d"], 1):
        fences.learn(Claim(name, number))
    with pytest.raises(FencedError, match=r"forgotten.*claim the name again"):
        fences.check(Claim("a", 1))
    assert not fences.learn(Claim("a", 1)), "it may have been claimed again, as far as is known"
    again = Claim("a", next_epoch(fences.epoch("a"), 0.0, 0))
    assert again.epoch > 2
    assert fences.learn(again)
    fences.check(again)


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 9)), max_size=40),
    st.integers(1, 4),
)
def test_no_epoch_goes_back_whatever_is_forgotten(claims, limit):
    """Nothing passes that would not pass at a task that remembers every name."""
    fences, everything = Fences(limit), Fences()
    for name, epoch in claims:
        before = fences.epoch(name)
        fences.learn(Claim(name, epoch))
        everything.learn(Claim(name, epoch))
        assert fences.epoch(name) >= before
    for name, epoch in claims:
        if epoch < everything.epoch(name):
            with pytest.raises(FencedError):
                fences.check(Claim(name, epoch))
    restored = Fences(limit)
    restored.learn_text(fences.to_text())
    for name in "abcdef":
        assert restored.epoch(name) >= everything.epoch(name)

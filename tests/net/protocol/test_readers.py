"""`Readers`: one of those that wait reads, however they come and go."""

from hypothesis import given
from hypothesis import strategies as st

from jflow.net.protocol.readers import Readers


def test_the_first_leads_and_the_one_that_has_waited_longest_follows_it():
    readers = Readers()
    assert readers.enter("a")
    assert not readers.enter("b")
    assert not readers.enter("c")
    assert readers.leave("a") == "b"
    assert readers.leave("b") == "c"
    assert readers.leave("c") is None
    assert readers.leader is None


def test_one_that_leaves_without_having_led_changes_nothing():
    readers = Readers()
    readers.enter("a"), readers.enter("b")
    assert readers.leave("b") is None
    assert readers.leader == "a"
    assert readers.leave("a") is None
    assert readers.leader is None


def test_one_that_was_promoted_and_enters_again_leads():
    readers = Readers()
    readers.enter("a"), readers.enter("b")
    assert readers.leave("a") == "b"
    assert readers.enter("b")
    assert readers.leave("b") is None


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=60))
def test_there_is_one_leader_exactly_while_some_wait_and_each_new_one_is_told_once(events):
    readers, waiting, told = Readers(), [], None
    names = [object() for _ in range(6)]
    for enters, which in events:
        reader = names[which]
        if enters:
            if readers.enter(reader):
                told = reader
            if reader not in waiting:
                waiting.append(reader)
        else:
            promoted = readers.leave(reader)
            if reader in waiting:
                waiting.remove(reader)
            if promoted is not None:
                assert promoted is not told
                told = promoted
        assert (readers.leader is None) == (not waiting)
        if waiting:
            assert readers.leader in waiting
            assert readers.leader is told
        else:
            told = None

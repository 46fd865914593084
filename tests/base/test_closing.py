import pytest

from jflow.base.handles import Closing


class _Thing(Closing):
    def __init__(self):
        self.ended = []

    def _leave(self, failed):
        self.ended.append(failed)


def test_a_block_ends_it_and_says_whether_it_raised():
    with _Thing() as thing:
        assert thing.ended == []
    assert thing.ended == [False]
    with pytest.raises(ValueError, match="goes on"), thing:
        raise ValueError("goes on")
    assert thing.ended == [False, True]

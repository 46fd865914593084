"""What a task prints and counts for clients, and casts that lose nothing."""

import numpy as np
import pytest

from jflow.base.values import as_strings
from jflow.errors import InvalidArgumentError
from jflow.task.execution import checks


@pytest.fixture(autouse=True)
def counted(monkeypatch):
    """The table of counts, empty."""
    table = type(checks._COUNTED)()
    monkeypatch.setattr(checks, "_COUNTED", table)
    return table


def test_values_cannot_look_like_lines_of_the_task(capfd):
    words = as_strings([b"a\nERROR forged", b"\x1b[31m", "\u2028é\u202e".encode()])
    checks.print_values(words, texts=["x\r\t", None], first_n=-1, key="k")
    expected = "[x\\r\\t] [a\\nERROR forged \\x1b[31m \\u2028é\\u202e]\n"
    assert capfd.readouterr().err == expected


def test_only_operations_with_a_limit_are_counted_and_so_many_at_most(counted, capfd):
    for number in range(2000):
        checks.print_values(texts=["always"], first_n=-1, key=f"a{number}")
    assert not counted
    for number in range(2000):
        checks.print_values(texts=["once"], first_n=1, key="kept")
        checks.print_values(texts=["never"], first_n=0, key=f"n{number}")
    checks.print_values(texts=["never"], first_n=0, key="k" * 10**6)
    assert len(counted) == 1000
    assert max(map(len, counted)) == 64
    written = capfd.readouterr().err
    assert [written.count(text) for text in ("always", "once", "never")] == [2000, 1, 0]


def test_a_cast_to_32_bits_loses_nothing():
    ends = np.array([[-(2**31), 2**31 - 1]])
    (cast,) = checks.to_int32(ends)
    assert cast.dtype == np.int32
    assert cast.tolist() == ends.tolist()
    assert checks.to_int32(np.zeros(0, np.int64))[0].shape == (0,)
    assert checks.to_int32(np.array(3))[0].shape == ()
    with pytest.raises(InvalidArgumentError, match="out of the range"):
        checks.to_int32(np.array(2**40))
    for beyond in (2**31, -(2**31) - 1):
        with pytest.raises(InvalidArgumentError, match=f"^{beyond} is out of the range of int32"):
            checks.to_int32(np.array([1, beyond]))

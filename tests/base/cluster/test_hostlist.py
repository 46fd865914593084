"""Lists of hosts and of counts in Slurm's form."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jflow.base.cluster.hostlist import expand_counts, expand_hostlist, hosts_of_tasks


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("tux0", ["tux0"]),
        ("tux[0-2]", ["tux0", "tux1", "tux2"]),
        ("tux[0-1,5]", ["tux0", "tux1", "tux5"]),
        ("lx[08-10]", ["lx08", "lx09", "lx10"]),
        ("linux[098-101]", ["linux098", "linux099", "linux100", "linux101"]),
        ("tux[1-2],login", ["tux1", "tux2", "login"]),
        ("login,tux[2,1]", ["login", "tux2", "tux1"]),
        ("rack[0-1]node[1-2]", ["rack0node1", "rack0node2", "rack1node1", "rack1node2"]),
        ("n[1-2]-ib.example.com", ["n1-ib.example.com", "n2-ib.example.com"]),
        ("n[1-2][3-4]", ["n13", "n14", "n23", "n24"]),
        ("ip-10-0-0-7", ["ip-10-0-0-7"]),
        ("[7-8]", ["7", "8"]),
    ],
)
def test_a_list_of_hosts_is_expanded_in_its_order(text, hosts):
    assert expand_hostlist(text) == hosts


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty name"),
        ("a,,b", "empty name"),
        ("a,", "empty name"),
        ("a[1-2", "ends inside of brackets"),
        ("a1]", "unmatched or nested"),
        ("a[1[2]]", "unmatched or nested"),
        ("a[]", "'' between brackets"),
        ("a[1,]", "'' between brackets"),
        ("a[2-1]", "'2-1' between brackets"),
        ("a[x]", "'x' between brackets"),
        ("a[1-2-3]", "'1-2-3' between brackets"),
        ("a[\u0661]", "between brackets"),
        ("a b", "spaces"),
        ("a[1-999999999]", "more than 65536 hosts"),
        ("a[1-300][1-300]", "more than 65536 hosts"),
        ("a[1-99999999999999999999]", "between brackets"),
    ],
)
def test_a_malformed_list_of_hosts_is_an_error_that_quotes_it(text, words):
    with pytest.raises(ValueError, match=words) as raised:
        expand_hostlist(text)
    assert repr(text)[:-1] in str(raised.value)


_WORDS = st.text("abcxyz09.-_", max_size=4)
_RANGES = st.lists(
    st.tuples(st.integers(0, 120), st.integers(0, 12), st.integers(1, 4)), min_size=1, max_size=3
)


@st.composite
def _compressed(draw):
    """A compressed name, and the hosts that it stands for."""
    text, groups = draw(st.sampled_from("abcxyz")), []
    groups.append([text])
    for ranges, word in draw(st.lists(st.tuples(_RANGES, _WORDS), max_size=2)):
        shown, numbers = [], []
        for first, more, width in ranges:
            shown.append(f"{first:0{width}}-{first + more}" if more else f"{first:0{width}}")
            numbers += [str(first + i).zfill(len(f"{first:0{width}}")) for i in range(more + 1)]
        text += f"[{','.join(shown)}]{word}"
        groups += [numbers, [word]]
    return text, ["".join(parts) for parts in product(*groups)]


@given(st.lists(_compressed(), min_size=1, max_size=4))
def test_names_with_any_ranges_in_any_brackets_stand_for_all_their_combinations(names):
    expected = [host for _, hosts in names for host in hosts]
    assert expand_hostlist(",".join(text for text, _ in names)) == expected


@given(st.text("a[]0123456789-, \n\u0663", max_size=30))
def test_any_text_is_a_list_of_hosts_or_a_value_error(text):
    try:
        hosts = expand_hostlist(text)
    except ValueError:
        return
    assert all(hosts)
    assert not any(mark in host for host in hosts for mark in "[], \n")


@pytest.mark.parametrize(
    ("text", "counts"), [("2", [2]), ("2(x3),1", [2, 2, 2, 1]), ("16,8(x2)", [16, 8, 8])]
)
def test_counts_are_expanded(text, counts):
    assert expand_counts(text) == counts


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 5)), min_size=1, max_size=6))
def test_any_counts_are_repeated_as_they_say(runs):
    text = ",".join(f"{n}(x{times})" if times > 1 else str(n) for n, times in runs)
    assert expand_counts(text) == [n for n, times in runs for _ in range(times)]


@pytest.mark.parametrize("text", ["", "2(x)", "2x3", "(x2)", "-1", "1,,2", "1(x999999999)"])
def test_malformed_counts_are_an_error_that_quotes_them(text):
    with pytest.raises(ValueError, match="list of counts") as raised:
        expand_counts(text)
    assert repr(text) in str(raised.value)


def test_tasks_are_numbered_host_by_host():
    assert hosts_of_tasks(["a", "b"], [2, 1]) == ["a", "a", "b"]
    with pytest.raises(ValueError, match="2 hosts, but the numbers of tasks of 1"):
        hosts_of_tasks(["a", "b"], [2])

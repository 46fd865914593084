"""Parses the compressed lists of hosts and of counts in Slurm's environment variables.

A list of hosts is compressed: `rack[0-1]node[08-10],login` stands for seven hosts. Names are
separated by commas outside of brackets. Brackets have numbers and ranges of numbers, and a range
keeps the leading zeros of its first number. Several brackets in a name count like an odometer: the
last one is the fastest. Source: "Hostlist" in Slurm's `scontrol` and `slurm.conf` manuals.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product

_MAX_HOSTS = 1 << 16
"""More than Slurm allows in a cluster (`MAX_SLURM_NODES`)."""
_NAME = re.compile(r"[^\s,\[\]]*")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_COUNT = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?")
_EXAMPLE = "expected for example 'node[1-3,07],login'"


def expand_hostlist(text: str) -> list[str]:
    """Expands a host list such as "node[1-3,07],login", in its order.

    Raises:
      ValueError: if the list is empty or malformed, or has more than 65,536 hosts.
    """
    hosts: list[str] = []
    for name in _names(text):
        groups = _groups(name, text)
        n_hosts = 1
        for group in groups:
            n_hosts *= len(group)
        if len(hosts) + n_hosts > _MAX_HOSTS:
            raise ValueError(f"the host list {text!r:.200} has more than {_MAX_HOSTS} hosts")
        hosts += map("".join, product(*groups))
    return hosts


def expand_counts(text: str) -> list[int]:
    """Expands a list of counts: "2(x3),1" to 2, 2, 2, 1, the numbers of tasks of four hosts.

    Raises:
      ValueError: if the list is empty or malformed, or has more than 65,536 numbers.
    """
    counts: list[int] = []
    for part in text.split(","):
        match = _COUNT.fullmatch(part)
        if match is None:
            raise ValueError(
                f"the list of counts {text!r:.200} has {part!r:.80} in it; expected for example "
                "'2(x3),1', which is three hosts with two tasks and one with one"
            )
        n_times = int(match[2] or 1)
        if len(counts) + n_times > _MAX_HOSTS:
            raise ValueError(f"the list of counts {text!r:.200} has more than {_MAX_HOSTS} numbers")
        counts += [int(match[1])] * n_times
    return counts


def hosts_of_tasks(hosts: Sequence[str], counts: Sequence[int]) -> list[str]:
    """Returns the host of each task by number: first all tasks of the first host, and so on.

    This is Slurm's block distribution, which `srun` uses unless `--distribution` says otherwise.

    Args:
      hosts: the hosts.
      counts: how many tasks each of them has.

    Raises:
      ValueError: if there is not one number for each host.
    """
    if len(hosts) != len(counts):
        raise ValueError(
            f"{len(hosts)} hosts, but the numbers of tasks of {len(counts)}: {[*hosts]!r:.200} and "
            f"{[*counts]!r:.200}"
        )
    return [host for host, n_tasks in zip(hosts, counts, strict=True) for _ in range(n_tasks)]


def _names(text: str) -> list[str]:
    """Splits a host list at the commas outside of brackets."""
    names, is_inside = [""], False
    for mark in text:
        if mark == "," and not is_inside:
            names.append("")
            continue
        if mark in "[]":
            if is_inside == (mark == "["):
                raise ValueError(
                    f"the host list {text!r:.200} has unmatched or nested brackets; {_EXAMPLE}"
                )
            is_inside = mark == "["
        names[-1] += mark
    if is_inside:
        raise ValueError(f"the host list {text!r:.200} ends inside of brackets; {_EXAMPLE}")
    if not all(names):
        raise ValueError(f"the host list {text!r:.200} has an empty name; {_EXAMPLE}")
    return names


def _groups(name: str, text: str) -> list[list[str]]:
    """Expands the parts of a compressed name: each pair of brackets, and the text around them."""
    groups = []
    for position, part in enumerate(re.split(r"[\[\]]", name)):
        if position % 2:
            groups.append(_numbers(part, text))
        elif _NAME.fullmatch(part):
            groups.append([part])
        else:
            raise ValueError(f"the host list {text!r:.200} has spaces in a name; {_EXAMPLE}")
    return groups


def _numbers(ranges: str, text: str) -> list[str]:
    """Expands the numbers and ranges between brackets, keeping leading zeros."""
    numbers: list[str] = []
    for one in ranges.split(","):
        match = _RANGE.fullmatch(one)
        first, last = (match[1], match[2] or match[1]) if match else ("1", "0")
        n_numbers = int(last) - int(first) + 1
        if n_numbers < 1:
            raise ValueError(
                f"the host list {text!r:.200} has {one!r:.80} between brackets; expected a number "
                "or a range whose first number is not the larger one, such as '08-10'"
            )
        if len(numbers) + n_numbers > _MAX_HOSTS:
            raise ValueError(f"the host list {text!r:.200} has more than {_MAX_HOSTS} hosts")
        numbers += [f"{i:0{len(first)}}" for i in range(int(first), int(last) + 1)]
    return numbers

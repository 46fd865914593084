"""When a disk is full, what is written fails with its name, damages nothing, and goes on later.

Each case is in `program.py`, which runs once for each kind of file system.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.full_disk.program import NEEDED, cases
from tests.full_disk.small_disk import run_on_small_disk

NAMES = [*cases(Path())]
PROGRAMS = {"recording", "servers"}
"""What takes long, and does not depend on the file system."""

KINDS = {"tmpfs": NAMES, "ext4": [name for name in NAMES if name not in PROGRAMS]}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Mapping[str, str]]:
    """Gives what is wrong of each case on a kind of file system."""

    @cache
    def run(kind: str) -> Mapping[str, str]:
        return run_on_small_disk(kind, tmp_path_factory.mktemp(kind), KINDS[kind])

    return run


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(kind, name, marks=[] if kind == "tmpfs" else pytest.mark.long)
        for kind, names in KINDS.items()
        for name in names
    ],
)
def test_nothing_is_damaged_and_it_goes_on_when_there_is_room(
    kind: str, name: str, results: Callable[[str], Mapping[str, str]]
) -> None:
    if name in NEEDED:
        pytest.importorskip(NEEDED[name])
    said = results(kind)[name]
    assert not said, said

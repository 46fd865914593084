"""The tests that a run has found, before it has left out any by their marks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

ALL_IDS = pytest.StashKey[list[str]]()
"""In the configuration: the ids of all tests in the files of this run."""


def ids_in(files: Iterable[str], config: pytest.Config) -> list[str]:
    """The ids of all tests of some files, and other lines; a part of the suite may be run."""
    files, tests = {*files}, config.stash[ALL_IDS]
    if files <= {test.partition("::")[0] for test in tests}:
        return tests
    options = ["--collect-only", "-q", "-n", "0", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *sorted(files)],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()

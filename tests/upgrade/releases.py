"""The code of earlier releases, from the history of the repository."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

COMMITS: Mapping[int, str] = {
    10: "9c8640f68b1e7b2317bf49ef156227f490ace97d",
    11: "d4cb353170a8d6f79cb003dcca4179428561f03f",
}
"""The commit of each version of the protocol whose code is run."""


@functools.cache
def code_of(version: int) -> Path:
    """The folder with the code that speaks a version; skips the test where it cannot be had."""
    commit = COMMITS[version]
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", commit, "jflow"]
    try:
        found = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("git is not installed, which has the code of earlier releases")
    if found.returncode:
        pytest.skip(
            f"this clone has no commit {commit[:8]}, the code that speaks version {version}: "
            "`git fetch --unshallow` (in a clone of less history) brings it"
        )
    folder = Path(tempfile.mkdtemp(prefix=f"jflow-version-{version}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with tarfile.open(fileobj=BytesIO(found.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder

"""`jflow --version`: the version, and the commit that it was built from."""

from __future__ import annotations

import os
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import jflow


def version_text() -> str:
    """Returns such as "jflow 0.1.0 (6ec57f84c680)"; without a commit where none is known.

    A wheel has the commit in a file (`tools/build_commit.py`), a checkout asks Git.
    """
    commit = _stored_commit() or _commit_of_checkout()
    return f"jflow {jflow.__version__}" + (f" ({commit})" if commit else "")


def _stored_commit() -> str:
    stored = files("jflow").joinpath("COMMIT")
    return stored.read_text().strip() if stored.is_file() else ""


def _commit_of_checkout() -> str:
    folder = Path(jflow.__file__).parents[1]
    if not (folder / ".git").exists():
        return ""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    environment = {key: value for key, value in os.environ.items() if key[:4] != "GIT_"}
    options: Any = {"cwd": folder, "env": environment, "capture_output": True, "text": True}
    try:
        done = subprocess.run(command, check=False, **options)
    except OSError:  # there is no Git
        return ""
    return str(done.stdout).strip()

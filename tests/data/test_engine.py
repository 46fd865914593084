"""Grain is asked for by those only who need it."""

from __future__ import annotations

import subprocess
import sys


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True
    )
    return done.stdout.strip()


def test_importing_jflow_does_not_import_grain() -> None:
    assert run("import sys, jflow; print('grain' in sys.modules, 'data' in dir(jflow))") == (
        "False True"
    )


def test_who_lacks_grain_learns_how_to_get_it() -> None:
    program = """
import sys
sys.modules["grain"] = None
import jflow
try:
    jflow.data.Dataset
except ModuleNotFoundError as error:
    print(error)
"""
    assert "pip install 'jflow[data]'" in run(program)

"""A Python file as a program of its own, in a process that a zygote has forked.

Usage: -m tests.programs.script FOLDER FILE [ARGUMENT...]: as `python FILE ARGUMENT...` in a folder.
"""

from __future__ import annotations

import atexit
import os
import runpy
import sys


def main(folder: str, file: str, *arguments: str) -> None:
    """Runs the file, and then what it has left for the end of the process."""
    os.chdir(folder)
    sys.argv = [file, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(file)))
    try:
        runpy.run_path(file, run_name="__main__")
    finally:
        # A program that was forked ends at once, without an end of Python.
        atexit._run_exitfuncs()


if __name__ == "__main__":
    main(*sys.argv[1:])

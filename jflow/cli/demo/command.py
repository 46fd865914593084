"""`jflow demo`: the command."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from jflow.cli.signals import interrupted


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to those of `jflow`."""
    demo = commands.add_parser("demo", help="a tour in one minute, on this machine")
    demo.add_argument(
        "--picture",
        type=Path,
        metavar="FILE",
        default=Path("jflow-demo.svg"),
        help="where to write the picture of the placed graph (default: %(default)s)",
    )
    demo.set_defaults(run=_demo)


def _demo(options: argparse.Namespace) -> int:
    from jflow.cli.demo.demo import run_demo  # noqa: PLC0415 - a server never builds graphs

    directory = options.picture.parent
    if not directory.is_dir():
        raise ValueError(f"--picture: the directory {str(directory)!r} does not exist")
    try:
        with interrupted():  # so that SIGTERM also ends the cluster and removes the checkpoints
            run_demo(options.picture)
    except KeyboardInterrupt:
        print("interrupted; no process is left", file=sys.stderr)
        return 128 + signal.SIGINT
    return 0

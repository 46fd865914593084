"""`jflow calibrate`: measures what devices and links do, for placement by cost."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from jflow.base.progress import Progress
from jflow.base.text import printable


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to those of `jflow`."""
    calibrate = commands.add_parser(
        "calibrate", help="measures what devices and links do, for placement by cost"
    )
    calibrate.add_argument(
        "--target",
        metavar="grpc://HOST:PORT",
        help="a server of an idle cluster; its sessions are closed (default: three tasks on this "
        "machine, started for it)",
    )
    calibrate.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="where to write it (default: JFLOW_CALIBRATION, else the user's cache directory, "
        "where sessions look)",
    )
    calibrate.add_argument(
        "--quick", action="store_true", help="measures less, in seconds; not for figures"
    )
    calibrate.add_argument(
        "--show", action="store_true", help="measures nothing; prints what the file says"
    )
    calibrate.set_defaults(run=_calibrate)


def _calibrate(options: argparse.Namespace) -> None:
    from jflow.client.runtime.calibration_file import (  # noqa: PLC0415 - servers never build graphs
        calibration_path,
        read_calibration,
        write_calibration,
    )
    from jflow.client.runtime.target import checked_target  # noqa: PLC0415
    from jflow.lab.calibration import calibrate, calibration_report  # noqa: PLC0415
    from jflow.launch import LocalCluster  # noqa: PLC0415

    path = options.output or calibration_path()
    if options.show:
        print(printable(calibration_report(read_calibration(path)), allowed="\n"))
        return
    if options.target is not None:
        checked_target(options.target)
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        target = options.target
        if target is None:
            target = stack.enter_context(LocalCluster(ps=1, workers=2)).target()
        shown = stack.enter_context(Progress(None, "measuring", "figure"))
        calibration = calibrate(target, quick=options.quick, progress=shown.advance)
    with _writing(path):
        write_calibration(calibration, path)
    print(printable(calibration_report(calibration), allowed="\n"))
    print(f"written to {path}")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ValueError(f"the calibration cannot be written to {path}: {error}") from error

"""`jflow bench placement`: compares placement strategies."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

_EPILOG = """\
The exit code is 1 if `auto` was slower than a single device: at all in simulation, or by more than
the noise when measured.
"""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to those of `jflow`."""
    bench = commands.add_parser("bench", help="compares placement strategies")
    what = bench.add_subparsers(required=True, metavar="WHAT")
    placement = what.add_parser(
        "placement", help="compares placement strategies on the same problems", epilog=_EPILOG
    )
    add = placement.add_argument
    add(
        "--strategies",
        default="all",
        metavar="NAMES",
        help="all, names of strategies, or functions as module:function, between commas; modules "
        "are looked up in the current directory too (default: %(default)s)",
    )
    add(
        "--workloads",
        default="all",
        metavar="NAMES",
        help="all, or names between commas; a wrong name lists them (default: %(default)s)",
    )
    add(
        "--devices",
        default="2,4,8",
        metavar="NUMBERS",
        help="numbers of devices between commas (default: %(default)s)",
    )
    add(
        "--output",
        type=Path,
        default=Path("placement-bench"),
        metavar="DIR",
        help="the folder for results, page and plots (default: %(default)s)",
    )
    add("--quick", action="store_true", help="fewer cases: two minutes, not twenty")
    add(
        "--resume", action="store_true", help="takes what the folder has already, and runs the rest"
    )
    add("--seed", type=int, default=0, help="of everything random (default: %(default)s)")
    add("--optima", type=Path, metavar="FILE", help="optima of small graphs that are known")
    only = placement.add_mutually_exclusive_group()
    only.add_argument("--simulate", action="store_true", help="runs nothing on real processes")
    only.add_argument("--measure", action="store_true", help="simulates nothing")
    add(
        "--imported",
        type=Path,
        metavar="DIR",
        help="a folder of graphs in the JSON format of dnn-partitioning",
    )
    placement.set_defaults(run=_placement)


def _placement(options: argparse.Namespace) -> int:
    from jflow.lab import suite  # noqa: PLC0415 - a server never builds graphs

    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # a strategy can stand in a file of the current directory
    if options.imported is not None and not options.imported.is_dir():
        raise ValueError(f"--imported: the directory {str(options.imported)!r} does not exist")
    if options.optima is not None and not options.optima.is_file():
        raise ValueError(f"--optima: the file {str(options.optima)!r} does not exist")
    if options.output.exists() and not options.output.is_dir():
        raise ValueError(f"--output: {str(options.output)!r} is not a directory")
    what = suite.SuiteOptions(
        strategies=_names(options.strategies, "--strategies"),
        workloads=_names(options.workloads, "--workloads"),
        devices=_numbers(options.devices),
        quick=options.quick,
        resume=options.resume,
        seed=options.seed,
        imported=options.imported,
        optima=options.optima,
        progress=True,
        simulates=not options.measure,
    )
    with suite.ProcessMeasurer(quick=options.quick) as measurer:
        measuring = (
            None if options.simulate else suite.Measuring(measurer, check=measurer.alternatives)
        )
        comparison = suite.compare(what, options.output, measuring=measuring)
    print(f"{options.output / 'README.md'}: {comparison.summary}")
    return int(comparison.verdict.has_lost)


def _names(text: str, option: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ValueError(f"{option}: expected names between commas, got {text!r}")
    return names


def _numbers(text: str) -> list[int]:
    numbers: list[Any] = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in numbers):
        raise ValueError(f"--devices: expected numbers between commas, got {text!r}")
    return [int(part) for part in numbers]

"""`jflow replay`: computes a recorded run again, from its logs."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from jflow.base.files import replacing
from jflow.base.text import printable, table
from jflow.cli.status import PARTIAL

if TYPE_CHECKING:
    from jflow.client.replay import Replay, ReplayedStep

_EPILOG = """\
A program records its run with jflow.ConfigProto(record="run.jlog"). Give the logs of all programs
that recorded, so that none of their updates is missing. See docs/replay.md.
"""
_N_UPDATED = 3
"""At most so many variables of a step are named."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to those of `jflow`."""
    replay = commands.add_parser(
        "replay", help="computes a recorded run again, bit for bit, from its logs", epilog=_EPILOG
    )
    replay.add_argument("logs", nargs="+", metavar="LOG", help="the log of each program")
    replay.add_argument(
        "--until",
        type=int,
        metavar="N",
        help="stops when N steps have updated variables (default: at the end)",
    )
    replay.add_argument(
        "--steps", action="store_true", help="prints each step, with the staleness of its update"
    )
    replay.add_argument(
        "--save",
        type=Path,
        metavar="FILE",
        help="where to write the values of all variables, as an .npz file of NumPy",
    )
    replay.set_defaults(run=_replay)


def _replay(options: argparse.Namespace) -> int:
    if options.until is not None and options.until < 1:
        raise ValueError(f"--until must be at least 1, got {options.until}")
    if options.save is not None and options.save.suffix != ".npz":
        raise ValueError(f"--save must end with .npz, got {str(options.save)!r}")
    from jflow.client.replay import Replay  # noqa: PLC0415 - it imports JAX

    with Replay(*options.logs) as replay:
        steps = _computed(replay, options.until)
        if options.steps:
            print(_steps_text(steps, options.logs), end="\n\n")
        print(_summary(replay, steps))
        if options.save is not None:
            _save(replay, options.save)
            print(f"the values are in {options.save}")
        if any(step.n_different for step in steps):
            return 1
        return PARTIAL if replay.problems else 0


def _computed(replay: Replay, until: int | None) -> list[ReplayedStep]:
    """Computes steps until as many have updated variables; all of them for None."""
    steps = []
    for step in replay:
        steps.append(step)
        if replay.n_steps == until:
            break
    return steps


def _steps_text(steps: Iterable[ReplayedStep], logs: Sequence[str]) -> str:
    """Returns a table of steps, in the order in which they were computed."""
    programs = {path: i for i, path in enumerate(logs, 1)}
    rows = [
        (
            step.number or "-",
            datetime.fromtimestamp(step.time, UTC).astimezone().strftime("%H:%M:%S.%f")[:-3],
            programs[step.program],
            f"updates {_names(step.updated)}" if step.updated else step.title,
            step.staleness if step.number else "-",
            "cut off" if step.was_cut_off else "differs" if step.n_different else "",
        )
        for step in steps
    ]
    return printable(table(("STEP", "BEGAN", "LOG", "WHAT", "STALENESS", "NOTE"), rows), "\n")


def _names(updated: Sequence[str]) -> str:
    more = f" and {len(updated) - _N_UPDATED} more" if len(updated) > _N_UPDATED else ""
    return ", ".join(updated[:_N_UPDATED]) + more


def _summary(replay: Replay, steps: Sequence[ReplayedStep]) -> str:
    """Returns what was computed, how stale updates were, and whether it is what the run gave."""
    updates = [step for step in steps if step.number]
    n_compared = sum(step.n_compared for step in steps)
    n_different = sum(step.n_different for step in steps)
    tasks = sorted({task for step in steps for task in step.tasks})
    lines = [f"{len(updates)} steps updated variables, on {', '.join(tasks) or 'no task'}"]
    if updates:
        counts = sorted(Counter(step.staleness for step in updates).items())
        found = ", ".join(f"{staleness} ({n} steps)" for staleness, n in counts)
        lines.append(f"updates of others between what a step read and its own: {found}")
    if n_compared:
        equal = "all are equal, bit for bit" if not n_different else f"{n_different} differ"
        lines.append(f"{n_compared} values that steps returned were compared with the run: {equal}")
    else:
        lines.append("no step returned a value that could be compared with the run")
    lines += [f"bits may differ here: {doubt}" for doubt in replay.doubts]
    lines += replay.problems
    rows = [
        (name, value.dtype, "x".join(map(str, value.shape)) or "-")
        for name, value in replay.variables.items()
    ]
    return printable("\n".join(lines) + f"\n\n{table(('VARIABLE', 'DTYPE', 'SHAPE'), rows)}", "\n")


def _save(replay: Replay, path: Path) -> None:
    from zipfile import ZipFile  # noqa: PLC0415 - these are not needed before

    from numpy.lib.format import write_array  # noqa: PLC0415

    # As numpy.savez, which takes no variable named "file".
    with replacing(path, follows=True) as whole, ZipFile(whole, "w") as archive:
        for name, value in replay.variables.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                write_array(file, value, allow_pickle=False)

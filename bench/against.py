"""Measures this tree and an older commit in turns: `python -m bench.against COMMIT`.

A case runs in three processes that take turns (`bench.interleaved`): the older commit's library,
this tree's, and the older commit's again. The ratio of this tree to the older commit is the change;
the ratio of the older commit to itself shows what the machine and chance in a process cause.
Figures that are not taken in turns, such as memory, are of one such triple of processes each.

Writes `bench/against.json` and `bench/AGAINST.md` after each triple, and when it is stopped.
Figures of the same two libraries that are there already stay until they are measured again.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from math import ceil
from pathlib import Path

from bench.change import MIN_SAMPLES, Change, Values, change
from bench.interleaved import CaseError, CaseProcess, Schedule, compare
from bench.page import quantity
from bench.rows import GROUPS, Alone, Case
from jflow.base.progress import Progress

ROOT = Path(__file__).parent.parent
ROUNDS = 3
QUICKLY = {"BENCH_ROUNDS": "3", "BENCH_ALONE": "1"}
"""Cases repeat what is not in turns less, because they run three times a round."""
ROWS = [row for group in GROUPS.values() for row in group.rows]
CASES = {case.module: case for group in GROUPS.values() for case in group.cases if not case.needs}


@dataclass(frozen=True)
class Sides:
    """Directories from which a case of this tree is run; each has a `bench` and a `jflow`.

    Attributes:
      new: with the library of this tree.
      old: with the library of the older commit.
    """

    new: Path
    old: Path


@dataclass
class Comparison:
    """What is known of two libraries.

    Attributes:
      base: the older commit.
      head: the commit that changed this tree's library last; with a "+" if there are changes
        that are not committed.
      figures: what changed, by figure.
      failed: why the older library cannot run a case, by case.
    """

    base: str
    head: str
    figures: dict[str, Change] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def main() -> None:
    """Measures, writes and prints."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    found = load(ROOT / "bench", options.commit, _head())
    cases = _cases(options.only or (), options.cases or ())
    label = f"beside {found.base}"
    with (
        _sides(found.base) as sides,
        Progress(len(cases) * options.rounds, label, "round") as progress,
    ):
        for case in cases:
            measure(case, sides, options.rounds, found, progress)
    print((ROOT / "bench" / "AGAINST.md").read_text())


def measure(case: Case, sides: Sides, rounds: int, found: Comparison, progress: Progress) -> None:
    """Measures a case; writes after each round, and when it is stopped, what is known by then.

    Args:
      case: of this tree.
      sides: where to run it.
      rounds: how many triples of processes there are.
      found: what is known; what this case tells is added.
      progress: counts the rounds.

    Raises:
      SystemExit: if the case fails with this tree's library.
    """
    taken: dict[str, list[Values]] = {}
    found.failed.pop(case.module, None)
    for _ in range(rounds):
        if case.module not in found.failed:
            try:
                _round(case, sides, rounds, taken, found.failed)
            finally:  # also if it is stopped in a round
                found.figures |= {figure: change(values) for figure, values in taken.items()}
                write(ROOT / "bench", found)
        progress.advance(case.module)


def load(folder: Path, base: str, head: str) -> Comparison:
    """What was written of these two libraries before, if anything.

    Args:
      folder: where `write` wrote.
      base, head: as in `Comparison`.
    """
    file = folder / "against.json"
    document = json.loads(file.read_text()) if file.exists() else {}
    if (document.get("base"), document.get("head")) != (base, head):
        return Comparison(base, head)
    figures = {figure: Change(**fields) for figure, fields in document["figures"].items()}
    return Comparison(base, head, figures, document["failed"])


def write(folder: Path, found: Comparison) -> None:
    """Writes what is known as JSON, and as a page with `AGAINST_NOTES.md` below it."""
    document = asdict(found) | {"date": f"{datetime.now(UTC):%Y-%m-%d}"}
    (folder / "against.json").write_text(json.dumps(document, indent=1) + "\n")
    notes = folder / "AGAINST_NOTES.md"
    earlier = "\n" + notes.read_text() if notes.exists() else ""
    (folder / "AGAINST.md").write_text(_page(found) + earlier)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.against")
    parser.add_argument("commit", help="what to compare with")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="triples of processes a case")
    parser.add_argument(
        "--only", nargs="+", choices=GROUPS, metavar="GROUP", help=", ".join(GROUPS)
    )
    parser.add_argument("--cases", nargs="+", choices=CASES, metavar="CASE", help=", ".join(CASES))
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds has to be 1 or more, got {options.rounds}")
    try:
        options.commit = _git("rev-parse", "--short", "--verify", f"{options.commit}^{{commit}}")
    except subprocess.CalledProcessError:
        parser.error(f"{options.commit!r} is not a commit of {ROOT}")
    return options


def _cases(groups: Sequence[str], names: Sequence[str]) -> list[Case]:
    """Cases that this Python can run: of the groups, of the names, or of both."""
    of_groups = {case.module for name in groups or GROUPS for case in GROUPS[name].cases}
    return [
        case
        for module, case in CASES.items()
        if module in of_groups and (not names or module in names)
    ]


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def _head() -> str:
    """The commit of this tree's library."""
    changed = "+" if _git("status", "--porcelain", "--", "jflow") else ""
    return _git("log", "-1", "--format=%h", "--", "jflow") + changed


@contextmanager
def _sides(commit: str) -> Iterator[Sides]:
    """The older commit in a worktree of its own, and both sides as directories to run from."""
    with tempfile.TemporaryDirectory() as made:
        base, tree = Path(made), Path(made) / "tree"
        _git("worktree", "add", "--detach", str(tree), commit)
        try:
            sides = Sides(base / "new", base / "old")
            for side, library in ((sides.new, ROOT), (sides.old, tree)):
                side.mkdir()
                (side / "bench").symlink_to(ROOT / "bench")
                (side / "jflow").symlink_to(library / "jflow")
            yield sides
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _round(
    case: Case,
    sides: Sides,
    rounds: int,
    taken: dict[str, list[Values]],
    failed: dict[str, str],
) -> None:
    """Adds what three processes tell, and why the older library failed if it did."""
    names = {"older library": sides.old, "this tree": sides.new, "older library again": sides.old}
    command = [sys.executable, "-m", f"bench.cases.{case.module}"]
    schedule = Schedule(least=ceil(MIN_SAMPLES / rounds))
    with ExitStack() as stack:
        processes = [
            stack.enter_context(CaseProcess(f"{case.module}, {name}", command, side, QUICKLY))
            for name, side in names.items()
        ]
        try:
            for figure, (old, new, again) in compare(
                processes, {row.figure for row in ROWS}, schedule
            ):
                taken.setdefault(figure, []).append((old, new, again))
        except CaseError as error:
            if error.process is processes[1]:
                raise SystemExit(str(error)) from None
            failed[case.module] = error.reason


def _page(found: Comparison) -> str:
    """The comparison in Markdown, its figures in the order of the bench."""
    lines = [
        f"# This tree ({found.head}) beside {found.base}\n",
        f"`make bench BASE={found.base}`: in a turn a call is timed in three processes, with the",
        "older library, this tree's, and the older again. The ratio is the median over the turns.",
        "Beside it stand the bounds, at 95 %, of the median ratio of the older library to itself.",
        f"A row of {MIN_SAMPLES} samples or more is worse above 1.05 and the upper bound.\n",
        "| figure | before | now | ratio | before to itself | samples | |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    units = {row.figure: row.unit for row in ROWS if isinstance(row, Alone)}
    for figure in dict.fromkeys(row.figure for row in ROWS if row.figure in found.figures):
        known, unit = found.figures[figure], units.get(figure, "s")
        lines.append(
            f"| {figure} | {quantity(known.old, unit)} | {quantity(known.new, unit)} "
            f"| {known.ratio:.2f} | {known.low:.2f} to {known.high:.2f} | {known.samples} "
            f"| {known.verdict} |"
        )
    for module, reason in found.failed.items():
        lines.append(
            f"\n`bench.cases.{module}` does not run to its end with {found.base}: {reason}"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()

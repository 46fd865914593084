"""Measures this tree and an older commit in turns: `python -m bench.against COMMIT`.

In each round every case runs three times, in processes of its own: the older commit, this tree, and
the older commit again. The ratio of this tree to the older commit is the change; the ratio of the
older commit to itself shows what the machine alone causes. Writes `bench/against.json` and
`bench/AGAINST.md`, after each round what is known by then.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from math import comb
from pathlib import Path

from bench.page import quantity
from bench.rows import GROUPS, Alone, Case

ROOT = Path(__file__).parent.parent
MIN_ROUNDS = 9
SLOWER = 1.05
CONFIDENCE = 0.95
QUICKLY = {"BENCH_ROUNDS": "3", "BENCH_ALONE": "1"}
"""Cases repeat themselves less, because they run three times a round."""

Values = tuple[float, float, float]
"""A figure of one round: the older commit's, this tree's, and the older commit's again."""


@dataclass(frozen=True)
class Change:
    """A figure of this tree beside the older commit's.

    Attributes:
      old, new: medians over the rounds, in seconds or bytes.
      ratio: median over the rounds of new / old.
      low, high: bounds of the median of old / old, of two runs in one round, at 95 %.
      rounds: how many there were.
    """

    old: float
    new: float
    ratio: float
    low: float
    high: float
    rounds: int

    @property
    def verdict(self) -> str:
        """ "worse" or "better", if the difference is above 5 % and above the machine's noise."""
        if self.rounds < MIN_ROUNDS:
            return "too few rounds to say"
        if self.ratio > max(SLOWER, self.high):
            return "**worse**"
        return "better" if self.ratio < min(1 / SLOWER, self.low) else ""


@dataclass(frozen=True)
class Sides:
    """Directories from which a case is run; each has a package `bench` and a package `jflow`.

    Attributes:
      new: this tree.
      old: the cases of this tree and the library of the older commit.
      own: both of the older commit, for cases that use what the older library does not have.
    """

    new: Path
    old: Path
    own: Path


def main() -> None:
    """Measures, writes and prints."""
    options = _options()
    taken: dict[str, list[Values]] = {}
    commit = _git("rev-parse", "--short", options.commit)
    with _sides(commit) as sides:
        for name in options.only or GROUPS:
            cases = [case for case in GROUPS[name].cases if not case.needs]
            for case in cases:
                for number in range(options.rounds):
                    print(f"{name}, {case.module}, round {number + 1}", flush=True)
                    for figure, values in _round(case, sides).items():
                        taken.setdefault(figure, []).append(values)
                    write(ROOT / "bench", commit, options.rounds, taken)
    print((ROOT / "bench" / "AGAINST.md").read_text())


def write(folder: Path, commit: str, rounds: int, taken: Mapping[str, Sequence[Values]]) -> None:
    """Writes what the values so far say, as JSON and as a page.

    Args:
      folder: where to write.
      commit: the older commit.
      rounds: how many there are to be of each figure.
      taken: by figure, as for `change`.
    """
    wanted = {row.figure: row for group in GROUPS.values() for row in group.rows}
    changes = {figure: change(taken[figure]) for figure in wanted if figure in taken}
    document = {
        "base": commit,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "rounds": rounds,
        "figures": {figure: asdict(found) for figure, found in changes.items()},
    }
    (folder / "against.json").write_text(json.dumps(document, indent=1) + "\n")
    (folder / "AGAINST.md").write_text(_page(commit, rounds, changes))


def change(rounds: Sequence[Values]) -> Change:
    """What the values of a figure say.

    Args:
      rounds: of each round the older commit's, this tree's, and the older commit's value again.
    """
    low, high = median_bounds([again / old for old, _, again in rounds])
    return Change(
        statistics.median(old for old, _, _ in rounds),
        statistics.median(new for _, new, _ in rounds),
        # The older commit runs before and after, so that a machine that slows down meets both.
        statistics.median(2 * new / (old + again) for old, new, again in rounds),
        low,
        high,
        len(rounds),
    )


def median_bounds(values: Sequence[float]) -> tuple[float, float]:
    """Two of the values between which the median of their distribution lies, at 95 %.

    That is the interval of order statistics of the sign test: how many of n values lie below the
    median is binomial with p = 1/2.

    Args:
      values: at least one; of fewer than six the extremes are given, which promise less.
    """
    ordered, n = sorted(values), len(values)
    outside, k = 0.0, 0
    while k < (n - 1) // 2:
        outside += 2 * comb(n, k) / 2**n
        if outside > 1 - CONFIDENCE:
            break
        k += 1
    k = max(k - 1, 0)
    return ordered[k], ordered[n - 1 - k]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.against")
    parser.add_argument("commit", help="what to compare with")
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS)
    parser.add_argument(
        "--only", nargs="+", choices=GROUPS, metavar="GROUP", help=", ".join(GROUPS)
    )
    return parser.parse_args()


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


@contextmanager
def _sides(commit: str) -> Iterator[Sides]:
    """The older commit in a worktree of its own, and both sides as directories to run from."""
    with tempfile.TemporaryDirectory() as made:
        base, tree = Path(made), Path(made) / "tree"
        _git("worktree", "add", "--detach", str(tree), commit)
        try:
            sides = Sides(base / "new", base / "old", base / "own")
            for side, bench, library in (
                (sides.new, ROOT, ROOT),
                (sides.old, ROOT, tree),
                (sides.own, tree, tree),
            ):
                side.mkdir()
                (side / "bench").symlink_to(bench / "bench")
                (side / "jflow").symlink_to(library / "jflow")
            yield sides
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _round(case: Case, sides: Sides) -> dict[str, Values]:
    """Values by figure: of the older commit, of this tree, of the older commit again."""
    before = _old_figures(case, sides)
    new = _figures(case, sides.new)
    if new is None:
        raise SystemExit(f"bench.cases.{case.module} failed on this tree")
    after = _old_figures(case, sides)
    return {
        figure: (before[figure], new[figure], after[figure])
        for figure in new
        if figure in before and figure in after
    }


def _old_figures(case: Case, sides: Sides) -> dict[str, float]:
    """What the older library gives in this tree's case; in its own where it cannot run that."""
    return _figures(case, sides.old) or _figures(case, sides.own) or {}


def _figures(case: Case, side: Path) -> dict[str, float] | None:
    """Figures that a case prints; None if it fails."""
    environment = {**os.environ, **QUICKLY, "PYTHONPATH": str(side)}
    command = [sys.executable, "-m", f"bench.cases.{case.module}"]
    done = subprocess.run(
        command, cwd=side, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        return None
    figures: dict[str, float] = {}
    for line in done.stdout.splitlines():
        figures |= json.loads(line)
    return figures


def _page(commit: str, rounds: int, changes: dict[str, Change]) -> str:
    """The comparison in Markdown."""
    lines = [
        f"# This tree beside {commit}\n",
        f"`make bench BASE={commit}`, {rounds} rounds. The ratio is the median over the rounds.",
        "Beside it stand the bounds, at 95 %, of the median ratio of the older commit to itself.",
        "A row is worse if its ratio is above 1.05 and above them.\n",
        "| figure | before | now | ratio | before to itself | |",
        "|---|---:|---:|---:|---:|---|",
    ]
    units = {
        row.figure: row.unit
        for group in GROUPS.values()
        for row in group.rows
        if isinstance(row, Alone)
    }
    for figure, found in changes.items():
        unit = units.get(figure, "s")
        lines.append(
            f"| {figure} | {quantity(found.old, unit)} | {quantity(found.new, unit)} "
            f"| {found.ratio:.2f} | {found.low:.2f} to {found.high:.2f} | {found.verdict} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()

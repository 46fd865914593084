"""Figures that take longer than the benchmark may: `python -m bench.placement.long_figures`.

Each is kept in `long.json` with its seed and goes on where an earlier run ended, so that it can be
taken a part at a time. Seconds are of this process.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from jflow.lab.optima import read_optima
from jflow.lab.reference import compare_large
from jflow.lab.suite.adversarial import adversarial_problem
from jflow.schedule import scheduled, simulate
from jflow.schedule.strategies import STRATEGIES, choose

HERE = Path(__file__).parent
PATH, OPTIMA = HERE / "long.json", HERE / "optima.json"
SEED = 0

Figures = dict[str, list[object]]
"""By its key, what was found in a part of a figure."""


def optima(found: Figures) -> Iterator[None]:
    """G1: `auto` on all graphs whose optimum is proven, in random order."""
    known = [each for each in read_optima(OPTIMA) if each.is_proven]
    for each in random.Random(SEED).sample(known, len(known)):
        if each.digest not in found:
            begin = time.process_time()
            chosen = choose(each.case.problem())
            ratio = chosen.predicted[chosen.strategy] / each.makespan
            found[each.digest] = [each.case.network, ratio, time.process_time() - begin]
            yield


def table_c(found: Figures) -> Iterator[None]:
    """Table C: strategies on graphs of 300 operations, 8 devices and one port, a graph a part."""
    for family in ("layered", "fork_join", "wavefront"):
        for ccr in (0.1, 1.0, 5.0):
            for seed in (0, 1):
                key = f"{family} {ccr} {seed}"
                if key not in found:
                    rows = compare_large([family], [ccr], [seed])
                    found[key] = [{row.strategy: row.mean for row in rows}]
                    yield


def adversarial(found: Figures) -> Iterator[None]:
    """G9: graphs that a search of many steps finds against `auto`, 100 steps from each seed."""
    seed = 0
    while True:
        seed += 1
        if str(seed) not in found:
            problem = adversarial_problem(STRATEGIES["auto"], steps=100, seed=seed)
            times = {
                name: simulate(problem, scheduled(problem, place)).makespan
                for name, place in STRATEGIES.items()
            }
            found[str(seed)] = [100, times["auto"] / min(times.values())]
            yield


FIGURES: dict[str, Callable[[Figures], Iterator[None]]] = {
    each.__name__: each for each in (optima, table_c, adversarial)
}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", nargs="*", choices=[*FIGURES, []], help="which; all by default")
    parser.add_argument("--seconds", type=float, default=600.0, help="for each figure")
    options = parser.parse_args()
    for name in options.figures or FIGURES:
        kept = _read()
        found, last = kept.setdefault(name, {}), time.monotonic() + options.seconds
        for _ in FIGURES[name](found):
            PATH.write_text(json.dumps(_read() | {name: found}, indent=0) + "\n")
            if time.monotonic() > last:
                break
    print(summary(_read()))


def summary(kept: dict[str, Figures]) -> str:
    """The figures, a line each."""
    lines = []
    rows = [*kept.get("optima", {}).values()]
    for network in sorted({str(row[0]) for row in rows}):
        ratios = [float(str(row[1])) for row in rows if row[0] == network]
        lines.append(
            f"G1, {network}: mean {statistics.fmean(ratios):.4f}, at most {max(ratios):.3f} "
            f"of {len(ratios)} proven optima"
        )
    if cases := [row[0] for row in kept.get("table_c", {}).values()]:
        names = [name for name in cases[0] if all(name in case for case in cases)]
        means = {name: statistics.fmean(case[name] for case in cases) for name in names}
        text = ", ".join(f"{name} {mean:.2f}" for name, mean in means.items())
        lines.append(f"Table C, {len(cases)} graphs: {text}")
    if worst := [float(str(row[1])) for row in kept.get("adversarial", {}).values()]:
        lines.append(f"G9: at most {max(worst):.3f} after {100 * len(worst)} steps")
    return "\n".join(lines)


def _read() -> dict[str, Figures]:
    return json.loads(PATH.read_text()) if PATH.exists() else {}


if __name__ == "__main__":
    main()

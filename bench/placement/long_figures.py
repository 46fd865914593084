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
from itertools import product
from pathlib import Path

from jflow.lab.families import FAMILIES, random_problem
from jflow.lab.optima import read_optima
from jflow.lab.reference import LARGE, TABLE_C, compare_large
from jflow.lab.suite.adversarial import adversarial_problem
from jflow.schedule import Problem, scheduled, simulate
from jflow.schedule.compiled import can_compile
from jflow.schedule.strategies import STRATEGIES, choose

HERE = Path(__file__).parent
PATH, OPTIMA = HERE / "long.json", HERE / "optima.json"
SEED = 0
MOST_MOVES, _FEW_MOVES = 400_000, 400
"""Of a search that takes minutes although it is compiled, and of one that takes no time."""

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
    for family in LARGE:
        for ccr in (0.1, 1.0, 5.0):
            for seed in (0, 1):
                key = f"{family} {ccr} {seed}"
                if key not in found:
                    rows = compare_large([family], [ccr], [seed])
                    found[key] = [{row.strategy: row.mean for row in rows}]
                    yield


def best_known(found: Figures) -> Iterator[None]:
    """The makespans that a long search finds for the graphs of G5; takes minutes, compiled."""
    for key, problem in contended():
        if key not in found:
            longer = choose(problem, moves=MOST_MOVES)
            found[key] = [longer.predicted[longer.strategy]]
            yield


def contention(found: Figures) -> Iterator[None]:
    """G5: the makespans that `auto` finds for the same graphs, and its seconds."""
    how = "compiled" if can_compile() else "interpreted"
    for key, problem in contended():
        if f"{key} {how}" not in found:
            choose(problem, moves=_FEW_MOVES)  # reads machine code, or makes it
            begin = time.perf_counter()
            chosen = choose(problem)
            seconds = time.perf_counter() - begin
            found[f"{key} {how}"] = [chosen.predicted[chosen.strategy], seconds]
            yield


def contended() -> Iterator[tuple[str, Problem]]:
    """Graphs of 300 operations on 8 devices under one port, by a name."""
    for family, ccr in product(FAMILIES, (1.0, 5.0)):
        yield f"{family} {ccr}", random_problem(family, 300, 8, ccr=ccr)


def size(found: Figures) -> Iterator[None]:
    """G3: what `auto` and one simulation take for 100,000 operations on 64 devices, one port."""
    how = "compiled" if can_compile() else "interpreted"
    for family in ("layered", "wavefront"):
        key = f"{family} {how}"
        if key not in found:
            choose(random_problem(family, 300, 8), moves=_FEW_MOVES)  # as in `contention`
            problem = random_problem(family, 100_000, 64)
            begin = time.perf_counter()
            chosen = choose(problem)
            placed = time.perf_counter()
            simulate(problem, chosen.schedule)
            found[key] = [len(problem.graph), placed - begin, time.perf_counter() - placed]
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
    each.__name__: each for each in (optima, table_c, best_known, contention, size, adversarial)
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
        lines.append(f"Table C, {len(cases)} graphs, means and standard errors:")
        lines += [_row_of_c(name, [case[name] for case in cases]) for name in names]
    lines += [_contention_line(kept, how) for how in ("compiled", "interpreted")]
    lines += [_size_line(key, row) for key, row in kept.get("size", {}).items()]
    if worst := [float(str(row[1])) for row in kept.get("adversarial", {}).values()]:
        lines.append(f"G9: at most {max(worst):.3f} after {100 * len(worst)} steps")
    return "\n".join(filter(None, lines))


def _row_of_c(name: str, ratios: list[float]) -> str:
    error = statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else 0.0
    there = f" ({TABLE_C[name]:.2f} in the study)" if name in TABLE_C else ""
    return f"  {name} {statistics.fmean(ratios):.2f} ± {error:.2f}{there}"


def _contention_line(kept: dict[str, Figures], how: str) -> str:
    """G5 where the search is compiled or interpreted; "" if it was not taken."""
    known, taken = kept.get("best_known", {}), kept.get("contention", {})
    ratios, seconds = [], []
    for key, row in known.items():
        if f"{key} {how}" in taken:
            makespan, duration = map(float, map(str, taken[f"{key} {how}"]))
            ratios.append(max(1.0, makespan / float(str(row[0]))))
            seconds.append(duration)
    if not ratios:
        return ""
    return (
        f"G5, {how}: mean {statistics.fmean(ratios):.3f}, at most {max(ratios):.3f} of the best "
        f"known of {len(ratios)} graphs, in {statistics.median(seconds):.2f} s"
    )


def _size_line(key: str, row: list[object]) -> str:
    n, placing, simulating = row
    return f"G3, {key}: {n:,} operations placed in {placing:.2f} s, simulated in {simulating:.2f} s"


def _read() -> dict[str, Figures]:
    return json.loads(PATH.read_text()) if PATH.exists() else {}


if __name__ == "__main__":
    main()

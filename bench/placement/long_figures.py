"""Figures that take longer than the benchmark may: `python -m bench.placement.long_figures`.

Each is kept in `long.json` with its seed and goes on where an earlier run ended, so that it can be
taken a part at a time. Seconds are processor time of this process. The goals that they tell are
kept in `long-goals.json`, which `make bench-placement` reads for its page.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from jflow.compiler.schedule import Problem, scheduled, simulate
from jflow.compiler.schedule.compact import can_compile
from jflow.compiler.schedule.strategies import STRATEGIES, choose
from jflow.lab.families import FAMILIES, random_problem
from jflow.lab.optima import read_optima
from jflow.lab.reference import LARGE, TABLE_C, large_ratios
from jflow.lab.suite.adversarial import adversarial_problem
from jflow.lab.suite.cases import GROUPS
from jflow.lab.suite.comparison import LONG_GOALS, MEASURED
from jflow.lab.suite.goals import Goal
from jflow.lab.suite.results import read

HERE = Path(__file__).parent
PATH, OPTIMA, GOALS = HERE / "long.json", HERE / "optima.json", HERE / LONG_GOALS
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
                    found[key] = [large_ratios(family, ccr, seed)]
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
            begin = time.process_time()
            chosen = choose(problem)
            seconds = time.process_time() - begin
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
            begin = time.process_time()
            chosen = choose(problem)
            placed = time.process_time()
            simulate(problem, chosen.schedule)
            found[key] = [len(problem.graph), placed - begin, time.process_time() - placed]
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


STRATEGY = """\
def place(graph, devices, costs, constraints):
    chosen = {}
    classes = constraints.classes or range(len(graph.operations))
    for operation, number in zip(graph.operations, classes):
        options = constraints.allowed.get(number, range(len(devices)))
        chosen[operation] = devices[options[number % len(options)]]
    return chosen
"""


def own_strategy(found: Figures) -> Iterator[None]:
    """G8: a strategy in a file of the user's, which one command compares with those that ship."""
    if "quick" in found:
        return
    with TemporaryDirectory() as folder:
        (Path(folder) / "mine.py").write_text(STRATEGY)
        command = [sys.executable, "-m", "jflow", "bench", "placement", "--quick"]
        options = ["--strategies", "mine:place,heft,auto", "--optima", str(OPTIMA)]
        begin = time.perf_counter()
        subprocess.run([*command, *options, "--output", "results"], cwd=folder, check=True)
        seconds = time.perf_counter() - begin
        every = [read(Path(folder) / "results" / f"{name}.json") for name in (*GROUPS, MEASURED)]
    tables = [each for each in every if each is not None]
    simulated = [case for each in tables for case in each.cases.values()]
    proven = [case.scores["mine:place"] for case in simulated if case.optimum is not None]
    bounded = [case for case in simulated if case.bound > 0 and "mine:place" in case.scores]
    run = [r for t in tables for r in t.measured.values() if r.strategy == "mine:place" and r.times]
    n_lines = len(STRATEGY.splitlines())
    found["quick"] = [n_lines, len(simulated), len(bounded), len(proven), len(run), seconds]
    yield


FIGURES: dict[str, Callable[[Figures], Iterator[None]]] = {
    each.__name__: each
    for each in (optima, table_c, best_known, contention, size, own_strategy, adversarial)
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
    kept = _read()
    GOALS.write_text(json.dumps([asdict(goal) for goal in goals(kept)], indent=0) + "\n")
    print(summary(kept))


def goals(kept: dict[str, Figures]) -> Iterator[Goal]:
    """The goals that the figures tell."""
    for network, ratios in _by_network(kept).items():
        mean, most = statistics.fmean(ratios), max(ratios)
        yield Goal(
            *("G1", f"ratio to every proven optimum, {network} network"),
            *(
                "mean ≤ 1.002, at most 1.05",
                f"mean {mean:.4f}, at most {most:.3f} of {len(ratios)}",
            ),
            mean <= 1.002 and most <= 1.05,
        )
    for key, row in kept.get("size", {}).items():
        n, placing, simulating = (float(str(each)) for each in row)
        yield Goal(
            *("G3", f"{n:,.0f} operations on 64 devices, {key}"),
            *("placed in ≤ 5 s, simulated in ≤ 0.3 s", f"{placing:.2f} s, {simulating:.2f} s"),
            placing <= 5 and simulating <= 0.3,
        )
    ratios, seconds = _contended(kept, "compiled")
    if ratios:
        mean, median = statistics.fmean(ratios), statistics.median(seconds)
        yield Goal(
            *("G5", "ratio to what 20 times as many moves find, compiled", "≤ 1.05, ≤ 1 s"),
            f"mean {mean:.3f}, at most {max(ratios):.3f} of {len(ratios)}; placing {median:.2f} s",
            mean <= 1.05 and median <= 1,
        )
    for row in kept.get("own_strategy", {}).values():
        lines, simulated, bounded, proven, run, _ = (int(float(str(each))) for each in row)
        yield Goal(
            *("G8", "one command compares a strategy of one's own: tables, bounds, measured twin"),
            "≤ 20 lines, all",
            f"{lines} lines: {bounded} of {simulated} cases beside a bound, {proven} beside the "
            f"optimum, {run} measured",
            lines <= 20 and bounded == simulated and proven > 0 and run > 0,
        )
    if worst := [float(str(row[1])) for row in kept.get("adversarial", {}).values()]:
        yield Goal(
            *("G9", "ratio to any strategy on graphs that a search against `auto` found"),
            *("at most 1.25", f"at most {max(worst):.3f} after {100 * len(worst):,} steps"),
            max(worst) <= 1.25,
        )


def _by_network(kept: dict[str, Figures]) -> dict[str, list[float]]:
    """The ratios of `auto` to proven optima, by the network model."""
    found: dict[str, list[float]] = {}
    for network, ratio, _ in sorted(kept.get("optima", {}).values(), key=str):
        found.setdefault(str(network), []).append(float(str(ratio)))
    return found


def summary(kept: dict[str, Figures]) -> str:
    """The figures, a line each."""
    lines = []
    for network, ratios in _by_network(kept).items():
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
    ratios, seconds = _contended(kept, how)
    if not ratios:
        return ""
    return (
        f"G5, {how}: mean {statistics.fmean(ratios):.3f}, at most {max(ratios):.3f} of the best "
        f"known of {len(ratios)} graphs, in {statistics.median(seconds):.2f} s"
    )


def _contended(kept: dict[str, Figures], how: str) -> tuple[list[float], list[float]]:
    """Of graphs of 300 operations: the ratios of `auto` to the best known, and its seconds."""
    known, taken = kept.get("best_known", {}), kept.get("contention", {})
    rows = [(taken[f"{key} {how}"], row) for key, row in known.items() if f"{key} {how}" in taken]
    ratios = [max(1.0, float(str(one[0])) / float(str(row[0]))) for one, row in rows]
    return ratios, [float(str(one[1])) for one, _ in rows]


def _size_line(key: str, row: list[object]) -> str:
    n, placing, simulating = row
    return f"G3, {key}: {n:,} operations placed in {placing:.2f} s, simulated in {simulating:.2f} s"


def _read() -> dict[str, Figures]:
    return json.loads(PATH.read_text()) if PATH.exists() else {}


if __name__ == "__main__":
    main()

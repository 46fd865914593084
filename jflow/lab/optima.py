"""Proven optimal makespans of small graphs, kept as data, which strategies are compared with.

`make placement-optima` proves them once and writes `bench/placement/optima.json`. A line has the
arguments that the graph is made with, a digest of what they made, what was proven and by which
solver; so a change of the generator cannot go unseen, and `check_optima` can prove any line again
by another solver.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import scipy

from jflow.base.files import replace_file
from jflow.compiler.schedule import ONE_PORT, UNLIMITED, Problem
from jflow.compiler.schedule.exact import optimal
from jflow.compiler.schedule.exhaustive import exhaustive_optimum
from jflow.compiler.schedule.strategies import choose
from jflow.lab.families import FAMILIES, random_problem

HIGHS = f"HiGHS in SciPy {scipy.__version__}"
EXHAUSTIVE = "exhaustive search 1"

_AGREEMENT = 1e-4
"""Relative difference of two proofs of one optimum, which solvers round."""


@dataclass(frozen=True)
class OptimumCase:
    """The arguments of `random_problem` for one small graph."""

    family: str
    n: int
    n_devices: int
    ccr: float
    heterogeneity: float
    network: str
    seed: int

    def problem(self) -> Problem:
        """Returns the problem."""
        return random_problem(
            self.family,
            self.n,
            self.n_devices,
            ccr=self.ccr,
            heterogeneity=self.heterogeneity,
            network=self.network,
            seed=self.seed,
        )


@dataclass(frozen=True)
class KnownOptimum:
    """The known bounds of the optimum of a case, in seconds.

    Attributes:
      case: the case.
      digest: of its problem, see `digest_of`.
      makespan: the least one found.
      bound: what every schedule takes at least.
      solver: what proved the bound, with its version.
    """

    case: OptimumCase
    digest: str
    makespan: float
    bound: float
    solver: str

    @property
    def is_proven(self) -> bool:
        """Whether no schedule takes less, but for rounding."""
        return self.makespan <= self.bound * (1 + _AGREEMENT)


def cases() -> Iterator[OptimumCase]:
    """1,120 graphs of 8 to 20 operations without contention, and 112 of 4 to 10 with one port."""
    families = [*FAMILIES]
    for network, n_cases, sizes, n_devices in (
        (UNLIMITED, 1120, (8, 20), [2, 3, 4]),
        (ONE_PORT, 112, (5, 10), [2, 3]),
    ):
        for seed in range(n_cases):
            rng = random.Random(seed)
            ccr, heterogeneity = rng.choice([0.1, 1.0, 5.0]), rng.choice([1.0, 4.0])
            n, p = rng.randint(*sizes), rng.choice(n_devices)
            yield OptimumCase(families[seed % 7], n, p, ccr, heterogeneity, network, seed)


def digest_of(problem: Problem) -> str:
    """A digest of all that makes a problem: edges, costs and limits, as 16 hexadecimal digits."""
    costs, constraints = problem.costs, problem.constraints
    tables = (costs.seconds, costs.latency, costs.byte_seconds)
    edges = [(e.producer, *e.consumers, float(e.n_bytes).hex()) for e in problem.graph.edges]
    text = [edges, costs.network, costs.processor_of, constraints.classes]
    digest = hashlib.sha256(json.dumps(text).encode())
    for table in (*tables, np.array(constraints.resident), np.array(constraints.capacity)):
        digest.update(np.asarray(table, np.float64).tobytes())
    return digest.hexdigest()[:16]


def prove(case: OptimumCase, *, seconds: float = 60.0) -> KnownOptimum:
    """The optimum of a case: by HiGHS without contention, by exhaustive search with one port."""
    problem = case.problem()
    upper = choose(problem, margin=0.0, moves=2_000, exact=False).schedule
    if case.network == ONE_PORT:
        best = exhaustive_optimum(problem, upper)
        return KnownOptimum(case, digest_of(problem), best.makespan, best.bound, EXHAUSTIVE)
    best = optimal(problem, upper=upper, seconds=seconds)
    return KnownOptimum(case, digest_of(problem), best.makespan, best.bound, HIGHS)


def read_optima(path: Path) -> list[KnownOptimum]:
    """Returns the optima of a file; empty if there is none."""
    if not path.exists():
        return []
    rows = json.loads(path.read_text())["optima"]
    n = len(fields(OptimumCase))
    return [KnownOptimum(OptimumCase(*row[:n]), *row[n:]) for row in rows]


def write_optima(path: Path, optima: Sequence[KnownOptimum]) -> None:
    """Writes a file that `read_optima` reads, a line an optimum."""
    names = [*(f.name for f in fields(OptimumCase)), "digest", "makespan", "bound", "solver"]
    lines = []
    for known in optima:
        row = [*asdict(known.case).values(), known.digest]
        lines.append(json.dumps([*row, known.makespan, known.bound, known.solver]))
    text = ",\n".join(lines)
    replace_file(path, f'{{"columns": {json.dumps(names)},\n"optima": [\n{text}\n]}}\n')


def check_optima(path: Path, n: int, seed: int, *, seconds: float = 60.0) -> list[str]:
    """Proves a random choice of the optima of a file again.

    Args:
      path: the file.
      n: how many.
      seed: which.
      seconds: after which the solver may give up on a case; it is then compared by its bound.

    Returns:
      What does not agree, a sentence each.
    """
    known = [each for each in read_optima(path) if each.is_proven]
    chosen = random.Random(seed).sample(known, min(n, len(known)))
    return [text for each in chosen if (text := _disagreement(each, seconds))]


def _disagreement(known: KnownOptimum, seconds: float) -> str:
    case = known.case
    if digest_of(case.problem()) != known.digest:
        return f"{case} makes another graph than the one that was solved"
    again = prove(case, seconds=seconds)
    if again.bound > known.makespan * (1 + _AGREEMENT):
        return f"{case}: at least {again.bound:g} s by {again.solver}, not {known.makespan:g} s"
    if again.makespan < known.bound * (1 - _AGREEMENT):
        return f"{case}: {again.makespan:g} s is possible, less than the bound {known.bound:g} s"
    return ""

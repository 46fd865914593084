"""What strategies are compared on: groups of problems, random, of models, and imported."""

from __future__ import annotations

import hashlib
import json
import random
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

from jflow.compiler.schedule import ONE_PORT, UNLIMITED, Dependency, OperationGraph, Problem
from jflow.errors import InvalidArgumentError
from jflow.lab.families import random_problem
from jflow.lab.importing import read_dnn_partitioning
from jflow.lab.optima import KnownOptimum
from jflow.lab.workloads import WORKLOADS
from jflow.lab.workloads.workload import problem_of, simulated_devices

Scalar = str | int | float

SMALL, SMALL_ONE_PORT = "small", "small-one-port"
CONTENTION, MEMORY = "contention", "memory"
SURPRISES, CLUSTERS = "surprises", "clusters"
MODELS, ADVERSARIAL, IMPORTED = "models", "adversarial", "imported"
GROUPS = (
    *(SMALL, SMALL_ONE_PORT, CONTENTION, MEMORY, SURPRISES, CLUSTERS, MODELS, ADVERSARIAL),
    IMPORTED,
)
"""Names of the groups, in the order in which they run."""

CLUSTER_SIZES = (8, 64, 1024)
"""How many devices the simulated clusters have."""

TIMED, TIMED_DEVICES, TIMED_FAMILIES = "timed", 8, ("layered", "fork_join", "cholesky")
"""Random graphs that are run in timed mode, on more processes than there are cores."""

CCRS = (0.1, 1.0, 5.0, 20.0)
NOISES = {f"costs x lognormal({sigma})": sigma for sigma in (0.1, 0.2, 0.45, 0.8)}
_KNOWN, _QUICK_KNOWN = 100, 24
"""How many graphs with known optima are taken without contention; half as many with one port."""

SLOW_DEVICE, HALF_BANDWIDTH = "one device at half speed", "half the bandwidth"


@dataclass(frozen=True)
class SuiteCase:
    """One problem, and what is different from it when a schedule runs.

    Attributes:
      group: one of `GROUPS`.
      workload: a graph family, or the name of another source of graphs.
      n_devices: how many devices there are.
      parameters: what else the problem depends on.
      build: makes the problem that strategies see.
      surprise: how the problem that their schedules are simulated on differs, "" if it does not.
    """

    group: str
    workload: str
    n_devices: int
    parameters: Mapping[str, Scalar]
    build: Callable[[], Problem] = field(compare=False)
    surprise: str = ""

    @property
    def key(self) -> str:
        """The digest of all that the case depends on."""
        facts = [self.group, self.workload, self.n_devices, dict(self.parameters), self.surprise]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]

    def actual(self, problem: Problem) -> Problem:
        """Returns the problem that schedules of `problem` are simulated on."""
        return surprised(problem, self.surprise, zlib.crc32(self.key.encode()))


@dataclass(frozen=True)
class CaseRange:
    """The sizes and parameters of the cases of one run.

    Attributes:
      families: names of graph families.
      devices: numbers of devices.
      quick: whether to take fewer cases.
      seed: of everything random.
      optima: what is known of small graphs; those that are proven are taken as small cases.
    """

    families: Sequence[str]
    devices: Sequence[int]
    quick: bool = False
    seed: int = 0
    optima: Sequence[KnownOptimum] = ()


def simulated_cases(scope: CaseRange) -> Iterator[SuiteCase]:
    """Yields the cases of graph families, group by group."""
    for cases in (_small, _small_one_port, _contention, _memory, _surprises, _clusters):
        yield from cases(scope)


def _case(
    scope: CaseRange, group: str, family: str, n: int, n_devices: int, **options: Scalar
) -> SuiteCase:
    surprise = str(options.pop("surprise", ""))
    parameters: dict[str, Scalar] = {"ccr": 1.0, "seed": scope.seed, **options}
    build = partial(random_problem, family, n, n_devices, **parameters)  # type: ignore[arg-type]
    if surprise:
        build = partial(_estimated, build)
    return SuiteCase(group, family, n_devices, {"n": n, **parameters}, build, surprise)


def _estimated(build: Callable[[], Problem]) -> Problem:
    """A problem whose costs are only estimates of those that its schedules are simulated with."""
    problem = build()
    return problem._replace(costs=replace(problem.costs, are_estimates=True))


def _small(scope: CaseRange) -> Iterator[SuiteCase]:
    """Graphs whose optimum is proven or can be, without contention."""
    if known := [*_known(scope, SMALL, UNLIMITED, _QUICK_KNOWN if scope.quick else _KNOWN)]:
        yield from known
        return
    few = [n for n in scope.devices if n <= 4] or [min(scope.devices)]
    for family, ccr, n_devices in product(scope.families, CCRS, few[:1] if scope.quick else few):
        for n, heterogeneity in ((10, 1.0),) if scope.quick else ((10, 1.0), (12, 4.0)):
            options: dict[str, Scalar] = {"ccr": ccr, "heterogeneity": heterogeneity}
            yield _case(scope, SMALL, family, n, n_devices, network=UNLIMITED, **options)


def _small_one_port(scope: CaseRange) -> Iterator[SuiteCase]:
    """Tiny graphs whose optimum under one port is proven or can be."""
    n = _QUICK_KNOWN // 2 if scope.quick else _KNOWN // 2
    if known := [*_known(scope, SMALL_ONE_PORT, ONE_PORT, n)]:
        yield from known
        return
    n_devices = min(*scope.devices, 3)
    for family, ccr in product(scope.families, CCRS[1:2] if scope.quick else CCRS):
        yield _case(scope, SMALL_ONE_PORT, family, 7, n_devices, ccr=ccr)


def _known(scope: CaseRange, group: str, network: str, n: int) -> Iterator[SuiteCase]:
    """Yields a random choice of the graphs whose optima are known."""
    fitting = [
        each.case
        for each in scope.optima
        if each.is_proven and each.case.network == network and each.case.family in scope.families
    ]
    for case in random.Random(scope.seed).sample(fitting, min(n, len(fitting))):
        yield SuiteCase(group, case.family, case.n_devices, asdict(case), case.problem)


def _contention(scope: CaseRange) -> Iterator[SuiteCase]:
    """Graphs of 300 operations under one port."""
    devices = [max(scope.devices)] if scope.quick else scope.devices
    for family, ccr, n_devices in product(scope.families, CCRS, devices):
        if not scope.quick or ccr in (1.0, 5.0):
            yield _case(scope, CONTENTION, family, 300, n_devices, ccr=ccr)
        if not scope.quick and n_devices == max(devices):
            yield _case(scope, CONTENTION, family, 300, n_devices, ccr=ccr, heterogeneity=4.0)


def _memory(scope: CaseRange) -> Iterator[SuiteCase]:
    """Graphs that barely fit the memory of the devices."""
    n_devices = sorted(scope.devices)[len(scope.devices) // 2]
    caps = (1.1,) if scope.quick else (2.0, 1.3, 1.1)
    for family, memory, ccr in product(scope.families, caps, (1.0, 5.0)):
        if not scope.quick or ccr == 1.0:
            yield _case(scope, MEMORY, family, 20, n_devices, memory=memory, ccr=ccr)


def _surprises(scope: CaseRange) -> Iterator[SuiteCase]:
    """Cases whose real costs differ from those that strategies see."""
    n_devices = sorted(scope.devices)[len(scope.devices) // 2]
    kinds = [*NOISES, SLOW_DEVICE, HALF_BANDWIDTH]
    for family, kind, ccr in product(scope.families, kinds, (1.0, 5.0)):
        if not scope.quick or (ccr == 1.0 and kind in (kinds[2], SLOW_DEVICE)):
            yield _case(scope, SURPRISES, family, 60, n_devices, surprise=kind, ccr=ccr)


def _clusters(scope: CaseRange) -> Iterator[SuiteCase]:
    """Clusters that no machine here has; the smaller ones first."""
    sizes = CLUSTER_SIZES[:2] if scope.quick else CLUSTER_SIZES
    families = scope.families[:1] if scope.quick else scope.families[:3]
    for n_devices, family in product(sizes, families):
        yield _case(scope, CLUSTERS, family, 300 if scope.quick else 1000, n_devices)


def surprised(problem: Problem, surprise: str, seed: int) -> Problem:
    """Returns the problem with the real costs of a surprise.

    Args:
      problem: as strategies saw it.
      surprise: "", one of `NOISES` (each operation and tensor has a factor of its own),
        `SLOW_DEVICE` (the last one) or `HALF_BANDWIDTH` (of all links).
      seed: of the factors.
    """
    costs = problem.costs
    if not surprise:
        return problem
    if surprise == HALF_BANDWIDTH:
        return problem._replace(costs=replace(costs, byte_seconds=costs.byte_seconds * 2))
    if surprise == SLOW_DEVICE:
        speeds = np.ones(len(problem.devices))
        speeds[-1] = 2.0
        return problem._replace(costs=replace(costs, seconds=costs.seconds * speeds))
    rng, sigma = np.random.default_rng(seed), NOISES[surprise]
    factors = rng.lognormal(0.0, sigma, len(problem.graph))
    edges = tuple(
        Dependency(edge.producer, edge.consumers, edge.n_bytes * float(rng.lognormal(0.0, sigma)))
        for edge in problem.graph.edges
    )
    return problem._replace(
        graph=OperationGraph(problem.graph.operations, edges),
        costs=replace(costs, seconds=costs.seconds * factors[:, None]),
    )


MODEL_DEVICES = (8, 64)
"""How many devices the simulated clusters have that models are placed on."""

IMPORTED_DEVICES = (4, 8)


def model_cases(names: Sequence[str], quick: bool) -> Iterator[SuiteCase]:
    """The training steps of workloads, by estimated costs; quickly: the small ones of them."""
    scale = "small" if quick else "cpu"
    for n_devices in MODEL_DEVICES[:1] if quick else MODEL_DEVICES:
        for name in names:
            build = partial(model_problem, name, scale, n_devices)
            yield SuiteCase(MODELS, name, n_devices, {"scale": scale}, build)


def model_problem(name: str, scale: str, n_devices: int) -> Problem:
    """Returns the placement problem of a workload whose variables are spread over all devices."""
    devices = [str(device) for device in simulated_devices(n_devices)]
    return problem_of(WORKLOADS[name].build(scale, devices), n_devices)


def imported_cases(folder: Path) -> Iterator[SuiteCase]:
    """Yields the graphs of all JSON files in a folder, with and without their memory limits.

    Raises:
      InvalidArgumentError: if there is none, or one of them is not of the format.
    """
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise InvalidArgumentError(f"there are no graphs, which are files *.json, in {folder}")
    for path in paths:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        read_dnn_partitioning(path)  # what is wrong with it is said before anything runs
        for n_devices in IMPORTED_DEVICES:
            for limits_memory in (False, True):
                build = partial(
                    read_dnn_partitioning,
                    path,
                    n_accelerators=n_devices,
                    n_cpus=0,
                    limits_memory=limits_memory,
                )
                parameters = {"file": digest, "memory": "limited" if limits_memory else "unlimited"}
                yield SuiteCase(IMPORTED, path.stem, n_devices, parameters, build)

"""Random graphs of the families that the scheduling literature compares strategies on (W8)."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from jflow.compiler.schedule import ONE_PORT, Constraints, Costs, Problem, graph_of

Edges = list[tuple[int, int]]
GraphFamily = Callable[[random.Random, int], tuple[int, Edges]]
"""Makes the number of operations, about as many as asked for, and the pairs that depend."""


def layered(rng: random.Random, n: int) -> tuple[int, Edges]:
    """Returns layers of random width; each operation uses one to three of the layer before."""
    edges: Edges = []
    layer, n_operations = [0], 1
    while n_operations < n:
        width = min(n - n_operations, rng.randint(1, max(2, round(n**0.5 * 1.5))))
        new = [*range(n_operations, n_operations + width)]
        for operation in new:
            for before in rng.sample(layer, min(len(layer), rng.randint(1, 3))):
                edges.append((before, operation))
        layer, n_operations = new, n_operations + width
    return n, edges


def fork_join(rng: random.Random, n: int) -> tuple[int, Edges]:
    """Blocks of parallel chains of differing length, one block after another."""
    edges: Edges = []
    last, n_operations = 0, 1
    while n_operations < n - 1:
        ends = []
        for _ in range(rng.randint(2, 5)):
            at = last
            for _ in range(rng.randint(1, 3)):
                if n_operations >= n - 1:
                    break
                edges.append((at, n_operations))
                at, n_operations = n_operations, n_operations + 1
            if at != last:
                ends.append(at)
        edges += [(end, n_operations) for end in ends]
        last, n_operations = n_operations, n_operations + 1
    return n_operations, edges


def wavefront(rng: random.Random, n: int) -> tuple[int, Edges]:
    """A grid in which each operation uses its upper and left neighbours, as an unrolled LSTM."""
    rows = rng.randint(2, max(2, round(n**0.5)))
    columns = max(2, n // rows)
    edges = [
        (r * columns + c, r * columns + c + 1) for r in range(rows) for c in range(columns - 1)
    ]
    edges += [
        (r * columns + c, r * columns + c + columns)
        for r in range(rows - 1)
        for c in range(columns)
    ]
    return rows * columns, edges


def series_parallel(rng: random.Random, n: int) -> tuple[int, Edges]:
    """Returns an edge that was repeatedly replaced by two in series or in parallel."""
    edges: Edges = [(0, 1)]
    n_operations = 2
    while n_operations < n:
        a, b = edges[rng.randrange(len(edges))]
        if rng.random() < 0.5:
            edges.remove((a, b))
        edges += [(a, n_operations), (n_operations, b)]
        n_operations += 1
    return n_operations, edges


def gaussian_elimination(rng: random.Random, n: int) -> tuple[int, Edges]:
    """Elimination of a dense matrix, column by column."""
    size = 2
    while size * (size + 1) // 2 + size - 1 <= n:
        size += 1
    size -= 1
    edges: Edges = []
    n_operations = 0
    before: dict[int, int] = {}
    for k in range(size):
        pivot, n_operations = n_operations, n_operations + 1
        if k in before:
            edges.append((before[k], pivot))
        now = {}
        for j in range(k + 1, size + 1):
            edges.append((pivot, n_operations))
            if j in before:
                edges.append((before[j], n_operations))
            now[j], n_operations = n_operations, n_operations + 1
        before = now
    return n_operations, edges


def fft(rng: random.Random, n: int) -> tuple[int, Edges]:
    """Returns the butterflies of a fast Fourier transform."""
    width = 2
    while width * 2 * ((width * 2).bit_length()) <= n:
        width *= 2
    levels = width.bit_length()
    edges: Edges = []
    for level in range(levels - 1):
        for i in range(width):
            edges.append((level * width + i, (level + 1) * width + i))
            edges.append((level * width + i, (level + 1) * width + (i ^ (1 << level))))
    return width * levels, edges


def cholesky(rng: random.Random, n: int) -> tuple[int, Edges]:
    """Returns the tile algorithm of a Cholesky factorization."""
    size = 1
    while (size + 1) * (size + 2) * (size + 3) // 6 <= max(n, 4):
        size += 1
    edges: Edges = []
    last: dict[tuple[int, int], int] = {}
    n_operations = 0

    def add(reads: list[tuple[int, int]], writes: tuple[int, int]) -> None:
        nonlocal n_operations
        edges.extend(
            (last[tile], n_operations) for tile in dict.fromkeys([*reads, writes]) if tile in last
        )
        last[writes] = n_operations
        n_operations += 1

    for k in range(size):
        add([], (k, k))
        for i in range(k + 1, size):
            add([(k, k)], (i, k))
        for i in range(k + 1, size):
            for j in range(k + 1, i + 1):
                add([(i, k), (j, k)], (i, j))
    return n_operations, edges


FAMILIES: dict[str, GraphFamily] = {
    family.__name__: family
    for family in (
        *(layered, fork_join, wavefront, series_parallel),
        *(gaussian_elimination, fft, cholesky),
    )
}


def random_problem(
    family: str,
    n: int,
    n_devices: int,
    *,
    ccr: float = 1.0,
    heterogeneity: float = 1.0,
    memory: float | None = None,
    network: str = ONE_PORT,
    seed: int = 0,
) -> Problem:
    """Returns a random placement problem: a graph of a family with lognormal costs, in seconds.

    Args:
      family: "layered", "fork_join", "wavefront", "series_parallel", "gaussian_elimination", "fft"
        or "cholesky".
      n: how many operations, about.
      n_devices: how many devices.
      ccr: mean time of a transfer divided by that of an operation.
      heterogeneity: how much slower the slowest device is than the fastest.
      memory: the memory of all devices together, as a multiple of what operations keep; None for
        no limit.
      network: "unlimited" for no contention; "one-port" or "buffered" for devices that send and
        receive one tensor at a time, which hold the sender until the receiver is free, or do not.
      seed: of the random numbers; equal arguments give equal problems.
    """
    rng = random.Random(f"{family} {n} {n_devices} {ccr} {seed}")
    n, edges = FAMILIES[family](rng, n)
    edges = sorted(set(edges))
    seconds = np.array([rng.lognormvariate(0, 0.6) for _ in range(n)])
    speeds = np.geomspace(1.0, heterogeneity, n_devices)
    sizes = [ccr * float(seconds.mean()) * rng.lognormvariate(0, 0.6) for _ in edges]
    off = 1.0 - np.eye(n_devices)
    costs = Costs(np.outer(seconds, speeds), 0 * off, off, network)
    resident = tuple(rng.lognormvariate(0, 0.6) for _ in range(n)) if memory else ()
    capacity = (memory * sum(resident) / n_devices,) * n_devices if memory else ()
    graph = graph_of(range(n), [(a, b, size) for (a, b), size in zip(edges, sizes, strict=True)])
    constraints = Constraints(resident=resident, capacity=capacity)
    return Problem(graph, [f"device {i}" for i in range(n_devices)], costs, constraints).checked()

"""Runs every case and writes `bench/results.json` and the table in `bench/README.md`.

`python -m bench --tensorflow PYTHON` takes the figures of that Python's TensorFlow too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
MEMORY = "memory to fetch 100 MB"
CASES = ["local", "remote", "graphs"]
ROUNDS = 3
SLOW_CASES = ["long_program"]
"""Run in one round only: XLA takes minutes for what they compare with."""


@dataclass(frozen=True)
class Row:
    """A figure beside another one; `target` is the largest ratio of the two that is wanted."""

    figure: str
    peer: str
    target: float | None = None


ROWS = [
    Row("local constant", "jax.jit scalar", 1.5),
    Row("local fed scalar", "jax.jit scalar", 1.5),
    Row("local constant", "TensorFlow local constant"),
    Row("function call", "jax.jit call", 1.5),
    Row("function call of 100 leaves", "jax.jit call of 100 leaves", 3.0),
    Row("scatter_add into 5000000", "scatter_add into 10000", 3.0),
    Row("scatter_add into 5000000", "TensorFlow scatter_add into 5000000", 1.0),
    Row("scatter_add into 10000", "TensorFlow scatter_add into 10000"),
    Row("local MLP step", "jax.jit MLP step", 1.1),
    Row("remote constant", "raw unary echo", 0.85),
    Row("remote constant", "raw stream echo"),
    Row("remote constant", "TensorFlow remote constant", 0.7),
    Row("remote fed scalar", "TensorFlow remote fed scalar"),
    Row("remote assign_add", "TensorFlow remote assign_add"),
    Row("remote scalar of another task", "remote constant", 2.0),
    Row("remote scalar of another task", "TensorFlow remote scalar of another task"),
    Row("feed 100 MB", "raw 100 MB in", 1.25),
    Row("feed 100 MB", "TensorFlow feed 100 MB", 1 / 3),
    Row("fetch 100 MB", "raw 100 MB out", 1.25),
    Row("fetch 100 MB", "TensorFlow fetch 100 MB", 1 / 3),
    Row("100 MB from task to task", "TensorFlow 100 MB from task to task"),
    Row("build 100000 operations", "build 10000 operations"),
    Row("cut 100000 operations", "cut 10000 operations"),
    Row("first run of 10000 equations", "jax.jit's first run of 10000 equations", 0.2),
    Row("run of 10000 equations", "jax.jit's run of 10000 equations", 1.5),
    Row("import jflow", "import jax"),
    Row("start a local session", "jax.jit scalar"),
]


def main() -> None:
    """Measures and writes."""
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("--tensorflow", metavar="PYTHON", help="a Python that has TensorFlow")
    options = parser.parse_args()
    commands = [[sys.executable, "-m", f"bench.cases.{case}"] for case in CASES]
    if options.tensorflow:
        commands.append([options.tensorflow, str(HERE / "cases" / "tensorflow_peer.py")])
    slow = [[sys.executable, "-m", f"bench.cases.{case}"] for case in SLOW_CASES]
    taken: dict[str, list[float]] = {}
    for number in range(ROUNDS):
        for command in (*commands, *(slow if number == 0 else ())):
            print(f"round {number + 1} of {ROUNDS}: {command[-1]}", flush=True)
            for name, value in _figures(command).items():
                taken.setdefault(name, []).append(value)
    medians = {name: statistics.median(values) for name, values in taken.items()}
    memory = medians.pop(MEMORY)
    document = {"machine": _machine(), "seconds": medians, "bytes": {MEMORY: memory}}
    (HERE / "results.json").write_text(json.dumps(document, indent=1) + "\n")
    (HERE / "README.md").write_text(_page(medians, memory))


def _figures(command: list[str]) -> dict[str, float]:
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, float] = {}
    for line in done.stdout.splitlines():
        figures |= json.loads(line)
    return figures


def _machine() -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("jax", "grpcio", "protobuf"))
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, {packages}"


def _page(medians: dict[str, float], memory: float) -> str:
    lines = [
        "# What it costs",
        "",
        f"`make bench`, medians of {ROUNDS} rounds in one run on {_machine()}.",
        "Read the ratios: the times drift by a factor of two with the machine's other work.",
        "",
        "| figure | jflow | beside | its time | ratio | wanted |",
        "|---|---:|---|---:|---:|---|",
    ]
    lines.extend(
        _line(row, medians[row.figure], medians[row.peer])
        for row in ROWS
        if row.figure in medians and row.peer in medians
    )
    lines += [
        "",
        "While a variable of 100 MB is fetched, its server takes at most "
        f"{memory / 1e6:.1f} MB more than it had; a chunk is 1.0 MB.",
    ]
    notes = HERE / "NOTES.md"
    return "\n".join(lines) + "\n" + (f"\n{notes.read_text()}" if notes.exists() else "")


def _line(row: Row, own: float, peer: float) -> str:
    ratio = own / peer
    wanted = ""
    if row.target is not None:
        verdict = "reached" if ratio <= row.target else "**not reached**"
        wanted = f"≤ {row.target:.2f}: {verdict}"
    return f"| {row.figure} | {_time(own)} | {row.peer} | {_time(peer)} | {ratio:.2f} | {wanted} |"


def _time(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


if __name__ == "__main__":
    main()

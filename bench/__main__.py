"""Measures groups of cases and writes `bench/results.json` and the tables in `bench/README.md`.

`python -m bench --only queues --tensorflow PYTHON` measures one group, beside that Python's
TensorFlow; what other groups gave before stays.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from bench.page import page, with_figures
from bench.record import Record, load, save
from bench.rows import GROUPS, Case, Group
from tests.network_hosts import has_links

HERE = Path(__file__).parent
PEERS = {"tensorflow": "tensorflow", "reverb": "reverb", "ray": "ray", "dask": "distributed"}
"""The module by which each peer is known, in a Python of its own."""


def main() -> None:
    """Measures and writes."""
    options = _options()
    pythons = {"": sys.executable} | {
        peer: python
        for peer, module in PEERS.items()
        if (python := getattr(options, peer)) and _has(python, module)
    }
    if _has_gpu():
        pythons["gpu"] = sys.executable
    if has_links():
        pythons["links"] = sys.executable
    results = HERE / "results.json"
    records = load(results)
    for name in options.only or GROUPS:
        figures = _measure(name, GROUPS[name], pythons)
        if not figures:
            needs = {case.needs for case in GROUPS[name].cases}
            print(f"{name}: not measured, as this machine has none of {needs}", file=sys.stderr)
            continue
        records[name] = Record(f"{datetime.now(UTC):%Y-%m-%d}", _machine(), figures)
        save(results, records)
    (HERE / "README.md").write_text(page(records, (HERE / "NOTES.md").read_text()))
    readme = HERE.parent / "README.md"
    readme.write_text(with_figures(readme.read_text(), records))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument(
        "--only", nargs="+", choices=GROUPS, metavar="GROUP", help=", ".join(GROUPS)
    )
    for peer, module in PEERS.items():
        parser.add_argument(f"--{peer}", metavar="PYTHON", help=f"a Python that has {module}")
    return parser.parse_args()


def _has(python: str, module: str) -> bool:
    """Whether that Python is there and has the module."""
    look = f"import sys, importlib.util as u; sys.exit(u.find_spec({module!r}) is None)"
    return (
        Path(python).exists() and subprocess.run([python, "-c", look], check=False).returncode == 0
    )


def _has_gpu() -> bool:
    look = "import jax; jax.devices('gpu')"
    done = subprocess.run([sys.executable, "-c", look], stderr=subprocess.DEVNULL, check=False)
    return done.returncode == 0


def _measure(name: str, group: Group, pythons: dict[str, str]) -> dict[str, float]:
    """Medians by figure; a case whose peer is not installed is left out."""
    taken: dict[str, list[float]] = {}
    for number in range(max(case.rounds for case in group.cases)):
        for case in group.cases:
            if number < case.rounds and case.needs in pythons:
                print(f"{name}, round {number + 1}: {case.module}", flush=True)
                for figure, value in _figures(case, pythons[case.needs]).items():
                    taken.setdefault(figure, []).append(value)
    return {figure: statistics.median(values) for figure, values in taken.items()}


def _figures(case: Case, python: str) -> dict[str, float]:
    command = [python, "-m", f"bench.cases.{case.module}"]
    done = subprocess.run(command, cwd=HERE.parent, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, float] = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):  # peers print more
            figures |= json.loads(line)
    return figures


def _machine() -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("jax", "grpcio", "protobuf"))
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, {packages}"


if __name__ == "__main__":
    main()

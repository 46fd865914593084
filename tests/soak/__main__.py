"""The run of hours: `python -m tests.soak`, for 20 minutes, or HOURS.

It prints a line a minute, and in the end what was done and what has grown; a record is added to
`bench/soak.jsonl`. The exit code is 1 if something has grown or was counted wrongly.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from jflow.cli.status import connected
from tests.chaos.totals import commit, now
from tests.soak.figures import WARM, Sample, growth, of_process, per_100_000
from tests.soak.work import Work

PATH = Path("bench/soak.jsonl")
MINUTES = 20.0
EVERY_S = 5.0
"""How often everything is measured."""

KINDS = ("sessions", "usage", "queues", "variables", "containers")


def sampled(work: Work, folder: Path) -> Sample:
    """Measures the processes that live as long as the work, what their tasks list, and files."""
    cluster = work.cluster
    pids = {
        "client": os.getpid(),
        **{f"{job} {i}": cluster.pid(job, i) for job, i in (("ps", 0), ("ps", 1), ("worker", 0))},
    }
    figures = {(name, k): v for name, pid in pids.items() for k, v in of_process(pid).items()}
    with connected(cluster.target(), 10.0) as watcher:
        for seen in watcher.inspect(KINDS):
            if seen.status is None or str(seen.report.task) == "/job:worker/task:1":
                continue
            task = str(seen.report.task)
            figures |= {(task, kind): total for kind, total in seen.status.totals.items()}
            figures[task, "programs"] = seen.status.n_compiled
    figures["folder", "files"] = sum(1 for one in folder.rglob("*") if one.is_file())
    return Sample(work.n_steps, figures)


def run(seconds: float, folder: Path, every_s: float = EVERY_S) -> Iterator[tuple[Work, Sample]]:
    """Works for some time; gives the work and a sample every few seconds."""
    with Work(folder) as work:
        end = time.monotonic() + seconds
        next_at = time.monotonic()
        while time.monotonic() < end:
            work.round()
            if time.monotonic() >= next_at:
                next_at = time.monotonic() + every_s
                yield work, sampled(work, folder)


def main() -> int:
    """Runs it; returns the exit code."""
    hours = os.environ.get("HOURS")
    minutes = float(hours) * 60 if hours else MINUTES
    samples: list[Sample] = []
    begun, said = time.monotonic(), 0.0
    with tempfile.TemporaryDirectory(prefix="jflow-soak-") as folder:
        for work, sample in run(minutes * 60, Path(folder)):
            samples.append(sample)
            if (elapsed := time.monotonic() - begun) > said:
                said = elapsed + 60
                memory = {n: v for (n, k), v in sample.figures.items() if k == "memory"}
                text = ", ".join(f"{name} {kib / 1024:.0f} MiB" for name, kib in memory.items())
                print(f"{elapsed / 60:5.1f} min: {work.n_steps:,} steps; {text}", flush=True)
    found = [*work.violations, *growth(samples)]
    warm = samples[int(len(samples) * WARM) :]
    slopes = {
        name: round(per_100_000(warm, name), 1)
        for name, kind in samples[-1].figures
        if kind == "memory"
    }
    for name, n in sorted(work.done.items()):
        print(f"{n:10,} {name}")
    print(f"KiB in 100,000 steps: {slopes}")
    for one in found:
        print(f"  {one}")
    record = {
        "date": now(),
        "commit": commit(),
        "minutes": round((time.monotonic() - begun) / 60, 1),
        "n_steps": work.n_steps,
        "done": dict(work.done),
        "kib_in_100_000_steps": slopes,
        "found": found,
    }
    with PATH.open("a") as file:
        file.write(json.dumps(record, ensure_ascii=False) + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

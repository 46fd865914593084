"""A game day: `python -m tests.gameday`; a record is added to `bench/gameday.jsonl`.

It prints what happened and how long that took. The exit code is 1 if anything was lost, doubled,
disturbed or left over; the logs of the tasks are kept then.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

from tests.chaos.totals import commit, now
from tests.gameday.day import Event, run

PATH = Path("bench/gameday.jsonl")


def show(event: Event) -> None:
    """Prints an event for people."""
    times = f"{event.seconds:6.1f} s {event.bob_s:18.2f} s {event.cyd_s:17.2f} s"
    print(f"{times}  {event.what}", flush=True)


def main() -> int:
    """Runs it; returns the exit code."""
    folder = Path(tempfile.mkdtemp(prefix="jflow-gameday-"))
    try:
        print("    took  bob, longest round  cyd, longest call", flush=True)
        results = run(folder, show)
    except AssertionError:
        traceback.print_exc()
        print(f"what was kept is in {folder}")
        return 1
    shutil.rmtree(folder)
    for name in ("bob", "cyd", "ann"):
        print(f"{name}: {getattr(results, name)}")
    print(f"{results.seconds:.0f} s in all: nothing lost, doubled or left over")
    record = {"date": now(), "commit": commit(), **results.as_json()}
    with PATH.open("a") as file:
        file.write(json.dumps(record, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

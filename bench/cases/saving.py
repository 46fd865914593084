"""Saving and restoring over two tasks, beside `dd`, and steps beside a save.

BENCH_SAVE_BYTES bytes are saved, below BENCH_SAVE_DIRECTORY, which must not be in memory.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

import jflow as tf
from bench.timing import ROUNDS, seconds, tell

N_BYTES = int(os.environ.get("BENCH_SAVE_BYTES", str(10**9)))
WHERE = os.environ.get("BENCH_SAVE_DIRECTORY", "/var/tmp")
N_VARIABLES = 16
N_STEPS = 20


def copied(target: Path) -> float:
    """Seconds in which `dd` writes as many bytes and waits for the disk."""
    block = 1 << 20
    command = ["dd", "if=/dev/zero", f"of={target}", f"bs={block}", f"count={N_BYTES // block}"]
    taken = seconds(
        lambda: subprocess.run([*command, "conv=fsync"], check=True, capture_output=True)
    )
    target.unlink()
    return taken


def median(calls: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Median of what calls return, which take turns."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            taken[name].append(call())
    return {name: statistics.median(times) for name, times in taken.items()}


def steps_beside(step: Callable[[], object], save: Callable[[], object]) -> tuple[float, float]:
    """Median seconds of a step without a save and beside one."""
    alone = [seconds(step) for _ in range(N_STEPS)]
    thread = threading.Thread(target=save)
    thread.start()
    beside = []
    while thread.is_alive():
        beside.append(seconds(step))
    thread.join()
    return statistics.median(alone), statistics.median(beside)


def main() -> None:
    """All of it, in one cluster and one directory."""
    size = N_BYTES // 4 // N_VARIABLES
    with (
        tempfile.TemporaryDirectory(dir=WHERE) as folder,
        tf.LocalCluster(ps=2, workers=1) as cluster,
        tf.Session(cluster.target()) as session,
    ):
        variables = []
        for i in range(N_VARIABLES):
            with tf.device(f"/job:ps/task:{i % 2}"):
                zeros = tf.numpy.zeros((size,), np.float32)
                variables.append(tf.Variable(zeros, name=f"v{i}"))
        with tf.device("/job:ps/task:0"):
            small = tf.Variable(np.zeros((1000, 1000), np.float32), name="small")
        train = small.assign_add(small * 0.5).op
        for variable in variables:
            session.run(variable.initializer)
        session.run([small.initializer])
        session.run(train)
        saver, path = tf.train.Saver(), os.path.join(folder, "model")

        def save() -> float:
            return seconds(lambda: saver.save(session, path))

        def restore() -> float:
            return seconds(lambda: saver.restore(session, path))

        calls = {
            "dd with fsync": lambda: copied(Path(folder) / "dd"),
            "save over two tasks": save,
            "restore over two tasks": restore,
        }
        tell(median(calls, min(3, ROUNDS)))
        found = [steps_beside(lambda: session.run(train), save) for _ in range(min(3, ROUNDS))]
        tell(
            {
                "step without a save": statistics.median(alone for alone, _ in found),
                "step beside a save": statistics.median(beside for _, beside in found),
            }
        )


if __name__ == "__main__":
    main()

"""Saving and restoring over two tasks, beside `dd`, their memory, and steps beside a save.

BENCH_SAVE_BYTES bytes are saved, below BENCH_SAVE_DIRECTORY, which must not be in memory. A cold
restore reads what is not in the system's cache, as after a crash of the machine.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import jflow as tf
from bench import memory
from bench.timing import ROUNDS, seconds, tell

N_BYTES = int(os.environ.get("BENCH_SAVE_BYTES", str(10**9)))
WHERE = os.environ.get("BENCH_SAVE_DIRECTORY", "/var/tmp")
N_VARIABLES = 16
N_STEPS = 20


def dd(*arguments: str) -> float:
    """Seconds in which `dd` copies as many bytes."""
    block = 1 << 20
    command = ["dd", f"bs={block}", f"count={N_BYTES // block}", *arguments]
    return seconds(lambda: subprocess.run(command, check=True, capture_output=True))


def forget(directory: Path) -> None:
    """Takes the files of a directory out of the system's cache."""
    for path in directory.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def extra(call: Callable[[], float], pids: Sequence[int], n_kept: int = 0) -> tuple[float, int]:
    """What a call returns, and the memory that processes needed in all, beyond what they keep."""
    before = [memory.resident(pid) for pid in pids]
    for pid in pids:
        memory.begin_peak(pid)
    taken = call()
    needed = sum(memory.peak(pid) - own for pid, own in zip(pids, before, strict=True))
    return taken, max(0, needed - n_kept)


def saved_and_restored(
    folder: Path, save: Callable[[], float], restore: Callable[[], float], pids: Sequence[int]
) -> dict[str, float]:
    """Each figure once."""
    figures: dict[str, float] = {}
    raw = folder / "dd"
    figures["dd with fsync"] = dd("if=/dev/zero", f"of={raw}", "conv=fsync")
    figures["save over two tasks"], figures["memory of two tasks to save"] = extra(save, pids)
    figures["restore over two tasks"], figures["memory of two tasks to restore again"] = extra(
        restore, pids
    )
    forget(folder)
    figures["dd from the disk"] = dd(f"if={raw}", "of=/dev/null")
    figures["cold restore over two tasks"] = restore()
    raw.unlink()
    return figures


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


def variables_on(tasks: int) -> list[tf.Variable]:
    """Variables of all the bytes, in turn on tasks."""
    variables = []
    for i in range(N_VARIABLES):
        with tf.device(f"/job:ps/task:{i % tasks}"):
            zeros = tf.numpy.zeros((N_BYTES // 4 // N_VARIABLES,), np.float32)
            variables.append(tf.Variable(zeros, name=f"v{i}"))
    return variables


def memory_of_new_tasks(path: str) -> int:
    """What tasks that have just begun need beyond the variables that they restore."""
    with (
        tf.Graph().as_default(),
        tf.LocalCluster(ps=2, workers=1) as cluster,
        tf.Session(cluster.target()) as session,
    ):
        saver = tf.train.Saver(variables_on(2))
        for index in range(2):  # what JAX needs to start counts for neither
            with tf.device(f"/job:ps/task:{index}"):
                session.run(tf.numpy.zeros((1,)) + 1)
        pids = [cluster.pid("ps", index) for index in range(2)]
        _, needed = extra(lambda: seconds(lambda: saver.restore(session, path)), pids, N_BYTES)
        return needed


def main() -> None:
    """All of it, in one cluster and one directory."""
    with (
        tempfile.TemporaryDirectory(dir=WHERE) as folder,
        tf.LocalCluster(ps=2, workers=1) as cluster,
        tf.Session(cluster.target()) as session,
    ):
        variables = variables_on(2)
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

        pids = [cluster.pid("ps", index) for index in range(2)]
        rounds = [
            saved_and_restored(Path(folder), save, restore, pids) for _ in range(min(3, ROUNDS))
        ]
        tell({name: statistics.median(one[name] for one in rounds) for name in rounds[0]})
        tell({"memory of two new tasks to restore": memory_of_new_tasks(path)})
        found = [steps_beside(lambda: session.run(train), save) for _ in range(min(3, ROUNDS))]
        tell(
            {
                "step without a save": statistics.median(alone for alone, _ in found),
                "step beside a save": statistics.median(beside for _, beside in found),
            }
        )


if __name__ == "__main__":
    main()

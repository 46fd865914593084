"""Files of checkpoints: 1 GB of variables over two shards, beside `dd` and Orbax on one disk."""

from __future__ import annotations

import importlib.util
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bench import memory
from bench.timing import seconds, tell
from jflow.state.checkpoint_files import Item, commit, locate, open_checkpoint, write_shard

N_VARIABLES, N_FLOATS, N_SHARDS = 40, 6_250_000, 2
N_BYTES = N_VARIABLES * N_FLOATS * 4
SAVE = "0123456789abcdef"
HERE = Path(__file__).parent
"""The disk that is measured is that of the repository, because /tmp may be memory."""


def save(directory: Path, variables: dict[str, jax.Array]) -> None:
    """Writes the variables in two shards, each in a thread, as two tasks do."""
    items = [Item(*one) for one in sorted(variables.items())]
    with locate(directory / "m") as prefix, ThreadPoolExecutor(N_SHARDS) as tasks:
        shards = tasks.map(
            lambda i: write_shard(prefix, SAVE, f"ps-{i}", items[i::N_SHARDS]), range(N_SHARDS)
        )
        commit(prefix, SAVE, [*shards])


def restore(directory: Path) -> list[Any]:
    """Reads all of them, half of them in each of two threads, as two tasks do."""

    def read(i: int) -> list[Any]:
        with open_checkpoint(directory / "m") as checkpoint:
            keys = checkpoint.keys()
            return [checkpoint.read(key) for key in keys[i::N_SHARDS]]

    with ThreadPoolExecutor(N_SHARDS) as tasks:
        return [*tasks.map(read, range(N_SHARDS))]


def dd(*arguments: str) -> None:
    """Runs `dd` with blocks of 4 MB."""
    subprocess.run(["dd", "bs=4000000", *arguments], check=True, stderr=subprocess.DEVNULL)


def forget(directory: Path) -> None:
    """Takes the files below a directory out of the system's cache."""
    for path in directory.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def extra(call: Callable[[], Any], n_kept: int = 0) -> tuple[float, int]:
    """Seconds of a call, and the memory that it needed beyond what it returns."""
    before = memory.resident(os.getpid())
    memory.begin_peak(os.getpid())
    kept: list[Any] = []
    taken = seconds(lambda: kept.append(call()))
    return taken, max(0, memory.peak(os.getpid()) - before - n_kept)


def round_of(directory: Path, variables: dict[str, jax.Array]) -> dict[str, float]:
    """Each figure once."""
    figures: dict[str, float] = {}
    raw, own, other = directory / "raw", directory / "own", directory / "orbax"
    for one in (raw, own):
        one.mkdir()
    write = ["if=/dev/zero", f"of={raw / 'file'}", f"count={N_BYTES // 4_000_000}", "conv=fsync"]
    figures["dd of 1 GB with fsync"] = seconds(lambda: dd(*write))
    figures["write 1 GB in two shards"], figures["memory to write 1 GB"] = extra(
        lambda: save(own, variables)
    )
    forget(directory)
    figures["dd of 1 GB from the disk"] = seconds(lambda: dd(f"if={raw / 'file'}", "of=/dev/null"))
    figures["read 1 GB in two shards"], figures["memory to read 1 GB"] = extra(
        lambda: restore(own), N_BYTES
    )
    if importlib.util.find_spec("orbax") is not None:
        figures |= orbax_round(other, variables)
    return figures


def orbax_round(directory: Path, variables: dict[str, jax.Array]) -> dict[str, float]:
    """The same with Orbax's own defaults."""
    import orbax.checkpoint as ocp  # noqa: PLC0415 - the peer

    def write() -> None:
        writer.save(directory, variables)
        writer.wait_until_finished()
        forget(directory)

    with ocp.StandardCheckpointer() as writer:
        written, to_write = extra(write)
        read, to_read = extra(lambda: writer.restore(directory, variables), N_BYTES)
    return {
        "Orbax writes 1 GB": written,
        "memory for Orbax to write 1 GB": to_write,
        "Orbax reads 1 GB": read,
        "memory for Orbax to read 1 GB": to_read,
    }


def main() -> None:
    """Alternates, and tells medians."""
    rng = np.random.default_rng(0)
    variables = {
        f"v{i:02}": jax.device_put(rng.standard_normal(N_FLOATS, np.float32))
        for i in range(N_VARIABLES)
    }
    taken: dict[str, list[float]] = {}
    for _ in range(int(os.environ.get("BENCH_ROUNDS", "3"))):
        directory = Path(tempfile.mkdtemp(prefix="checkpoints-", dir=HERE))
        try:
            for figure, value in round_of(directory, variables).items():
                taken.setdefault(figure, []).append(value)
        finally:
            shutil.rmtree(directory)
    tell({figure: statistics.median(values) for figure, values in taken.items()})


if __name__ == "__main__":
    main()

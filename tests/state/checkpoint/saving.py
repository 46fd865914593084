"""Saves and reads of checkpoints, as tests of what is on disk do them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from jflow.state.checkpoint_files import Item, commit, locate, open_checkpoint, write_shard

SAVE, NEXT_SAVE = "0123456789abcdef", "fedcba9876543210"


def save(
    prefix: str | Path,
    *tasks: Sequence[Item],
    number: str = SAVE,
    about: Mapping[str, str] | None = None,
) -> None:
    """Saves what each of some tasks has."""
    with locate(prefix) as located:
        shards = [write_shard(located, number, f"ps-{i}", items) for i, items in enumerate(tasks)]
        commit(located, number, shards, about=about or {})


def replace(prefix: str | Path, items: Sequence[Item]) -> None:
    """Saves in place of what is there."""
    save(prefix, items, number=f"{next(_NUMBERS):016x}")


_NUMBERS = count(1)


def save_value(prefix: str | Path, value: float, number: str = SAVE) -> None:
    """Saves a vector of one value, in a shard of two tasks each."""
    items = [[Item(key, np.full(5, value, np.float32))] for key in ("a", "b")]
    save(prefix, *items, number=number)


def saved_value(prefix: str | Path) -> float:
    """The value that `save_value` saved, after a look at every byte."""
    with open_checkpoint(prefix) as checkpoint:
        checkpoint.verify()
        values = {*checkpoint.read("a").tolist(), *checkpoint.read("b").tolist()}
    (value,) = values
    return float(value)


def read(prefix: str | Path, key: str, region: Any = None) -> Any:
    """A tensor of a checkpoint."""
    with open_checkpoint(prefix) as checkpoint:
        return checkpoint.read(key, region)


def names(directory: Path) -> list[str]:
    """The names of all files in a directory, in order."""
    return sorted(path.name for path in directory.iterdir())

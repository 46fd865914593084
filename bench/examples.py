"""What the input pipelines read, and how much of it they hold; the same for jflow and its peers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

N_EXAMPLES, N_FEATURES, N_CLASSES = 20_000, 84, 10
BATCH, CAPACITY, MIN_AFTER_DEQUEUE, N_THREADS = 128, 4000, 1000, 2
N_BLOCK = 256
"""Records that are read and parsed at once, where they are not taken one by one."""


def examples() -> Iterator[tuple[np.ndarray, int]]:
    """The vectors f32[84] and the labels of one file."""
    random = np.random.default_rng(0)
    for label in random.integers(0, N_CLASSES, N_EXAMPLES):
        yield random.normal(size=N_FEATURES).astype(np.float32), int(label)

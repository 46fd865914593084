"""The UCI handwritten digits, split for training and testing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from jflow.base.values import Array

N_PIXELS, N_CLASSES = 64, 10
_N_TRAINING = 1_437
_SEED = 0


@dataclass(frozen=True)
class Split:
    """Images f32[n, 64] with values from 0 to 1, and one-hot labels f32[n, 10]."""

    images: Array
    labels: Array

    def batches(self, size: int, n_batches: int, seed: int) -> Iterator[tuple[Array, Array]]:
        """Yields `n_batches` random batches of `size` examples."""
        random = np.random.default_rng(seed)
        for _ in range(n_batches):
            chosen = random.choice(len(self.images), size, replace=False)
            yield self.images[chosen], self.labels[chosen]


def load_digits() -> tuple[Split, Split]:
    """Returns the training split (1,437 examples) and the test split (360), always the same."""
    with files("jflow.cli.demo").joinpath("digits.npz").open("rb") as file:
        stored = np.load(file, allow_pickle=False)
        images, labels = stored["images"], stored["labels"]
    order = np.random.default_rng(_SEED).permutation(len(images))
    pixels = (images[order] / 16).astype(np.float32)
    one_hot = np.eye(N_CLASSES, dtype=np.float32)[labels[order]]
    return (
        Split(pixels[:_N_TRAINING], one_hot[:_N_TRAINING]),
        Split(pixels[_N_TRAINING:], one_hot[_N_TRAINING:]),
    )

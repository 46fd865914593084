"""The step that parameter servers exist for, in its sizes: a perceptron of two layers.

Its parameters are on a parameter server, its forward and backward pass on a worker, and the update
is on the parameter server again. Imports NumPy only, because TensorFlow's side takes it from here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

N_IN, N_OUT, RATE = 784, 10, 0.1


@dataclass(frozen=True)
class Size:
    """One size of the step.

    Attributes:
      name: what it is called in figures.
      hidden: the width of the hidden layer.
      batch: the number of images.
      n: how many steps are timed in a row.
    """

    name: str
    hidden: int
    batch: int
    n: int

    def weights(self) -> list[np.ndarray]:
        """The first values of both parameters, f32[784, hidden] and f32[hidden, 10]."""
        random = np.random.default_rng(0)
        shapes = (N_IN, self.hidden), (self.hidden, N_OUT)
        return [0.05 * random.standard_normal(shape, np.float32) for shape in shapes]

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Images f32[batch, 784] and their classes f32[batch, 10], one of which is 1."""
        random = np.random.default_rng(1)
        images = random.random((self.batch, N_IN), np.float32)
        return images, np.eye(N_OUT, dtype=np.float32)[random.integers(0, N_OUT, self.batch)]


BASE = Size("MLP step of a ps", 256, 64, 20)
LARGE = (
    Size("step of 10 MB on a ps", 3_149, 8, 5),
    Size("step of 100 MB on a ps", 31_486, 8, 1),
)
"""Fewer images, so that the way of the parameters is not hidden behind matrix products."""

TWO_AT_ONCE = "MLP step of two workers at once"
IN_STEP = "MLP step of two workers, summed by accumulators"
N_AT_ONCE = 60
FRESH = 1 << 30
"""A step that no accumulator takes for stale."""

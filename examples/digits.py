"""Handwritten digits: 1,797 images of 8 by 8 pixels, which the other examples classify.

data/README.md has their source and licence.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

DATA = Path(__file__).parent / "data" / "digits.csv.gz"
N_TRAINED = 1197
"""The number of images to train with; the other 600 are for testing."""


class Images(NamedTuple):
    """Images float32[n, 64] with pixels from 0 to 1, and their digits int32[n]."""

    pixels: Any
    digits: Any


def load_images() -> tuple[Images, Images]:
    """The images to train and to test with."""
    with gzip.open(DATA, "rt") as file:
        rows = np.loadtxt(file, delimiter=",")
    rows = np.random.default_rng(0).permutation(rows)
    pixels, digits = rows[:, :64].astype(np.float32) / 16, rows[:, 64].astype(np.int32)
    split = [slice(N_TRAINED), slice(N_TRAINED, None)]
    trained, tested = (Images(pixels[rows], digits[rows]) for rows in split)
    return trained, tested

"""The host function that reads a tensor of a checkpoint: what a plan may ask of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jflow.errors import InvalidArgumentError, NotFoundError
from jflow.state.checkpoint_files import ANYWHERE, Item, open_checkpoint
from jflow.state.saves import READ_TENSOR, StateSource, tensor_functions
from jflow.state.saves.tensors import count_of_powers
from tests.state.checkpoint.saving import replace
from tests.tensorflow_values.bundles import SHARDS

ROWS = {
    "prefix": str(SHARDS),
    "key": "scope/rows",
    "dtype": "float32",
    "begin": [1, 0],
    "shape": [2, 3],
    "full_shape": [4, 3],
}


def read(**changes: Any) -> np.ndarray[Any, Any]:
    (value,) = tensor_functions(ANYWHERE)[READ_TENSOR](**ROWS | changes)
    return value


def test_a_region_is_read() -> None:
    np.testing.assert_array_equal(read(), np.arange(3, 9).reshape(2, 3))
    assert read(key="scope/whole", dtype="int32", begin=[0], shape=[2], full_shape=[3]).size == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"begin": [3, 0]},
        {"begin": [-1, 0]},
        {"begin": [1]},
        {"shape": [2, 3, 1], "begin": [0, 0, 0]},
        {"shape": [2**62, 3]},
        {"shape": [-1, 3]},
        {"full_shape": [5, 3]},
        {"dtype": "int32"},
        {"dtype": "unknown"},
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match="scope/rows"):
        read(**changes)


def test_a_missing_tensor_is_named() -> None:
    with pytest.raises(NotFoundError, match="'scope/none' not found"):
        read(key="scope/none")


@pytest.mark.parametrize("power", [np.full(2, 0.9, np.float32), np.int32(1)], ids=["many", "int"])
def test_a_count_is_computed_of_a_float_only(power: Any, tmp_path: Path) -> None:
    replace(tmp_path / "m", [Item("beta1_power", np.asarray(power))])
    with (
        open_checkpoint(tmp_path / "m") as checkpoint,
        pytest.raises(InvalidArgumentError, match=r"beta1_power.*expected a power of 0\.9"),
    ):
        count_of_powers(checkpoint, [StateSource("beta1_power", 0.9)])

"""The example of a recommender: it learns, and reads ratings as their package has them."""

from __future__ import annotations

import zipfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import jflow as tf
from tests.examples.modules import module_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "recommender.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return module_of(EXAMPLE)


TWO_SHARDS = tf.distribute.experimental.partitioners.FixedShardsPartitioner(2)


@pytest.mark.parametrize("coordinator", [{"variable_partitioner": TWO_SHARDS}], indirect=True)
def test_it_predicts_better_than_the_mean_and_is_saved(
    example: ModuleType, coordinator: tf.ClusterCoordinator, tmp_path: Path
) -> None:
    ratings = example.made_up_ratings(4000)
    trained, tested = ratings.rows(slice(3000)), ratings.rows(slice(3000, None))
    shown: list[str] = []
    error = example.train(coordinator, trained, tested, 4, tmp_path / "model", shown.append)
    mean = np.sqrt(np.mean((tested.stars - trained.stars.mean()) ** 2))
    assert error < 0.9 * mean
    assert len(shown) == 4
    assert (tmp_path / "model.index").exists()


def test_keys_of_the_package_become_rows(example: ModuleType, tmp_path: Path) -> None:
    wheel = tmp_path / "recbole.whl"
    files = {
        "user": ["user age gender job zip", "1\t24\tM\twriter\t1", "2\t30\tF\tartist\t2"],
        "item": ["item title year class", "7\tOne\t1990\tDrama War", "8\tTwo\t1991\t"],
        "inter": ["user item rating at", "1\t7\t5\t0", "2\t7\t3\t0", "1\t8\t1\t0"],
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, lines in files.items():
            path = f"recbole/dataset_example/ml-100k/ml-100k.{name}"
            archive.writestr(path, "\n".join(lines))
    ratings = example.read_ratings(wheel)
    assert ratings.stars.tolist() == [5, 3, 1]
    assert ratings.users[0] == ratings.users[2] != ratings.users[1]
    assert ratings.items[0] == ratings.items[1] != ratings.items[2]
    drama, war = tf.nn.hash_ids(["Drama", "War"], example.N_GENRES)
    assert ratings.genres.tolist() == [[drama, war, -1, -1]] * 2 + [[-1] * 4]
    assert ratings.crossed[0, 0] == tf.nn.hash_ids(["M writer Drama"], example.N_CROSSED)[0]
    assert ratings.crossed[0, 0] != ratings.crossed[1, 0]

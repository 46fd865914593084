"""Checkpoints at URLs, through `etils.epath`."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from etils import epath
from etils.epath import testing as epath_testing

from jflow.errors import DataLossError, NotFoundError, UnimplementedError, UnknownError
from jflow.state.checkpoint_files import Item, delete, exists, locate, open_checkpoint
from tests.state.checkpoint.saving import (
    NEXT_SAVE,
    SAVE,
    names,
    read,
    save,
    save_value,
    saved_value,
)

BUCKET = "gs://bucket"


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Path]:
    """The directory that the bucket stands for."""

    def local(function: Callable[..., Any], path: Any, *rest: Any) -> Any:
        return function(str(epath.Path(path)).replace(BUCKET, str(tmp_path)), *rest)

    with epath_testing.mock_epath(
        exists=local, listdir=local, open=local, remove=local, stat=local
    ):
        yield tmp_path


def test_a_checkpoint_at_a_url_is_saved_replaced_read_and_deleted(bucket: Path) -> None:
    prefix = f"{BUCKET}/m-1"
    with pytest.raises(NotFoundError, match=r"gs://bucket/m-1\.index"):
        open_checkpoint(prefix)
    save_value(prefix, 1.0)
    assert saved_value(prefix) == 1.0
    assert f"m-1.{SAVE}.ps-0.safetensors" in names(bucket)
    save_value(prefix, 2.0, NEXT_SAVE)
    assert saved_value(prefix) == 2.0
    shards = [f"m-1.{NEXT_SAVE}.ps-{i}.safetensors" for i in (0, 1)]
    assert names(bucket) == sorted([*shards, "m-1.index"])
    with locate(prefix) as located:
        assert located.path == prefix
        assert exists(located)
        delete(located)
        assert not exists(located)
    assert names(bucket) == []


def test_regions_and_damage_are_as_on_this_machine(bucket: Path) -> None:
    whole = np.arange(12, dtype=np.int32).reshape(3, 4)
    save(f"{BUCKET}/m", [Item("w", whole)])
    assert (read(f"{BUCKET}/m", "w", [slice(1, 3), slice(2, 3)]) == whole[1:3, 2:3]).all()
    shard = bucket / f"m.{SAVE}.ps-0.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(DataLossError, match=r"gs://bucket/m\..* is damaged: expected"):
        read(f"{BUCKET}/m", "w")


def test_a_save_that_fails_at_a_url_leaves_no_files(
    bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("429 too many requests")

    monkeypatch.setattr("jflow.state.checkpoint_files.shard.checksum", fail)
    with pytest.raises(RuntimeError, match="429"):
        save_value(f"{BUCKET}/m", 1.0)
    assert names(bucket) == []
    with (
        epath_testing.mock_epath(open=fail),
        pytest.raises(UnknownError, match=r"'gs://bucket/m\..*created: 429 too many requests"),
    ):
        save_value(f"{BUCKET}/m", 1.0)


@pytest.mark.skipif(importlib.util.find_spec("gcsfs") is not None, reason="gcsfs is installed")
def test_a_url_whose_package_is_not_installed_says_so() -> None:
    with pytest.raises(
        UnimplementedError, match=r"'gs://bucket/m\.index' cannot be .*not installed"
    ):
        open_checkpoint(f"{BUCKET}/m")


def test_a_url_that_nothing_opens_is_refused() -> None:
    with pytest.raises(UnimplementedError, match="does not open 'nothing://bucket'"):
        locate("nothing://bucket/m")

"""Where checkpoints may be: anywhere for the user's own process, below declared roots otherwise."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from jflow.errors import InvalidArgumentError, NotFoundError, OpError, PermissionDeniedError
from jflow.state.checkpoint_files import (
    ANYWHERE,
    Item,
    checkpoint_roots,
    locate,
    open_checkpoint,
    write_shard,
)
from tests.state.checkpoint.saving import SAVE, names, save_value


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a directory and a link out of it, and a secret beside it."""
    root = tmp_path / "root"
    (root / "inner").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "rooted").mkdir()
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "in").symlink_to(root / "inner")
    return root


def test_prefixes_below_a_root_are_used_by_relative_and_absolute_names(root: Path) -> None:
    roots = checkpoint_roots([str(root)])
    for prefix in ("m", "inner/m", "in/m", "./inner//m", str(root / "inner" / "m")):
        with locate(prefix, roots) as located:
            assert located.path in (str(root / "m"), str(root / "inner" / "m"))
    save_value(root / "inner" / "m", 1.0)
    with open_checkpoint("inner/m", roots) as checkpoint:
        assert checkpoint.read("a").all()


@pytest.mark.parametrize(
    "prefix",
    ["../m", "inner/../../m", "{tmp}/m", "{tmp}/rooted/m", "out/m", "{tmp}/root/../m", "gs://b/m"],
)
def test_prefixes_outside_of_the_roots_are_refused(prefix: str, root: Path, tmp_path: Path) -> None:
    roots = checkpoint_roots([str(root)])
    with pytest.raises(PermissionDeniedError) as caught:
        locate(prefix.format(tmp=tmp_path), roots)
    for part in ("cannot be used for a checkpoint", str(root), "--checkpoint-root"):
        assert part in caught.value.message
    assert "JFLOW_CHECKPOINT_ROOTS" in caught.value.message


def test_a_task_without_roots_says_how_one_is_declared(tmp_path: Path) -> None:
    with pytest.raises(PermissionDeniedError, match=r"has no checkpoint roots.*--checkpoint-root"):
        locate(tmp_path / "m", checkpoint_roots([]))


def test_a_root_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"the checkpoint root '.*none' is not a directory"):
        checkpoint_roots([str(tmp_path / "none")])


def test_a_link_that_is_made_later_is_not_followed(root: Path, tmp_path: Path) -> None:
    roots = checkpoint_roots([str(root)])
    target = tmp_path / "outside" / "target"
    target.write_bytes(b"kept")
    with locate("inner/m", roots) as prefix:
        (root / "inner").rename(root / "was")
        (root / "inner").symlink_to(tmp_path / "outside")
        # In the directory that was opened.
        write_shard(prefix, SAVE, "ps-0", [Item("w", np.ones(3))])
        assert names(tmp_path / "outside") == ["target"]
        (root / "was" / f"m.{SAVE}.ps-1.safetensors").symlink_to(target)
        with pytest.raises(OpError, match="cannot be created"):
            write_shard(prefix, SAVE, "ps-1", [Item("w", np.ones(3))])
    assert target.read_bytes() == b"kept"


def test_the_user_uses_any_path_through_links(root: Path) -> None:
    save_value(root / "out" / "m", 1.0)
    with open_checkpoint(root / "out" / "m", ANYWHERE) as checkpoint:
        assert checkpoint.path == os.path.realpath(root / "out" / "m")


def test_a_task_with_roots_does_not_open_what_orbax_wrote(root: Path) -> None:
    (root / "tree").mkdir()
    (root / "tree" / "_METADATA").write_text("{}")
    with pytest.raises(PermissionDeniedError, match="of Orbax, which follows links"):
        open_checkpoint("tree", checkpoint_roots([str(root)]))


def test_urls_are_allowed_below_roots_that_are_urls(tmp_path: Path) -> None:
    roots = checkpoint_roots(["gs://bucket/runs", str(tmp_path)])
    assert roots.check_url("gs://bucket/runs/a/m") == "gs://bucket/runs/a/m"
    for url in ("gs://bucket/runs2/m", "gs://bucket/runs/../m", "gs://other/m"):
        with pytest.raises(PermissionDeniedError):
            roots.check_url(url)
    assert ANYWHERE.check_url("gs://any/m")
    with pytest.raises(InvalidArgumentError):
        roots.check_url("gs://bucket/runs/\0")

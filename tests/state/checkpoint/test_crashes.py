"""A save that is killed, or fails, leaves the old or the new checkpoint whole."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jflow.errors import (
    AbortedError,
    DataLossError,
    NotFoundError,
    PermissionDeniedError,
    ResourceExhaustedError,
)
from jflow.state.checkpoint_files import (
    Item,
    commit,
    delete,
    locate,
    open_checkpoint,
    sweep,
    write_shard,
)
from jflow.testing import FAILPOINTS, ProgramProcess
from tests.state.checkpoint.saving import NEXT_SAVE, SAVE, names, save, save_value, saved_value

POINTS = [
    "checkpoint.before_shard",
    "checkpoint.in_shard",
    "checkpoint.shard_written",
    "checkpoint.before_manifest",
    "checkpoint.manifest_written",
    "checkpoint.manifest_renamed",
    "checkpoint.committed",
]
"""The failpoints of a save, in its order."""

RENAMED = POINTS.index("checkpoint.manifest_renamed")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProgramProcess]:
    # A child that is killed leaves the directory of its failpoints behind.
    own = {"TMPDIR": str(tmp_path_factory.mktemp("killed"))}
    with ProgramProcess(["-m", "tests.programs.crashing_saves"], own) as program:
        yield program


def crash(program: ProgramProcess, point: str, prefix: Path, save: str, value: float) -> None:
    """Saves in a process that is killed at a failpoint."""
    program.write_line(f"{point} {prefix} {save} {value}")
    assert program.read_line() == str(int(signal.SIGKILL))


def of_a_save(prefix: str, number: str) -> list[str]:
    """The names of a checkpoint's files, in order."""
    shards = [f"{prefix}.{number}.ps-{i}.safetensors" for i in (0, 1)]
    return [*shards, f"{prefix}.index"]


def test_these_are_all_failpoints_of_a_save() -> None:
    assert {*POINTS} == {name for name in FAILPOINTS if name.startswith("checkpoint.")}


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_leaves_the_old_or_the_new_checkpoint_whole(
    point: str, program: ProgramProcess, tmp_path: Path
) -> None:
    prefix = tmp_path / "m-1"
    save_value(prefix, 1.0)
    crash(program, point, prefix, NEXT_SAVE, 2.0)
    is_new = POINTS.index(point) >= RENAMED
    assert saved_value(prefix) == (2.0 if is_new else 1.0)
    # The next save, of another step, sweeps what was left.
    save_value(tmp_path / "m-2", 3.0)
    assert saved_value(prefix) == (2.0 if is_new else 1.0)
    kept = of_a_save("m-1", NEXT_SAVE if is_new else SAVE)
    assert names(tmp_path) == sorted([*kept, *of_a_save("m-2", SAVE)])


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_of_the_first_save_leaves_nothing_or_all_of_it(
    point: str, program: ProgramProcess, tmp_path: Path
) -> None:
    crash(program, point, tmp_path / "m", SAVE, 1.0)
    if POINTS.index(point) >= RENAMED:
        assert saved_value(tmp_path / "m") == 1.0
    else:
        with pytest.raises(NotFoundError):
            open_checkpoint(tmp_path / "m")
        with locate(tmp_path / "m") as prefix:
            sweep(prefix)
        assert names(tmp_path) == []
    save_value(tmp_path / "m", 2.0, NEXT_SAVE)
    assert saved_value(tmp_path / "m") == 2.0
    assert names(tmp_path) == sorted(of_a_save("m", NEXT_SAVE))


def test_a_sweep_keeps_what_saves_of_this_prefix_did_not_write(tmp_path: Path) -> None:
    save_value(tmp_path / "m-1", 1.0)
    save_value(tmp_path / "other-1", 1.0)
    (tmp_path / f"m-1.{NEXT_SAVE}.ps-0.safetensors").write_bytes(b"left over")
    (tmp_path / f"m-7.{NEXT_SAVE}.tmp").write_bytes(b"left over")
    others = [
        f"other-2.{NEXT_SAVE}.ps-0.safetensors",
        f"mm.{NEXT_SAVE}.ps-0.safetensors",
        f"m-x.{NEXT_SAVE}.ps-0.safetensors",
        "m-1.safetensors",
        "m-1.meta",
        "checkpoint",
    ]
    for name in others:
        (tmp_path / name).write_bytes(b"kept")
    with locate(tmp_path / "m-3") as prefix:
        sweep(prefix)
    kept = [*of_a_save("m-1", SAVE), *of_a_save("other-1", SAVE), *others]
    assert names(tmp_path) == sorted(kept)


def test_a_sweep_keeps_the_files_of_a_checkpoint_that_cannot_be_read(tmp_path: Path) -> None:
    save_value(tmp_path / "m", 1.0)
    (tmp_path / "m.index").write_bytes(b"damaged")
    before = names(tmp_path)
    with locate(tmp_path / "m") as prefix:
        sweep(prefix)
    assert names(tmp_path) == before


def test_a_deleted_checkpoint_leaves_nothing_and_others_stay(tmp_path: Path) -> None:
    for name in ("m-1", "m-2"):
        save_value(tmp_path / name, 1.0)
    with locate(tmp_path / "m-1") as prefix:
        delete(prefix)
        delete(prefix)
    assert names(tmp_path) == sorted(of_a_save("m-2", SAVE))
    assert saved_value(tmp_path / "m-2") == 1.0


def test_a_shard_that_is_gone_is_not_committed(tmp_path: Path) -> None:
    save_value(tmp_path / "m", 1.0)
    with locate(tmp_path / "m") as prefix:
        shard = write_shard(prefix, NEXT_SAVE, "ps-0", [Item("a", np.ones(3))])
        (tmp_path / f"m.{shard.file}").unlink()
        with pytest.raises(AbortedError, match=rf"{shard.file}.*expected {shard.n_bytes}"):
            commit(prefix, NEXT_SAVE, [shard])
    assert saved_value(tmp_path / "m") == 1.0


# A full disk --------------------------------------------------------------------------------------


class FullDisk:
    """Replaces `os.write`: there is room for some bytes, then an error.

    Args:
      room: the number of bytes.
      number: the error.
    """

    def __init__(self, room: int, number: int) -> None:
        self.room, self.number = room, number
        self._write = os.write

    def __call__(self, descriptor: int, data: Any) -> int:
        if not self.room:
            raise OSError(self.number, os.strerror(self.number))
        n = self._write(descriptor, memoryview(data)[: self.room])
        self.room -= n
        return n


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_keeps_the_old_checkpoint_and_leaves_no_files(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_value(tmp_path / "m", 1.0)
    before = names(tmp_path)
    n_bytes = sum((tmp_path / name).stat().st_size for name in before)
    reason = rf"{tmp_path}/m.* bytes: {os.strerror(number)}"
    for room in range(0, n_bytes, 97):
        with monkeypatch.context() as patch:
            patch.setattr("jflow.state.checkpoint_files.local.os.write", FullDisk(room, number))
            with pytest.raises(ResourceExhaustedError, match=reason):
                save_value(tmp_path / "m", 2.0, NEXT_SAVE)
        assert saved_value(tmp_path / "m") == 1.0
        # What other tasks had written whole is left for the next save.
        left = [name for name in names(tmp_path) if name not in before]
        assert left in ([], of_a_save("m", NEXT_SAVE)[:1], of_a_save("m", NEXT_SAVE)[:2])
        with locate(tmp_path / "m") as prefix:
            sweep(prefix)
        assert names(tmp_path) == before
    save_value(tmp_path / "m", 2.0, NEXT_SAVE)
    assert saved_value(tmp_path / "m") == 2.0


def test_an_error_of_the_disk_at_the_end_of_a_file_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("jflow.state.checkpoint_files.local.os.fsync", fail)
    with pytest.raises(DataLossError, match=r"written after \d+ of \d+ bytes: Input/output error"):
        save(tmp_path / "m", [Item("w", np.ones(3))])
    assert names(tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionDeniedError, match="cannot be created: Permission denied"):
        save(tmp_path / "m", [Item("w", np.ones(3))])

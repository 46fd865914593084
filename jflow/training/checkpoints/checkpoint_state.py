"""The file "checkpoint" of a directory: which checkpoints a saver has kept there.

It has the text form of TensorFlow's `CheckpointState`: a line `model_checkpoint_path: "…"` with the
latest one, and a line `all_model_checkpoint_paths: "…"` for each, from the oldest. It is read and
written on the machine of the client, and replaced at one moment.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from jflow.base.cards import MAX_ROWS, Card, Carded, CardTable
from jflow.base.files import replace_file
from jflow.base.text import age_text
from jflow.errors import OpError
from jflow.state.checkpoint_files import delete, exists, local_path, locate

_LOG = logging.getLogger(__name__)

STATE_FILE = "checkpoint"
"""The name of the file unless another one is asked for."""

_LATEST, _ALL = "model_checkpoint_path", "all_model_checkpoint_paths"


@dataclass(frozen=True)
class CheckpointState(Carded):
    """The checkpoints of a directory.

    Attributes:
      model_checkpoint_path: the path of the latest one.
      all_model_checkpoint_paths: the paths of all that are kept, from the oldest to the latest.
    """

    model_checkpoint_path: str
    all_model_checkpoint_paths: tuple[str, ...]

    def _card(self) -> Card:
        paths = self.all_model_checkpoint_paths[::-1]
        times = (get_checkpoint_mtimes([path]) for path in paths[:MAX_ROWS])
        now = time.time()
        rows = [
            (path, f"{age_text(now - saved[0])} ago" if saved else "not on this machine")
            for path, saved in zip(paths, times, strict=False)
        ]
        table = CardTable(
            "checkpoints, the latest first", ("path", "saved"), rows, len(paths), is_open=True
        )
        return Card(
            "train.CheckpointState", "", (("latest", self.model_checkpoint_path),), (table,)
        )


def get_checkpoint_state(
    checkpoint_dir: str | os.PathLike[str], latest_filename: str | None = None
) -> CheckpointState | None:
    """Returns the checkpoints that a saver has listed in a directory; None if there is no list.

    Args:
      checkpoint_dir: the directory.
      latest_filename: the name of the list; "checkpoint" if None.

    Raises:
      ValueError: if the list names no latest checkpoint.
    """
    directory = os.fspath(checkpoint_dir)
    path = os.path.join(directory, latest_filename or STATE_FILE)
    try:
        with open(local_path(path), encoding="utf-8") as file:
            fields = _parsed(file.read())
    except (OSError, UnicodeDecodeError):
        return None
    except ValueError as error:
        _LOG.warning("%s: cannot be read: %s", path, error)
        return None
    if not fields[_LATEST]:
        raise ValueError(f"Invalid checkpoint state loaded from {directory}: no {_LATEST}")

    def absolute(name: str) -> str:
        return os.path.join(directory, name)  # an absolute name is returned unchanged

    return CheckpointState(absolute(fields[_LATEST][-1]), tuple(map(absolute, fields[_ALL])))


def latest_checkpoint(
    checkpoint_dir: str | os.PathLike[str], latest_filename: str | None = None
) -> str | None:
    """The path of the latest checkpoint of a directory, for `Saver.restore`; None if there is none.

    Args:
      checkpoint_dir, latest_filename: as for `get_checkpoint_state`.
    """
    state = get_checkpoint_state(checkpoint_dir, latest_filename)
    if state is None:
        return None
    if checkpoint_exists(state.model_checkpoint_path):
        return state.model_checkpoint_path
    _LOG.error("Couldn't match files for checkpoint %s", state.model_checkpoint_path)
    return None


def update_checkpoint_state(
    save_dir: str | os.PathLike[str],
    model_checkpoint_path: str,
    all_model_checkpoint_paths: Sequence[str] | None = None,
    latest_filename: str | None = None,
    *,
    save_relative_paths: bool = False,
) -> None:
    """Writes the list of a directory's checkpoints atomically.

    Args:
      save_dir: the directory.
      model_checkpoint_path: the latest checkpoint.
      all_model_checkpoint_paths: all that are kept, from the oldest; the latest is added if absent.
      latest_filename: the name of the list; "checkpoint" if None.
      save_relative_paths: whether to write absolute paths relative to the directory, too.

    Raises:
      RuntimeError: if the list has the name of the checkpoint.
      OSError: if it cannot be written.
    """
    directory = os.fspath(save_dir)
    path = os.path.join(directory, latest_filename or STATE_FILE)
    if model_checkpoint_path == path:
        raise RuntimeError(
            f"Save path {model_checkpoint_path!r} conflicts with the path used for the checkpoint "
            "state; use a different save path"
        )
    all_paths = list(all_model_checkpoint_paths or ())
    if not all_paths or all_paths[-1] != model_checkpoint_path:
        all_paths.append(model_checkpoint_path)

    def written(name: str) -> str:
        is_rewritten = save_relative_paths if os.path.isabs(name) else not os.path.isabs(directory)
        return os.path.relpath(name, directory or ".") if is_rewritten else name

    lines = [(_LATEST, model_checkpoint_path), *((_ALL, name) for name in all_paths)]
    text = "".join(
        f"{key}: {json.dumps(written(name), ensure_ascii=False)}\n" for key, name in lines
    )
    replace_file(local_path(path), text.encode())


def checkpoint_exists(checkpoint_prefix: str | os.PathLike[str]) -> bool:
    """Returns whether this machine has a checkpoint with that path."""
    try:
        with locate(checkpoint_prefix) as place:
            return exists(place)
    except OpError:
        return False


def get_checkpoint_mtimes(checkpoint_prefixes: Sequence[str]) -> list[float]:
    """Returns when each checkpoint was saved, in seconds since 1970, without those not found."""
    mtimes = []
    for prefix in checkpoint_prefixes:
        with suppress(OSError):
            mtimes.append(os.stat(local_path(f"{prefix}.index")).st_mtime)
    return mtimes


def remove_checkpoint(checkpoint_prefix: str, meta_graph_suffix: str = "meta") -> None:
    """Removes a checkpoint, with the graph in its directory, from this machine.

    Raises:
      NotFoundError: if there is no such directory.
      PermissionDeniedError: if the process may not write there.
    """
    with locate(checkpoint_prefix) as place:
        delete(place)
    with suppress(OSError):
        os.unlink(local_path(f"{checkpoint_prefix}.{meta_graph_suffix}"))


def _parsed(text: str) -> dict[str, list[str]]:
    """Returns the values of each field. Raises ValueError if a line is malformed."""
    fields: dict[str, list[str]] = {_LATEST: [], _ALL: []}
    for number, line in enumerate(text.splitlines(), start=1):
        key, colon, value = line.strip().partition(":")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not colon:
            raise ValueError(f"line {number} is no field: {line!r}")
        if key.strip() in fields:
            read = json.loads(value)
            if not isinstance(read, str):
                raise ValueError(f"line {number}: expected text in quotes, got {value.strip()!r}")
            fields[key.strip()].append(read)
    return fields

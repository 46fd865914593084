"""Looks into checkpoints without a session, with TensorFlow's names."""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np

from jflow.base.cards import MAX_ROWS, Card, Carded, CardTable
from jflow.base.text import bytes_text
from jflow.base.values import Array
from jflow.state.checkpoint_files import Checkpoint, local_path, open_checkpoint
from jflow.training.checkpoints.checkpoint_state import latest_checkpoint

_TENSORFLOW_NAMES = {"float16": "HALF", "float32": "FLOAT", "float64": "DOUBLE"}
"""Dtypes for which TensorFlow's protocol buffers have other names."""


class CheckpointReader(Carded):
    """The tensors of a checkpoint. Its files are open until nothing refers to the reader.

    Args:
      filepattern: the path of the checkpoint, as `Saver.save` has returned it, of jflow or of
        TensorFlow.

    Raises:
      NotFoundError: if there is no such checkpoint.
      DataLossError: if it is damaged.
    """

    def __init__(self, filepattern: str | os.PathLike[str]) -> None:
        self._path = os.fspath(filepattern)
        self._checkpoint: Checkpoint = open_checkpoint(filepattern)
        weakref.finalize(self, self._checkpoint.close)
        keys = self._checkpoint.keys()
        self._infos = {key: self._checkpoint.info(key) for key in keys}

    def __repr__(self) -> str:
        n_tensors = f"{len(self._infos):,} tensor{'s' * (len(self._infos) != 1)}"
        facts = [*([f"step {self._step}"] if self._step else []), n_tensors, self._size]
        return f"<jflow.train.CheckpointReader of {self._path!r}: {', '.join(facts)}>"

    @property
    def _step(self) -> str:
        """The step that `Saver.save` has put at the end of the path; "" if there is none."""
        found = re.search(r"-(\d+)$", self._path)
        return found[1] if found else ""

    @property
    def _size(self) -> str:
        return bytes_text(sum(info.n_bytes for info in self._infos.values()))

    def _card(self) -> Card:
        infos = self._infos.items()
        rows = [(key, str(info.shape), info.dtype) for key, info in islice(infos, MAX_ROWS)]
        own = (("path", self._path), ("step", self._step), ("size", self._size))
        facts = (*own, *self._checkpoint.about.items())
        table = CardTable("tensors", ("name", "shape", "dtype"), rows, len(infos), is_open=True)
        return Card("train.CheckpointReader", "", facts, (table,))

    def get_variable_to_shape_map(self) -> Mapping[str, list[int]]:
        """Returns the shape of each tensor, by name."""
        return {key: [*info.shape] for key, info in self._infos.items()}

    def get_variable_to_dtype_map(self) -> Mapping[str, str]:
        """Returns the name of the dtype of each tensor, by name."""
        return {key: info.dtype for key, info in self._infos.items()}

    def has_tensor(self, tensor_str: str) -> bool:
        """Returns whether there is a tensor of that name."""
        return tensor_str in self._infos

    def get_tensor(self, tensor_str: str) -> Array:
        """Returns a tensor as a NumPy array: an int4 as int8, random keys as their data.

        Raises:
          NotFoundError: if there is none of that name.
          DataLossError: if the file is damaged.
          UnimplementedError: if it has a dtype of TensorFlow's that jflow lacks.
        """
        return self._checkpoint.read(tensor_str)

    def debug_string(self) -> bytes:
        """A line for each tensor, by name: its name, dtype and shape, as TensorFlow writes them."""
        lines = []
        for key, one in sorted(self._infos.items()):
            dtype = _TENSORFLOW_NAMES.get(one.dtype, one.dtype.upper())
            lines.append(f"{key} (DT_{dtype}) [{','.join(map(str, one.shape))}]\n")
        return "".join(lines).encode()


def NewCheckpointReader(filepattern: str | os.PathLike[str]) -> CheckpointReader:  # noqa: N802
    """Returns a `CheckpointReader`, under the name that TensorFlow gives it."""
    return CheckpointReader(filepattern)


def load_checkpoint(ckpt_dir_or_file: str | os.PathLike[str]) -> CheckpointReader:
    """Returns a reader of a checkpoint, or of the latest one of a directory.

    Raises:
      ValueError: if a directory has none.
      NotFoundError: if there is no such checkpoint.
    """
    return CheckpointReader(checkpoint_path(ckpt_dir_or_file))


def checkpoint_path(ckpt_dir_or_file: str | os.PathLike[str]) -> str:
    """Returns the path of a checkpoint, or of the latest one of a directory.

    Raises:
      ValueError: if a directory has none.
    """
    path = os.fspath(ckpt_dir_or_file)
    if not os.path.isdir(local_path(path)):
        return path
    latest = latest_checkpoint(path)
    if latest is None:
        raise ValueError(
            f"Couldn't find 'checkpoint' file or checkpoints in given directory {path}"
        )
    return latest


def list_variables(ckpt_dir_or_file: str | os.PathLike[str]) -> list[tuple[str, list[int]]]:
    """Name and shape of each tensor of a checkpoint, by name. Raises as `load_checkpoint`."""
    return sorted(load_checkpoint(ckpt_dir_or_file).get_variable_to_shape_map().items())


def load_variable(ckpt_dir_or_file: str | os.PathLike[str], name: str) -> np.ndarray[Any, Any]:
    """A tensor of a checkpoint. Raises as `load_checkpoint` and `CheckpointReader.get_tensor`.

    Args:
      ckpt_dir_or_file: a directory, or the path of a checkpoint.
      name: its name, with or without TensorFlow's ":0".
    """
    return load_checkpoint(ckpt_dir_or_file).get_tensor(name.removesuffix(":0"))

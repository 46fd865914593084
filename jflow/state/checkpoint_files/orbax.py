"""Reads and writes checkpoints of Orbax, with the package `orbax-checkpoint`.

The keys of tensors are the paths of a tree: `{"layer": {"kernel": …}}` has the key "layer/kernel".
"""

from __future__ import annotations

import errno
import glob
import os
import shutil
from collections.abc import Collection
from typing import Any

import jax
import numpy as np

from jflow.base.values import NUMBERS, Array, TensorSpec, from_physical, string, to_physical
from jflow.errors import AlreadyExistsError, DataLossError, InvalidArgumentError
from jflow.state.checkpoint_files.checkpoint import Checkpoint, SavedTensor
from jflow.state.checkpoint_files.regions import TensorBox
from jflow.state.checkpoint_files.remote import SEPARATOR
from jflow.state.records.extras import needed
from jflow.state.records.failures import failure

_TREE, _ITEM = "_METADATA", "default"
_UNFINISHED = ".orbax-checkpoint-tmp"
"""What Orbax appends to the name of a directory until all is in it."""


class OrbaxCheckpoint(Checkpoint):
    """An open checkpoint of Orbax, by a `StandardCheckpointer`, `PyTreeCheckpointer` or manager.

    A tensor is read as a whole, also for a region of it. Orbax's files have no states.

    Args:
      path: its directory, as `item_of` gives it.

    Raises:
      DataLossError: if Orbax cannot read it.
      UnimplementedError: if the package is not installed.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.about = {}
        self._orbax = _package(f"{path!r} is a checkpoint of Orbax, which")
        self._handler: Any = self._orbax.Checkpointer(self._orbax.PyTreeCheckpointHandler())
        try:
            metadata = self._handler.metadata(path).item_metadata
        except Exception as error:
            raise DataLossError(f"Orbax cannot read {path!r}: {error}") from error
        if metadata is None:
            raise DataLossError(f"Orbax cannot read {path!r}: its metadata are damaged")
        leaves, self._structure = jax.tree_util.tree_flatten_with_path(metadata.tree)
        self._names = [
            jax.tree_util.keystr(where, simple=True, separator="/") for where, _ in leaves
        ]
        self._tensors: dict[str, SavedTensor] = {
            name: _saved_tensor(leaf.shape, np.dtype(leaf.dtype))
            for name, (_, leaf) in zip(self._names, leaves, strict=True)
        }

    def verify(self) -> None:
        for key in self._tensors:
            self._restore_tensor(key)

    def close(self) -> None:
        self._handler.close()

    def _info(self, key: str) -> SavedTensor:
        return self._tensors[key]

    def _read(self, key: str, info: SavedTensor, box: TensorBox, target: Array) -> None:
        target[...] = to_physical(self._restore_tensor(key))[box.index]

    def _restore_tensor(self, key: str) -> Array:
        """Restores one tensor through Orbax, leaving out all others."""
        leaves = [0 if name == key else self._orbax.PLACEHOLDER for name in self._names]
        tree = jax.tree_util.tree_unflatten(self._structure, leaves)
        options = self._orbax.RestoreArgs(restore_type=np.ndarray)
        arguments = self._orbax.args.PyTreeRestore(
            item=tree, restore_args=jax.tree.map(lambda _: options, tree)
        )
        try:
            values = jax.tree.leaves(self._handler.restore(self.path, args=arguments))
        except Exception as error:
            raise DataLossError(f"Orbax cannot read {key!r} of {self.path!r}: {error}") from error
        return np.asarray(values[self._names.index(key)], NUMBERS[self._tensors[key].dtype])


def write_orbax(
    checkpoint: Checkpoint, directory: str | os.PathLike[str], keys: Collection[str] | None = None
) -> None:
    """Writes the tensors of a checkpoint as an Orbax checkpoint, a tree of dicts.

    All of them are in memory at once. Random keys are written as their data.

    Args:
      checkpoint: the checkpoint.
      directory: the directory to make.
      keys: which tensors; all if None. A key "a/b" becomes `{"a": {"b": …}}`.

    Raises:
      AlreadyExistsError: if the directory exists.
      InvalidArgumentError: if Orbax has no form for a tensor: it has strings or no elements, or its
        key is the beginning of another one.
      NotFoundError: if there is no tensor of a key.
      ResourceExhaustedError: if the disk is full; nothing is left of it.
      UnimplementedError: if the package is not installed.
    """
    package = _package("writing a checkpoint of Orbax")
    path = os.fspath(directory)
    if SEPARATOR not in path:
        path = os.path.abspath(path)
        if os.path.lexists(path):
            raise AlreadyExistsError(f"{path!r} exists already; Orbax makes a new directory")
    tree: dict[str, Any] = {}
    for key in checkpoint.keys() if keys is None else sorted(keys):
        *outer, name = key.split("/")
        inner = tree
        for one in outer:
            inner = inner.setdefault(one, {})
            if not isinstance(inner, dict):
                raise InvalidArgumentError(
                    f"{key!r} cannot be in a tree that has {one!r} as a leaf"
                )
        if name in inner:
            raise InvalidArgumentError(f"{key!r} cannot be a leaf of a tree that has keys below it")
        inner[name] = _value(checkpoint, key)
    try:
        # In the background it would wait for minutes for a directory that cannot be made.
        options = package.AsyncOptions(create_directories_asynchronously=False)
        with package.StandardCheckpointer(async_options=options) as writer:
            writer.save(path, tree)
    except (ValueError, OSError) as error:
        for left in glob.glob(f"{glob.escape(path)}{_UNFINISHED}*"):
            shutil.rmtree(left, ignore_errors=True)
        if os.strerror(errno.ENOSPC) in str(error):
            full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            raise failure(full, path, "written by Orbax") from error
        raise InvalidArgumentError(f"Orbax cannot write {path!r}: {error}") from error


def item_of(directory: str) -> str | None:
    """Returns the tree's directory in a local Orbax checkpoint; None if it is not one.

    A manager's step has the tree in a directory "default".
    """
    for path in (directory, os.path.join(directory, _ITEM)):
        if os.path.isfile(os.path.join(path, _TREE)):
            return os.path.abspath(path)
    return None


def _value(checkpoint: Checkpoint, key: str) -> Any:
    info = checkpoint.info(key)
    if info.stored == string.name:
        raise InvalidArgumentError(
            f"{key!r} has strings, which Orbax's format lacks; choose the other keys with `keys`"
        )
    array = checkpoint.read(key)
    return np.asarray(from_physical(array, NUMBERS.get(info.dtype, array.dtype)))


def _saved_tensor(shape: Any, dtype: np.dtype[Any]) -> SavedTensor:
    stored = TensorSpec((), dtype).physical.dtype.name
    return SavedTensor(dtype.name, tuple(shape), stored)


def _package(what: str) -> Any:
    return needed("orbax.checkpoint", "orbax", what)

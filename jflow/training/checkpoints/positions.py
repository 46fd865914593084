"""Positions of iterators in checkpoints: JSON, among the texts of the manifest."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

from jflow.client.ops import Variable
from jflow.errors import DataLossError, InvalidArgumentError, NotFoundError
from jflow.state.checkpoint_files import open_checkpoint

_PREFIX = "jflow.iterator/"

MAX_POSITION_BYTES = 1 << 19
"""What the positions of a checkpoint may take in all, in bytes of JSON."""


@runtime_checkable
class SavableIterator(Protocol):
    """An iterator whose position is made of JSON types, such as `jflow.data.DatasetIterator`."""

    def get_state(self) -> Any:
        """Returns the position, from which an equal iterator goes on."""

    def set_state(self, state: Any, /) -> object:
        """Sets the position."""


def apart(var_list: Any) -> tuple[Any, dict[str, SavableIterator]]:
    """Separates the iterators from the other values of a list or dict.

    Args:
      var_list: what `train.Saver` takes.

    Returns:
      All else, in a list or dict as before, and the iterators by key: that of the dict, or their
      number among the iterators of the list.
    """
    if isinstance(var_list, Mapping):
        by_key = {str(key): one for key, one in var_list.items() if is_savable(one)}
        return {key: one for key, one in var_list.items() if not is_savable(one)}, by_key
    if is_savable(var_list) or not isinstance(var_list, Iterable):
        return var_list, {}
    if isinstance(var_list, str | Variable):
        return var_list, {}
    listed = [*var_list]
    iterators = [one for one in listed if is_savable(one)]
    rest = [one for one in listed if not is_savable(one)]
    return rest, {str(number): one for number, one in enumerate(iterators)}


def is_savable(value: object) -> bool:
    """Returns whether a value is an iterator with a position."""
    return isinstance(value, SavableIterator) and not isinstance(value, type)


def texts(iterators: Mapping[str, SavableIterator]) -> dict[str, str]:
    """Returns the positions of iterators, as texts of a checkpoint.

    Raises:
      InvalidArgumentError: if one is not of JSON types, or they are too long.
      FailedPreconditionError: if an iterator is closed.
    """
    by_key = {_PREFIX + key: _text(key, one.get_state()) for key, one in iterators.items()}
    n_bytes = sum(len(text.encode()) for text in by_key.values())
    if n_bytes > MAX_POSITION_BYTES:
        raise InvalidArgumentError(
            f"the positions of {[*iterators]} take {n_bytes} bytes of JSON, of at most "
            f"{MAX_POSITION_BYTES} in a checkpoint; save them in files of their own"
        )
    return by_key


@contextmanager
def restored(
    path: str | os.PathLike[str], iterators: Mapping[str, SavableIterator]
) -> Iterator[None]:
    """Returns a context manager that sets iterators to their positions in a checkpoint.

    If one of them cannot, or the block fails, all are where they were.

    Args:
      path: the checkpoint, as this process sees it.
      iterators: by their keys.

    Raises:
      DataLossError: if the manifest is damaged, or a position is not JSON.
      NotFoundError: if there is no such checkpoint, or it lacks a key.
      OpError: as `set_state` of an iterator, for the position of another pipeline for instance.
    """
    positions = _positions(os.fspath(path), iterators) if iterators else {}
    before = {key: iterators[key].get_state() for key in positions}
    moved: list[str] = []
    try:
        for key, position in positions.items():
            iterators[key].set_state(position)
            moved.append(key)
        yield
    except BaseException:
        for key in moved:
            iterators[key].set_state(before[key])
        raise


def _text(key: str, position: Any) -> str:
    try:
        return json.dumps(position)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"the position of iterator {key!r} cannot be saved, because it is not JSON: {error}"
        ) from None


def _positions(path: str, keys: Iterable[str]) -> dict[str, Any]:
    with open_checkpoint(path) as checkpoint:
        about = checkpoint.about
    positions = {}
    for key in keys:
        if _PREFIX + key not in about:
            there = sorted(name.removeprefix(_PREFIX) for name in about if name.startswith(_PREFIX))
            raise NotFoundError(
                f"iterator {key!r} not found in checkpoint {path!r}; it has "
                f"{there or 'no positions of iterators'}",
                op=key,
            )
        try:
            positions[key] = json.loads(about[_PREFIX + key])
        except ValueError as error:
            raise DataLossError(
                f"the position of iterator {key!r} in {path!r} is not JSON: {error}"
            ) from None
    return positions

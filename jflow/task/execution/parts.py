"""Host functions on the rows of partitioned tables.

`split_ids` divides the wanted ids among the parts of a table, so that each part gathers only its
own rows; `stitch_rows` puts the rows in the order of the ids, and `split_rows`, its transpose,
divides rows among the parts again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from jflow.base.values import Array, assigned_parts
from jflow.errors import InvalidArgumentError

_MIN_ROWS = 8
"""At least so many rows are gathered at once."""


def padded_size(n: int) -> int:
    """Rounds n rows up by at most a quarter or 7 rows, so that few sizes are compiled."""
    step = 1 << max(n.bit_length() - 3, 3)
    return max(-(-n // step) * step, _MIN_ROWS)


def _split_ids(ids: Array, *, sizes: list[int], strategy: str) -> Sequence[Array]:
    """Returns the row indices of each part, i32[k_i], then their positions in the ids, i32[k_i].

    They are padded with indices beyond the rows of the part, and with positions of -1. An
    id that is out of range is an index beyond the rows of the first part.

    Args:
      ids: integers of any shape.
      sizes: the number of rows of each part.
      strategy: "mod" or "div", see `embedding_lookup`.
    """
    flat = ids.reshape(-1).astype(np.int64)
    part, row = assigned_parts(flat, sizes, strategy, np)
    is_outside = part == len(sizes)
    part, row = np.where(is_outside, 0, part), np.where(is_outside, sizes[0], row)
    order = np.argsort(part, kind="stable")
    ends = np.cumsum(np.bincount(part, minlength=len(sizes)))[:-1]
    rows, places = [], []
    for size, at in zip(sizes, np.split(order, ends), strict=True):
        n_padding = padded_size(len(at)) - len(at)
        rows.append(np.pad(row[at], (0, n_padding), constant_values=size).astype(np.int32))
        places.append(np.pad(at, (0, n_padding), constant_values=-1).astype(np.int32))
    return [*rows, *places]


def _stitch_rows(ids: Array, *values: Array) -> Sequence[Array]:
    """Puts the rows of all parts at their positions: returns T[*ids.shape, *row].

    Args:
      ids: of which only the shape counts.
      values: for each part the positions, i32[k_i], then for each part the rows, T[k_i, *row].
    """
    places, rows = values[: len(values) // 2], values[len(values) // 2 :]
    stitched = np.empty((ids.size, *rows[0].shape[1:]), rows[0].dtype)
    for at, own_rows in zip(places, rows, strict=True):
        used = _used_places(at, ids.size)
        stitched[used] = own_rows[: len(used)]
    return (stitched.reshape(*ids.shape, *rows[0].shape[1:]),)


def _split_rows(ids: Array, rows: Array, *places: Array) -> Sequence[Array]:
    """Divides rows among the parts by position: returns T[k_i, *row] each, padded with zeros.

    Args:
      ids: of which only the shape counts.
      rows: T[*ids.shape, *row].
      places: for each part the positions, i32[k_i].
    """
    flat = rows.reshape(ids.size, *rows.shape[ids.ndim :])
    split = []
    for at in places:
        used = _used_places(at, ids.size)
        own_rows = np.zeros((len(at), *flat.shape[1:]), rows.dtype)
        own_rows[: len(used)] = flat[used]
        split.append(own_rows)
    return split


def _used_places(places: Array, n: int) -> Array:
    """Returns the positions before the padding."""
    used = places[places >= 0]
    if len(used) and used.max() >= n:
        raise InvalidArgumentError(f"position {used.max()} is beyond the {n} ids")
    return used


PART_FUNCTIONS: Mapping[str, Callable[..., Sequence[Array]]] = {
    "split_ids": _split_ids,
    "stitch_rows": _stitch_rows,
    "split_rows": _split_rows,
}

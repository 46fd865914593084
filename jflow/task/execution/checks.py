"""Host functions that check values in a step, or print them on the task that has them."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from jflow.base.values import Array, is_string_tensor
from jflow.errors import InvalidArgumentError

_N_SHOWN = 3
"""The elements of a value that are shown by default, as in TensorFlow."""
_MAX_COUNTED = 1000
"""At most so many operations are counted: their keys are the client's, without end."""
_MAX_KEY = 64
"""The characters of a key that count; those of `jflow.Print` have 16."""
_COUNTED: OrderedDict[str, int] = OrderedDict()
"""How often each operation with a limit was run, the one that ran last at the end."""
_COUNTING = threading.Lock()
_INT32 = np.iinfo(np.int32)


def assert_true(
    condition: Array, *data: Array, texts: list[str | None], summarize: int | None = None
) -> Sequence[Array]:
    """Raises InvalidArgumentError with the data unless all elements of the condition are true.

    Args:
      condition: bool[...].
      data: the values to show.
      texts: what the message consists of: texts, and None for each of the data in order.
      summarize: the elements of each value to show; None for 3.
    """
    if np.all(condition):
        return ()
    raise InvalidArgumentError(f"assertion failed: {_shown(texts, data, summarize)}")


def print_values(
    *data: Array, texts: list[str | None], summarize: int | None = None, first_n: int, key: str
) -> Sequence[Array]:
    """Writes values to the standard error of this task, in one line.

    Characters that are not printable are escaped, so that no value looks like lines of the task.

    Args:
      data, texts, summarize: as for `assert_true`.
      first_n: how often; negative for each time.
      key: identifies the operation, to count how often.
    """
    if first_n < 0 or _counted(key) <= first_n:
        sys.stderr.write(_escaped(_shown(texts, data, summarize)) + "\n")
        sys.stderr.flush()
    return ()


def to_int32(value: Array) -> Sequence[Array]:
    """Returns integers as int32. Raises InvalidArgumentError for those beyond its range.

    Args:
      value: i64[...].
    """
    is_beyond = (value < _INT32.min) | (value > _INT32.max)
    if np.any(is_beyond):
        raise InvalidArgumentError(
            f"{value[is_beyond][0]} is out of the range of int32; call "
            "jax.config.update('jax_enable_x64', True) before building the graph"
        )
    return (value.astype(np.int32),)


def _counted(key: str) -> int:
    """Returns how often an operation was run, with this time."""
    key = key[:_MAX_KEY]
    with _COUNTING:
        n = _COUNTED[key] = _COUNTED.pop(key, 0) + 1
        while len(_COUNTED) > _MAX_COUNTED:
            _COUNTED.popitem(last=False)
    return n


def _escaped(text: str) -> str:
    """Returns a text without characters that end a line or that a terminal obeys."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _shown(texts: Sequence[str | None], data: Sequence[Array], summarize: int | None) -> str:
    values = iter(data)
    n = _N_SHOWN if summarize is None else summarize
    parts = (_text(next(values), n) if text is None else f"[{text}]" for text in texts)
    return " ".join(parts)


def _text(value: Array, n: int) -> str:
    flat = value.reshape(-1)
    shown = flat if n < 0 else flat[:n]
    items = shown.tolist()
    if is_string_tensor(value):
        items = [item.decode(errors="backslashreplace") for item in items]
    rest = "..." if len(items) < len(flat) else ""
    return f"[{' '.join(map(str, items))}{rest}]"


CHECKS: Mapping[str, Callable[..., Sequence[Array]]] = {
    "assert_true": assert_true,
    "print_values": print_values,
    "to_int32": to_int32,
}

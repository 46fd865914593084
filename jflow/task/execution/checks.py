"""Host functions that check values in a step, or print them on the task that has them."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from jflow.base.values import Array, is_string_tensor
from jflow.errors import InvalidArgumentError

_N_SHOWN = 3
"""The elements of a value that are shown unless told otherwise, as in TensorFlow."""
_COUNTED: Counter[str] = Counter()
_COUNTING = threading.Lock()


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
    """Writes values to the standard error of this task.

    Args:
      data, texts, summarize: as for `assert_true`.
      first_n: how often; negative for each time.
      key: identifies the operation, to count how often.
    """
    with _COUNTING:
        _COUNTED[key] += 1
        is_over = 0 <= first_n < _COUNTED[key]
    if not is_over:
        sys.stderr.write(_shown(texts, data, summarize) + "\n")
        sys.stderr.flush()
    return ()


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
}

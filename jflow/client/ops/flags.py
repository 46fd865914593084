"""Flags that programs for TensorFlow pass to operations on variables."""

from __future__ import annotations

from typing import Any


def check_flag(name: str, value: Any) -> None:
    """Raises TypeError unless an argument is True, False or None, TensorFlow's default.

    `use_locking` says whether an update is atomic; all are, so it is without effect.
    """
    if not isinstance(value, bool | None):
        raise TypeError(f"{name} must be True, False or None, got {value!r:.80}")

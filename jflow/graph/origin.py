"""Which line of the user's program made an operation."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType

import jax

_OURS = tuple(
    os.path.dirname(os.path.abspath(path)) + os.sep
    for path in (jax.__file__, os.path.join(os.path.dirname(__file__), os.pardir, "__init__.py"))
)

Place = tuple[CodeType, int]


def user_place() -> Place | None:
    """The innermost running frame outside jflow and JAX: its code and line number."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_OURS):
            return frame.f_code, frame.f_lineno
        frame = frame.f_back
    return None


def describe(place: Place | None) -> str:
    """The place as "file:line in function", "" for None."""
    if place is None:
        return ""
    code, line = place
    return f"{code.co_filename}:{line} in {code.co_name}"

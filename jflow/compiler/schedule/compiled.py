"""Compiles inner loops by Numba where it is installed (the extra `fast`)."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any


@cache
def can_compile() -> bool:
    """Whether Numba is installed; to find out does not import it."""
    return importlib.util.find_spec("numba") is not None


@cache
def compiled(
    function: Callable[..., Any], helpers: tuple[Callable[..., Any], ...]
) -> Callable[..., Any]:
    """A function compiled at its first call, for the types of its arguments.

    Machine code is kept beside the source, or in the user's cache folder, for later processes.

    Args:
      function: what to compile.
      helpers: functions that it calls.
    """
    numba = importlib.import_module("numba")
    extending = importlib.import_module("numba.extending")
    for helper in helpers:
        extending.register_jitable(helper)
    made: Callable[..., Any] = numba.njit(cache=True)(function)
    return made

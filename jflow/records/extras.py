"""Packages that only some formats need."""

from __future__ import annotations

import importlib
from typing import Any

from jflow.errors import UnimplementedError


def needed(module: str, extra: str, what: str) -> Any:
    """A module of a package that may not be installed.

    Args:
      module: its name.
      extra: which extra of jflow brings it.
      what: what it is for.

    Raises:
      UnimplementedError: if it is not installed; the message says how to.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UnimplementedError(
            f"{what} needs a package that is not installed on this task ({error}); "
            f"pip install 'jflow[{extra}]'"
        ) from error

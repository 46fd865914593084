"""Imports of optional packages that only some formats require."""

from __future__ import annotations

import importlib
from typing import Any

from jflow.errors import UnimplementedError


def needed(module: str, extra: str, what: str) -> Any:
    """Imports a module of an optional package.

    Args:
      module: name of the module.
      extra: extra of jflow that installs the package.
      what: the feature that requires it, for the message.

    Raises:
      UnimplementedError: if the package is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UnimplementedError(
            f"{what} requires a package that is not installed on this task ({error}); "
            f"pip install 'jflow[{extra}]'"
        ) from error

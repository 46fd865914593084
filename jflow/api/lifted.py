"""Modules that offer a namespace of JAX on graph tensors, such as `jflow.numpy`."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import jflow.api.root  # noqa: F401 - tracebacks end at the methods of the tensors that come back
from jflow.ops import Lifted
from jflow.tracebacks import hide_frames


def lifted(
    namespace: dict[str, Any], module: ModuleType
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__getattr__` and `__dir__` of a module that offers functions of JAX on tensors.

    Args:
      namespace: globals of the offering module; names stay there once they are used.
      module: the namespace of JAX.
    """
    names = Lifted(module)

    def get(name: str) -> Any:
        try:
            value = getattr(names, name)
        except AttributeError as error:
            hide_frames(error)
            raise
        namespace[name] = value
        return value

    return get, names.__dir__

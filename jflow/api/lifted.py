"""JAX's namespaces for graph tensors: `jflow.numpy.dot(x, w)` adds an operation to their graph."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import jflow.api.root  # noqa: F401 - makes tracebacks end at methods of the returned tensors
from jflow.api.missing import missing
from jflow.base.tracebacks import hide_frames
from jflow.client.ops.lift import lift


def lift_namespace(
    namespace: dict[str, Any], module: ModuleType
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__getattr__` and `__dir__` of a module that lifts a namespace of JAX.

    Args:
      namespace: globals of the module, where names are kept once they are used.
      module: the namespace of JAX.
    """
    names = LiftedNamespace(module)

    def get(name: str) -> Any:
        try:
            value = getattr(names, name)
        except AttributeError as error:
            hide_frames(error)
            raise
        namespace[name] = value
        return value

    return get, names.__dir__


class LiftedNamespace:
    """A namespace of JAX whose functions also take graph tensors; see `lift`.

    Namespaces inside it are lifted too. Everything else (dtypes, constants, classes) is JAX's own.
    """

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            # Given JAX's __path__, Python would import JAX's own modules as submodules of this one.
            raise AttributeError(f"{self!r} has no attribute {name!r}")
        try:
            value = getattr(self._module, name)
        except AttributeError:
            public = self._module.__name__.replace("jax", "jflow", 1)
            raise missing(public, name, dir(self)) from None
        if isinstance(value, ModuleType):
            value = LiftedNamespace(value)
        elif _is_function(value):
            value = lift(value)
        # Later lookups find it here, without another call of __getattr__.
        self.__dict__[name] = value
        return value

    def __repr__(self) -> str:
        return f"<{self._module.__name__} for jflow tensors and variables>"

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._module) if not name.startswith("_")]


def _is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, type)

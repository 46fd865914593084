"""Modules whose public names are imported when one of them is first used (PEP 562).

So a process that only runs plans imports `jflow` without the code that builds graphs.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from types import MappingProxyType, ModuleType
from typing import Any

from jflow.api.missing import missing
from jflow.base.tracebacks import hide_frames

_BOUNDARIES = "jflow.api.root"
"""The import of this module makes tracebacks end at methods of tensors, variables and sessions."""

_IMPORTING = threading.RLock()
"""Held while importing: two threads that import packages which import each other could otherwise
see them half initialized."""


def on_first_use(
    namespace: dict[str, Any],
    source: str,
    modules: Iterable[str] = (),
    starred: Iterable[str] = (),
    others: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__getattr__` and `__dir__` of a module that re-exports the names of another one.

    The first use of such a name imports `source` and copies all of its public names, so that later
    uses are plain attribute lookups. Submodules are imported when they are used.

    Args:
      namespace: globals of the module.
      source: full name of the module with the names.
      modules: the public submodules; `dir` lists no others.
      starred: those of them that `import *` imports.
      others: names whose modules are imported when they themselves are used, and these modules:
        those that import much which other names do not need.
    """
    module: str = namespace["__name__"]

    def names() -> dict[str, Any]:
        with _IMPORTING:
            importlib.import_module(_BOUNDARIES)
            exports = vars(importlib.import_module(source))
        return {name: value for name, value in exports.items() if _is_public(name)}

    def find(name: str) -> Any:
        submodule = f"{module}.{name}"
        if "__path__" in namespace and find_spec(submodule):
            with _IMPORTING:
                return importlib.import_module(submodule)
        if name in others:
            with _IMPORTING:
                importlib.import_module(_BOUNDARIES)
                namespace[name] = getattr(importlib.import_module(others[name]), name)
            return namespace[name]
        namespace.update(names())
        if name not in namespace:
            raise missing(module, name, list_names())
        return namespace[name]

    def get(name: str) -> Any:
        if name == "__all__":  # of `from jflow import *`
            return [*dict.fromkeys((*_own_names(namespace), *names(), *others, *starred))]
        if name.startswith("_"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        try:
            return find(name)
        except Exception as error:
            hide_frames(error)
            raise

    def list_names() -> list[str]:
        special = (name for name in namespace if name.startswith("__"))
        listed = (*special, *_own_names(namespace), *names(), *others, *modules)
        return [*dict.fromkeys(listed)]

    return get, list_names


def _own_names(namespace: dict[str, Any]) -> list[str]:
    """Returns the public names that a module has already, without its submodules."""
    public = filter(_is_public, namespace)
    return [name for name in public if not isinstance(namespace[name], ModuleType)]


def _is_public(name: str) -> bool:
    return not name.startswith("_") and name != "TYPE_CHECKING"

"""Error messages for missing names: what to use in place of a name of TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, NoReturn

from jflow.api.absent import ABSENT
from jflow.base.suggestions import did_you_mean

# Imported for a message only: a program that starts a cluster needs no JAX itself.
_NAMESPACES = {
    "jflow": "jflow.api.root",
    "jflow.numpy": "jax.numpy",
    "jflow.nn": "jax.nn",
    "jflow.lax": "jax.lax",
    "jflow.random": "jax.random",
}


def refuse_missing(namespace: Mapping[str, Any]) -> Callable[[str], NoReturn]:
    """Returns `__getattr__` of a public module, which says what to use instead of a missing name.

    Args:
      namespace: globals of the module.
    """

    def get(name: str) -> NoReturn:
        raise missing(namespace["__name__"], name, namespace)

    return get


def missing(module: str, name: str, present: Iterable[str]) -> AttributeError:
    """Returns the error for a name that a public module does not have, with what to use instead.

    Args:
      module: the name of the module, such as "jflow".
      name: the missing name.
      present: the names that the module has.
    """
    instead = ABSENT.get(f"{module}.{name}")
    advice = f"; {instead}" if instead else _advice(name, present)
    return AttributeError(f"module {module!r} has no attribute {name!r}{advice}")


def _advice(name: str, present: Iterable[str]) -> str:
    if name.startswith("_"):
        return ""
    for ours, theirs in _NAMESPACES.items():
        if name in vars(import_module(theirs)):
            return f"; use {ours}.{name}"
    return did_you_mean(name, (each for each in present if not each.startswith("_")))

"""The versions of JAX that jflow is tested with, and a warning about newer ones.

jflow takes some names of JAX that are not public (docs/jax_versions.md). They are looked up when
this room is imported, so that one that is missing is reported then, by its name.
"""

from __future__ import annotations

import importlib
import re
import warnings

import jax

OLDEST = "0.10.2"
"""The lower bound of `pyproject.toml`."""

NEWEST = "0.12"
"""The newest version that all tests have passed with; releases of its fixes count as tested."""


def is_newer(version: str) -> bool:
    """Whether a version of JAX is newer than those that jflow is tested with."""
    return _minor(version) > _minor(NEWEST)


def _minor(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def _tested(version: str) -> str:
    return f"jflow was tested with JAX {OLDEST} to {NEWEST}; this is JAX {version}"


def _older() -> str:
    major, minor = _minor(NEWEST)
    return f"install 'jax<{major}.{minor + 1}'"


def check(version: str) -> None:
    """Warns if JAX is newer than tested, and checks that the names used of it exist.

    Raises:
      ImportError: if JAX has not all names that jflow takes from it.
    """
    if is_newer(version):
        warnings.warn(
            f"{_tested(version)}, which may differ in what is not public; if something fails, "
            f"{_older()} and report it",
            stacklevel=2,
        )
    try:
        importlib.import_module("jflow.plan.xla.internals")
    except (AttributeError, ImportError) as error:
        raise ImportError(
            f"{_tested(version)}, which has not all names that jflow takes from it ({error}); "
            f"{_older()}"
        ) from error


check(jax.__version__)

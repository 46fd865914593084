"""The file in which `jflow calibrate` keeps what it measured, and what sessions read of it.

A calibration that is missing is silent: the prior is used. One that cannot be read, is old, or was
made on another machine or with another jaxlib is not used either; a warning says why, once. One
whose own checks are far off is used, with a warning.
"""

from __future__ import annotations

import functools
import logging
import os
import platform
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

from jflow.base.files import replace_file
from jflow.base.machine import n_cores, processor_name
from jflow.compiler.placement.calibration import PRIOR, Calibration, Machine
from jflow.errors import InvalidArgumentError, NotFoundError

_LOG = logging.getLogger(__name__)

VARIABLE = "JFLOW_CALIBRATION"
"""The environment variable with the path of another calibration file."""

MAX_AGE_S = 30 * 86_400.0
"""The age up to which a calibration is used, in seconds."""


def cache_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Returns the directory of jflow's caches: $XDG_CACHE_HOME/jflow, by default ~/.cache/jflow."""
    base = environ.get("XDG_CACHE_HOME", "")
    # The XDG base directory specification: relative paths are ignored.
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    return root / "jflow"


def calibration_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Returns the calibration's path: $JFLOW_CALIBRATION, else one in the cache directory."""
    named = environ.get(VARIABLE)
    return Path(named) if named else cache_directory(environ) / "calibration.json"


@functools.cache
def this_machine() -> Machine:
    """Returns the description of this machine that calibrations are compared with."""
    return Machine(platform.node(), processor_name(), n_cores(), version("jax"), version("jaxlib"))


def read_calibration(path: Path, *, now: Callable[[], float] = time.time) -> Calibration:
    """Reads a calibration from a file.

    Args:
      path: the file.
      now: gives seconds since 1970.

    Raises:
      NotFoundError: if there is no such file.
      InvalidArgumentError: if it cannot be read, is too old, or is of another machine or jaxlib.
    """
    repeat = f"run `jflow calibrate --output {path}`"
    try:
        calibration = Calibration.from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no calibration {path}; {repeat}") from error
    except (OSError, UnicodeDecodeError, InvalidArgumentError) as error:
        reason = error.message if isinstance(error, InvalidArgumentError) else error
        raise InvalidArgumentError(
            f"the calibration {path} cannot be read: {reason}; {repeat}, or delete it"
        ) from error
    age = now() - calibration.made
    if age > MAX_AGE_S:
        raise InvalidArgumentError(
            f"the calibration {path} is {age / 86_400:.0f} days old, at most "
            f"{MAX_AGE_S / 86_400:.0f} are allowed; {repeat}"
        )
    reason = (
        "it names no machine"
        if calibration.machine is None
        else calibration.machine.difference(this_machine())
    )
    if reason:
        raise InvalidArgumentError(
            f"the calibration {path} is not of this machine: {reason}; {repeat}"
        )
    return calibration


def write_calibration(calibration: Calibration, path: Path) -> None:
    """Writes a calibration to a file, replacing it atomically.

    Raises:
      OSError: if the file cannot be written.
    """
    write_text(calibration.to_json(), path)


def write_text(text: str, path: Path) -> None:
    """Replaces a file atomically and makes its directory. Raises OSError if that fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text)


def current_calibration(
    path: Path | None = None, *, now: Callable[[], float] = time.time
) -> Calibration:
    """Returns the calibration of this machine; if it is not usable, warns and returns the prior.

    One that is doubtful (`Calibration.doubts`) is used, with a warning too.

    Args:
      path: the file; None for `calibration_path()`.
      now: gives seconds since 1970.
    """
    path = path or calibration_path()
    try:
        changed = path.stat().st_mtime_ns
    except OSError:
        if VARIABLE in os.environ:
            _warn(f"{VARIABLE} names {str(path)!r}, which does not exist")
        return PRIOR
    return _read_once(path, changed, now)


@functools.lru_cache(maxsize=8)
def _read_once(path: Path, changed: int, now: Callable[[], float]) -> Calibration:
    try:
        calibration = read_calibration(path, now=now)
    except (InvalidArgumentError, NotFoundError) as error:
        _warn(error.message)
        return PRIOR
    if calibration.doubts:
        _LOG.warning(
            "the calibration %s is doubtful, and so are placements by it: its own checks are off "
            "(%s); run `jflow calibrate --output %s` when nothing else runs",
            *(path, "; ".join(calibration.doubts), path),
        )
    return calibration


@functools.lru_cache(maxsize=64)
def _warn(message: str) -> None:
    _LOG.warning("%s; until then costs are estimated from a prior", message)

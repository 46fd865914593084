"""Whether the servers of a process compile programs in another one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

import jax

from jflow.errors import InvalidArgumentError, UnimplementedError
from jflow.plan.compiler.requests import PLATFORM

VARIABLE = "JFLOW_COMPILE_APART"


def compiles_apart(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether programs are compiled in a process of its own.

    Raises:
      InvalidArgumentError: if JFLOW_COMPILE_APART is neither 0 nor 1.
    """
    text = environ.get(VARIABLE, "")
    if text not in ("", "0", "1"):
        raise InvalidArgumentError(f"{VARIABLE} must be 0 or 1, got {text!r}")
    return text == "1"


def check_can_compile_apart(devices: Iterable[jax.Device]) -> None:
    """Raises UnimplementedError if another process cannot compile for some of the devices."""
    platforms = sorted({device.platform for device in devices} - {PLATFORM})
    if platforms or jax.process_count() > 1:
        has = f"devices of the platform {', '.join(platforms)}"
        raise UnimplementedError(
            f"--compile-apart ({VARIABLE}=1) is for tasks whose devices are CPUs of their own "
            f"process; this one has {has if platforms else 'devices of several processes of JAX'}. "
            "Start it without"
        )

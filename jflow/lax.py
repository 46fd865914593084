"""`jax.lax` on graph tensors."""

from __future__ import annotations

from typing import Any

import jax.lax

from jflow.ops import Lifted

_LIFTED = Lifted(jax.lax)


def __getattr__(name: str) -> Any:
    return getattr(_LIFTED, name)


def __dir__() -> list[str]:
    return dir(_LIFTED)

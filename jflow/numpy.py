"""`jax.numpy` on graph tensors."""

from __future__ import annotations

from typing import Any

import jax.numpy

from jflow.ops import Lifted
from jflow.tracebacks import hide_frames as _hide_frames

_LIFTED = Lifted(jax.numpy)


def __getattr__(name: str) -> Any:
    try:
        return getattr(_LIFTED, name)
    except AttributeError as error:
        _hide_frames(error)
        raise


def __dir__() -> list[str]:
    return dir(_LIFTED)

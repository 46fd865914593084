"""What registered plans need of the artifacts that were sent with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from jflow.net.protocol import Artifacts


@dataclass
class DroppedError(Exception):
    """A cache evicted an artifact after the worker had found it."""

    digest: str


def sent(artifacts: Artifacts, digest: str) -> Callable[[], np.ndarray[Any, Any]]:
    """What returns an artifact that was sent, or raises DroppedError."""

    def artifact() -> np.ndarray[Any, Any]:
        if digest not in artifacts:
            raise DroppedError(digest)
        return artifacts[digest]

    return artifact

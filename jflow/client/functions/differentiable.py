"""State of which functions get the whole, and derivatives a part."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class Differentiable(ABC):
    """State of which `grad` differentiates with respect to a part.

    Functions get it as it is, as they get variables. The function that is differentiated gets the
    whole, and the gradient has the structure of the part.
    """

    @abstractmethod
    def trainable(self) -> Any:
        """Returns the values of the part: a pytree of floating-point or complex arrays."""

    @abstractmethod
    def with_part(self, part: Any) -> Any:
        """Returns the whole with other values of the part."""

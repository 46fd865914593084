"""Calls of functions of the client in a plan."""

from __future__ import annotations

from typing import Annotated, ClassVar

from jflow.base.packing import Meta, Record
from jflow.base.values import TensorSpec

CALLBACK = "callback"
"""The function of a `Call` that the client of the step computes; see `CallbackAttributes`."""


class CallbackAttributes(Record, frozen=True):
    """Attributes of a `Call` of the function `CALLBACK`.

    Attributes:
      number: by which the client knows the Python function.
      results: what it returns, of dtypes that programs take; None for an unknown size.
      is_conditional: whether the first input says if the function is called; if it is not, the
        results are zeros.
    """

    what: ClassVar[str] = "attributes of a callback"

    number: Annotated[int, Meta(ge=0, le=2**32 - 1)]
    results: tuple[TensorSpec, ...]
    is_conditional: bool = False

"""The attributes of calls of the client's Python functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from jflow.base.packing import Range, Record
from jflow.base.values import TensorSpec


@dataclass(frozen=True)
class CallbackAttributes(Record):
    """The attributes of a `Call` of the function `CALLBACK`.

    Attributes:
      number: by which the client knows the Python function.
      results: what it returns, of dtypes that programs take; None for an unknown size.
      is_conditional: whether the first input says if the function is called; if it is not, the
        results are zeros.
    """

    what: ClassVar[str] = "attributes of a callback"

    number: Annotated[int, Range(0, 2**32 - 1)]
    results: tuple[TensorSpec, ...]
    is_conditional: bool = False

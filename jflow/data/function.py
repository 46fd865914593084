"""Calling a user's function on an element, so that an error says which and where."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jflow.graph.stack import EagerDecoding


def name_of(function: Callable[..., Any]) -> str:
    """The name a user knows a function by: what a saved position calls it, too."""
    if isinstance(function, functools.partial):
        return name_of(function.func)
    return getattr(function, "__name__", type(function).__name__)


class AtElement:
    """Notes on an error in a user's code which transform and which element it was."""

    def __init__(self, transform: str, number: int) -> None:
        self._transform = transform
        self._number = number

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, StopIteration):
            # It would pass for the end of the data.
            raise RuntimeError(
                f"{self._transform} raised StopIteration at element {self._number}"
            ) from error
        if isinstance(error, Exception):
            error.add_note(
                f"in {self._transform} of a dataset, at element {self._number} (counted from 0)"
            )


@dataclass(frozen=True)
class UserCall:
    """A user's function as a transform: tuples are spread over its arguments, as tf.data does.

    Attributes:
      transform: what an error calls it, such as "map(normalise)".
      function: the user's function.
      finish: what is made of its result, inside the same care for errors.
    """

    transform: str
    function: Callable[..., Any]
    finish: Callable[[Any], Any]

    def __call__(self, number: int, element: Any) -> Any:
        with AtElement(self.transform, number), EagerDecoding():
            spread = element if type(element) is tuple else (element,)
            return self.finish(self.function(*spread))

"""Calls of user functions on elements, with notes on errors that say which and where."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jflow.compiler.graph.stack import EagerDecoding


def name_of(function: Callable[..., Any]) -> str:
    """Returns the name of a function for messages and saved positions."""
    if isinstance(function, functools.partial):
        return name_of(function.func)
    return getattr(function, "__name__", type(function).__name__)


class AtElement:
    """Adds a note to errors of user code that names the transform and the element."""

    def __init__(self, transform: str, number: int) -> None:
        self._transform = transform
        self._number = number

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, StopIteration):
            # The iterator around this would take it for the end of the data.
            raise RuntimeError(
                f"{self._transform} raised StopIteration at element {self._number}"
            ) from error
        if isinstance(error, Exception):
            error.add_note(
                f"in {self._transform} of a dataset, at element {self._number} (counted from 0)"
            )


@dataclass(frozen=True)
class UserCall:
    """A user function as a transform; a tuple is passed as separate arguments, as in tf.data.

    Attributes:
      transform: its name in errors, such as "map(normalise)".
      function: the user function.
      finish: converts its result; its errors get the same notes.
    """

    transform: str
    function: Callable[..., Any]
    finish: Callable[[Any], Any]

    def __call__(self, number: int, element: Any) -> Any:
        with AtElement(self.transform, number), EagerDecoding():
            spread = element if type(element) is tuple else (element,)
            return self.finish(self.function(*spread))

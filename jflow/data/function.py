"""Calling a user's function on an element, so that an error says which and where."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


def name_of(function: Callable[..., Any]) -> str:
    """The name a user knows a function by: what a saved position calls it, too."""
    if isinstance(function, functools.partial):
        return name_of(function.func)
    return getattr(function, "__name__", type(function).__name__)


@contextmanager
def at_element(step: str, number: int) -> Iterator[None]:
    """Notes on an error in a user's code which step of the pipeline and which element it was."""
    try:
        yield
    except StopIteration as error:
        # It would pass for the end of the data.
        raise RuntimeError(f"{step} raised StopIteration at element {number}") from error
    except Exception as error:
        error.add_note(f"in {step} of a dataset, at element {number} (counted from 0)")
        raise


@dataclass(frozen=True)
class Call:
    """A user's function as a step: tuples are spread over its arguments, as tf.data does.

    Attributes:
      step: what an error calls it, such as "map(normalise)".
      function: the user's function.
      finish: what is made of its result, inside the same care for errors.
    """

    step: str
    function: Callable[..., Any]
    finish: Callable[[Any], Any]

    def __call__(self, number: int, element: Any) -> Any:
        with at_element(self.step, number):
            spread = element if type(element) is tuple else (element,)
            return self.finish(self.function(*spread))

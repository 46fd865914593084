"""Suggestions in errors: the known names that an unknown name or argument may mean."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from traceback import walk_tb
from typing import Any

_N_COMPARED = 5000
"""The most known names that one name is compared with, which takes 30 ms."""


def nearest(name: str, known: Iterable[str], cutoff: float = 0.75) -> str | None:
    """Returns the known name that is most similar, ignoring case; None if none is similar.

    Of names with scopes, such as "layer/weights", the last part alone is like the whole.

    Args:
      name: the unknown name.
      known: the known ones.
      cutoff: how like they must be, from 0 to 1.
    """
    by_folded = {each.casefold(): each for each in islice(known, _N_COMPARED)}
    matches = get_close_matches(name.casefold(), by_folded, n=1, cutoff=cutoff)
    ending = f"/{name}"
    in_scopes = (each for each in by_folded.values() if each.endswith(ending))
    return by_folded[matches[0]] if matches else next(in_scopes, None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns the end of a message, such as "; did you mean 'loss'?"; "" if no name is similar."""
    closest = nearest(name, known)
    return "" if closest is None else f"; did you mean {closest!r}?"


_UNEXPECTED = re.compile(r".*\(\) got an unexpected keyword argument '(\w+)'")
_UNNAMED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def explain_arguments(error: BaseException, fun: Any) -> None:
    """Adds the parameters of a function to a TypeError about its arguments.

    Args:
      error: what the call raised; other errors stay as they are.
      fun: the function.
    """
    name = getattr(fun, "__qualname__", "")
    if type(error) is not TypeError or not str(error).startswith(f"{name}() "):
        return
    code = getattr(inspect.unwrap(fun), "__code__", None)
    if any(frame.f_code is code for frame, _ in walk_tb(error.__traceback__)):
        return  # the function took its arguments; one of the same name inside of it did not
    parameters = inspect.signature(fun).parameters.values()
    names = [each.name for each in parameters if each.kind not in _UNNAMED]
    takes = ", ".join(name for name in names if name not in ("self", "cls"))
    message = str(error)
    advice = f"; it takes {takes or 'no arguments'}"
    if unexpected := _UNEXPECTED.match(message):
        message, advice = unexpected[0], did_you_mean(unexpected[1], names) or advice
    error.args = (message + advice,)

"""Calls with arguments that a function does not take: what the error says in addition."""

from __future__ import annotations

import inspect
import re
from traceback import walk_tb
from typing import Any

from jflow.base.spelling import did_you_mean

_UNEXPECTED = re.compile(r".*\(\) got an unexpected keyword argument '(\w+)'")
_UNNAMED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def explain_arguments(error: BaseException, fun: Any) -> None:
    """Adds the arguments that a function takes to the error of a call that it does not take.

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
    if found := _UNEXPECTED.match(message):
        message, advice = found[0], did_you_mean(found[1], names) or advice
    error.args = (message + advice,)

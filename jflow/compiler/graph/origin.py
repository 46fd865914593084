"""Where equations come from: the user's lines and named scopes, and names made of these."""

from __future__ import annotations

import os
import re
import sys
from functools import lru_cache
from types import FrameType, TracebackType
from typing import Any

import jax
import jax.extend.core as jex

from jflow.plan.xla import internals

_OURS = tuple(
    os.path.dirname(os.path.abspath(path)) + os.sep
    for path in (
        jax.__file__,
        os.path.join(os.path.dirname(__file__), os.pardir, os.pardir, "__init__.py"),
    )
)

SourceLocation = tuple[str, int, str]
"""File, line and function."""


@lru_cache(maxsize=1)
def _hidden(_: int) -> tuple[str, ...]:
    """Returns path prefixes of files that are not the user's; libraries may add more later."""
    return _OURS + tuple(path for path in internals.hidden_files() if not path.startswith(_OURS))


def user_location() -> SourceLocation | None:
    """Returns the location of the innermost running frame outside jflow and JAX."""
    hidden = _hidden(internals.n_hidden())
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(hidden):
            code = frame.f_code
            return code.co_filename, frame.f_lineno, code.co_name
        frame = frame.f_back
    return None


def location_of(eqn: jex.JaxprEqn) -> SourceLocation | None:
    """Returns the user's location at which JAX traced an equation."""
    hidden = _hidden(internals.n_hidden())
    traceback: Any = eqn.source_info.traceback
    for frame in traceback.frames if traceback is not None else ():
        if not frame.file_name.startswith(hidden):
            return frame.file_name, frame.line_num, frame.function_name
    return None


def location_in(traceback: TracebackType | None) -> SourceLocation | None:
    """Returns the innermost location outside jflow and JAX in the traceback of an error."""
    location, hidden = None, _hidden(internals.n_hidden())
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not code.co_filename.startswith(hidden):
            location = code.co_filename, traceback.tb_lineno, code.co_name
        traceback = traceback.tb_next
    return location


def inside(eqn: jex.JaxprEqn, outer: jex.JaxprEqn) -> jex.JaxprEqn:
    """Returns an equation of a body of `outer`, with the location of `outer` if it has none.

    Inside of a body JAX keeps only frames within the body, which may all belong to a library.
    """
    if location_of(eqn) is not None:
        return eqn
    source = eqn.source_info.replace(traceback=outer.source_info.traceback)
    placed: jex.JaxprEqn = eqn.replace(source_info=source)
    return placed


def with_scope(eqn: jex.JaxprEqn, scope: str) -> jex.JaxprEqn:
    """Returns an equation inside of a named scope, which its derivatives keep."""
    names = type(eqn.source_info.name_stack)()
    source = eqn.source_info.replace(name_stack=names.extend(scope) if scope else names)
    renamed: jex.JaxprEqn = eqn.replace(source_info=source)
    return renamed


def name_of(eqn: jex.JaxprEqn) -> str:
    """Returns the name of an equation's operation: its named scopes and what it computes.

    Those of a backward pass are under "gradients".
    """
    name = name_in_pass(eqn)
    return f"gradients/{name}" if is_backward(eqn) else name


def is_backward(eqn: jex.JaxprEqn) -> bool:
    """Whether an equation is part of a backward pass, which JAX marks in the named scopes."""
    return "transpose(" in str(eqn.source_info.name_stack)


def name_in_pass(eqn: jex.JaxprEqn) -> str:
    """Returns the name of an equation's operation, the same for the forward and backward pass."""
    scopes = re.sub(r"\w+\(|\)", "", str(eqn.source_info.name_stack)).split("/")
    function = eqn.params.get({"jit": "name", "host": "function"}.get(eqn.primitive.name, ""))
    return legal_name("/".join(filter(None, (*scopes, function or eqn.primitive.name))))


def legal_name(name: str) -> str:
    """Returns a name without the characters that are illegal in names of operations."""
    return re.sub(r"[^A-Za-z0-9_.\-/]+", "_", name).strip("_/") or "call"


def line_of(eqn: jex.JaxprEqn) -> str:
    """Returns the user's location of an equation as text; see `location_of`."""
    return describe(location_of(eqn))


def describe(location: SourceLocation | None) -> str:
    """Returns a location as "file:line in function", "" for None."""
    if location is None:
        return ""
    file, line, function = location
    return f"{file}:{line} in {function}"

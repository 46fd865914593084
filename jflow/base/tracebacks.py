"""Tracebacks that end at the user's line: JAX's traceback filtering, extended to jflow's frames.

The setting `jax_traceback_filtering` (JAX_TRACEBACK_FILTERING) holds for both: "off" shows all
frames, "tracebackhide" marks the internal ones for IPython, "remove_frames" removes them and keeps
the whole traceback as the cause, and "quiet_remove_frames" removes them and says so in a note. The
default, "auto", is the last: IPython shows the innermost frame even if it is marked.
"""

from __future__ import annotations

import functools
import inspect
import os
import traceback
from collections.abc import Callable, Iterator
from enum import Enum
from importlib.util import find_spec
from types import FunctionType, TracebackType
from typing import Any, TypeVar

from jflow.base.suggestions import explain_arguments

F = TypeVar("F", bound=Callable[..., Any])


def _folder(path: str) -> str:
    return os.path.dirname(os.path.abspath(path)) + os.sep


def _folder_of(package: str) -> str:
    """Returns the folder of an installed package, without importing it."""
    spec = find_spec(package)
    assert spec is not None
    return _folder(spec.origin or "")


_PACKAGES = os.path.dirname(_folder_of("jax").rstrip(os.sep))
_OURS = (_folder_of("jflow"), _folder_of("jax"), _folder_of("jaxlib"))
_TOOLS = (
    *(os.path.join(_PACKAGES, name) + os.sep for name in ("grain", "grpc")),
    *(_folder_of("numpy"), "<frozen "),
)
_STANDARD = _folder(os.__file__)
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")

_REMOVED = (
    "--------------------\nFor simplicity, jflow has removed internal frames from this traceback. "
    "Set JAX_TRACEBACK_FILTERING=off to include them."
)
_MANY = 4
"""The least number of hidden frames for a note; fewer are the boundary and its helpers."""
_REMOVED_BY_JAX = "For simplicity, JAX has removed its internal frames"

_NOT_WRAPPED = frozenset(
    {
        *("__new__", "__del__", "__init_subclass__", "__subclasshook__", "__class_getitem__"),
        *("__getattribute__", "__getattr__", "__setattr__", "__get__", "__dir__"),
        *("__eq__", "__ne__", "__hash__", "__repr__", "__reduce__"),
    }
)

_CALLED_INSIDE = frozenset(
    {
        *("Graph.add", "Graph.apply", "Graph.as_tensor", "Graph.constant", "Graph.declare"),
        *("Graph.handle_of", "Graph.inline", "Members.tensor_of", "ScopedMembers.unique_name"),
        *("Operation.__init__", "Tensor.__init__", "Tensor.to_tensor", "Variable.to_tensor"),
    }
)
"""Methods without a boundary: jflow calls them for each operation, and users hardly do."""


class UnfilteredStackTrace(Exception):  # noqa: N818 - JAX's name for the same
    """The cause of an exception with a filtered traceback, which carries the whole traceback."""


class _Owner(Enum):
    """The owner of the code that a frame runs."""

    USER = "user"
    OURS = "jflow or JAX"
    TOOL = "what jflow, JAX and users alike call: the standard library, NumPy, gRPC"


@functools.lru_cache(maxsize=4096)
def _owner(filename: str) -> _Owner:
    if filename.startswith(_OURS):
        return _Owner.OURS
    is_installed = any(part in filename for part in _INSTALLED)
    is_standard = filename.startswith(_STANDARD) and not is_installed
    return _Owner.TOOL if is_standard or filename.startswith(_TOOLS) else _Owner.USER


def _split(trace: TracebackType | None) -> Iterator[tuple[TracebackType, bool]]:
    """Yields each traceback entry and whether it is hidden; tools follow their callers."""
    is_hidden = False
    while trace is not None:
        owner = _owner(trace.tb_frame.f_code.co_filename)
        is_hidden = owner is _Owner.OURS or (is_hidden and owner is _Owner.TOOL)
        yield trace, is_hidden
        trace = trace.tb_next


def _without_hidden(trace: TracebackType | None) -> TracebackType | None:
    visible = None
    for entry, is_hidden in reversed([*_split(trace)]):
        if not is_hidden:
            visible = TracebackType(visible, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return visible


def _mark_hidden(trace: TracebackType | None) -> None:
    for entry, is_hidden in _split(trace):
        if is_hidden:
            entry.tb_frame.f_locals["__tracebackhide__"] = True


def hide_frames(error: BaseException) -> None:
    """Hides frames of jflow and JAX from the traceback of an exception that leaves jflow.

    To be called in an `except` block that raises the exception again with a bare `raise`, which
    adds no entry to the traceback.
    """
    import jax  # noqa: PLC0415 - programs that raise nothing may not need it

    mode = getattr(jax.config, "jax_traceback_filtering", "off")
    if mode == "off" or isinstance(error, StopIteration | StopAsyncIteration):
        return
    if mode == "tracebackhide":
        for each in _chain(error):
            _mark_hidden(each.__traceback__)
        return
    if mode == "remove_frames":
        _keep_whole(error)
        error.__traceback__ = _without_hidden(error.__traceback__)
        return
    n_hidden = sum(is_hidden for _, is_hidden in _split(error.__traceback__))
    for each in _chain(error):
        each.__traceback__ = _without_hidden(each.__traceback__)
    is_noted = any(_REMOVED_BY_JAX in n or n == _REMOVED for n in getattr(error, "__notes__", ()))
    if n_hidden >= _MANY and not is_noted:
        error.add_note(_REMOVED)


def _keep_whole(error: BaseException) -> None:
    if type(error.__cause__).__name__ == UnfilteredStackTrace.__name__:
        return  # a boundary inside of this one was first, of jflow or of JAX
    whole = UnfilteredStackTrace("".join(traceback.format_exception_only(error)).strip())
    whole.__traceback__ = error.__traceback__
    whole.__cause__, whole.__context__ = error.__cause__, error.__context__
    whole.__suppress_context__ = error.__suppress_context__
    error.__cause__ = whole


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yields the exception and those that are printed with it, its causes and contexts."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        context = None if error.__suppress_context__ else error.__context__
        error = error.__cause__ or context


def boundary(fun: F) -> F:
    """Wraps a public function so that the tracebacks of its exceptions end at the user's line."""
    wrapped: Any
    if inspect.iscoroutinefunction(fun):

        @functools.wraps(fun)
        async def wrapped(*args: Any, **kwargs: Any) -> Any:
            try:
                return await fun(*args, **kwargs)
            except Exception as error:
                explain_arguments(error, fun)
                hide_frames(error)
                raise

    elif inspect.isgeneratorfunction(fun):

        @functools.wraps(fun)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            try:
                yield from fun(*args, **kwargs)
            except Exception as error:
                explain_arguments(error, fun)
                hide_frames(error)
                raise

    else:

        @functools.wraps(fun)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            try:
                return fun(*args, **kwargs)
            except Exception as error:
                explain_arguments(error, fun)
                hide_frames(error)
                raise

    wrapped.__is_boundary__ = True
    result: F = wrapped
    return result


def end_here(namespace: dict[str, Any]) -> None:
    """Wraps the public functions, and the methods of the classes, of a namespace as boundaries."""
    for name, value in [*namespace.items()]:
        if isinstance(value, type):
            end_in(value)
        elif isinstance(value, FunctionType) and _is_open(name, value):
            namespace[name] = boundary(value)


def end_in(kind: type) -> None:
    """Wraps the public methods and operators of a class and its jflow bases as boundaries."""
    if issubclass(kind, BaseException | tuple | Enum):
        return
    for base in kind.__mro__:
        for name, value in [*vars(base).items()] if base.__module__.startswith("jflow.") else ():
            fun = getattr(value, "__func__", value)
            if not isinstance(fun, FunctionType) or not _is_open(name, fun):
                continue
            wrapper = boundary(fun)
            is_plain = value is fun
            setattr(base, name, wrapper if is_plain else type(value)(wrapper))


def handled(fun: F) -> F:
    """Marks a method that calls `hide_frames` itself, as a boundary would cost 0.2 us a call."""
    fun.__is_boundary__ = True  # type: ignore[attr-defined]
    return fun


def _is_open(name: str, fun: Any) -> bool:
    is_named = name[:1] != "_" or (name[:2] == "__" and name not in _NOT_WRAPPED)
    is_done = hasattr(fun, "__is_boundary__") or hasattr(fun, "__isabstractmethod__")
    is_inside = is_done or fun.__qualname__ in _CALLED_INSIDE
    if is_inside or not is_named:
        return False
    filename = inspect.unwrap(fun).__code__.co_filename  # of a context manager, not of contextlib
    is_of_dataclass = name == "__init__" and filename == "<string>"
    return is_of_dataclass or _owner(filename) is _Owner.OURS

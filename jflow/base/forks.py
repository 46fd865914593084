"""Refuses sessions, servers and functions in a child that was forked after JAX or gRPC started.

A fork does not copy threads, and JAX and gRPC need theirs: a call in the child would wait forever.
The fork replaces methods of classes in the child, so other processes check nothing.

gRPC starts its threads again in a child, with locks that threads of the parent may hold; that
aborts some children. gRPC reads whether to do so when it is imported, so this module comes first.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

C = TypeVar("C", bound=type)

_guarded: list[tuple[type, tuple[str, ...], tuple[str, ...]]] = []
_is_used = False


def mark_used() -> None:
    """Records that JAX or gRPC has started in this process, so that forked children are refused."""
    global _is_used  # noqa: PLW0603 - there is one process
    _is_used = True


def guarded(*refused: str, ignored: tuple[str, ...] = ()) -> Callable[[C], C]:
    """Decorates a class, some of whose methods are refused or ignored in a forked child.

    Args:
      refused: names of methods that raise RuntimeError there.
      ignored: names of methods that do nothing there, such as those that close.
    """

    def register(cls: C) -> C:
        missing_methods = {*refused, *ignored} - vars(cls).keys()
        assert not missing_methods, f"{cls.__name__} has no {missing_methods}"
        _guarded.append((cls, refused, ignored))
        return cls

    return register


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError(
        "this process was forked from one that uses jflow: the threads of JAX and gRPC are not "
        'here. Start it with multiprocessing.get_context("spawn") or subprocess, and make sessions '
        "and connections in it"
    )


def _ignore(*_: Any, **__: Any) -> None:
    pass


def _after_fork() -> None:
    if not _is_used:
        return  # as a process that has only imported jflow, the child may use it
    for cls, refused, ignored in _guarded:
        for name in refused:
            _replace(cls, name, _refuse)
        for name in ignored:
            _replace(cls, name, _ignore)


def _replace(cls: type, name: str, by: Callable[..., Any]) -> None:
    is_static = isinstance(cls.__dict__[name], staticmethod)
    setattr(cls, name, staticmethod(by) if is_static else by)


os.register_at_fork(after_in_child=_after_fork)

"""Creators: functions, such as those of strategies, that `jflow.Variable` makes variables with."""

from __future__ import annotations

import inspect
from abc import ABCMeta
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from jflow.base.context import Stack

Creator = Callable[..., Any]
"""Takes the next creator, and the arguments of the variable by name; returns a variable."""

_CREATORS: Stack[tuple[Creator, ...]] = Stack()


@contextmanager
def variable_creator_scope(variable_creator: Creator) -> Iterator[None]:
    """A context manager in which `jflow.Variable` calls `variable_creator` to make the variable.

    Creators of nested scopes are called from the inside out. Each can change the arguments, call
    the next one inside a `jflow.device` scope, or return something else in place of a variable.

    Args:
      variable_creator: called as `variable_creator(next_creator, **arguments)`, with the arguments
        of the variable by name; `next_creator(**arguments)` calls the next one.

    Raises:
      TypeError: if it is not callable.
    """
    if not callable(variable_creator):
        raise TypeError(f"expected a function as variable creator, got {variable_creator!r:.80}")
    with _CREATORS.pushed((*(_CREATORS.top or ()), variable_creator)):
        yield


@contextmanager
def without_creators() -> Iterator[None]:
    """A context manager in which `jflow.Variable` ignores the creators of enclosing scopes."""
    with _CREATORS.pushed(()):
        yield


class CreatedByScope(ABCMeta):
    """The metaclass of `Variable`: calling the class calls the current variable creators."""

    @property
    def __signature__(cls) -> inspect.Signature:
        of_method = inspect.signature(cls.__init__)  # type: ignore[misc]
        return of_method.replace(parameters=[*of_method.parameters.values()][1:])

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if _CREATORS.top:
            kwargs |= cls.__signature__.bind_partial(*args).arguments
            args = ()
        return with_creators(super().__call__)(*args, **kwargs)


def with_creators(make: Creator) -> Creator:
    """Returns the creator that calls the current ones, and at last `make`."""
    for creator in _CREATORS.top or ():
        make = partial(creator, make)
    return make

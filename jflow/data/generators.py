"""Generators by name, so that a pipeline, and a position in it, can say which one it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from jflow.errors import AlreadyExistsError, NotFoundError

Generator = TypeVar("Generator", bound=Callable[..., Iterable[Any]])

_generators: dict[str, Callable[..., Iterable[Any]]] = {}


def register_generator(name: str) -> Callable[[Generator], Generator]:
    """Gives a generator function a name under which `Dataset.from_generator` finds it.

    Running the same definition again, as in a notebook, replaces it.

    Args:
      name: the name; every process that reads the dataset registers it.

    Returns:
      A decorator, which returns the function as it is.

    Raises:
      AlreadyExistsError: another function has the name.
    """

    def register(function: Generator) -> Generator:
        before = _generators.get(name)
        if before is not None and _origin(before) != _origin(function):
            raise AlreadyExistsError(
                f"the generator {name!r} is {_origin(before)} already, got {_origin(function)}; "
                "choose another name"
            )
        _generators[name] = function
        return function

    return register


def _origin(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def find_generator(name: str) -> Callable[..., Iterable[Any]]:
    """The generator function that was registered under a name."""
    if name not in _generators:
        raise NotFoundError(
            f"no generator is registered as {name!r} in this process, known are "
            f"{sorted(_generators)}; decorate its function with "
            f"@jflow.data.register_generator({name!r}) before the dataset is made"
        )
    return _generators[name]

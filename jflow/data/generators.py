"""A registry of generator functions by name, by which pipelines and positions refer to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from jflow.errors import AlreadyExistsError, NotFoundError

Generator = TypeVar("Generator", bound=Callable[..., Iterable[Any]])

_generators: dict[str, Callable[..., Iterable[Any]]] = {}


def register_generator(name: str) -> Callable[[Generator], Generator]:
    """Registers a generator function under a name for `Dataset.from_generator`.

    A repeated definition of the same function, as in a notebook, replaces it.

    Args:
      name: the name, which each process that reads the dataset has to register.

    Returns:
      A decorator that returns the function unchanged.

    Raises:
      AlreadyExistsError: if another function has the name.
    """

    def register(function: Generator) -> Generator:
        before = _generators.get(name)
        if before is not None and _origin(before) != _origin(function):
            raise AlreadyExistsError(
                f"the generator name {name!r} is registered for {_origin(before)}, got "
                f"{_origin(function)}; choose another name"
            )
        _generators[name] = function
        return function

    return register


def _origin(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def find_generator(name: str) -> Callable[..., Iterable[Any]]:
    """Returns the generator function that is registered under a name."""
    if name not in _generators:
        raise NotFoundError(
            f"no generator is registered as {name!r} in this process, only "
            f"{sorted(_generators)}; decorate its function with "
            f"@jflow.data.register_generator({name!r}) before the dataset is created"
        )
    return _generators[name]

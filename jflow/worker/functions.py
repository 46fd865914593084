"""The functions of host tensors, by the names that plans call them by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from jflow.errors import InvalidArgumentError
from jflow.wire import Array

HostFunction = Callable[..., Sequence[Array]]
"""Takes arrays of `bytes` and gives such arrays; neither may be changed afterwards."""


def _identity(value: Array) -> Sequence[Array]:
    return (value,)


_FUNCTIONS: Mapping[str, HostFunction] = {"identity": _identity}


def host_function(name: str) -> HostFunction:
    """The function of that name.

    Raises:
      InvalidArgumentError: if there is none.
    """
    function = _FUNCTIONS.get(name)
    if function is None:
        raise InvalidArgumentError(
            f"a plan calls {name!r}; the functions of host tensors are {sorted(_FUNCTIONS)}"
        )
    return function

"""The functions of host tensors, by the names that plans call them by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from jflow.errors import InvalidArgumentError
from jflow.graph import Array

HostFunction = Callable[..., Sequence[Array]]
"""Takes arrays on the host and gives such arrays; neither may be changed afterwards."""


def _identity(value: Array) -> Sequence[Array]:
    return (value,)


def _check_indices(report: Array, variable: Array) -> Sequence[Array]:
    """Takes i32[4]: whether an index is bad, its position, the index, and the size."""
    is_bad, position, index, size = np.asarray(report).tolist()
    if is_bad:
        raise InvalidArgumentError(
            f"{variable.item().decode()}: indices[{position}] = {index} is not in [0, {size}); "
            "nothing was written"
        )
    return ()


_FUNCTIONS: Mapping[str, HostFunction] = {
    "identity": _identity,
    "check_indices": _check_indices,
}


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

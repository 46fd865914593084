"""What functions take and return: arrays and numbers. What else is refused, with advice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.api_util import shaped_abstractify
from jax.tree_util import keystr

PLAIN = (jax.Array, np.ndarray, np.generic, bool, int, float, complex)

_OF_SETTINGS = (
    "declare settings in static_argnums or static_argnames, or bind them with functools.partial"
)
_OF_REFS = (
    "pass the value of a jax.Ref, ref[...], and return the new one, or use a jflow.Variable, which "
    "functions read and write"
)


def refused(leaf: Any, fun: Any, name: str) -> TypeError:
    """The error for an argument that is no array.

    Args:
      leaf: the argument, or a part of it.
      fun: the function.
      name: the name of the argument, with the path of the part.
    """
    advice = _OF_REFS if isinstance(leaf, jax.Ref) else _OF_SETTINGS
    return TypeError(
        f"{fun!r} requires an array or number as {name}, got {leaf!r:.80} of type "
        f"{type(leaf).__name__}; {advice}"
    )


def check_outputs(outputs: Sequence[Any], tree: Any, fun: Any) -> None:
    """Checks what a function returned when it was traced.

    Raises:
      TypeError: if one of the results is no array.
      OverflowError: if one is an integer that does not fit into JAX's type.
    """
    for number, output in enumerate(outputs):
        if not isinstance(output, PLAIN):
            raise TypeError(
                f"{fun!r} must return arrays or numbers, got {output!r:.80} of type "
                f"{type(output).__name__} as result{keystr(paths(tree, outputs)[number])}"
                + ("; return its value, ref[...]" if isinstance(output, jax.Ref) else "")
            )
        if isinstance(output, int):
            try:
                shaped_abstractify(output)
            except OverflowError as error:
                raise OverflowError(f"{fun!r} returned an integer out of range: {error}") from None


def paths(tree: Any, leaves: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The path of each leaf in a structure."""
    return [path for path, _ in jax.tree.leaves_with_path(tree.unflatten(leaves))]

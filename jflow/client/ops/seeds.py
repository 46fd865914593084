"""Seeds: that of a graph, and those that its operations and initializers draw from it."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator

from jflow.compiler.graph import Graph
from jflow.compiler.graph import get_default_graph as _default_graph

_SEEDS: weakref.WeakKeyDictionary[Graph, tuple[int, Iterator[int]]] = weakref.WeakKeyDictionary()


def set_random_seed(seed: int | None) -> None:
    """Sets the seed of the default graph, for what has no seed of its own.

    Initializers and operations that draw random numbers then follow from it. Without it, or after
    None, each graph has other random values.

    Raises:
      TypeError: if the seed is neither an integer nor None.
    """
    if seed is None:
        _SEEDS.pop(_default_graph(), None)
    elif isinstance(seed, int):
        _SEEDS[_default_graph()] = (seed, itertools.count())
    else:
        raise TypeError(f"expected an integer or None as seed, got {seed!r:.80}")


def next_seed() -> tuple[int, int] | None:
    """Returns the seed of the default graph and a number that was not returned before, or None."""
    drawn = _SEEDS.get(_default_graph())
    return None if drawn is None else (drawn[0], next(drawn[1]))


def graph_seed() -> int | None:
    """Returns the seed of the default graph; None if it has none."""
    drawn = _SEEDS.get(_default_graph())
    return None if drawn is None else drawn[0]

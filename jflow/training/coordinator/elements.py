"""`next(iterator)` inside a closure: elements of a dataset as arguments of the traced function.

How many elements a function takes is known only when it has been traced, and so are all arguments
that it needs. It is traced with as many as it took before, at first one; a trace that wants another
number says so by an exception, and is repeated with that number.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jflow.client.functions import Function, PreparedCall
from jflow.plan.xla import internals
from jflow.training.coordinator.per_worker import PerWorkerIterator

_MOST = 1024
"""The most elements that one closure takes of an iterator."""


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True)
class TakenElements:
    """The elements that one closure takes from one iterator, as an argument of the closure.

    Attributes:
      number: which of the closure's iterators it is.
      items: the elements.
    """

    number: int
    items: tuple[Any, ...]

    def tree_flatten(self) -> tuple[tuple[Any, ...], int]:
        """Returns the elements, and the identity of the iterator."""
        return self.items, self.number

    @classmethod
    def tree_unflatten(cls, number: int, items: Any) -> TakenElements:
        """Inverts `tree_flatten`."""
        return cls(number, tuple(items))


class _OtherNumberError(Exception):
    """The function takes another number of elements of an iterator."""

    def __init__(self, number: int, n: int) -> None:
        super().__init__(f"{n} elements of iterator {number}")
        self.number, self.n = number, n


class TracedIterator:
    """The iterator that a function gets while it is traced."""

    def __init__(self, elements: TakenElements) -> None:
        self._elements = elements
        self._level = internals.current_trace()
        self.n_taken = 0

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(
            "a function cannot loop over the iterator of a worker, because it is traced once; call "
            "next() as often as it needs an element"
        )

    def __next__(self) -> Any:
        if internals.current_trace() is not self._level:
            raise TypeError(
                "next() of the iterator of a worker is not supported in a loop, branch or other "
                "nested function of JAX, which is traced once; call it before, and pass the element"
            )
        if self.n_taken == len(self._elements.items):
            if self.n_taken >= _MOST:
                raise ValueError(f"a function takes at most {_MOST} elements of an iterator")
            raise _OtherNumberError(self._elements.number, 2 * self.n_taken or 1)
        self.n_taken += 1
        return self._elements.items[self.n_taken - 1]

    def check(self) -> None:
        """Raises an error if the trace has not used all elements."""
        if self.n_taken < len(self._elements.items):
            raise _OtherNumberError(self._elements.number, self.n_taken)


def reading(function: Function[..., Any]) -> Function[..., Any]:
    """Converts a function of iterators to one that takes their elements instead."""

    # Kept in a table by the function, which this one must not keep alive.
    inner = weakref.ref(function)

    def call(*args: Any, **kwargs: Any) -> Any:
        function = inner()
        assert function is not None, "the caller that traces this has the function"
        iterators: list[TracedIterator] = []

        def traced(leaf: Any) -> Any:
            if not isinstance(leaf, TakenElements):
                return leaf
            iterators.append(TracedIterator(leaf))
            return iterators[-1]

        args, kwargs = jax.tree.map(traced, (args, kwargs), is_leaf=_is_elements)
        result = function(*args, **kwargs)
        for iterator in iterators:
            iterator.check()
        return result

    call.__name__ = getattr(function, "__name__", "closure")
    return function.wrap(call)


class ElementCounts:
    """For each function that takes iterators: its traced form, and how many elements it takes."""

    def __init__(self) -> None:
        self._known: weakref.WeakKeyDictionary[Any, tuple[Function[..., Any], dict[int, list[int]]]]
        self._known = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def of(self, function: Function[..., Any], n: int) -> tuple[Function[..., Any], list[int]]:
        """Returns the function that takes elements, and the counts last used for `n` iterators."""
        with self._lock:
            entry = self._known.get(function)
            if entry is None:
                entry = self._known[function] = reading(function), {}
            return entry[0], entry[1].setdefault(n, [1] * n)


def _is_elements(node: Any) -> bool:
    return isinstance(node, TakenElements)


def bound_with_elements(
    bind: Callable[[list[TakenElements]], PreparedCall],
    iterators: list[PerWorkerIterator],
    ns: list[int],
) -> tuple[PreparedCall, list[TakenElements]]:
    """Traces a call with the number of elements that it takes.

    Args:
      bind: traces the call with the given elements.
      iterators: the iterators among its arguments.
      ns: how many elements of each to try first; holds what it takes afterwards.
    """
    examples = [iterator.example() for iterator in iterators]
    while True:
        elements = [
            TakenElements(number, tuple(jax.tree.map(_copy, example) for _ in range(n)))
            for number, (example, n) in enumerate(zip(examples, ns, strict=True))
        ]
        try:
            return bind(elements), elements
        except _OtherNumberError as other:
            ns[other.number] = other.n


def _copy(leaf: Any) -> Any:
    """Returns a distinct copy of a leaf, whose identity marks its argument."""
    return np.array(leaf)

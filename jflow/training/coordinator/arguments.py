"""Arguments of a `schedule` call: checked, traced, and given when an attempt is started."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jflow.base.values import Array, is_key
from jflow.client.functions import Connection, Function, PreparedCall
from jflow.client.functions.captures import captured_values
from jflow.compiler.graph import owners
from jflow.compiler.graph.tracing import Static
from jflow.data import Dataset
from jflow.data.iterator import DatasetIterator
from jflow.training.coordinator.elements import ElementCounts, TakenElements, bound_with_elements
from jflow.training.coordinator.events import Keeping
from jflow.training.coordinator.losses import ClosureInputError
from jflow.training.coordinator.per_worker import (
    PerWorkerDataset,
    PerWorkerIterator,
    PerWorkerValues,
    check_alike,
)
from jflow.training.coordinator.remote_value import RemoteValue

_SPECIAL = (RemoteValue, PerWorkerValues)


@dataclass(frozen=True)
class ArgumentSource:
    """A source of arguments that are known only when a closure is started.

    Attributes:
      indices: which arguments.
      values: returns their values for a worker; None if they are not there after a time in seconds.
      value: the result that they are; None if they are something else.
      is_read: whether they are elements of a dataset.
    """

    indices: tuple[int, ...]
    values: Callable[[int, float], list[Any] | None]
    value: RemoteValue | None = None
    is_read: bool = False


class ScheduledArguments:
    """The arguments of a `schedule` call, and the trace of the call.

    Args:
      function: the function.
      args, kwargs: as given to `schedule`.
      connection: the connection that owns the variables, which functions are traced for.
      counts: for each function, how many elements it takes of its iterators.

    Attributes:
      call: the traced call.
      sources: what gives the arguments that are known later.
      inputs: the closures whose results are arguments.
      feeds: what a step is fed with, after `own`; None if not all of it is known.
    """

    __slots__ = ("call", "feeds", "inputs", "sources")  # there are many

    def __init__(
        self,
        function: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        connection: Connection,
        counts: ElementCounts,
    ) -> None:
        function, args = checked_function(function, args)
        self.sources: Sequence[ArgumentSource] = ()
        self.inputs: Sequence[RemoteValue] = ()
        self.feeds: list[Array] | None = None
        nodes, tree = jax.tree.flatten((args, kwargs))
        specials = [i for i, node in enumerate(nodes) if isinstance(node, _SPECIAL)]
        with owners.owned_by(connection):
            if not specials:
                self.call = function.prepare_call(args, kwargs)
                return
            self.call = self._bound(function, nodes, tree, specials, counts)

    def own(self, keeping: Keeping) -> None:
        """Copies the known arguments, because the caller may change them later.

        Args:
          keeping: where the result of the closure stays.
        """
        if not self.sources and keeping is Keeping.NOT:
            self.feeds = [*map(np.array, self.call.run.feeds(self.call.args))]
            return
        later = {index for source in self.sources for index in source.indices}
        args = [x if i in later else _copied(x) for i, x in enumerate(self.call.args)]
        self.call = self.call._replace(args=args)

    def _bound(
        self,
        function: Function[..., Any],
        nodes: list[Any],
        tree: Any,
        specials: list[int],
        counts: ElementCounts,
    ) -> PreparedCall:
        """Traces the call, with examples in place of the arguments that are known later."""
        examples = {i: _example(nodes[i]) for i in specials if not _is_iterator(nodes[i])}
        places = [i for i in specials if _is_iterator(nodes[i])]
        iterators = [nodes[i] for i in places]
        reader, ns = counts.of(function, len(iterators)) if iterators else (function, [])

        def bind(elements: list[TakenElements]) -> PreparedCall:
            filled = [*nodes]
            for i, example in examples.items():
                filled[i] = example
            for i, element in zip(places, elements, strict=True):
                filled[i] = element
            args, kwargs = jax.tree.unflatten(tree, filled)
            return reader.prepare_call(args, kwargs)

        call, elements = bound_with_elements(bind, iterators, ns)
        index_of = {id(leaf): index for index, leaf in enumerate(call.args)}
        for i, example in examples.items():
            self._add(nodes[i], _indices(example, index_of))
        for iterator, element in zip(iterators, elements, strict=True):
            indices = _indices(element, index_of)
            n = len(element.items)
            values = functools.partial(_take_elements, iterator, n)
            self.sources = (*self.sources, ArgumentSource(indices, values, is_read=True))
        return call

    def _add(self, node: Any, indices: tuple[int, ...]) -> None:
        if isinstance(node, RemoteValue):
            self.inputs = (*self.inputs, node)
            source = ArgumentSource(indices, lambda _, __: node.leaves(), node)
        else:
            source = ArgumentSource(indices, functools.partial(_own_leaves, node))
        self.sources = (*self.sources, source)


def checked_function(
    function: Any, args: tuple[Any, ...]
) -> tuple[Function[..., Any], tuple[Any, ...]]:
    """Returns the function of a `schedule` call and its arguments; a bound method gives its object.

    Raises:
      TypeError: if it is no `jflow.function`, or captures what has to be an argument.
    """
    if _is_method(function):
        args, function = (*function.args, *args), function.func
    if not isinstance(function, Function):
        raise TypeError(
            f"schedule requires a jflow.function, got {function!r:.80} of type "
            f"{type(function).__name__}; decorate it with @jflow.function"
        )
    if function not in _CHECKED:
        for name, value in captured_values(function):
            if isinstance(value, _ARGUMENTS_ONLY):
                raise TypeError(
                    f"{function!r} captures {name!r}, {value!r:.80}, which belongs to the "
                    "coordinator's process; pass it as an argument of schedule"
                )
        _CHECKED.add(function)
    return function, args


def _is_method(function: Any) -> bool:
    """Returns whether a callable is a bound method of a `jflow.function`."""
    if not isinstance(function, functools.partial) or function.keywords:
        return False
    is_bound = all(isinstance(arg, Static) for arg in function.args)
    return is_bound and isinstance(function.func, Function)


_ARGUMENTS_ONLY = (*_SPECIAL, PerWorkerDataset, Dataset, DatasetIterator)
_CHECKED: weakref.WeakSet[Function[..., Any]] = weakref.WeakSet()


def _copied(value: Any) -> Any:
    return value if is_key(getattr(value, "dtype", None)) else np.array(value)


def _own_leaves(values: PerWorkerValues, worker: int, _: float) -> list[Any]:
    """Returns the leaves of a per-worker value, which never has to be waited for."""
    return jax.tree.leaves(values.for_worker(worker))


def _take_elements(
    iterator: PerWorkerIterator, n: int, worker: int, wait_s: float
) -> list[Any] | None:
    elements = iterator.take_elements(worker, n, wait_s) if n else []
    return None if elements is None else jax.tree.leaves(elements)


def _is_iterator(node: Any) -> bool:
    return isinstance(node, PerWorkerIterator)


def _example(node: Any) -> Any:
    """Returns an example value with the types of an argument."""
    if isinstance(node, RemoteValue):
        error = node.error
        if error is not None:
            raise ClosureInputError(error)
        return node.structure.unflatten([_zeros(aval) for aval in node.avals])
    values = [jax.tree.map(np.asarray, node.for_worker(i)) for i in range(len(node))]
    types = [jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), value) for value in values]
    check_alike("values", types)
    return jax.tree.map(np.array, values[0])


def _zeros(aval: Any) -> Any:
    module = jax.numpy if is_key(aval.dtype) else np
    return module.zeros(aval.shape, aval.dtype)


def _indices(example: Any, index_of: dict[int, int]) -> tuple[int, ...]:
    return tuple(index_of[id(leaf)] for leaf in jax.tree.leaves(example))

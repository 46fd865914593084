"""Closures as the engine has them: traced programs, arguments, and what is fed to an attempt."""

from __future__ import annotations

import functools
import itertools
import math
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jflow.coordinator.constants import beside_state
from jflow.coordinator.elements import ElementCounts, TakenElements, bound_with_elements
from jflow.coordinator.errors import ClosureInputError
from jflow.coordinator.events import Keeping
from jflow.coordinator.per_worker import PerWorkerDataset, PerWorkerIterator, PerWorkerValues
from jflow.coordinator.remote_value import RemoteValue
from jflow.data import Dataset
from jflow.data.iterator import DatasetIterator
from jflow.deadline import FOREVER, Deadline
from jflow.effects import MAX_KEPT_BYTES
from jflow.errors import InvalidArgumentError
from jflow.functions import Concrete, Connection, Function, PreparedCall
from jflow.functions.captures import captured_values
from jflow.graph import ResourceRef, owners
from jflow.graph.primitives import CALLBACKS, WRITES, state_of
from jflow.graph.tracing import Static
from jflow.parameter_servers import worker_index_p
from jflow.values import Array, is_key, physical_form
from jflow.xla import internals

_BURST = 32
"""How many closures run as one step, at most."""

_BURST_EQUATIONS = 256
"""How many equations such a step has, at most, so that it compiles in little time."""

_LEAST_BURST = 8

_LEAST_KEPT_BYTES = 1 << 16
"""Results of fewer bytes are at the coordinator alone: another step would cost more."""

_MAX_DEPTH = 8
"""How many closures are run again at most for one result, each for the argument of the next."""

_SPECIAL = (RemoteValue, PerWorkerValues)
_NOTHING: Mapping[int, list[Any]] = {}
"""Taken by closures that have taken nothing of iterators; never changed."""


class ClosureProgram:
    """What is known of one traced function, which many closures can share.

    Args:
      number: identifies it.
      concrete: the traced function.

    Attributes:
      number: as given.
      resource: a queue or another resource that it uses; None if it uses variables only.
      is_repeatable: whether running it twice does no harm.
      jaxpr: its equations, for a worker.
      burst: how many calls of it can run as one step.
      may_keep: whether its result is of a kind and size that workers keep.
      is_pure: whether its result depends on its arguments alone.
      burst_once: the same in exactly-once mode, in which the results of a step are kept.

    Raises:
      ValueError: if it uses a queue that belongs to one connection alone, or calls Python.
    """

    def __init__(self, number: int, concrete: Concrete) -> None:
        self.number = number
        operations = concrete.graph.get_operations()
        equations = [op.eqn for op in operations]
        _check_equations(equations)
        state = [ref for eqn in equations for ref in state_of(eqn)]
        self.resource = next((ref for ref in state if isinstance(ref, ResourceRef)), None)
        self.is_pure = not state and all(e.primitive is not worker_index_p for e in equations)
        self.may_keep = _may_keep(concrete.jaxpr.out_avals)
        writes = any(eqn.primitive in WRITES for eqn in equations)
        self.is_repeatable = not writes and self.resource is None
        burst = min(_BURST, _BURST_EQUATIONS // max(len(equations), 1))
        self.jaxpr = beside_state(concrete.jaxpr)
        self.burst = 1 if self.resource is not None or burst < _LEAST_BURST else burst
        n_bytes = sum(map(_n_bytes, concrete.jaxpr.out_avals))
        is_kept = self.burst * n_bytes <= MAX_KEPT_BYTES
        self.burst_once = self.burst if is_kept else 1


class Programs:
    """The programs of a coordinator, each kept as long as the function that it was traced from."""

    def __init__(self) -> None:
        self._programs: weakref.WeakKeyDictionary[Concrete, ClosureProgram] = (
            weakref.WeakKeyDictionary()
        )
        self._numbers = itertools.count()

    def of(self, concrete: Concrete) -> tuple[ClosureProgram, bool]:
        """The program of a traced function, and whether it is a new one."""
        program = self._programs.get(concrete)
        if program is not None:
            return program, False
        made = ClosureProgram(next(self._numbers), concrete)
        return self._programs.setdefault(concrete, made), True


@dataclass(frozen=True)
class ArgumentSource:
    """What gives some arguments of a closure when it is started.

    Attributes:
      indices: which arguments.
      take: returns their values for a worker; None if they are not there after a time in seconds.
      value: the result that they are; None if they are something else.
      is_read: whether they are elements of a dataset.
    """

    indices: tuple[int, ...]
    take: Callable[[int, float], list[Any] | None]
    value: RemoteValue | None = None
    is_read: bool = False


@dataclass(frozen=True)
class Recipe:
    """What computes a result again that was lost with its worker.

    Attributes:
      program: its program, which is pure.
      arguments: the traced call, and where its arguments come from.
      taken: what the first attempt has taken of iterators, by the place of its source.
    """

    program: ClosureProgram
    arguments: ScheduledArguments
    taken: Mapping[int, list[Any]]

    def closure(self, remote_value: RemoteValue) -> ScheduledClosure:
        """The closure that takes the place of the first one."""
        again = ScheduledClosure(remote_value, self.program, self.arguments, None, False)
        again.taken = self.taken
        return again


class ScheduledClosure:
    """A closure until it ends.

    Args:
      remote_value: takes its result.
      program: that of the call.
      arguments: the traced call, and where its arguments come from; it owns them (`own`).
      timeout: its time limit in seconds, from now; None for none.
      is_exactly_once: its mode.
      keeping: where its result stays.

    Attributes:
      taken: what an earlier run has taken of iterators, by the place of its source.
    """

    __slots__ = (
        *("_args", "_arguments", "_feeds", "burst", "concrete", "deadline", "inputs"),
        *("is_exactly_once", "keeping", "name", "program", "remote_value", "sources", "taken"),
    )  # there are many

    def __init__(
        self,
        remote_value: RemoteValue,
        program: ClosureProgram,
        arguments: ScheduledArguments,
        timeout: float | None,
        is_exactly_once: bool,
        keeping: Keeping = Keeping.NOT,
    ) -> None:
        self._arguments = arguments
        self.keeping = keeping
        self.taken = _NOTHING
        call = arguments.call
        self.remote_value = remote_value
        self.name = remote_value.name
        self.concrete = call.run
        self.program = program
        self.deadline = FOREVER if timeout is None else Deadline(timeout)
        self.is_exactly_once = is_exactly_once
        # Each closure of a burst has all its arguments, and no time limit or table of its own.
        burst = program.burst_once if is_exactly_once else program.burst
        is_single = arguments.sources or timeout or keeping is not Keeping.NOT
        self.burst = 1 if is_single else burst
        self.sources = arguments.sources
        self.inputs = arguments.inputs
        self._args: list[Any] = call.args
        self._feeds = arguments.feeds

    @property
    def kind(self) -> tuple[int, bool]:
        """What closures that the scheduler may run as one step have in common."""
        return self.program.number, self.is_exactly_once

    @property
    def base_args(self) -> Sequence[Any]:
        """The arguments of a closure none of which comes later."""
        return self._args

    def placed(self, places: Mapping[int, int]) -> list[tuple[tuple[int, ...], int, int]]:
        """Its arguments that are results of workers: which they are, their closure and worker.

        Args:
          places: the workers, by the closures whose results they have.
        """
        numbered = ((s.indices, s.value.number) for s in self.sources if s.value is not None)
        return [(which, n, places[n]) for which, n in numbered if n in places]

    def recipe(self, taken: Mapping[int, list[Any]]) -> Recipe:
        """What computes its result again.

        Args:
          taken: what the attempt has taken of its sources.
        """
        own = {i: found for i, found in taken.items() if self.sources[i].value is None}
        return Recipe(self.program, self._arguments, own)

    def takes_elements(self, taken: Mapping[int, list[Any]]) -> bool:
        """Whether an attempt takes elements of datasets, besides what it has taken."""
        return any(s.is_read and place not in taken for place, s in enumerate(self.sources))

    def arguments(
        self,
        worker: int,
        taken: dict[int, list[Any]],
        wait_s: float,
        elsewhere: Iterable[int] = (),
    ) -> Sequence[Any] | None:
        """Its arguments on a worker; None if an element of a dataset is not read yet.

        Args:
          worker: the worker.
          taken: what earlier calls have taken for the attempt, by the place of its source.
          wait_s: how long to wait for elements, in seconds.
          elsewhere: the closures whose results are not here, and are not taken.

        Raises:
          Exception: what an iterator raises.
        """
        if not self.sources:
            return self._args
        args = [*self._args]
        for place, source in enumerate(self.sources):
            if source.value is not None and source.value.number in elsewhere:
                continue
            values = taken.get(place)
            if values is None:
                values = source.take(worker, wait_s)
                if values is None:
                    return None
                taken[place] = values
            for index, value in zip(source.indices, values, strict=True):
                args[index] = _like(value, args[index])
        return args

    def feeds(self, args: Sequence[Any]) -> list[Array]:
        """What its step is fed with."""
        return self.concrete.feeds(args) if self._feeds is None else self._feeds


class ScheduledArguments:
    """The arguments of a `schedule` call, and the traced call of them.

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
                self.call = function.bound(args, kwargs)
                return
            self.call = self._bound(function, nodes, tree, specials, counts)

    def own(self, keeping: Keeping) -> None:
        """Copies the arguments that are known, because the caller may change them.

        Args:
          keeping: where the result of the closure stays.
        """
        if not self.sources and keeping is Keeping.NOT:
            self.feeds = [*map(np.array, self.call.run.feeds(self.call.args))]
            return
        later = {index for source in self.sources for index in source.indices}
        args = [x if i in later else _copied(x) for i, x in enumerate(self.call.args)]
        self.call = self.call._replace(args=args)

    def keeping(self, program: ClosureProgram) -> tuple[Keeping, int]:
        """Where the result of a closure stays, and the depth of its `RemoteValue`.

        Args:
          program: that of the call.
        """
        if not program.may_keep:
            return Keeping.NOT, 0
        depth = 1 + max((value.depth for value in self.inputs), default=0)
        if program.is_pure and depth <= _MAX_DEPTH:
            return Keeping.ALONE, depth
        return Keeping.COPY, 0

    def _bound(
        self,
        function: Function[..., Any],
        nodes: list[Any],
        tree: Any,
        specials: list[int],
        counts: ElementCounts,
    ) -> PreparedCall:
        """Traces the call with examples in the places of what is known later."""
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
            return reader.bound(args, kwargs)

        call, elements = bound_with_elements(bind, iterators, ns)
        index_of = {id(leaf): index for index, leaf in enumerate(call.args)}
        for i, example in examples.items():
            self._add(nodes[i], _indices(example, index_of))
        for iterator, element in zip(iterators, elements, strict=True):
            indices = _indices(element, index_of)
            n = len(element.items)
            take = functools.partial(_taken, iterator, n)
            self.sources = (*self.sources, ArgumentSource(indices, take, is_read=True))
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
    """The function of a `schedule` call and its arguments; a bound method gives its object.

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
    """Whether it is a method that is a `jflow.function`, with its object."""
    if not isinstance(function, functools.partial) or function.keywords:
        return False
    is_bound = all(isinstance(arg, Static) for arg in function.args)
    return is_bound and isinstance(function.func, Function)


_ARGUMENTS_ONLY = (*_SPECIAL, PerWorkerDataset, Dataset, DatasetIterator)
_CHECKED: weakref.WeakSet[Function[..., Any]] = weakref.WeakSet()


def _check_equations(equations: Iterable[Any]) -> None:
    for eqn in equations:
        if eqn.primitive in CALLBACKS.values():
            raise ValueError(
                f"a scheduled function cannot call Python, but it uses {eqn.primitive.name}; "
                "return what the call needs, and make it with the fetched result"
            )
        for ref in state_of(eqn):
            if isinstance(ref, ResourceRef) and not ref.is_shared:
                raise ValueError(
                    f"{ref} belongs to {ref.owner!r} alone, and a scheduled function runs "
                    "elsewhere; give it a shared_name"
                )


def _copied(value: Any) -> Any:
    return value if is_key(getattr(value, "dtype", None)) else np.array(value)


def _may_keep(avals: Sequence[Any]) -> bool:
    is_plain = all(
        physical_form(aval.dtype) is None and aval.dtype != jax.dtypes.float0 for aval in avals
    )
    return is_plain and sum(map(_n_bytes, avals)) >= _LEAST_KEPT_BYTES


def _own_leaves(values: PerWorkerValues, worker: int, _: float) -> list[Any]:
    """The leaves of a worker's own value, which is there without waiting."""
    return jax.tree.leaves(values.for_worker(worker))


def _taken(iterator: PerWorkerIterator, n: int, worker: int, wait_s: float) -> list[Any] | None:
    elements = iterator.take(worker, n, wait_s) if n else []
    return None if elements is None else jax.tree.leaves(elements)


def _is_iterator(node: Any) -> bool:
    return isinstance(node, PerWorkerIterator)


def _example(node: Any) -> Any:
    """A value of the types that an argument will have."""
    if isinstance(node, RemoteValue):
        error = node.error
        if error is not None:
            raise ClosureInputError(error)
        return node.structure.unflatten([_zeros(aval) for aval in node.avals])
    values = [jax.tree.map(np.asarray, node.for_worker(i)) for i in range(len(node))]
    types = [jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), value) for value in values]
    for number, found in enumerate(types):
        if found != types[0]:
            raise ValueError(
                "closures run on any worker, so the values of all workers must have one structure, "
                f"shape and dtype: worker 0 has {types[0]}, worker {number} {found}"
            )
    return jax.tree.map(np.array, values[0])


def _n_bytes(aval: Any) -> int:
    """The size of a result; that of random keys is at least as large as what they consist of."""
    return int(math.prod(aval.shape) * aval.dtype.itemsize)


def _zeros(aval: Any) -> Any:
    if not is_key(aval.dtype):
        return np.zeros(aval.shape, aval.dtype)
    keys = jax.ShapeDtypeStruct(aval.shape, aval.dtype)
    data = jax.eval_shape(jax.random.key_data, keys)
    return internals.key_maker(aval.dtype)(jax.numpy.zeros(data.shape, data.dtype))


def _indices(example: Any, index_of: dict[int, int]) -> tuple[int, ...]:
    return tuple(index_of[id(leaf)] for leaf in jax.tree.leaves(example))


def _like(value: Any, example: Any) -> Any:
    """A value that is fed in the place of an example."""
    shape, wanted = np.shape(value), np.shape(example)
    if shape != wanted:
        raise InvalidArgumentError(
            f"the closure was traced with an element of shape {wanted}, but the dataset gave one "
            f"of shape {shape}; make all of one shape, such as by batch(n, drop_remainder=True)"
        )
    return value

"""Closures as the engine has them: traced programs, and what is fed to an attempt."""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np

from jflow.base.cluster import DeviceSpec
from jflow.base.deadline import FOREVER, Deadline
from jflow.base.values import Array, physical_form
from jflow.client.functions import Concrete
from jflow.compiler.graph import Operation, ResourceRef, Tensor
from jflow.compiler.graph.primitives import (
    ACCESSES,
    CALLBACKS,
    SOURCES,
    WRITES,
    read_p,
    state_of,
)
from jflow.compiler.graph.request import replaced, requested, resolved
from jflow.errors import InvalidArgumentError
from jflow.state.effects import MAX_KEPT_BYTES
from jflow.training.coordinator.arguments import ScheduledArguments
from jflow.training.coordinator.events import Keeping
from jflow.training.coordinator.remote_value import RemoteValue
from jflow.training.parameter_servers import worker_index_p

_LARGEST = 1024
"""The most elements of a constant that is moved; the worker has more time for larger ones."""


def with_local_constants(jaxpr: jex.ClosedJaxpr) -> jex.ClosedJaxpr:
    """Returns a traced function whose small constants request the device of their variable.

    Args:
      jaxpr: equations whose accesses to variables are at the top level.
    """
    eqns = list(jaxpr.jaxpr.eqns)
    constants = _constants(eqns)
    wanted: dict[Any, set[DeviceSpec | None]] = {
        var: {None} for var in jaxpr.jaxpr.outvars if isinstance(var, jex.Var)
    }
    for i in reversed(range(len(eqns))):
        eqn = eqns[i]
        device = None
        if i in constants:
            users = {spec for var in eqn.outvars for spec in wanted.get(var, ())}
            device = users.pop() if len(users) == 1 else None
            if device is not None:
                eqns[i] = replaced(eqn, resolved(device, ()))
        elif eqn.primitive in ACCESSES:
            device = _device_of(eqn)
        for var in eqn.invars:
            if isinstance(var, jex.Var):
                wanted.setdefault(var, set()).add(device)
    moved: jex.ClosedJaxpr = jaxpr.replace(jaxpr=jaxpr.jaxpr.replace(eqns=eqns))
    return moved


def _constants(eqns: list[jex.JaxprEqn]) -> set[int]:
    """Returns the positions of the equations that compute small constants."""
    places: set[int] = set()
    known: set[Any] = set()
    for i, eqn in enumerate(eqns):
        is_free = all(isinstance(x, jex.Literal) or x in known for x in eqn.invars)
        is_plain = not eqn.effects and eqn.primitive not in SOURCES and requested(eqn).is_empty
        if is_free and is_plain and all(map(_is_small, eqn.outvars)):
            places.add(i)
            known.update(eqn.outvars)
    return places


def _is_small(var: Any) -> bool:
    return bool(var.aval.size <= _LARGEST)


def _device_of(eqn: jex.JaxprEqn) -> DeviceSpec | None:
    """Returns the device of the variable that an equation accesses, if that is one device."""
    specs = {ref.spec for ref in state_of(eqn)}
    spec = specs.pop() if len(specs) == 1 else None
    return spec if spec is not None and spec.task is not None else None


_BATCH_SIZE = 32
"""How many closures run as one step, at most."""

_BATCH_EQUATIONS = 256
"""How many equations such a step has, at most, so that it compiles in little time."""

_LEAST_BATCH = 8

_LEAST_KEPT_BYTES = 1 << 16
"""Results of fewer bytes are at the coordinator alone: another step would cost more."""

_MAX_DEPTH = 8
"""How many closures are run again at most for one result, each for the argument of the next."""

_NOTHING: Mapping[int, list[Any]] = {}
"""Taken by closures that have taken nothing of iterators; never changed."""


class ClosureProgram:
    """A traced function and what follows from it; many closures can share one.

    Args:
      number: identifies it.
      concrete: the traced function.

    Attributes:
      number: as given.
      resource: a queue or another resource that it uses; None if it uses variables only.
      is_repeatable: whether running it twice does no harm.
      jaxpr: its equations, for a worker.
      needs_latest: whether what it writes depends on what it has read of the same variables, as the
        step of an optimizer does.
      batch_size: how many calls of it can run as one step; 1 if it needs the latest values, which
        those of one step would all read before any of them has written.
      exactly_once_batch_size: the same in exactly-once mode, which keeps results of steps.
      may_keep: whether its result is of a kind and size that workers keep.
      is_pure: whether its result depends on its arguments alone.

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
        size = min(_BATCH_SIZE, _BATCH_EQUATIONS // max(len(equations), 1))
        self.jaxpr = with_local_constants(concrete.jaxpr)
        self.needs_latest = _needs_latest(operations)
        is_single = self.needs_latest or self.resource is not None or size < _LEAST_BATCH
        self.batch_size = 1 if is_single else size
        n_bytes = sum(map(_n_bytes, concrete.jaxpr.out_avals))
        is_small = self.batch_size * n_bytes <= MAX_KEPT_BYTES
        self.exactly_once_batch_size = self.batch_size if is_small else 1

    def keeping(self, inputs: Sequence[RemoteValue]) -> tuple[Keeping, int]:
        """Returns where the result of a closure stays, and the depth of its `RemoteValue`.

        Args:
          inputs: the results that are its arguments.
        """
        if not self.may_keep:
            return Keeping.NOT, 0
        depth = 1 + max((value.depth for value in inputs), default=0)
        if self.is_pure and depth <= _MAX_DEPTH:
            return Keeping.ALONE, depth
        return Keeping.COPY, 0


class Programs:
    """The programs of a coordinator; each is freed with the function that it was traced from."""

    def __init__(self) -> None:
        self._programs: weakref.WeakKeyDictionary[Concrete, ClosureProgram] = (
            weakref.WeakKeyDictionary()
        )
        self._numbers = itertools.count()

    def of(self, concrete: Concrete) -> tuple[ClosureProgram, bool]:
        """Returns the program of a traced function, and whether it is new."""
        program = self._programs.get(concrete)
        if program is not None:
            return program, False
        program = ClosureProgram(next(self._numbers), concrete)
        return self._programs.setdefault(concrete, program), True


@dataclass(frozen=True)
class Recipe:
    """What is needed to recompute a result that was lost with its worker.

    Attributes:
      program: its program, which is pure.
      arguments: the traced call, and where its arguments come from.
      elements: what the first attempt has taken of iterators, by the place of its source.
    """

    program: ClosureProgram
    arguments: ScheduledArguments
    elements: Mapping[int, list[Any]]

    def closure(self, remote_value: RemoteValue) -> ScheduledClosure:
        """Returns the closure that replaces the original one."""
        again = ScheduledClosure(remote_value, self.program, self.arguments, None, False)
        again.elements = self.elements
        return again


class ScheduledClosure:
    """A scheduled closure, until it ends.

    Args:
      remote_value: takes its result.
      program: that of the call.
      arguments: the traced call, and where its arguments come from; it owns them (`own`).
      timeout: its time limit in seconds, from now; None for none.
      is_exactly_once: its mode.
      keeping: where its result stays.

    Attributes:
      elements: what an earlier run has taken of iterators, by the place of its source.
    """

    __slots__ = (
        *("_arguments", "batch_size", "concrete", "deadline", "elements", "inputs"),
        *("is_exactly_once", "keeping", "name", "program", "remote_value", "sources"),
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
        self.elements = _NOTHING
        self.remote_value = remote_value
        self.name = remote_value.name
        self.concrete = arguments.call.run
        self.program = program
        self.deadline = FOREVER if timeout is None else Deadline(timeout)
        self.is_exactly_once = is_exactly_once
        # Each closure of a batch has all its arguments, and no time limit or table of its own.
        size = program.exactly_once_batch_size if is_exactly_once else program.batch_size
        is_single = arguments.sources or timeout or keeping is not Keeping.NOT
        self.batch_size = 1 if is_single else size
        self.sources = arguments.sources
        self.inputs = arguments.inputs

    @property
    def kind(self) -> tuple[int, bool]:
        """The key of closures that the scheduler may run as one step."""
        return self.program.number, self.is_exactly_once

    @property
    def base_args(self) -> Sequence[Any]:
        """The arguments of a closure whose arguments are all known."""
        args: list[Any] = self._arguments.call.args
        return args

    def placed(self, workers: Mapping[int, int]) -> list[tuple[tuple[int, ...], int, int]]:
        """The arguments that are on workers: their indices, closures and workers.

        Args:
          workers: the workers, by the closures whose results they have.
        """
        numbered = ((s.indices, s.value.number) for s in self.sources if s.value is not None)
        return [(which, n, workers[n]) for which, n in numbered if n in workers]

    def recipe(self, elements: Mapping[int, list[Any]]) -> Recipe:
        """What is needed to recompute the result.

        Args:
          elements: what the attempt has taken of its sources.
        """
        own = {i: values for i, values in elements.items() if self.sources[i].value is None}
        return Recipe(self.program, self._arguments, own)

    def takes_elements(self, elements: Mapping[int, list[Any]]) -> bool:
        """Whether an attempt takes further elements of datasets."""
        return any(s.is_read and place not in elements for place, s in enumerate(self.sources))

    def arguments(
        self,
        worker: int,
        elements: dict[int, list[Any]],
        wait_s: float,
        elsewhere: Iterable[int] = (),
    ) -> Sequence[Any] | None:
        """Returns the arguments on a worker; None if an element of a dataset was not read yet.

        Args:
          worker: the worker.
          elements: what earlier calls have taken for the attempt, by the place of its source.
          wait_s: how long to wait for elements, in seconds.
          elsewhere: the closures whose results are not here, and are not taken.

        Raises:
          Exception: what an iterator raises.
        """
        if not self.sources:
            return self.base_args
        args = [*self.base_args]
        for place, source in enumerate(self.sources):
            if source.value is not None and source.value.number in elsewhere:
                continue
            values = elements.get(place)
            if values is None:
                values = source.values(worker, wait_s)
                if values is None:
                    return None
                elements[place] = values
            for index, value in zip(source.indices, values, strict=True):
                args[index] = _like(value, args[index])
        return args

    def feeds(self, args: Sequence[Any]) -> list[Array]:
        """Returns the values to feed to the closure's step."""
        feeds = self._arguments.feeds
        return self.concrete.feeds(args) if feeds is None else feeds


def _needs_latest(operations: Iterable[Operation]) -> bool:
    """Whether a write of a variable depends on a read of one that is written."""
    ops = list(operations)
    written = {ref for op in ops if op.eqn.primitive in WRITES for ref in state_of(op.eqn)}
    read: set[Tensor] = set()
    for op in ops:
        depends = any(x in read for x in op.inputs)
        if depends and op.eqn.primitive in WRITES:
            return True
        # An update returns a value of its variable, too.
        reads = op.eqn.primitive is read_p or op.eqn.primitive in WRITES
        if depends or (reads and not written.isdisjoint(state_of(op.eqn))):
            read.update(op.outputs)
    return False


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


def _may_keep(avals: Sequence[Any]) -> bool:
    is_plain = all(
        physical_form(aval.dtype) is None and aval.dtype != jax.dtypes.float0 for aval in avals
    )
    return is_plain and sum(map(_n_bytes, avals)) >= _LEAST_KEPT_BYTES


def _n_bytes(aval: Any) -> int:
    """Returns the size of a result in bytes, for random keys at least that of their data."""
    return int(math.prod(aval.shape) * aval.dtype.itemsize)


def _like(value: Any, example: Any) -> Any:
    """Returns a value that is fed in place of an example."""
    shape, wanted = np.shape(value), np.shape(example)
    if shape != wanted:
        raise InvalidArgumentError(
            f"the closure was traced with an element of shape {wanted}, but the dataset gave one "
            f"of shape {shape}; make all of one shape, such as by batch(n, drop_remainder=True)"
        )
    return value

"""Equations around a closure that read its inputs from workers' tables and store its result there.

A worker keeps results in a value table, by the numbers of their closures. A program that takes such
a result reads it from the table of the worker that has it, and one whose result is kept writes it
to the table of its own worker; the numbers are arguments, so that one program serves all closures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np

from jflow.base.cluster import DeviceSpec, Task
from jflow.base.packing import pack
from jflow.compiler.graph import ResourceRef, tracing
from jflow.compiler.graph.hoisting import hoist_state
from jflow.compiler.graph.primitives import host_p
from jflow.plan.xla.jaxprs import shape_of
from jflow.state.resources.value_table import ValueTableSpec
from jflow.training.coordinator.events import Keeping

N_FREED = 16
"""How many results a step frees."""

_NUMBER = jax.ShapeDtypeStruct((), np.int32)


@dataclass(frozen=True)
class AttemptLayout:
    """What differs between attempts of one program.

    Attributes:
      inputs: the arguments that are the result of one closure, and the table that has it, for each
        result that a worker has.
      keeping: where the result goes.
      table: that of the worker itself, if the result stays there.
    """

    inputs: tuple[tuple[tuple[int, ...], ResourceRef], ...] = ()
    keeping: Keeping = Keeping.NOT
    table: ResourceRef | None = None

    @property
    def tables(self) -> tuple[ResourceRef, ...]:
        """The tables from which inputs are read."""
        return tuple(table for _, table in self.inputs)

    def arguments(self, args: Sequence[Any], numbers: Sequence[int]) -> list[Any]:
        """Returns the arguments of `arranged`.

        Args:
          args: those of the closure; what is read from tables is ignored.
          numbers: the closures of the inputs, and that of the result if it is kept.
        """
        read = {index for indices, _ in self.inputs for index in indices}
        return [x for i, x in enumerate(args) if i not in read] + [*map(number_of, numbers)]


PLAIN = AttemptLayout()
"""All inputs come from the coordinator, and the result goes there."""


def number_of(closure: int) -> np.ndarray[Any, Any]:
    """Returns the closure's number as an argument, int32[]; unique among stored results."""
    return np.array(closure % 2**31, np.int32)


def table_of(task: Task, session: str) -> ResourceRef:
    """Returns the result table of a worker, which exists as long as a connection to it."""
    spec = DeviceSpec(job=task.job, task=task.index, type="CPU", index=0)
    definition = ValueTableSpec().to_bytes()
    return ResourceRef("value_table", "results", "", definition, False, spec, session=session)


def arranged(jaxpr: jex.ClosedJaxpr, layout: AttemptLayout) -> jex.ClosedJaxpr:
    """Returns a traced function that reads its inputs and stores its result as the layout says.

    Args:
      jaxpr: the function.
      layout: the layout; `AttemptLayout.arguments` makes the arguments.
    """
    avals = jaxpr.in_avals
    places = {index: place for place, (indices, _) in enumerate(layout.inputs) for index in indices}
    n_plain = len(avals) - len(places)
    shapes = [shape_of(aval) for i, aval in enumerate(avals) if i not in places]
    n_numbers = len(layout.inputs) + (layout.table is not None)

    def call(*arguments: Any) -> list[Any]:
        plain, numbers = iter(arguments[:n_plain]), arguments[n_plain:]
        args: list[Any] = [None if i in places else next(plain) for i in range(len(avals))]
        for (indices, table), number in zip(layout.inputs, numbers, strict=False):
            outputs = [avals[index] for index in indices]
            for index, value in zip(indices, called("get", table, [number], outputs), strict=True):
                args[index] = value
        results: list[Any] = jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *args)
        if layout.table is None:
            return results
        called("put", layout.table, [numbers[-1], *results])
        return [] if layout.keeping is Keeping.ALONE else results

    return hoist_state(tracing.make_jaxpr(call, [*shapes, *[_NUMBER] * n_numbers]))


def fetching(table: ResourceRef, avals: Sequence[Any]) -> jex.ClosedJaxpr:
    """Returns a function of a number that reads a table's values of these types."""
    return tracing.make_jaxpr(lambda number: called("get", table, [number], avals), [_NUMBER])


def freeing(table: ResourceRef) -> jex.ClosedJaxpr:
    """Returns a function of int32[N_FREED] that frees the values with these numbers."""
    shape = jax.ShapeDtypeStruct((N_FREED,), np.int32)
    return tracing.make_jaxpr(lambda numbers: called("free", table, [numbers]), [shape])


def called(
    kernel: str, table: ResourceRef, inputs: Sequence[Any], outputs: Sequence[Any] = ()
) -> list[Any]:
    """Binds a call of a value-table kernel."""
    results: list[Any] = host_p.bind(
        *map(jax.numpy.asarray, inputs),
        function=f"value_table.{kernel}",
        attributes=pack({}, "arguments of a value table"),
        resources=(table,),
        is_blocking=False,
        outputs=tuple(jax.core.ShapedArray(aval.shape, aval.dtype) for aval in outputs),
        line="a result of a closure",
    )
    return results

"""Imports operations with all of their attributes from one graph into another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax.extend.core as jex

from jflow.base.cluster import DeviceSpec
from jflow.compiler.graph import origin, request
from jflow.compiler.graph.graph import Graph, Operation


@dataclass(frozen=True)
class Imported:
    """The attributes of an operation other than its equation.

    Attributes:
      name: its name, which must be free in the graph.
      control_inputs: operations to run before it.
      device: the requested device; the device blocks around the import fill in missing fields.
      colocated: names of the operations that it is colocated with.
      location: the user's line that made it in the first place.
    """

    name: str
    control_inputs: tuple[Operation, ...]
    device: DeviceSpec
    colocated: tuple[str, ...]
    location: origin.SourceLocation | None


def add_equation(
    graph: Graph, program: jex.ClosedJaxpr, inputs: Sequence[Any], imported: Imported
) -> Operation:
    """Adds the one equation of a program as an operation.

    Args:
      graph: the graph.
      program: a jaxpr of one equation, without constants.
      inputs: variables of the graph.
      imported: the rest of the operation.
    """
    with _around(graph, imported):
        outputs = graph.inline(program, inputs, lambda _: imported.name)
    op = outputs[0].op if outputs else graph.get_operations()[-1]
    return _named(op, imported)


def add_primitive(
    graph: Graph,
    primitive: jex.Primitive,
    inputs: Sequence[Any],
    out_avals: Sequence[Any],
    imported: Imported,
    params: dict[str, Any],
) -> Operation:
    """Adds an operation of one of jflow's primitives; arguments as for `Graph.add`."""
    with _around(graph, imported):
        op = graph.add(primitive, inputs, out_avals, name=imported.name, **params)
    return _named(op, imported)


def taken_names(graph: Graph, names: Sequence[str]) -> list[str]:
    """Returns those of `names` that the graph already uses, compared without case."""
    used_names = {op.name.casefold() for op in graph.get_operations()}
    return [name for name in names if name.casefold() in used_names]


def location_of(op: Operation) -> origin.SourceLocation | None:
    """Returns the user's line that made an operation."""
    return op._location


@contextmanager
def _around(graph: Graph, imported: Imported) -> Iterator[None]:
    wanted = request.resolved(imported.device, imported.colocated)
    scopes = graph.scopes.replaced(names="", control_inputs=imported.control_inputs)
    with scopes, request.request_scope(wanted):
        yield


def _named(op: Operation, imported: Imported) -> Operation:
    if op.name != imported.name:
        raise ValueError(f"the name {imported.name!r} is already taken in the graph")
    op._location = imported.location or op._location
    return op

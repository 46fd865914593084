"""Text form of graphs: one operation per line.

    scale/Mul = mul(x:0, 2.0) -> float32 (None, 3)   [device /job:ps; with v; after init]

The text depends only on the graph: it has no addresses, source lines or names of symbols, which are
numbered by process. Nested jaxprs are `{…}`, because they depend on the version of JAX.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import jax.extend.core as jex

from jflow.base.values import declared, shape_text
from jflow.compiler.graph.primitives import constant_p, host_p, state_of
from jflow.plan.text import attributes_text

_MAX_ELEMENTS = 4
_MAX_CHARACTERS = 40


class Printable(Protocol):
    """The interface of an operation that its text form needs."""

    name: str
    eqn: jex.JaxprEqn
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    control_inputs: tuple[Any, ...]

    @property
    def type(self) -> str:
        """Name of the primitive or function."""

    @property
    def device(self) -> str:
        """The requested device, "" if there is none."""

    @property
    def colocated_with(self) -> tuple[str, ...]:
        """Names of the operations that it is colocated with."""


def graph_text(ops: Sequence[Printable]) -> str:
    """Returns the number of operations, then one operation per line."""
    return "\n".join([f"graph of {len(ops)} operations", *(f"  {line(op)}" for op in ops)])


def line(op: Printable) -> str:
    """Returns the name, function, operands, result types and requests of an operation."""
    operands = [*map(str, state_of(op.eqn)), *_operands(op), *_details(op.eqn)]
    text = f"{op.name} = {op.type}({', '.join(operands)})"
    if op.outputs:
        text += f" -> {', '.join(map(type_text, op.outputs))}"
    requests = "; ".join(_requests(op))
    return f"{text}   [{requests}]" if requests else text


def type_text(value: Any) -> str:
    """Returns the dtype and shape of a tensor or abstract value, as "float32 (None, 3)"."""
    return f"{value.dtype.name} {shape_text(declared(value.shape))}"


def _operands(op: Printable) -> Iterator[str]:
    tensors = iter(op.inputs)
    for atom in op.eqn.invars:
        yield str(atom.val) if isinstance(atom, jex.Literal) else next(tensors).name


def _details(eqn: jex.JaxprEqn) -> Iterator[str]:
    """Yields values of constants, attributes of calls and nested jaxprs, abridged."""
    if eqn.primitive is constant_p:
        yield _value_text(eqn.params["value"])
    elif eqn.primitive is host_p:
        attributes = attributes_text(eqn.params["attributes"])
        yield from [attributes] if attributes else []
    if any(True for _ in jex.jaxprs_in_params(eqn.params)):
        yield "{…}"


def _value_text(value: Any) -> str:
    if value.size > _MAX_ELEMENTS:
        return "…"
    text = str(value.tolist())
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"


def _requests(op: Printable) -> Iterable[str]:
    if op.device:
        yield f"device {op.device}"
    if op.colocated_with:
        yield f"with {', '.join(op.colocated_with)}"
    if op.control_inputs:
        yield f"after {', '.join(source.name for source in op.control_inputs)}"

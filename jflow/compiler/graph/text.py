"""Text forms of graphs and of programs: one operation or equation per line.

    scale/Mul = mul(x:0, 2.0) -> float32 (None, 3)   [device /job:ps; with v; after init]

The text of a graph depends only on the graph: it has no addresses, source lines or names of
symbols, which are numbered by process. A program begins with its signature:

    (float32 (None, 3), float32 ()) -> (float32 (None, 3))
      %2 = mul(%0, %1) -> float32 (None, 3)
      return %2

Its values are numbered in the order in which they appear, and its parameters are omitted. In both
forms nested jaxprs are `{…}`: like parameters, they depend on the version of JAX.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax.export
import jax.extend.core as jex

from jflow.base.values import Array, declared, shape_text
from jflow.compiler.graph.primitives import constant_p, host_p, state_of
from jflow.plan.text import attributes_text

if TYPE_CHECKING:  # a graph has a text
    from jflow.compiler.graph.graph import Operation

_MAX_ELEMENTS = 4
_MAX_CHARACTERS = 40


def graph_text(ops: Sequence[Operation]) -> str:
    """Returns the number of operations, then one operation per line."""
    return "\n".join([f"graph of {len(ops)} operations", *(f"  {line(op)}" for op in ops)])


def line(op: Operation) -> str:
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


def _operands(op: Operation) -> Iterator[str]:
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


def _requests(op: Operation) -> Iterable[str]:
    if op.device:
        yield f"device {op.device}"
    if op.colocated_with:
        yield f"with {', '.join(op.colocated_with)}"
    if op.control_inputs:
        yield f"after {', '.join(source.name for source in op.control_inputs)}"


def signature(jaxpr: jex.ClosedJaxpr) -> str:
    """Returns the argument and result types of a program."""
    return f"({_types(jaxpr.in_avals)}) -> ({_types(jaxpr.out_avals)})"


def exported_signature(data: Array) -> str:
    """Returns the argument and result types of an exported program (u8[n])."""
    exported = jax.export.deserialize(bytearray(data.tobytes()))
    return f"({_types(exported.in_avals)}) -> ({_types(exported.out_avals)})"


def program_text(jaxpr: jex.ClosedJaxpr) -> str:
    """Returns the signature of a program, its equations and what it returns."""
    names: dict[Any, str] = {}

    def name(atom: Any) -> str:
        if isinstance(atom, jex.Literal):
            return str(atom.val)
        return names.setdefault(atom, f"%{len(names)}")

    program = jaxpr.jaxpr
    for var in program.invars:
        name(var)
    lines = [signature(jaxpr)]
    lines += [f"  {name(var)} = constant -> {type_text(var.aval)}" for var in program.constvars]
    for eqn in program.eqns:
        operands = ", ".join(map(name, eqn.invars))
        results = ", ".join(map(name, eqn.outvars))
        types = _types(var.aval for var in eqn.outvars)
        lines.append(f"  {results} = {_function(eqn)}({operands}) -> {types}")
    lines.append(f"  return {', '.join(map(name, program.outvars))}")
    return "\n".join(lines)


def _types(avals: Iterable[Any]) -> str:
    return ", ".join(map(type_text, avals))


def _function(eqn: jex.JaxprEqn) -> str:
    function: str = eqn.primitive.name
    if "name" in eqn.params:
        function += f" {eqn.params['name']}"
    return f"{function} {{…}}" if any(True for _ in jex.jaxprs_in_params(eqn.params)) else function

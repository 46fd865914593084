"""Text form of programs: a signature, then one equation per line.

    (float32 (None, 3), float32 ()) -> (float32 (None, 3))
      %2 = mul(%0, %1) -> float32 (None, 3)
      return %2

Values are numbered in the order in which they appear. Parameters are omitted and nested jaxprs are
`{…}`, because both depend on the version of JAX.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax.export
import jax.extend.core as jex

from jflow.base.values import Array
from jflow.compiler.graph.text import type_text


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

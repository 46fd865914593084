"""Verifier of graphs, run before a step is placed and compiled.

`Graph` makes only operations that pass it. An error means that an operation was modified later,
such as by a device function that assigns to the operation that it is called with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import jax.extend.core as jex

from jflow.base.values import is_compatible
from jflow.compiler.graph.graph import Graph, Operation, Tensor
from jflow.compiler.graph.primitives import ACCESSES, is_initialized_p, recorded_p
from jflow.compiler.graph.text import type_text
from jflow.errors import InvalidArgumentError


def verify(graph: Graph, ops: Sequence[Operation]) -> None:
    """Checks the operations that a step needs, in the graph's order, in O(n).

    Each operation belongs to the graph under its name; its inputs and outputs are those of its
    equation; its inputs and control inputs come before it, so there is no cycle; values of
    variables have the types of their variables; no call waits for a rank.

    Raises:
      InvalidArgumentError: with the operation.
    """
    position: dict[Operation, int] = {}
    for number, op in enumerate(ops):
        _check_member(graph, op)
        if position.setdefault(op, number) != number:
            _fail(op, "is there twice")
        _check_outputs(op)
        _check_inputs(graph, op)
        _check_ranks(op)
        for source in op.control_inputs:
            _check_member(graph, source)
    for number, op in enumerate(ops):
        for source in (*(tensor.op for tensor in op.inputs), *op.control_inputs):
            # Sources that are not in `ops` are fed, or are not executed.
            if position.get(source, -1) >= number:
                _fail(op, f"needs {source.name!r}, which comes after it: there is a cycle")


def _check_member(graph: Graph, op: Operation) -> None:
    if op.graph is not graph:
        _fail(op, "belongs to another graph")
    try:
        existing_op = graph.get_operation_by_name(op.name)
    except KeyError:
        _fail(op, "is not in its graph")
    if existing_op is not op:
        _fail(op, "has the name of another operation")


def _check_outputs(op: Operation) -> None:
    if tuple(tensor.var for tensor in op.outputs) != tuple(op.eqn.outvars):
        _fail(op, "has other outputs than its equation")
    for index, tensor in enumerate(op.outputs):
        if tensor.op is not op or tensor.index != index:
            _fail(op, f"has {tensor.name!r} as its output {index}")
    if op.eqn.primitive in ACCESSES - {is_initialized_p} and op.outputs:
        variable, value = op.eqn.params["variable"], op.outputs[0]
        if value.dtype != variable.dtype or not is_compatible(variable.shape, value.aval.shape):
            _fail(op, f"gives {type_text(value)} for {variable}, which is {type_text(variable)}")


def _check_inputs(graph: Graph, op: Operation) -> None:
    needed = [atom for atom in op.eqn.invars if not isinstance(atom, jex.Literal)]
    if [tensor.var for tensor in op.inputs] != needed:
        _fail(op, "has other inputs than its equation")
    for tensor in op.inputs:
        _check_member(graph, tensor.op)
        if not _is_output(tensor):
            _fail(op, f"takes {tensor.name!r}, which is not an output of {tensor.op.name!r}")


def _check_ranks(op: Operation) -> None:
    if op.eqn.primitive is not recorded_p:
        return
    failure = op.eqn.params.get("failure")
    if failure is not None:
        types = ", ".join(type_text(tensor) for tensor in op.inputs)
        raise InvalidArgumentError(
            f"operation {op.name!r} (made at {op.origin}) cannot take the fed shapes; "
            f"it gets {types}: {failure}",
            op=op.name,
        ) from failure
    unknown = next((tensor for tensor in op.inputs if tensor.aval.shape is None), None)
    of = "" if unknown is None else f" of {unknown.name!r} (made at {unknown.op.origin})"
    _fail(
        op,
        f"needs the rank{of}, which only a step that is fed the value knows; declare it with "
        "shape= of the placeholder, shapes= of the queue, set_shape or jflow.ensure_shape",
    )


def _is_output(tensor: Tensor) -> bool:
    outputs = tensor.op.outputs
    return tensor.index < len(outputs) and outputs[tensor.index] is tensor


def _fail(op: Operation, what: str) -> NoReturn:
    raise InvalidArgumentError(f"operation {op.name!r} (made at {op.origin}) {what}", op=op.name)

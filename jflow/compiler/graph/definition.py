"""The definition of a graph as TensorFlow's message, for tools that draw it.

A handle op counts as the first inputs of the operations on its variable or resource, so that what
uses it is joined to it. Operations inside of calls, branches and loops are not in the message, and
neither are parameters of equations, which depend on the version of JAX.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jflow.base.values import declared, memory_bytes
from jflow.compiler.graph.primitives import (
    HANDLES,
    ResourceRef,
    VariableRef,
    constant_p,
    placeholder_p,
    state_of,
)
from jflow.state.records.graph_def import AttrValue, GraphDef, NodeDef, VersionDef
from jflow.state.records.tensor_proto import dtype_number, shape_proto, tensor_proto

if TYPE_CHECKING:  # a graph has a definition
    from jflow.compiler.graph.graph import Operation

_PRODUCER = 134
"""The version of the format, that of TensorFlow 1.15."""

_MAX_VALUE_BYTES = 1024
"""TensorBoard leaves out larger attributes, too."""

Handles = Mapping[VariableRef | ResourceRef, "Operation"]
"""The handle ops of a graph."""


def graph_def(ops: Sequence[Operation], handles: Handles, add_shapes: bool) -> GraphDef:
    """Returns the definition of operations, and of their shapes if `add_shapes`."""
    refs = {op.name: ref for ref, op in handles.items()}
    nodes = []
    for op in ops:
        attributes = dict(_attributes(op, refs.get(op.name)))
        if add_shapes:
            shapes = [shape_proto(shape) for shape in _output_shapes(op)]
            attributes["_output_shapes"] = AttrValue(list=AttrValue.ListValue(shape=shapes))
        nodes.append(
            NodeDef(
                name=op.name,
                op=op.type,
                input=_inputs(op, handles),
                device=op.device,
                attr=attributes,
            )
        )
    return GraphDef(node=nodes, versions=VersionDef(producer=_PRODUCER))


def _inputs(op: Operation, handles: Handles) -> Iterator[str]:
    """Yields the names of what an operation takes, control inputs last."""
    for ref in state_of(op.eqn):
        if ref in handles:
            yield handles[ref].name
    for tensor in op.inputs:
        yield tensor.name.removesuffix(":0")
    for before in op.control_inputs:
        yield f"^{before.name}"


def _output_shapes(op: Operation) -> list[Any]:
    """Returns the shapes of the outputs; a handle op has one, which stands for its state."""
    return [()] if op.eqn.primitive in HANDLES else [declared(t.aval.shape) for t in op.outputs]


def _attributes(
    op: Operation, state: VariableRef | ResourceRef | None
) -> Iterator[tuple[str, AttrValue]]:
    """Yields the attributes of an operation, where TensorFlow has the same."""
    if op.colocated_with:
        classes = [f"loc:@{name}".encode() for name in op.colocated_with]
        yield "_class", AttrValue(list=AttrValue.ListValue(s=classes))
    if state is not None:
        yield "container", AttrValue(s=state.container.encode())
        yield "shared_name", AttrValue(s=state.name.encode())
    if isinstance(state, VariableRef):
        yield from _type(state.dtype, state.shape)
    elif op.eqn.primitive is placeholder_p:
        (tensor,) = op.outputs
        yield from _type(tensor.dtype, declared(tensor.aval.shape))
    elif op.eqn.primitive is constant_p:
        yield from _constant(op.outputs[0].dtype, op.eqn.params["value"])


def _type(dtype: Any, shape: Any) -> Iterator[tuple[str, AttrValue]]:
    if number := dtype_number(dtype):
        yield "dtype", AttrValue(type=number)
    yield "shape", AttrValue(shape=shape_proto(shape))


def _constant(dtype: Any, value: Any) -> Iterator[tuple[str, AttrValue]]:
    """Yields the dtype of a constant, and its value unless it is large."""
    if number := dtype_number(dtype):
        yield "dtype", AttrValue(type=number)
        if memory_bytes(value) <= _MAX_VALUE_BYTES:
            yield "value", AttrValue(tensor=tensor_proto(value, dtype))

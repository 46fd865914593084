"""`GraphDef`: a graph as the message that TensorBoard draws."""

from __future__ import annotations

from google.protobuf import text_format

from jflow.state.records.v1.graph_pb2 import AttrValue as AttrValue
from jflow.state.records.v1.graph_pb2 import GraphDef as GraphDef
from jflow.state.records.v1.graph_pb2 import NodeDef as NodeDef
from jflow.state.records.v1.graph_pb2 import VersionDef as VersionDef

GraphDef.__doc__ = """A graph as TensorFlow's message; `Graph.as_graph_def` returns one."""
NodeDef.__doc__ = """An operation of a `GraphDef`: name, type, inputs, device and attributes."""
AttrValue.__doc__ = """An attribute of a `NodeDef`: a number, text, dtype, shape, tensor or list."""


def graph_def_text(definition: GraphDef) -> str:
    """Returns the text of a definition; unlike `str`, it is the same in each process."""
    return text_format.MessageToString(definition)

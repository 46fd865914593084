"""Graphs: operations (JAX equations), the tensors between them, and scopes."""

from jflow.compiler.graph.device_blocks import device as device
from jflow.compiler.graph.device_blocks import loop as loop
from jflow.compiler.graph.gradient import AggregationMethod as AggregationMethod
from jflow.compiler.graph.gradient import gradients as gradients
from jflow.compiler.graph.graph import Graph as Graph
from jflow.compiler.graph.graph import Operation as Operation
from jflow.compiler.graph.graph import Tensor as Tensor
from jflow.compiler.graph.members import GraphKeys as GraphKeys
from jflow.compiler.graph.primitives import ResourceRef as ResourceRef
from jflow.compiler.graph.primitives import VariableRef as VariableRef
from jflow.compiler.graph.scope import colocate_with as colocate_with
from jflow.compiler.graph.scope import container as container
from jflow.compiler.graph.scope import control_dependencies as control_dependencies
from jflow.compiler.graph.scope import get_default_graph as get_default_graph
from jflow.compiler.graph.scope import get_default_session as get_default_session
from jflow.compiler.graph.scope import name_scope as name_scope
from jflow.compiler.graph.scope import reset_default_graph as reset_default_graph
from jflow.compiler.graph.symbolic import Symbolic as Symbolic

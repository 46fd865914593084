"""Graphs: operations (JAX equations), the tensors between them, and scopes."""

from jflow.graph.collections import GraphKeys as GraphKeys
from jflow.graph.gradient import AggregationMethod as AggregationMethod
from jflow.graph.gradient import gradients as gradients
from jflow.graph.graph import Graph as Graph
from jflow.graph.graph import Operation as Operation
from jflow.graph.graph import Tensor as Tensor
from jflow.graph.primitives import ResourceRef as ResourceRef
from jflow.graph.primitives import VariableRef as VariableRef
from jflow.graph.scope import colocate_with as colocate_with
from jflow.graph.scope import container as container
from jflow.graph.scope import control_dependencies as control_dependencies
from jflow.graph.scope import device as device
from jflow.graph.scope import get_default_graph as get_default_graph
from jflow.graph.scope import get_default_session as get_default_session
from jflow.graph.scope import name_scope as name_scope
from jflow.graph.scope import reset_default_graph as reset_default_graph
from jflow.graph.symbolic import Symbolic as Symbolic

"""The global step: the variable of a graph that counts steps of training."""

from __future__ import annotations

from typing import Any

import jax.dtypes
import jax.numpy as jnp
import numpy as np

from jflow.client.ops import Variable
from jflow.compiler.graph import Graph, GraphKeys, get_default_graph


def create_global_step(graph: Graph | None = None) -> Variable:
    """Makes the global step of a graph, an integer scalar variable "global_step", from 0.

    It has 64 bits if JAX has them switched on, else 32.

    Args:
      graph: the graph; None for the default one.

    Raises:
      ValueError: if the graph has one.
    """
    graph = graph or get_default_graph()
    if get_global_step(graph) is not None:
        raise ValueError("the graph has a global step; use get_or_create_global_step()")
    with graph.as_default():
        zero = np.zeros((), jax.dtypes.canonicalize_dtype(np.int64))
        keys = [GraphKeys.GLOBAL_VARIABLES, GraphKeys.GLOBAL_STEP]
        return Variable(zero, trainable=False, name="global_step", collections=keys)


def get_global_step(graph: Graph | None = None) -> Variable | None:
    """Returns the global step of a graph, or None.

    It is the variable of the collection "global_step", else the one named so.

    Args:
      graph: the graph; None for the default one.

    Raises:
      TypeError: if it is not an integer scalar.
    """
    graph = graph or get_default_graph()
    variables = graph.get_collection(GraphKeys.GLOBAL_VARIABLES)
    named = [v for v in variables if v.op.name == "global_step"]
    for variable in [*graph.get_collection(GraphKeys.GLOBAL_STEP), *named]:
        if variable.shape != () or not jnp.issubdtype(variable.dtype, jnp.integer):
            raise TypeError(f"expected an integer scalar as global step, got {variable!r}")
        step: Variable = variable
        return step
    return None


def get_or_create_global_step(graph: Graph | None = None) -> Variable:
    """Returns the global step of a graph, which is made if there is none."""
    step = get_global_step(graph)
    return create_global_step(graph) if step is None else step


def global_step(sess: Any, global_step_tensor: Any) -> int:
    """Returns the value of a global step in a session."""
    return int(sess.run(global_step_tensor))

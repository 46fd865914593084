"""Operations that report or check which variables are initialized."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from jflow.base.values import abstract, string, unknown_dim
from jflow.client.ops.arrays import identity
from jflow.client.ops.state import global_variables, local_variables
from jflow.client.ops.variable import Variable
from jflow.compiler.graph import (
    Graph,
    Operation,
    Tensor,
    colocate_with,
    control_dependencies,
    name_scope,
)
from jflow.compiler.graph import get_default_graph as _default_graph
from jflow.compiler.graph.calls import call
from jflow.compiler.graph.primitives import is_initialized_p


def is_variable_initialized(variable: Variable, name: str = "IsInitialized") -> Tensor:
    """Returns a tensor that is True if the variable is initialized, bool[].

    A step that also initializes the variable may give either result, unless control dependencies
    order the two.

    Args:
      variable: a variable; an eager one always has a value.
      name: name of the operation.

    Raises:
      TypeError: if it is not a variable.
    """
    if not isinstance(variable, Variable):
        raise TypeError(f"expected a variable, got {variable!r:.80}")
    if variable.is_eager:
        return _default_graph().constant(True, name=name)
    graph, ref = variable.graph, variable.operations.ref
    aval = abstract((), np.dtype(np.bool_))
    with colocate_with(variable, ignore_existing=True):
        return graph.add(is_initialized_p, [], [aval], name=name, variable=ref).outputs[0]


def report_uninitialized_variables(
    var_list: Iterable[Variable] | None = None, name: str = "report_uninitialized_variables"
) -> Tensor:
    """Returns a tensor of the names of the uninitialized variables.

    Args:
      var_list: the variables; None for the global and the local variables of the default graph.
      name: scope of the operations.

    Returns:
      string[n], the names in the order of the list; sessions return them as bytes.
    """
    variables = _variables_to_check(var_list)
    aval = abstract((unknown_dim(),), string)
    return _check("missing_names", variables, [aval], name).outputs[0]


def assert_variables_initialized(var_list: Iterable[Variable] | None = None) -> Tensor | None:
    """Returns a tensor whose step fails unless all variables are initialized.

    Args:
      var_list: the variables; None for the global and the local variables of the default graph.

    Returns:
      The ranks of the variables, as in TensorFlow: int32[n], or int32[] of a single variable; None
      if there is no variable.

    Raises:
      FailedPreconditionError: in the step, with the names of the variables that have none.
    """
    variables = _variables_to_check(var_list)
    if not variables:
        return None
    check = _check("assert_initialized", variables, [], "assert_variables_initialized")
    ranks = [variable.ndim for variable in variables]
    value = np.array(ranks if len(variables) > 1 else ranks[0], np.int32)
    with check.graph.as_default(), control_dependencies([check]):
        return identity(value, name=check.name)


def _variables_to_check(var_list: Iterable[Variable] | None) -> list[Variable]:
    return [*global_variables(), *local_variables()] if var_list is None else [*var_list]


def _check(
    function: str, variables: Sequence[Variable], outputs: Sequence[Any], name: str
) -> Operation:
    """Calls a host function with whether each variable is initialized, and with their names."""
    graph: Graph = variables[0].graph if variables else _default_graph()
    with graph.as_default(), name_scope(name):
        flags = [is_variable_initialized(variable) for variable in variables]
        names = [variable.op.name for variable in variables]
        attributes = {"names": names}
        return call(graph, function, flags, outputs, name=function, attributes=attributes)

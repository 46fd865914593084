"""Blocks whose operations run where a variable lives."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from jflow.client.ops import Variable
from jflow.compiler.graph import colocate_with, request


def beside(variable: Any) -> AbstractContextManager[Any]:
    """Returns a block whose operations run on the device of a variable, whatever blocks are around.

    Args:
      variable: a variable, eager or of a graph, or a tensor.
    """
    if isinstance(variable, Variable) and variable.is_eager:
        spec = variable.operations.ref.spec
        return request.request_scope(request.Request((None, spec), (None,)))
    return colocate_with(variable, ignore_existing=True)

"""`waiting_op`: finds the operation at which a suspended interpreter waits."""

from __future__ import annotations

import inspect
from collections.abc import Generator
from typing import Any

from jflow.task.execution.blocking_loop import until_inner_loop
from jflow.task.execution.step_state import StepState
from jflow.task.execution.tracing import traced

_WAITING_CODE = {StepState.perform.__code__, StepState.wait.__code__}
"""The generators of an interpreter that wait for attempts; each has its instruction as `linked`."""
_AROUND_CODE = {traced.__code__, until_inner_loop.__code__}
"""The generators around an interpreter, which have it as `running`."""


def waiting_op(interpreter: Generator[Any, Any, Any]) -> str:
    """Returns the name of the operation for which an interpreter waits; "" if it is not known.

    It is read from the suspended generators, so that steps need not record it.

    Args:
      interpreter: waits for an attempt, and is not resumed meanwhile.
    """
    generator: Any = interpreter
    while inspect.isgenerator(generator):
        names = inspect.getgeneratorlocals(generator)
        if generator.gi_code in _WAITING_CODE and names:
            op: str = names["linked"].instruction.op
            return op
        is_around = generator.gi_code in _AROUND_CODE
        generator = names.get("running") if is_around else generator.gi_yieldfrom
    return ""

"""`waiting_op`: the operation at which an interpreter waits, found when it is requested."""

from __future__ import annotations

import inspect
from collections.abc import Generator
from typing import Any

from jflow.execution.step_state import StepState

_WAITING = {StepState.perform.__code__, StepState.wait.__code__}
"""The generators of an interpreter that wait for attempts; each has its instruction as `linked`."""


def waiting_op(interpreter: Generator[Any, Any, Any]) -> str:
    """The name of the operation that an interpreter waits for; "" if that is not known.

    It is read from the generators, so that no step notes it. Traced steps have none.

    Args:
      interpreter: waits for an attempt, and is not resumed meanwhile.
    """
    generator: Any = interpreter
    while inspect.isgenerator(generator):
        if generator.gi_code in _WAITING and generator.gi_frame is not None:
            op: str = inspect.getgeneratorlocals(generator)["linked"].instruction.op
            return op
        generator = generator.gi_yieldfrom
    return ""

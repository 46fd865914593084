"""Converts the errors of plans, some of which come from JAX."""

from __future__ import annotations

from typing import NoReturn

import jax

from jflow.base.cluster import Task
from jflow.errors import (
    Code,
    InternalError,
    InvalidArgumentError,
    OpError,
    ResourceExhaustedError,
)
from jflow.plan.xla import internals
from jflow.task.execution.linked import LinkedPlan


def raise_of_plan(error: Exception, linked: LinkedPlan, task: Task) -> NoReturn:
    """Raises the error of a plan, converted to an OpError that names the task where possible."""
    if isinstance(error, OpError):
        error.with_context(task=str(task))
        raise error
    if isinstance(error, internals.ARGUMENT_ERRORS):
        raise InvalidArgumentError(
            f"a program on {linked.plan.device} does not accept its arguments: {error}",
            task=str(task),
        ) from error
    if isinstance(error, jax.errors.JaxRuntimeError):
        if str(error).startswith(Code.RESOURCE_EXHAUSTED.name):
            raise ResourceExhaustedError(
                f"a program needs more memory than {linked.plan.device} has: {error}; make its "
                "arrays smaller, or divide it among devices",
                task=str(task),
            ) from error
        raise InternalError(
            f"a program failed on {linked.plan.device}: {error}", task=str(task)
        ) from error
    raise error

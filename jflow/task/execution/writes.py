"""`writes_of`: what linked plans write."""

from __future__ import annotations

from collections.abc import Sequence

from jflow.state.core import WritesOfTask
from jflow.task.execution.link import LinkedPlan, LinkedRun


def writes_of(plans: Sequence[LinkedPlan]) -> WritesOfTask:
    """What linked plans of one task write."""
    writing = [
        one.written
        for plan in plans
        for stage in plan.stages
        for one in stage
        if isinstance(one, LinkedRun) and one.written
    ]
    return WritesOfTask(frozenset(key for keys in writing for key in keys), len(writing))

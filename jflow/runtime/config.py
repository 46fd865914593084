"""Options of sessions and of single steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ConfigProto:
    """Options of a session.

    Attributes:
      operation_timeout_in_ms: longest time for a call and all that it does: connecting, waiting
        for tasks to come up, registering, compiling, running. When it is over the call ends with
        `DeadlineExceededError`; what this process itself computes or compiles is not interrupted,
        the deadline is checked afterwards. 0 for no limit.
      connect_timeout_in_ms: longest time to wait for a server, or for a task that a step needs,
        while it does not answer; the call then ends with `UnavailableError`.
      allow_soft_placement: whether an operation that asks for a device type or number that its
        task does not have runs on another device of that task. Jobs and tasks are never changed.
      log_device_placement: whether to log, once for each operation, where it runs; through
        `logging`, as warnings of "jflow.placement.placer" so that they are seen by default.
      placement: what chooses the devices of operations that ask for none: "rules" for the master's
        first one, the name of another strategy (`jflow.schedule.strategies.STRATEGIES`, such as
        "auto"), "module:function", or a function `place(graph, devices, costs, constraints)` that
        gives one of `devices` for each of `graph.operations`. Requests, colocation and the places
        of variables hold whatever it says.
    """

    operation_timeout_in_ms: int = 0
    connect_timeout_in_ms: int = 30_000
    allow_soft_placement: bool = False
    log_device_placement: bool = False
    placement: str | Callable[..., Any] = "rules"


@dataclass(frozen=True)
class RunOptions:
    """Options of one step.

    Attributes:
      timeout_in_ms: longest time for this call, as `ConfigProto.operation_timeout_in_ms`; 0 for
        the session's.
    """

    timeout_in_ms: int = 0

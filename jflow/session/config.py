"""Options of sessions and of single steps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ConfigProto:
    """Options of a session.

    Attributes:
      operation_timeout_in_ms: longest time for a step; 0 for no limit.
      connect_timeout_in_ms: longest time to wait for a server, or for a task that a step needs.
    """

    operation_timeout_in_ms: int = 0
    connect_timeout_in_ms: int = 30_000


@dataclass(frozen=True)
class RunOptions:
    """Options of one step.

    Attributes:
      timeout_in_ms: longest time for this step; 0 for the session's.
    """

    timeout_in_ms: int = 0

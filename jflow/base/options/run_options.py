"""`RunOptions`: the options of one step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from jflow.base.options.fields import Options
from jflow.errors import InvalidArgumentError


@dataclass(repr=False)
class RunOptions(Options):
    """Options of one step, which can be assigned.

    Attributes:
      timeout_in_ms: time limit of this call in milliseconds, in place of
        `ConfigProto.operation_timeout_in_ms`; 0 for the session's.
      trace_level: `NO_TRACE`, or one of the others, which all record the same: when each program,
        call and wait of the step began and ended on each device, and its transfers.
      output_partition_graphs: whether to return the text of the plans that the step ran.

    What is recorded is in the `RunMetadata` that the call was given.

    Raises:
      TypeError: if an option has the wrong type; also when it is assigned.
      InvalidArgumentError: likewise if the trace level is not one of these, or the limit is
        negative.
    """

    NO_TRACE: ClassVar[int] = 0
    SOFTWARE_TRACE: ClassVar[int] = 1
    HARDWARE_TRACE: ClassVar[int] = 2
    FULL_TRACE: ClassVar[int] = 3

    timeout_in_ms: int = 0
    trace_level: int = NO_TRACE
    output_partition_graphs: bool = False

    def checked(self, name: str, value: Any) -> Any:
        if name == "trace_level" and value not in range(4):
            raise InvalidArgumentError(
                "expected RunOptions.NO_TRACE, SOFTWARE_TRACE, HARDWARE_TRACE or FULL_TRACE (0 to "
                f"3) as trace_level, got {value!r}"
            )
        if name == "timeout_in_ms" and value < 0:
            raise InvalidArgumentError(
                f"RunOptions.timeout_in_ms must not be negative, got {value}"
            )
        return value

"""Options of sessions, connections and single steps, and how a server tells its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from jflow.cluster import DeviceFilters
from jflow.errors import InvalidArgumentError
from jflow.packing import Record


@dataclass(frozen=True)
class ConfigProto:
    """Options of a session or connection.

    Attributes:
      operation_timeout_in_ms: time limit of a call in milliseconds, for everything that it does:
        connecting, waiting for tasks, compiling, running. When it passes, the call raises
        `DeadlineExceededError`. Computing and compiling in this process are not interrupted; the
        limit is checked afterwards. 0 for no limit.
      connect_timeout_in_ms: how long to wait, in milliseconds, for a server or task that does not
        answer; then the call raises `UnavailableError`.
      allow_soft_placement: whether an operation that requests a device type or index that its
        task does not have runs on another device of the task. Jobs and tasks are never changed.
      log_device_placement: whether to log the device of each operation, once, as a warning of the
        logger "jflow.placement.placer", which is shown by default.
      placement: what chooses the devices of operations that request none: "rules" for the first
        device of the master, the name of another strategy (`jflow.schedule.strategies.STRATEGIES`,
        such as "auto"), "module:function", or a function
        `place(graph, devices, costs, constraints)` that returns one of `devices` for each of
        `graph.operations`. Device requests, colocation and the devices of variables are kept.
      device_filters: parts of device names, such as "/job:ps" and "/job:worker/task:0". A session
        sees the devices that match one of them, and those of its own server; nothing waits for the
        others, and no operation can request them. Empty for all devices. Only consistent saves,
        which hold back the steps of all sessions, reach the others.
      isolate_session_state: whether the variables, queues and other resources of the session are
        its own, in all containers: no other session sees them, and they go with it. Always so in
        this process.

    Raises:
      TypeError: if the filters are not a list of strings.
      InvalidArgumentError: if a filter is not a device name.
    """

    operation_timeout_in_ms: int = 0
    connect_timeout_in_ms: int = 30_000
    allow_soft_placement: bool = False
    log_device_placement: bool = False
    placement: str | Callable[..., Any] = "rules"
    device_filters: Sequence[str] = ()
    isolate_session_state: bool = False

    def __post_init__(self) -> None:
        try:
            texts = DeviceFilters(self.device_filters).texts
        except ValueError as error:
            raise InvalidArgumentError(f"ConfigProto.device_filters: {error}") from None
        object.__setattr__(self, "device_filters", texts)


@dataclass(frozen=True)
class RunOptions:
    """Options of one step.

    Attributes:
      timeout_in_ms: time limit of this call in milliseconds, in place of
        `ConfigProto.operation_timeout_in_ms`; 0 for the session's.
      trace_level: `NO_TRACE`, or one of the others, which all record the same: when each program,
        call and wait of the step began and ended on each device, and its transfers.
      output_partition_graphs: whether to return the text of the plans that the step ran.

    What is recorded is in the `RunMetadata` that the call was given.

    Raises:
      InvalidArgumentError: if the trace level is not one of these.
    """

    NO_TRACE: ClassVar[int] = 0
    SOFTWARE_TRACE: ClassVar[int] = 1
    HARDWARE_TRACE: ClassVar[int] = 2
    FULL_TRACE: ClassVar[int] = 3

    timeout_in_ms: int = 0
    trace_level: int = NO_TRACE
    output_partition_graphs: bool = False

    def __post_init__(self) -> None:
        if self.trace_level not in range(4):
            raise InvalidArgumentError(
                "expected RunOptions.NO_TRACE, SOFTWARE_TRACE, HARDWARE_TRACE or FULL_TRACE (0 to "
                f"3) as trace_level, got {self.trace_level!r}"
            )


@dataclass(frozen=True)
class SessionDefaults(Record):
    """The options that a server has for the sessions on it; the attributes are `ConfigProto`'s."""

    what = "options of sessions"

    operation_timeout_in_ms: int = 0
    connect_timeout_in_ms: int = 30_000
    allow_soft_placement: bool = False
    log_device_placement: bool = False
    placement: str = "rules"
    device_filters: tuple[str, ...] = ()
    isolate_session_state: bool = False

    @classmethod
    def of(cls, config: ConfigProto) -> SessionDefaults:
        """The options as they travel.

        Raises:
          InvalidArgumentError: if the placement is a function, or names one.
        """
        _check_sent(config.placement)
        return cls(**{field.name: getattr(config, field.name) for field in fields(cls)})

    def fill(self, config: ConfigProto) -> ConfigProto:
        """A session's options; those that it has not changed are the server's.

        Raises:
          InvalidArgumentError: if the server's are invalid.
        """
        _check_sent(self.placement)
        usual = ConfigProto()
        changes = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if getattr(config, field.name) == getattr(usual, field.name)
        }
        return replace(config, **changes)


def _check_sent(placement: str | Callable[..., Any]) -> None:
    """Raises InvalidArgumentError unless a placement is the name of a strategy.

    A client imports no module because a server says so.
    """
    if not isinstance(placement, str) or ":" in placement:
        raise InvalidArgumentError(
            "the config of a server goes to its clients, so its placement is the name of a "
            f"strategy, such as 'auto', and no function; got {placement!r}"
        )

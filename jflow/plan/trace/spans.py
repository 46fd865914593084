"""`Span`, `Transfer` and `Update`: the elements of a trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jflow.errors import InvalidArgumentError

Detail = str | int | float

OPERATION, PROGRAM, CALL, WAIT, STEP = KINDS = ("operation", "program", "call", "wait", "step")
"""What a span is: an operation of a simulated step; in a real step a program, a call of a function
of the host, or a wait for a value, a resource or the client; or a whole step, as its caller saw
it."""


@dataclass(frozen=True)
class Span:
    """An interval of work on one device, or on the host of its task.

    Attributes:
      name: of the operation, or the one that its segment is called by.
      kind: one of `KINDS`.
      device: such as "/job:worker/task:0/device:CPU:0", or the name of a simulated device.
      start, finish: in seconds from the start of the step.
      details: what else is known, by name.

    Raises:
      InvalidArgumentError: if the kind is unknown, or the span finishes before it starts.
    """

    name: str
    kind: str
    device: str
    start: float
    finish: float
    details: Mapping[str, Detail] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidArgumentError(
                f"expected one of {', '.join(KINDS)} as the kind of {self.name!r}, got "
                f"{self.kind!r}"
            )
        _check_order(self.name, self.start, self.finish)

    @property
    def seconds(self) -> float:
        """The duration."""
        return self.finish - self.start


@dataclass(frozen=True)
class Transfer:
    """A transfer of a tensor, or of a signal without bytes, between two devices.

    Attributes:
      name: of the tensor, or of what made it.
      source, target: names of the devices.
      n_bytes: its size; 0 for a signal.
      start: when it was ready to leave, in seconds from the start of the step.
      finish: when it was at the target.

    Raises:
      InvalidArgumentError: if it arrives before it leaves.
    """

    name: str
    source: str
    target: str
    n_bytes: int
    start: float
    finish: float

    def __post_init__(self) -> None:
        _check_order(self.name, self.start, self.finish)

    @property
    def seconds(self) -> float:
        """The duration."""
        return self.finish - self.start


@dataclass(frozen=True)
class Update:
    """An update of a variable by a step that had read it earlier.

    What the step writes was computed from a value that may have been updated by others since, as
    gradients of asynchronous training are.

    Attributes:
      variable: its name.
      device: where it is.
      n_missed: how many updates of other steps came between the read and the update.
    """

    variable: str
    device: str
    n_missed: int


def _check_order(name: str, start: float, finish: float) -> None:
    if not start <= finish:
        raise InvalidArgumentError(
            f"{name!r} finishes at {finish} s, before it starts at {start} s"
        )

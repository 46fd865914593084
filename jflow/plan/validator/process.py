"""`ValidatorProcess`: a process that validates programs."""

from __future__ import annotations

import time
from dataclasses import dataclass

from jflow.errors import InvalidArgumentError
from jflow.plan.apart.messages import MessageKind
from jflow.plan.apart.process import ApartEndedError, ApartJob, ApartProcess
from jflow.plan.validator.work import program_of
from jflow.plan.xla.validation import MAX_PROGRAM_BYTES, ValidProgram

# What MLIR says about malformed programs has their bytes in it, so standard error is not kept.
_JOB = ApartJob(
    "jflow.plan.validator.work",
    "validates programs from other processes",
    2 * MAX_PROGRAM_BYTES,
    environment=(("OMP_NUM_THREADS", "1"), ("OPENBLAS_NUM_THREADS", "1")),
)
_GRACE_S = 5.0
"""How long a validator may take to notice that a program took too long, before it is killed."""


@dataclass(frozen=True)
class ValidationLimits:
    """Limits for the validation of one program.

    Attributes:
      seconds: the time.
      n_bytes: the memory beyond that of an idle validator.
    """

    seconds: int = 60
    n_bytes: int = 4 << 30


class ValidatorProcess(ApartProcess):
    """A validator process. It has imported JAX and starts no backend of it.

    Args:
      limits: what a program may take.
      forks: see `ApartProcess`.
    """

    def __init__(
        self, limits: ValidationLimits = ValidationLimits(), *, forks: bool = False
    ) -> None:
        super().__init__(_JOB, limits.seconds, limits.n_bytes, forks=forks)
        self._limits = limits

    def validate(self, name: str, data: bytes) -> ValidProgram:
        """Validates a program; blocks until the process has started.

        Args:
          name: what errors call the program.
          data: a serialized `jax.export.Exported`.

        Raises:
          InvalidArgumentError: if the program is refused, or has ended the process.
          InternalError: if the process could not start.
        """
        named = f"the program {name} of {len(data)} bytes"
        if not self.is_ready:
            self.await_ready()  # its time does not count
        try:
            reply = self.ask(data, time.monotonic() + self._limits.seconds + _GRACE_S)
        except (TimeoutError, ApartEndedError) as error:
            if isinstance(error, TimeoutError) or error.how == "SIGALRM":
                raise InvalidArgumentError(
                    f"{named} took longer than {self._limits.seconds} s to validate"
                ) from None
            raise InvalidArgumentError(
                f"{named} is malformed: the process that validates programs ended with "
                f"{error.how} while it parsed it"
            ) from None
        if reply.kind is MessageKind.DONE:
            return program_of(reply)
        reason = reply.data.decode(errors="replace")
        raise InvalidArgumentError(f"{named} is refused: {reason}")

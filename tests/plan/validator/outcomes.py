"""What becomes of programs that are validated one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from jflow.errors import InvalidArgumentError
from jflow.plan.validator.process import ValidationLimits, ValidatorProcess
from jflow.plan.xla.validation import ValidProgram


class ValidationOutcome(NamedTuple):
    """The result of validating one program.

    Attributes:
      valid: the valid program; None if it was refused.
      how_it_ended: how the process ended by it; None if it did not.
    """

    valid: ValidProgram | None
    how_it_ended: str | None = None


def outcomes(programs: Iterable[bytes], limits: ValidationLimits) -> Iterator[ValidationOutcome]:
    """Validates many programs in turn and yields the outcomes.

    A second process is always there, so that one that ends costs no start.
    """
    process, spare = ValidatorProcess(limits), ValidatorProcess(limits)
    try:
        for data in programs:
            try:
                outcome = ValidationOutcome(process.validate("", data))
            except InvalidArgumentError:
                how = process.how_it_ended if process.has_ended else None
                outcome = ValidationOutcome(None, how)
            if process.has_ended:
                process, spare = spare, ValidatorProcess(limits)
            yield outcome
    finally:
        process.end()
        spare.end()

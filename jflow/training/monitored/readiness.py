"""Operations that say whether variables are ready."""

from __future__ import annotations

from collections.abc import Sequence

from jflow.graph import Operation
from jflow.ops import Variable, group


def uninitialized(variables: Sequence[Variable]) -> Operation:
    """Returns an operation that fails while one of the variables is not initialized.

    The error is a FailedPreconditionError that names it.
    """
    return group(*(variable.read_value() for variable in variables), name="ready")

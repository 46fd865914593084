"""Looks up placement strategies by the names that users give."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, cast

from jflow.compiler.placement.calibration import Calibration
from jflow.compiler.placement.explain import RULES as RULES
from jflow.compiler.placement.place import assign
from jflow.compiler.placement.scheduled import ByFunction
from jflow.compiler.placement.strategy import Strategy
from jflow.compiler.schedule import PlaceFunction
from jflow.compiler.schedule.strategies import OPTIONAL, STRATEGIES
from jflow.errors import InvalidArgumentError


def strategy_of(
    placement: str | Callable[..., Any] | ByFunction, calibration: Calibration | None = None
) -> Strategy:
    """Returns the placement strategy for the argument that a user gave.

    Args:
      placement: "rules", one of `jflow.lab.STRATEGIES`, "module:function", a function
        `place(graph, devices, costs, constraints)`, or a strategy, which is the answer.
      calibration: what the costs are estimated with; None for the prior.

    Raises:
      InvalidArgumentError: if there is no such strategy.
      TypeError: if it is neither text nor a function.
    """
    if placement == RULES:
        return assign
    if isinstance(placement, ByFunction):
        return placement
    return ByFunction(function_of(placement), calibration)


def function_of(placement: str | Callable[..., Any]) -> PlaceFunction:
    """Returns the function behind a placement strategy other than "rules"; see `strategy_of`."""
    if callable(placement):
        return placement
    if not isinstance(placement, str):
        raise TypeError(
            f"placement is the name of a strategy or a function, got {type(placement).__name__}"
        )
    shipped = STRATEGIES | OPTIONAL
    if placement in shipped:
        return shipped[placement]
    module, colon, name = placement.partition(":")
    if not colon:
        raise InvalidArgumentError(
            f"there is no placement strategy {placement!r}; there are {RULES}, "
            f"{', '.join(shipped)}, and functions of your own as 'module:function'"
        )
    try:
        function: Any = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidArgumentError(
            f"the placement strategy {placement!r} cannot be imported: {error}"
        ) from error
    if not callable(function):
        raise InvalidArgumentError(
            f"the placement strategy {placement!r} is not a function, but {function!r:.80}"
        )
    return cast("PlaceFunction", function)

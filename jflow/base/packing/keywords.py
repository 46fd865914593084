"""Keyword arguments of functions that are called by name, as bytes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from inspect import Parameter
from typing import Any

from jflow.base.packing.decoder import Limits, Where
from jflow.base.packing.forms import Fields, form_of
from jflow.base.packing.record import decode


class Keywords:
    """The keyword-only parameters of a function: the fields of what `pack` made of its arguments.

    The annotations of the parameters say what is accepted, as those of a record's fields do.
    Parameters of other kinds are not given by name. Those of a function with `**parameters` may
    have any name.

    Args:
      function: the function; its wrapped one if it has one.
      name: what messages call it.

    Raises:
      TypeError: if the annotation of a keyword-only parameter is not supported.
    """

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._fields = _fields(function)
        self._what = f"arguments of {name!r}"

    def unpack(self, data: bytes) -> dict[str, Any]:
        """The arguments by name.

        Raises:
          InvalidArgumentError: if the bytes are malformed, an argument is missing, unknown or of
            another type.
        """
        found: dict[str, Any] = decode(self._fields, data, Where(self._what, Limits()))
        return found


@lru_cache(maxsize=1024)
def _fields(function: Callable[..., Any]) -> Fields:
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    named = [one for one in parameters if one.kind is Parameter.KEYWORD_ONLY]
    others = [one for one in parameters if one.kind is Parameter.VAR_KEYWORD]
    return Fields(
        {one.name: form_of(one.annotation) for one in named},
        [one.name for one in named if one.default is Parameter.empty],
        form_of(others[0].annotation) if others else None,
    )

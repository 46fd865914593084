"""Strategies that put all that is free on one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def all_on(device: str) -> Callable[..., dict[Any, Any]]:
    """A strategy that uses the first device whose name contains a text wherever it is allowed."""

    def place(graph: Any, devices: Any, costs: Any, constraints: Any) -> dict[Any, Any]:
        chosen = {}
        for op, number in zip(graph.operations, constraints.classes, strict=True):
            allowed = constraints.allowed.get(number, range(len(devices)))
            wanted = [i for i in allowed if device in str(devices[i])]
            chosen[op] = devices[[*wanted, *allowed][0]]
        return chosen

    return place

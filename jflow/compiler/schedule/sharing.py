"""`once_for_each`: what many strategies need of one problem is computed once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

from jflow.compiler.schedule.graph import OperationGraph
from jflow.compiler.schedule.problem import Costs, Problem

T = TypeVar("T")


def once_for_each(fun: Callable[[Problem], T]) -> Callable[[Problem], T]:
    """A function of graph and costs, whatever the constraints, that remembers what it gave.

    It is forgotten with the graph or the costs. Callers do not change it.
    """
    known: WeakKeyDictionary[Costs, WeakKeyDictionary[OperationGraph, T]] = WeakKeyDictionary()

    @wraps(fun)
    def find(problem: Problem) -> T:
        by_graph = known.setdefault(problem.costs, WeakKeyDictionary())
        if problem.graph not in by_graph:
            by_graph[problem.graph] = fun(problem)
        return by_graph[problem.graph]

    return find

"""Strategies as users write them, right and wrong."""

from __future__ import annotations


def alternate(graph, devices, costs, constraints):
    return {op: devices[i % len(devices)] for i, op in enumerate(graph.operations)}


def forgetful(graph, devices, costs, constraints):
    return dict.fromkeys(graph.operations[1:], devices[0])


def raising(graph, devices, costs, constraints):
    raise KeyError("no such cost")


def slowest_single(graph, devices, costs, constraints):
    """All on the last device; called `auto` by tests that need one that loses."""
    return dict.fromkeys(graph.operations, devices[-1])

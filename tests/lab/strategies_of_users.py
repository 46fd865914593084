"""Strategies as users write them, right and wrong."""

from __future__ import annotations


def alternate(graph, devices, costs, constraints):
    return {op: devices[i % len(devices)] for i, op in enumerate(graph.operations)}


def forgetful(graph, devices, costs, constraints):
    return dict.fromkeys(graph.operations[1:], devices[0])


def raising(graph, devices, costs, constraints):
    raise KeyError("no such cost")

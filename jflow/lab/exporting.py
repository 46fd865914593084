"""Writes placement problems for other tools: as JSON of dnn-partitioning, and as DOT.

The problem of a jflow step is `session.explain(fetches).problem`, or `f.explain(args).problem`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from jflow.base.text import seconds_text
from jflow.compiler.schedule import OperationGraph, Problem, Schedule
from jflow.compiler.schedule.problem import classes_of
from jflow.lab.importing import MILLISECONDS
from jflow.view.formats import dot_string


def to_dnn_partitioning(problem: Problem, *, seconds_per_unit: float = MILLISECONDS) -> str:
    """Converts a placement problem to JSON in the format of dnn-partitioning (`problem_of_json`).

    Devices of the type CPU are the CPUs if there are others too; of devices without a type, those
    with the least total time are the accelerators. An operation has the mean time of each kind. The
    format has one cost for a tensor, so its cost is that of the mean link, half of the way between
    two accelerators. It has one result a node, so further results of an operation are nodes that
    take no time and are colocated with it. ``deviceNames`` and, of nodes, ``devices`` keep what
    operations ask for; other tools ignore them. A latency counts as bytes, which occupy the ports;
    shared processors are lost.

    Args:
      problem: what to write.
      seconds_per_unit: the unit of the document's times.

    Returns:
      The document.
    """
    accelerators, cpus = _kinds(problem)
    nodes = _nodes(problem, accelerators, cpus, seconds_per_unit)
    edges = _edges(problem, nodes, _crossing(problem, accelerators, cpus) / seconds_per_unit)
    document = {
        "maxSizePerFPGA": _memory(problem, accelerators),
        "maxFPGAs": len(accelerators),
        "maxCPUs": len(cpus),
        "deviceNames": [str(problem.devices[i]) for i in (*accelerators, *cpus)],
        "nodes": nodes,
        "edges": edges,
    }
    return json.dumps(document, indent=1) + "\n"


def _kinds(problem: Problem) -> tuple[list[int], list[int]]:
    """Returns the devices that are written as accelerators and as CPUs."""
    types = [getattr(device, "type", None) for device in problem.devices]
    if any(types):
        are_cpus = [kind == "CPU" and set(types) != {"CPU"} for kind in types]
    else:
        totals = problem.costs.seconds.sum(axis=0)
        are_cpus = (~np.isclose(totals, totals.min())).tolist()
    every = range(len(are_cpus))
    return [i for i in every if not are_cpus[i]], [i for i in every if are_cpus[i]]


def _crossing(problem: Problem, accelerators: list[int], cpus: list[int]) -> Any:
    """Latency in seconds, and seconds a byte, between an accelerator and the host."""
    links = np.array([problem.costs.latency, problem.costs.byte_seconds])
    between = links[:, accelerators][:, :, accelerators]
    if len(accelerators) > 1:
        # Each link of an accelerator to itself is 0.
        return between.sum(axis=(1, 2)) / (len(accelerators) * (len(accelerators) - 1)) / 2
    return links[:, accelerators][:, :, cpus].mean(axis=(1, 2)) if cpus else np.zeros(2)


def _memory(problem: Problem, accelerators: list[int]) -> float:
    """The least capacity of an accelerator; what all operations keep if there is no limit."""
    limits = [problem.constraints.capacity[i] for i in accelerators if problem.constraints.capacity]
    return min(filter(math.isfinite, limits), default=float(sum(problem.constraints.resident)))


def _nodes(
    problem: Problem, accelerators: list[int], cpus: list[int], unit: float
) -> list[dict[str, Any]]:
    """Returns the operations as nodes."""
    constraints, seconds = problem.constraints, problem.costs.seconds / unit
    on_accelerator = seconds[:, accelerators].mean(axis=1).tolist()
    on_cpu = seconds[:, cpus].mean(axis=1).tolist() if cpus else on_accelerator
    position = {device: i for i, device in enumerate((*accelerators, *cpus))}
    classes = classes_of(problem)
    sizes = Counter(classes)
    nodes = []
    for i, operation in enumerate(problem.graph.operations):
        node: dict[str, Any] = {
            "id": i,
            "name": _name(operation),
            "supportedOnFpga": True,
            "cpuLatency": on_cpu[i],
            "fpgaLatency": on_accelerator[i],
            "isBackwardNode": False,
            "size": float(constraints.resident[i]) if constraints.resident else 0.0,
        }
        if sizes[classes[i]] > 1:
            node["colorClass"] = classes[i]
        if classes[i] in constraints.allowed:
            node["devices"] = sorted(position[d] for d in constraints.allowed[classes[i]])
            node["supportedOnFpga"] = node["devices"][0] < len(accelerators)
        nodes.append(node)
    return nodes


def _edges(problem: Problem, nodes: list[dict[str, Any]], crossing: Any) -> list[dict[str, Any]]:
    """Returns the tensors as edges; adds the nodes of further results to `nodes`."""
    latency, byte_time = crossing.tolist()
    edges: list[dict[str, Any]] = []
    costs: dict[int, list[float]] = {}
    free = 1 + max((*problem.constraints.classes, len(nodes)))
    for edge in problem.graph.edges:
        node, cost = nodes[edge.producer], latency + edge.n_bytes * byte_time
        earlier = costs.setdefault(edge.producer, [])
        if earlier:
            node.setdefault("colorClass", free + edge.producer)
            result = {"id": len(nodes), "name": f"{node['name']}:{len(earlier)}"}
            nothing = {"cpuLatency": 0.0, "fpgaLatency": 0.0, "size": 0.0}
            edges.append(_edge(node["id"], len(nodes), earlier[0], 0.0))
            node = node | result | nothing
            nodes.append(node)
        earlier.append(cost)
        edges += [_edge(node["id"], target, cost, edge.n_bytes) for target in edge.consumers]
    return edges


def _edge(source: int, target: int, cost: float, n_bytes: float) -> dict[str, Any]:
    return {"sourceId": source, "destId": target, "cost": cost, "size": n_bytes}


def to_dot(graph: OperationGraph | Problem, schedule: Schedule | None = None) -> str:
    """Converts a graph, a problem or a scheduled problem to Graphviz' DOT language.

    Operations of a problem have their least time, edges their bytes; those of a schedule are
    in a cluster for each device, and edges between devices are dashed.

    Args:
      graph: what to write.
      schedule: the devices of its operations, for a problem.

    Raises:
      TypeError: if there is a schedule, but no problem that says what the devices are.
    """
    if schedule is not None and not isinstance(graph, Problem):
        raise TypeError("a schedule has the numbers of devices; pass its problem, not the graph")
    return "\n".join(_dot_lines(graph, schedule)) + "\n"


def _dot_lines(graph: OperationGraph | Problem, schedule: Schedule | None) -> Iterator[str]:
    problem = graph if isinstance(graph, Problem) else None
    operations = problem.graph if problem else graph
    assert isinstance(operations, OperationGraph)
    yield "digraph {"
    yield '  node [shape=box, style=rounded, fontname="Helvetica"];'
    lines = [_dot_node(operations, i, problem) for i in range(len(operations))]
    if problem is None or schedule is None:
        yield from (f"  {line}" for line in lines)
    else:
        for number in sorted(set(schedule.devices)):
            yield f"  subgraph cluster_{number} {{"
            yield f"    label={dot_string(str(problem.devices[number]))};"
            on_device = (i for i, device in enumerate(schedule.devices) if device == number)
            yield from (f"    {lines[i]}" for i in on_device)
            yield "  }"
    for edge in operations.edges:
        for target in edge.consumers:
            crosses = schedule and schedule.devices[edge.producer] != schedule.devices[target]
            look = f'label="{edge.n_bytes:.0f} B"' if edge.n_bytes else "style=dotted"
            look += ', style=dashed, color="#c2410c"' if crosses else ""
            yield f"  op{edge.producer} -> op{target} [{look}];"
    yield "}"


def _dot_node(graph: OperationGraph, number: int, problem: Problem | None) -> str:
    text = _name(graph.operations[number])
    if problem is not None:
        text += "\n" + seconds_text(float(problem.costs.seconds[number].min()))
    return f"op{number} [label={dot_string(text)}];"


def _name(operation: Any) -> str:
    """Returns the name of an operation, or its text if it has none."""
    return str(getattr(operation, "name", operation))

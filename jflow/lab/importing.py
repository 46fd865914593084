"""Reads operation graphs in the JSON format of `msr-fiddle/dnn-partitioning`.

The format is that of the public inputs of Tarnawski et al., "Efficient algorithms for device
placement of DNN graph operators" (NeurIPS 2020). A document is an object with

* ``maxFPGAs``, ``maxCPUs``: how many accelerators (of any type) and CPU cores there are;
  ``maxSizePerFPGA``: the memory of an accelerator in bytes;
* ``nodes``: objects with ``id``, ``cpuLatency``, ``fpgaLatency`` and ``supportedOnFpga``, and
  optionally ``size`` (the bytes that it keeps on an accelerator), ``colorClass`` (nodes of one
  class go to one device) and ``name``;
* ``edges``: objects with ``sourceId``, ``destId`` and ``cost``, the time of the source's result
  between an accelerator and the memory of the host. A result goes to each device once, so two
  accelerators take twice the cost, and CPUs share it without one.

Other keys are ignored, but for what `jflow.lab.exporting` adds: ``deviceNames`` and, of nodes,
``devices``. The format gives no unit of time; the public files are in milliseconds.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jflow.compiler.schedule import (
    ONE_PORT,
    Constraints,
    Costs,
    Dependency,
    OperationGraph,
    Problem,
)
from jflow.errors import InvalidArgumentError

NOMINAL_BANDWIDTH = 1e9
"""Bytes a second of the links of an imported problem.

The format has times, not sizes, so the size of a tensor is what such a link sends in its time.
"""

MILLISECONDS = 1e-3
"""Seconds in a unit of time of the public files."""


def read_dnn_partitioning(path: str | os.PathLike[str], **options: Any) -> Problem:
    """Reads a placement problem from a file; options and errors as for `problem_of_json`.

    Raises:
      OSError: if the file cannot be read.
    """
    return problem_of_json(Path(path).read_bytes(), source=str(path), **options)


def problem_of_json(
    text: str | bytes,
    *,
    n_accelerators: int | None = None,
    n_cpus: int | None = None,
    limits_memory: bool = True,
    network: str = ONE_PORT,
    seconds_per_unit: float = MILLISECONDS,
    source: str = "the document",
) -> Problem:
    """Reads a placement problem from JSON in the format of dnn-partitioning.

    Args:
      text: JSON.
      n_accelerators, n_cpus: how many devices there are, accelerators first; None for as many as
        the document says.
      limits_memory: whether an accelerator keeps no more than the document says.
      network: see `Costs`; the published results know no contention (`UNLIMITED`).
      seconds_per_unit: the unit of the document's times.
      source: what messages call the document.

    Returns:
      A problem whose operations have the names of the nodes, or "node 7" if names are missing or
      not unique.

    Raises:
      InvalidArgumentError: if the document is not of this format, refers to nodes that it does not
        have, or contradicts itself: a cycle, a node without a device that it may go to. The
        message says where.
    """
    try:
        document = json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"{source} is not JSON: {error}") from error
    reader = _Reader(source, document)
    accelerators = reader.count("maxFPGAs") if n_accelerators is None else n_accelerators
    cpus = reader.count("maxCPUs") if n_cpus is None else n_cpus
    if min(accelerators, cpus) < 0 or accelerators + cpus == 0:
        raise reader.error("", f"has {accelerators} accelerators and {cpus} CPUs to place nodes on")
    nodes = reader.nodes()
    devices = reader.devices(accelerators, cpus)
    limit = reader.number(document, "maxSizePerFPGA", "") if limits_memory else math.inf
    seconds = [
        [node.on_accelerator] * accelerators + [node.on_cpu] * cpus for node in nodes.values()
    ]
    costs = Costs(
        np.array(seconds, float).reshape(len(nodes), len(devices)) * seconds_per_unit,
        np.zeros((len(devices), len(devices))),
        _hops(accelerators, cpus) / NOMINAL_BANDWIDTH,
        network,
    )
    edges = reader.edges(nodes, seconds_per_unit * NOMINAL_BANDWIDTH)
    graph = OperationGraph(_labels([*nodes.values()]), edges)
    constraints = _constraints(reader, [*nodes.values()], accelerators, cpus, limit)
    return Problem(graph, devices, costs, constraints).checked()


@dataclass(frozen=True)
class _Node:
    """A node, with times in the document's unit; `devices` is None if it names none."""

    id: int
    name: str
    on_cpu: float
    on_accelerator: float
    is_for_accelerators: bool
    n_bytes: float
    color: Any
    devices: tuple[int, ...] | None


class _Reader:
    """Takes a document apart; its errors say where in the document they are."""

    def __init__(self, source: str, document: Any) -> None:
        self._source = source
        if not isinstance(document, dict):
            raise self.error("", f"is a JSON {type(document).__name__}, not an object")
        for key in ("nodes", "edges"):
            if not isinstance(document.get(key), list):
                raise self.error("", f"has no list {key!r}")
        self._document = document

    def error(self, where: str, what: str) -> InvalidArgumentError:
        place = f"{where} of {self._source}" if where else self._source
        return InvalidArgumentError(
            f"{place} {what}; expected the format of dnn-partitioning, see jflow.lab.importing"
        )

    def nodes(self) -> dict[int, _Node]:
        """Returns the nodes by their id, in the document's order."""
        by_id: dict[int, _Node] = {}
        for number, node in enumerate(self._document["nodes"]):
            where = f"nodes[{number}]"
            checked = self._node(node, where)
            if checked.id in by_id:
                raise self.error(where, f"has the id {checked.id} of another node")
            by_id[checked.id] = checked
        return by_id

    def _node(self, node: Any, where: str) -> _Node:
        if not isinstance(node, dict):
            raise self.error(where, "is not an object")
        supported = self._value(node, "supportedOnFpga", where)
        if supported not in (True, False):
            raise self.error(where, f"has supportedOnFpga {supported!r}, not true or false")
        devices = node.get("devices")
        if devices is not None and not _are_counts(devices):
            raise self.error(where, f"has devices {devices!r}, not a list of device numbers")
        color = node.get("colorClass")
        if not isinstance(color, int | str | None):
            raise self.error(where, f"has colorClass {color!r}, not a number")
        return _Node(
            self._id(node, "id", where),
            str(node.get("name", "")),
            self.number(node, "cpuLatency", where),
            self.number(node, "fpgaLatency", where),
            bool(supported),
            self.number({"size": 0.0} | node, "size", where),
            color,
            None if devices is None else tuple(devices),
        )

    def edges(self, nodes: Mapping[int, _Node], n_bytes: float) -> tuple[Dependency, ...]:
        """A tensor for all edges of one source and cost; `n_bytes` for each unit of time."""
        position = {node: i for i, node in enumerate(nodes)}
        consumers: dict[tuple[int, float], dict[int, None]] = {}
        for number, edge in enumerate(self._document["edges"]):
            where = f"edges[{number}]"
            if not isinstance(edge, dict):
                raise self.error(where, "is not an object")
            source, target = (self._id(edge, key, where) for key in ("sourceId", "destId"))
            for node in (source, target):
                if node not in position:
                    raise self.error(where, f"refers to node {node}, which does not exist")
            cost = self.number(edge, "cost", where)
            consumers.setdefault((position[source], cost), {})[position[target]] = None
        return tuple(
            Dependency(producer, tuple(used), cost * n_bytes)
            for (producer, cost), used in consumers.items()
        )

    def devices(self, accelerators: int, cpus: int) -> tuple[str, ...]:
        """Returns the names of the devices."""
        names = self._document.get("deviceNames")
        n_devices = accelerators + cpus
        if isinstance(names, list) and len(names) == len({*map(str, names)}) == n_devices:
            return tuple(map(str, names))
        numbers = [*range(accelerators), *range(cpus)]
        kinds = ["accelerator"] * accelerators + ["cpu"] * cpus
        return tuple(f"{kind} {i}" for kind, i in zip(kinds, numbers, strict=True))

    def count(self, key: str) -> int:
        """Returns a number of devices."""
        value = self._value(self._document, key, "")
        if not _is_int(value) or value < 0:
            raise self.error("", f"has {key} {value!r}, not a number of devices")
        return int(value)

    def number(self, values: Mapping[str, Any], key: str, where: str) -> float:
        """Returns a time or size, which is finite and not negative."""
        value = self._value(values, key, where)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or value < 0:
            raise self.error(where, f"has {key} {value!r}, not a number of at least 0")
        return float(value)

    def _id(self, values: Mapping[str, Any], key: str, where: str) -> int:
        value = self._value(values, key, where)
        if not _is_int(value):
            raise self.error(where, f"has {key} {value!r}, not an integer")
        return int(value)

    def _value(self, values: Mapping[str, Any], key: str, where: str) -> Any:
        if key not in values:
            raise self.error(where, f"has no {key!r}")
        return values[key]


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and all(_is_int(value) and value >= 0 for value in values)


def _labels(nodes: Sequence[_Node]) -> tuple[str, ...]:
    names = Counter(node.name for node in nodes)
    return tuple(
        node.name if node.name and names[node.name] == 1 else f"node {node.id}" for node in nodes
    )


def _constraints(
    reader: _Reader, nodes: Sequence[_Node], accelerators: int, cpus: int, limit: float
) -> Constraints:
    """Colocation, devices, and the memory of accelerators, which is `limit` bytes each."""
    classes = _classes(nodes)
    return Constraints(
        classes,
        _allowed(reader, nodes, classes, accelerators, accelerators + cpus),
        tuple(node.n_bytes for node in nodes),
        () if math.isinf(limit) else (limit,) * accelerators + (math.inf,) * cpus,
    )


def _classes(nodes: Sequence[_Node]) -> tuple[int, ...]:
    """Returns the colocation class of each node; nodes without a color are alone."""
    numbers: dict[Any, int] = {}
    keys = [("node", node.id) if node.color is None else ("color", node.color) for node in nodes]
    return tuple(numbers.setdefault(key, len(numbers)) for key in keys)


def _allowed(
    reader: _Reader, nodes: Sequence[_Node], classes: Sequence[int], accelerators: int, n: int
) -> dict[int, tuple[int, ...]]:
    """Returns the devices of the classes that may not go to all `n`."""
    allowed: dict[int, tuple[int, ...]] = {}
    for node, number in zip(nodes, classes, strict=True):
        fitting = range(0 if node.is_for_accelerators else accelerators, n)
        named = fitting if node.devices is None else [d for d in node.devices if d in fitting]
        devices = tuple(d for d in allowed.get(number, range(n)) if d in named)
        if not devices:
            others = [each.id for each, c in zip(nodes, classes, strict=True) if c == number]
            raise reader.error(
                f"node {node.id}",
                f"has no device that it may go to: there are {accelerators} accelerators and "
                f"{n - accelerators} CPUs, supportedOnFpga is {node.is_for_accelerators}, devices "
                f"are {node.devices or 'any'}, and colocated are the nodes {others[:9]}",
            )
        if len(devices) < n:
            allowed[number] = devices
    return allowed


def _hops(accelerators: int, cpus: int) -> Any:
    """How often a tensor crosses between an accelerator and the host, by source and target."""
    is_accelerator = np.array([1.0] * accelerators + [0.0] * cpus)
    hops = is_accelerator[:, None] + is_accelerator[None, :]
    np.fill_diagonal(hops, 0.0)
    return hops

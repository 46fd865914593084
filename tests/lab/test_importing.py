"""Graphs of other tools: what they mean here, and that writing and reading them loses nothing."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import numpy as np
import pytest

import jflow as tf
from jflow.compiler.schedule import (
    ONE_PORT,
    UNLIMITED,
    Costs,
    Dependency,
    OperationGraph,
    Problem,
    Schedule,
    scheduled,
    simulate,
)
from jflow.compiler.schedule.problem import Constraints, classes_of
from jflow.compiler.schedule.strategies import STRATEGIES
from jflow.errors import InvalidArgumentError
from jflow.lab.exporting import to_dnn_partitioning, to_dot
from jflow.lab.families import FAMILIES, random_problem
from jflow.lab.importing import NOMINAL_BANDWIDTH, problem_of_json, read_dnn_partitioning
from tests.clusters import in_process


def node(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "id": number,
        "name": f"n{number}",
        "supportedOnFpga": 1,
        "cpuLatency": 10.0,
        "fpgaLatency": 1.0,
        "isBackwardNode": False,
        "size": 100.0,
    } | changes


def edge(source: int, target: int, cost: float = 3.0) -> dict[str, Any]:
    return {"sourceId": source, "destId": target, "cost": cost}


def document(**changes: Any) -> dict[str, Any]:
    """A diamond on two accelerators and one CPU."""
    return {
        "maxSizePerFPGA": 250.0,
        "maxFPGAs": 2,
        "maxCPUs": 1,
        "nodes": [
            node(7),
            node(3, colorClass=5),
            node(4, supportedOnFpga=False),
            node(9, colorClass=5),
        ],
        "edges": [edge(7, 3), edge(7, 4), edge(3, 9, 0.5), edge(4, 9, 0.5)],
    } | changes


def read(values: Any, **options: Any) -> Problem:
    return problem_of_json(json.dumps(values), **options)


# Reading ------------------------------------------------------------------------------------------


def test_a_document_becomes_the_problem_that_it_describes() -> None:
    problem = read(document())
    assert problem.graph.operations == ("n7", "n3", "n4", "n9")
    assert problem.devices == ("accelerator 0", "accelerator 1", "cpu 0")
    assert problem.costs.seconds.tolist() == [[1e-3, 1e-3, 1e-2]] * 4
    assert problem.graph.edges[0] == Dependency(0, (1, 2), 3e-3 * NOMINAL_BANDWIDTH)
    first, second, third, last = problem.constraints.classes
    assert second == last
    assert len({first, second, third}) == 3
    assert problem.constraints.allowed == {third: (2,)}
    assert problem.constraints.resident == (100.0,) * 4
    assert problem.constraints.capacity == (250.0, 250.0, math.inf)


def test_a_tensor_crosses_the_host_between_accelerators_and_stays_in_it_between_cpus() -> None:
    costs, n_bytes = read(document(), n_cpus=2).costs, 3e-3 * NOMINAL_BANDWIDTH
    assert costs.transfer(n_bytes, 0, 1) == pytest.approx(6e-3)
    assert costs.transfer(n_bytes, 0, 2) == costs.transfer(n_bytes, 2, 0) == pytest.approx(3e-3)
    assert costs.transfer(n_bytes, 2, 3) == costs.transfer(n_bytes, 1, 1) == 0


def test_the_caller_says_how_many_devices_and_whether_memory_counts() -> None:
    supported = document(nodes=[node(7), node(3), node(4), node(9)])
    problem = read(supported, n_accelerators=8, n_cpus=0, limits_memory=False, network=UNLIMITED)
    assert len(problem.devices) == 8
    assert not problem.constraints.capacity
    assert problem.costs.network == UNLIMITED
    assert not problem.constraints.allowed
    in_seconds = read(supported, seconds_per_unit=1.0)
    assert in_seconds.costs.seconds[0, 0] == 1.0
    assert in_seconds.graph.edges[0].n_bytes == 3.0 * NOMINAL_BANDWIDTH


def test_a_tensor_of_several_costs_is_several_tensors() -> None:
    problem = read(document(edges=[edge(7, 3, 1.0), edge(7, 4, 2.0), edge(7, 9, 1.0)]))
    assert [found.consumers for found in problem.graph.edges] == [(1, 3), (2,)]


def test_names_that_are_missing_or_not_unique_are_replaced_by_the_id() -> None:
    problem = read(document(nodes=[node(7, name="a"), node(3, name="a"), node(4), {**node(9)}]))
    assert problem.graph.operations == ("node 7", "node 3", "n4", "n9")


def test_a_file_is_read_and_named_in_messages(tmp_path) -> None:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(document()))
    assert len(read_dnn_partitioning(path).graph) == 4
    path.write_text('{"nodes": [}')
    with pytest.raises(InvalidArgumentError, match=r"graph\.json is not JSON: .*column 12"):
        read_dnn_partitioning(path)


BAD = {
    "is a JSON list, not an object": [],
    "the document has no list 'edges'": {"nodes": []},
    "the document has no 'maxFPGAs'": {
        key: value for key, value in document().items() if key != "maxFPGAs"
    },
    "has maxCPUs -1, not a number of devices": document(maxCPUs=-1),
    "has 0 accelerators and 0 CPUs": document(maxFPGAs=0, maxCPUs=0),
    "has maxSizePerFPGA 'big', not a number": document(maxSizePerFPGA="big"),
    r"nodes\[1\] of the document has no 'cpuLatency'": document(
        nodes=[node(7), {"id": 3, "supportedOnFpga": 1}]
    ),
    r"nodes\[0\] of the document has fpgaLatency -1, not a number": document(
        nodes=[node(7, fpgaLatency=-1)]
    ),
    r"has cpuLatency nan, not a number of at least 0": document(
        nodes=[node(7, cpuLatency=math.nan)]
    ),
    r"nodes\[0\] .* has supportedOnFpga 'yes'": document(nodes=[node(7, supportedOnFpga="yes")]),
    r"nodes\[0\] .* has id '7', not an integer": document(nodes=[node(7, id="7")]),
    r"nodes\[0\] .* has colorClass \[\]": document(nodes=[node(7, colorClass=[])]),
    r"nodes\[0\] .* has devices \[-1\]": document(nodes=[node(7, devices=[-1])]),
    r"nodes\[0\] of the document is not an object": document(nodes=[7]),
    r"nodes\[1\] of the document has the id 7 of another": document(nodes=[node(7), node(7)]),
    r"edges\[0\] of the document refers to node 8": document(edges=[edge(7, 8)]),
    r"edges\[0\] of the document has no 'cost'": document(edges=[{"sourceId": 7, "destId": 3}]),
    "in a cycle, among them n7": document(edges=[edge(7, 3), edge(3, 7)]),
    "node 9 of the document has no device that it may go to: .* supportedOnFpga is False": document(
        maxCPUs=0, nodes=[node(7), node(3), node(4), node(9, supportedOnFpga=0)]
    ),
    r"no device that it may go to: .* colocated are the nodes \[3, 4\]": document(
        nodes=[
            node(7),
            node(3, colorClass=1, devices=[0]),
            node(4, colorClass=1, devices=[1]),
            node(9),
        ]
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_what_is_not_of_the_format_is_refused_with_its_place(message) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        read(BAD[message])


def test_every_strategy_places_an_imported_graph_within_its_constraints() -> None:
    problem = read(document())
    for name, place in STRATEGIES.items():
        if name == "metis":
            continue  # it needs a package that may not be there
        schedule = scheduled(problem, place)
        assert schedule.devices[2] == 2
        assert schedule.devices[1] == schedule.devices[3]


# Writing and reading again ------------------------------------------------------------------------


def some_schedules(problem: Problem, n: int = 10) -> list[Schedule]:
    """Random devices that hold the constraints, in the graph's order."""
    rng, found = random.Random(1), []
    for _ in range(n):
        chosen = {
            number: rng.choice(problem.constraints.allowed.get(number, range(len(problem.devices))))
            for number in classes_of(problem)
        }
        devices = tuple(chosen[number] for number in classes_of(problem))
        found.append(Schedule(devices, problem.graph.order))
    return found


def check_same_times(problem: Problem) -> Problem:
    """What was written and read again, in which every schedule takes as long as before."""
    again = read_again(problem)
    number = {name: i for i, name in enumerate(again.devices)}
    position = [number[str(device)] for device in problem.devices]
    for schedule in some_schedules(problem):
        # The nodes of further results are behind all others, in the classes of their operations.
        devices = [position[device] for device in schedule.devices]
        of_class = dict(zip(classes_of(again), devices, strict=False))
        moved = tuple(of_class[group] for group in classes_of(again))
        same = Schedule(moved, order_of(again.graph, schedule.order))
        assert simulate(again, same).makespan == pytest.approx(simulate(problem, schedule).makespan)
    return again


def order_of(graph: OperationGraph, order: tuple[int, ...]) -> tuple[int, ...]:
    """The order of a graph, with each further result directly after its operation."""
    found: list[int] = []
    for operation in order:
        found.append(operation)
        found += [i for i in graph.successors[operation] if i >= len(order)]
    return tuple(found)


def read_again(problem: Problem) -> Problem:
    return problem_of_json(to_dnn_partitioning(problem), network=problem.costs.network)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_written_problem_has_the_same_times(family) -> None:
    check_same_times(random_problem(family, 20, 3, ccr=2.0, memory=1.5))


@pytest.mark.parametrize(("network", "latency"), [(ONE_PORT, 0.0), (UNLIMITED, 1e-4)])
def test_each_result_of_an_operation_is_sent_by_itself(network, latency) -> None:
    edges = (Dependency(0, (1,), 1e6), Dependency(0, (2,), 5e6), Dependency(0, (1, 2), 0.0))
    off = 1 - np.eye(3)
    problem = Problem(
        OperationGraph(("node 0", "node 1", "node 2"), edges),
        ("a", "b", "c"),
        Costs(np.ones((3, 3)) * 1e-3, off * latency, off * 1e-9, network),
        Constraints((0, 1, 1), {1: (1, 2)}),
    )
    again = check_same_times(problem)
    assert again.graph.operations[3:] == ("node 0:1", "node 0:2")
    assert again.constraints.allowed == {1: (1, 2)}


def test_an_imported_graph_is_the_same_after_it_was_written() -> None:
    problem = read(document())
    again = read_again(problem)
    assert again.graph.operations == problem.graph.operations
    assert again.devices == problem.devices
    assert vars(again.constraints) == vars(problem.constraints)
    assert np.allclose(again.costs.seconds, problem.costs.seconds)
    assert np.allclose(again.costs.byte_seconds, problem.costs.byte_seconds)
    for one, other in zip(again.graph.edges, problem.graph.edges, strict=True):
        assert (one.producer, one.consumers) == (other.producer, other.consumers)
        assert one.n_bytes == pytest.approx(other.n_bytes)


def test_a_step_of_a_cluster_is_written_with_what_its_operations_ask_for() -> None:
    with tf.Graph().as_default() as graph, in_process({"ps": 1, "worker": 2}) as backend:
        weights = tf.Variable(tf.numpy.ones((4, 4)), name="weights")
        with tf.device("/job:worker"):
            towers = [tf.numpy.tanh(weights @ weights, name=f"tower{i}") for i in range(2)]
        update = weights.assign_sub(sum(towers), name="update")
        with backend.session(graph=graph) as sess:
            problem = sess.explain(update).problem
    written = json.loads(to_dnn_partitioning(problem))
    assert written["maxCPUs"] == 0, "devices of one kind are the accelerators"
    names = written["deviceNames"]
    nodes = {each["name"]: each for each in written["nodes"]}
    on = {
        name: [names[i] for i in each["devices"]]
        for name, each in nodes.items()
        if "devices" in each
    }
    assert on["update"] == on["weights/read"] == ["/job:ps/task:0/device:CPU:0"]
    assert {name.split("/task")[0] for name in on["tower0"]} == {"/job:worker"}
    assert nodes["update"]["colorClass"] == nodes["weights/read"]["colorClass"]
    again = read_again(problem)
    assert again.devices == tuple(map(str, problem.devices))
    every = tuple(range(len(names)))
    for i, number in enumerate(problem.constraints.classes):
        expected = problem.constraints.allowed.get(number, every)
        assert again.constraints.allowed.get(again.constraints.classes[i], every) == expected


# DOT ----------------------------------------------------------------------------------------------


def test_dot_has_a_cluster_for_each_device_and_marks_what_crosses() -> None:
    problem = read(document(nodes=[node(7, name='say "hi" \\ & go'), node(3), node(4), node(9)]))
    text = to_dot(problem, Schedule((0, 0, 2, 0), problem.graph.order))
    assert text.count("subgraph cluster_") == 2
    assert 'label="accelerator 0"' in text
    assert 'op0 [label="say \\"hi\\" \\\\ &amp; go\\n1 ms"];' in text
    dashed = [line for line in text.splitlines() if "dashed" in line]
    assert [line.split("[")[0].strip() for line in dashed] == ["op0 -> op2", "op2 -> op3"]


def test_dot_of_a_graph_alone_has_no_devices_or_times() -> None:
    graph = OperationGraph(("a", "b"), (Dependency(0, (1,), 0.0),))
    assert to_dot(graph).splitlines()[2:] == [
        '  op0 [label="a"];',
        '  op1 [label="b"];',
        "  op0 -> op1 [style=dotted];",
        "}",
    ]
    with pytest.raises(TypeError, match="pass its problem, not the graph"):
        to_dot(graph, Schedule((0, 0), (0, 1)))

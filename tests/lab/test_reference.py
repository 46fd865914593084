"""The graphs on which strategies are compared with an earlier study."""

from __future__ import annotations

import numpy as np
import pytest

from jflow.compiler.schedule import scheduled
from jflow.compiler.schedule.strategies import STRATEGIES
from jflow.lab.reference import LARGE, PARAMETER_SERVERS, large_problem, training_edges


@pytest.mark.parametrize("family", LARGE)
def test_large_graphs_have_some_300_operations_with_one_result_each(family: str) -> None:
    problem = large_problem(family, 5.0, seed=0)
    assert 270 <= len(problem.graph) <= 310
    producers = [edge.producer for edge in problem.graph.edges]
    assert len(producers) == len(set(producers))
    transfer = np.mean([edge.n_bytes for edge in problem.graph.edges])
    assert transfer / problem.costs.seconds.mean() == pytest.approx(5.0, rel=0.4)
    again, other = large_problem(family, 5.0, seed=0), large_problem(family, 5.0, seed=1)
    assert again.graph.edges == problem.graph.edges
    assert other.graph.edges != problem.graph.edges


def test_replicas_read_each_variable_and_its_update_takes_all_gradients() -> None:
    n, edges = training_edges(n_layers=3, n_replicas=4)
    assert n == 2 * 3 + 4 * 2 * 3
    assert len(edges) == len(set(edges))
    for layer in range(3):
        assert sum(a == layer for a, _ in edges) == 2 * 4  # forwards and backwards
        assert sum(b == 3 + layer for _, b in edges) == 4


def test_updates_are_placed_with_their_variables() -> None:
    problem = large_problem(PARAMETER_SERVERS, 1.0, seed=0)
    devices = scheduled(problem, STRATEGIES["heft"]).devices
    assert devices[:16] == devices[16:32]
    assert len(set(devices)) > 1

"""Memory by hand: what lives when."""

from __future__ import annotations

import numpy as np

import jflow as tf
from jflow.compiler.placement.memory import memory_use, resident_bytes
from jflow.compiler.schedule import Constraints, Costs, Problem, Schedule, graph_of


def problem(edges, n, n_devices=2, resident=()):
    """Operations of one second, transfers of one second a byte."""
    off = 1.0 - np.eye(n_devices)
    costs = Costs(np.ones((n, n_devices)), 0 * off, off)
    return Problem(
        graph_of(range(n), edges), range(n_devices), costs, Constraints((), {}, resident)
    )


def test_a_chain_holds_two_values_while_one_is_made_of_the_other() -> None:
    # 0 → 1 → 2 → 3, with 10, 20 and 5 bytes between them.
    chain = problem([(0, 1, 10.0), (1, 2, 20.0), (2, 3, 5.0)], 4, resident=(100.0, 0, 0, 7.0))
    (here, there) = memory_use(chain, Schedule((0,) * 4, (0, 1, 2, 3)))
    assert (here.resident, here.peak, here.at) == (107.0, 137.0, 1)
    assert (there.resident, there.peak, there.at) == (0.0, 0.0, None)


def test_the_order_decides_the_peak() -> None:
    # Two values of 10 bytes, each used by an operation that gives 1 byte to the last one.
    edges = [(0, 2, 10.0), (1, 3, 10.0), (2, 4, 1.0), (3, 4, 1.0)]
    deep = Schedule((0,) * 5, (0, 2, 1, 3, 4))
    wide = Schedule((0,) * 5, (0, 1, 2, 3, 4))
    assert memory_use(problem(edges, 5), deep)[0].peak == 12.0
    assert memory_use(problem(edges, 5), wide)[0].peak == 21.0


def test_a_copy_lives_from_its_transfer_on_and_the_original_until_it_has_arrived() -> None:
    # 0 sends 4 bytes to 1 on the other device from 1 to 5 s; 2 is the second user, here.
    graph = problem([(0, 1, 4.0), (0, 2, 2.0), (2, 3, 8.0)], 4)
    here, there = memory_use(graph, Schedule((0, 1, 0, 0), (0, 2, 3, 1)))
    assert here.peak == 4.0 + 2.0 + 8.0
    assert (there.peak, there.at) == (4.0, 1)


def test_a_variable_counts_once() -> None:
    with tf.Graph().as_default() as graph:
        v = tf.Variable(np.zeros((5, 3), np.float32))
        updated = v.assign_add(np.ones((5, 3), np.float32))
        _ = v + updated
        resident = resident_bytes(graph.get_operations())
    assert sum(resident) == 5 * 3 * 4

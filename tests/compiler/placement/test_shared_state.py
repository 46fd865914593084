"""One name is one resource, whatever strategies place the steps that use it."""

from __future__ import annotations

import numpy as np
import pytest

import jflow as tf
from tests.scripts import run_script

ANOTHER_CLIENT = """
import sys
import jflow as tf
with tf.Graph().as_default():
    v = tf.Variable(tf.numpy.zeros(3), name="shared")
    queue = tf.FIFOQueue(100, tf.float32, [(3,)], shared_name="shared_queue")
    added = v.assign_add(tf.numpy.cos(tf.numpy.sin(tf.numpy.zeros(3))))
    with tf.Session(sys.argv[1], config=tf.ConfigProto(placement="round_robin")) as sess:
        print(*sess.run(added), sess.run(queue.size()))
"""

PLACEMENTS = ["rules", "auto", "etf_c"]


@pytest.fixture
def cluster(shared_backend):
    return shared_backend


def increment(name: str):
    """A graph with an unpinned variable, a queue of its values, and a step of some operations."""
    with tf.Graph().as_default() as graph:
        v = tf.Variable(tf.numpy.zeros(3), name=name)
        queue = tf.FIFOQueue(100, tf.float32, [(3,)], shared_name=f"{name}_queue")
        ones = [tf.numpy.cos(tf.numpy.sin(tf.numpy.zeros(3) + i)) * 0.0 + 1.0 for i in range(3)]
        added = v.assign_add(ones[0] * ones[1] * ones[2], name="added")
        with tf.control_dependencies([added]):
            kept = queue.enqueue(v.read_value())
    return graph, v, queue, added, kept


def test_sessions_and_functions_of_all_strategies_share_a_variable_and_a_queue(
    cluster, tmp_path
) -> None:
    graph, v, _, _, _ = increment("shared")
    with cluster.session(graph=graph) as sess:
        sess.run(v.initializer)
    places = set()
    for which, placement in enumerate(PLACEMENTS):
        graph, _, _, added, kept = increment("shared")
        config = tf.ConfigProto(placement=placement)
        with cluster.session(which, graph=graph, config=config) as sess:
            sess.run(kept)
            found = sess.placement(kept)
            places.add((str(found[added.op]), str(found[kept])))
    assert len(places) == 1, "state does not depend on the strategy or the server"
    n = len(PLACEMENTS)
    if cluster.name == "processes":
        (tmp_path / "client.py").write_text(ANOTHER_CLIENT)
        seen = run_script(tmp_path / "client.py", cluster.targets[-1]).stdout
        assert [*map(float, seen.split())] == [n + 1.0] * 3 + [n]
        n += 1
    for which, placement in enumerate(PLACEMENTS):
        target = cluster.targets[which % len(cluster.targets)]
        with tf.connect(target, placement=placement):
            eager = tf.Variable(np.zeros(3, np.float32), name="shared")
            values = tf.FIFOQueue(100, tf.float32, [(3,)], shared_name="shared_queue")

            @tf.function
            def step(x, eager=eager, values=values):
                eager.assign_add(tf.numpy.sin(x) * 0.0 + 1.0)
                return values.dequeue()

            np.testing.assert_array_equal(step(np.ones(3, np.float32)), np.full(3, which + 1.0))
            np.testing.assert_array_equal(eager.numpy(), np.full(3, n + which + 1.0))
            assert values.size() == len(PLACEMENTS) - which - 1


def test_a_strategy_finds_state_where_an_earlier_session_pinned_it(cluster) -> None:
    """A pin in the graph is the same for all sessions, so a strategy takes it as a constraint."""
    device = cluster.devices[0]
    for placement in ("rules", "etf_c", "round_robin"):
        with tf.Graph().as_default() as graph:
            with tf.device(device):
                v = tf.Variable(1.0, name="pinned")
            more = v.assign_add(tf.numpy.sin(v) * 0.0 + 1.0)
            config = tf.ConfigProto(placement=placement)
            with cluster.session(graph=graph, config=config) as sess:
                if placement == "rules":
                    sess.run(v.initializer)
                before = sess.run(v)
                assert sess.run(more) == before + 1.0
                found = sess.placement(more)[more.op]
                assert str(found.task) in device
    assert before == 3.0

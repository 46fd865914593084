"""One server with as many sessions and programs as the fault matrix wants (docs/reliability.md)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import jflow as tf
from jflow.testing import PATIENCE_S, ProcessCluster

N_SESSIONS = 1000
N_THREADS = 50
"""As many clients have a step under way at a time; each uses its sessions in turn."""
N_ROUNDS = 5
MAX_BYTES_OF_SESSION = 200_000
N_GRAPHS = 2000
N_WARM = 500
MAX_GROWTH = 100 << 20


@pytest.fixture
def cluster() -> Iterator[ProcessCluster]:
    with ProcessCluster(ps=0, workers=1) as running:
        yield running


def resident(cluster: ProcessCluster) -> int:
    """The resident memory of the only server, in bytes."""
    pages = Path(f"/proc/{cluster.pid()}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * 4096


@pytest.mark.long
def test_a_thousand_sessions_at_once_all_make_progress_within_their_memory(
    cluster: ProcessCluster,
) -> None:
    graph = tf.Graph()
    with graph.as_default():
        counter = tf.Variable(np.float32(0.0), name="counter")
        add, init = counter.assign_add(1.0), counter.initializer
    with ExitStack() as stack:

        def opened() -> tf.Session:
            return stack.enter_context(tf.Session(cluster.target(), graph=graph))

        first = opened()
        first.run(init)
        before = resident(cluster)
        sessions = [opened() for _ in range(N_SESSIONS - 1)]
        for session in sessions:
            session.run(add.op)
        per_session = (resident(cluster) - before) / len(sessions)
        ended: list[None] = []

        def use(some: list[tf.Session]) -> None:
            for _ in range(N_ROUNDS):
                ended.extend(session.run(add.op) for session in some)

        parts = [sessions[n::N_THREADS] for n in range(N_THREADS)]
        threads = [threading.Thread(target=use, args=(part,)) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert len(ended) == N_ROUNDS * len(sessions), "a session made no progress"
        assert first.run(counter) == (N_ROUNDS + 1) * len(sessions)
        assert per_session <= MAX_BYTES_OF_SESSION


@pytest.mark.long
def test_the_memory_of_a_server_is_bounded_over_two_thousand_graphs(
    cluster: ProcessCluster,
) -> None:
    def run(number: int) -> None:
        graph = tf.Graph()
        with graph.as_default():
            x = tf.placeholder(tf.float32, (4,))
            y = x * float(number)
        with tf.Session(cluster.target(), graph=graph) as session:
            assert session.run(y, {x: np.ones(4, np.float32)})[0] == number

    for number in range(N_WARM):
        run(number)
    before = resident(cluster)
    for number in range(N_WARM, N_GRAPHS):
        run(number)
    growth = resident(cluster) - before
    assert growth <= MAX_GROWTH

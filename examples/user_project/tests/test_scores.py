"""The code of the project on each backend, and with a connection that is lost."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import jflow
from jflow.testing import (
    BackendUnderTest,
    FaultProxy,
    Pause,
    ProcessCluster,
    failpoints,
    wait_until,
)

sys.path.insert(0, str(Path(__file__).parents[1]))

from scores import Scores, announce


@pytest.fixture
def scores(backend: BackendUnderTest) -> Iterator[Scores]:
    """Scores of three players on each backend, all of them 0."""
    with jflow.connect(backend.target):
        yield Scores(3)


def test_the_player_with_the_most_points_is_the_best(scores: Scores) -> None:
    scores.won(1, 2.0)
    scores.won(2, 5.0)
    scores.won(1, 4.0)
    assert scores.best() == 1


def test_programs_share_the_scores(shared_backend: BackendUnderTest) -> None:
    with jflow.connect(shared_backend.targets[0]):
        Scores(3).won(2, 1.0)
    with jflow.connect(shared_backend.targets[-1]):
        assert Scores(3).best() == 2


def test_an_update_that_is_under_way_does_not_keep_others_waiting() -> None:
    with (
        jflow.train.Server({"local": ["127.0.0.1:0"]}) as server,
        jflow.connect(server.target),
        ThreadPoolExecutor() as threads,
    ):
        scores = Scores(3)
        scores.won(0, 1.0)

        def win() -> None:
            with jflow.connect(server.target):  # connections are of a thread
                scores.won(1, 2.0)

        with failpoints({"master.after_run": Pause(times=1)}) as points:
            update = threads.submit(win)
            points.wait_until_reached("master.after_run")
            assert scores.best() == 1, "it has happened, only its answer is on its way"
            assert not update.done()
            points.release("master.after_run")
            update.result()


def test_an_announcement_comes_through_after_the_connection_was_cut() -> None:
    with (
        ProcessCluster(ps=0, workers=1) as cluster,
        FaultProxy(cluster.address()) as proxy,
        jflow.connect(proxy.target),
    ):
        scores, queue = Scores(3), jflow.FIFOQueue(10, jflow.int32, (), shared_name="best")
        scores.won(2, 1.0)
        proxy.cut()
        wait_until(lambda: proxy.n_connections == 0)
        announce(queue, scores)
        assert queue.get(timeout=60) == 2

"""What is left of a save whose master is killed while another task commits it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import jflow as tf
from jflow.testing import PATIENCE_S, Pause, ProcessCluster, wait_until

POINT, PS = "checkpoint.before_manifest", "/job:ps/task:0"


def test_a_master_killed_in_a_commit_leaves_the_old_checkpoint_and_then_the_new_one(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "model")
    with tf.device(PS):
        v = tf.Variable(np.zeros(10, np.int32), name="v")
    add, saver = v.assign_add(np.ones(10, np.int32)), tf.train.Saver()

    def saved() -> set[int]:
        return {*tf.train.load_variable(path, "v").tolist()}

    with ProcessCluster(ps=1, workers=1, points={PS: {POINT: Pause(skip=1)}}) as cluster:
        with tf.Session(cluster.target()) as session, ThreadPoolExecutor(1) as thread:
            session.run(v.initializer)
            saver.save(session, path)
            session.run(add)
            saving = thread.submit(saver.save, session, path)
            cluster.points("ps").wait_until_reached(POINT, times=2)
            cluster.kill("worker")
            with pytest.raises(tf.errors.UnavailableError):
                saving.result(PATIENCE_S)
        assert saved() == {0}
        # The task that commits goes on without its master.
        cluster.points("ps").release(POINT)
        wait_until(lambda: saved() == {1}, "the commit")
        cluster.restart("worker")
        with tf.Session(cluster.target()) as session:
            session.run(add)
            saver.restore(session, path)
            assert {*session.run(v).tolist()} == {1}
            saver.save(session, path)
    left = [one.name for one in tmp_path.iterdir() if one.suffix == ".safetensors"]
    assert len(left) == 1, f"shards are left over: {left}"

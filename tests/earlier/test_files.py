"""What be8797e4 wrote is still read: graphs, functions, checkpoints, records of traced steps.

`program.py` wrote the folder of that name, run with its code.
"""

from __future__ import annotations

import json
from pathlib import Path

import jax
import numpy as np
import pytest

import jflow as tf
from jflow.plan.trace.record import TaskRecord
from tests.earlier.program import ROWS, called, json_of, recorded, state, trained

FILES = Path(__file__).parent / "be8797e4"
EXPECTED = json.loads((FILES / "expected.json").read_text())


def test_a_graph_of_an_earlier_version_learns_as_it_did() -> None:
    with tf.Graph().as_default() as graph:
        if jax.__version_info__ >= (0, 12):  # whose scan has other parameters
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"written with JAX 0\.10\.2"):
                tf.train.import_meta_graph(FILES / "model.graph")
            return
        tf.train.import_meta_graph(FILES / "model.graph")
        np.testing.assert_allclose(trained(graph), EXPECTED["losses"], rtol=1e-5)


def test_a_function_of_an_earlier_version_computes_the_same() -> None:
    loaded = tf.export.load(FILES / "called.function")
    with tf.connect():
        jax.tree.map(
            lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6),
            jax.tree.map(np.asarray, loaded(ROWS)),
            jax.tree.map(np.asarray, called(ROWS)),
        )


def test_all_state_of_a_session_of_an_earlier_version_goes_on() -> None:
    with tf.Session() as session:
        parts = state()
        tf.checkpoint.restore(FILES / "session", session)
        reads = session.run(parts["reads"])
        reads["key"] = jax.random.key_data(reads["key"])
        assert json_of(reads) == EXPECTED["reads"]
        assert json_of(session.run(parts["takes"])) == EXPECTED["takes"]


def test_a_saver_finds_and_restores_what_an_earlier_version_saved(tmp_path: Path) -> None:
    # The file beside a checkpoint that names the latest one may be moved with it.
    for file in FILES.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    latest = tf.train.latest_checkpoint(tmp_path)
    assert latest == str(tmp_path / "saver-3")
    with tf.Session() as session:
        parts = state()
        tf.train.Saver().restore(session, latest)
        reads = session.run(parts["reads"])
    reads["key"] = jax.random.key_data(reads["key"])
    assert json_of(reads) == EXPECTED["reads"]


def test_a_record_of_a_traced_step_is_read_and_written_as_before() -> None:
    data = (FILES / "step.record").read_bytes()
    assert TaskRecord.from_bytes(data).to_bytes() == data == recorded()

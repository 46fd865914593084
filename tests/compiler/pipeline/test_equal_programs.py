"""Equal programs of several clients are compiled once, those of unknown sizes too."""

from __future__ import annotations

from contextlib import ExitStack

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.base.values import unknown_dim
from tests.clusters import start_servers


def standardized(x: jax.Array) -> jax.Array:
    """A function of a matrix of any number of rows."""
    return (x - jnp.mean(x, 0)) / jnp.std(x, 0)


@pytest.fixture
def server():
    with ExitStack() as stack:
        yield start_servers(stack.enter_context, {"worker": 1})[0]


def test_three_clients_have_a_program_of_unknown_sizes_compiled_once(server) -> None:
    before = server.worker.programs.n_compiled
    for client in range(3):
        for _ in range(11 * client):
            unknown_dim()  # what the client did before
        with tf.Graph().as_default(), tf.Session(server.target) as session:
            x = tf.placeholder("float32", (None, 2))
            y = tf.get_default_graph().apply(standardized, (x,))
            for n in (4, 4 + client):
                rows = np.random.default_rng(n).normal(size=(n, 2)).astype(np.float32)
                got = session.run(y, {x: rows})
                np.testing.assert_allclose(got, standardized(rows), rtol=1e-3, atol=1e-4)
    assert server.worker.programs.n_compiled == before + 1


def test_programs_on_rows_of_a_queue_are_compiled_once_for_three_clients(server) -> None:
    compiled = []
    for client in range(3):
        with tf.Graph().as_default(), tf.Session(server.target) as session:
            q = tf.FIFOQueue(10, "float32", (), shared_name=f"q{client}")
            put = q.enqueue_many(tf.constant([1.0, 2.0, 3.0]))
            taken = tf.numpy.sum(q.dequeue_up_to(5) * 2)
            close = q.close()
            session.run(put)
            session.run(close)
            assert session.run(taken) == 12.0
        compiled.append(server.worker.programs.n_compiled)
    assert len(set(compiled)) == 1

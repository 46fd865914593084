"""Programs that would end a server or an importer: each is an error, and others go on."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.client.export.archive import Archive, read_archive, write_archive
from jflow.plan.validator import VALIDATOR
from tests.clusters import Backend
from tests.plan.validator import hostile
from tests.plan.validator.test_process import BLOBS

TOO_LARGE: dict[str, Callable[[Any], Any]] = {
    "a sum": lambda x: x + jnp.sum(jax.lax.iota("float32", 2**62)),
    "a sort": lambda x: jnp.sort(jnp.broadcast_to(x, (2**62,)))[0],
    "a product": lambda x: jnp.sum(jnp.broadcast_to(x, (2**31, 2**31, 2**31))),
    "inside of a loop": lambda x: jax.lax.fori_loop(
        0, 3, lambda _, y: y + jnp.sum(jnp.broadcast_to(x, (2**62,))), x
    ),
}


@pytest.fixture
def state(backend: Backend) -> Iterator[Callable[[], float]]:
    """What reads a variable on the backend, which has a value that must not be lost."""
    with tf.Graph().as_default(), backend.session() as session:
        v = tf.Variable(3.0, name="kept")
        session.run(v.initializer)
        yield lambda: float(session.run(v))


@pytest.mark.parametrize("name", TOO_LARGE)
def test_values_that_no_memory_holds_are_refused_at_the_users_line(
    name: str, backend: Backend, state: Callable[[], float]
) -> None:
    lines, first = inspect.getsourcelines(TOO_LARGE[name])
    numbers = "|".join(str(first + number) for number in range(len(lines)))
    refusal = rf"{Path(__file__).name}:({numbers})\D.*at most 2"
    with tf.Graph().as_default(), backend.session() as session:
        y = tf.function(TOO_LARGE[name])(tf.constant(1.0))
        with pytest.raises(tf.errors.InvalidArgumentError, match=refusal):
            session.run(y)
    with (
        tf.Connection(backend.target),
        pytest.raises(tf.errors.InvalidArgumentError, match=refusal),
    ):
        tf.function(TOO_LARGE[name])(1.0)
    assert state() == 3.0


@pytest.fixture
def shipping(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Makes sessions and functions of this process ship a program of one's own."""

    def ship(data: bytes) -> None:
        pipeline = sys.modules["jflow.compiler.pipeline.pipeline"]
        monkeypatch.setattr(pipeline, "export", lambda *_: np.frombuffer(data, np.uint8))

    return ship


SHIPPED = ["a comparator of products", "mutual recursion", "a loop that calls main", "an infeed"]


@pytest.mark.parametrize("name", [*SHIPPED, "malformed"])
def test_a_hostile_program_ends_no_server(
    name: str,
    shared_backend: Backend,
    state: Callable[[], float],
    shipping: Callable[[bytes], None],
) -> None:
    shape = hostile.REFUSED[name][1] if name in hostile.REFUSED else ()
    assert state() == 3.0
    shipping(hostile.program(name) if name in hostile.REFUSED else BLOBS[0])
    x = np.zeros(shape, np.float32)
    with tf.Graph().as_default(), shared_backend.session() as session:
        fed = tf.placeholder(tf.float32, shape)
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"program \w{12} of \d+ bytes"):
            session.run(tf.nn.tanh(fed) * 1.25, {fed: x})
    with (
        tf.Connection(shared_backend.target),
        pytest.raises(tf.errors.InvalidArgumentError, match=r"program \w{12} of \d+ bytes"),
    ):
        tf.function(lambda x: jnp.tanh(x) * 1.5)(x)
    assert state() == 3.0


@pytest.fixture
def archive(tmp_path: Path) -> Callable[[bytes], Path]:
    """Writes a graph file with a StableHLO program of one's own."""

    def write(data: bytes) -> Path:
        file = tmp_path / "graph"
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, (), name="x")
            y = tf.lax.reduce(x[None], np.float32(1), lambda a, b: jnp.sin(a) * b, (0,))
            tf.identity(y, name="y")
            tf.train.export_meta_graph(str(file))
        good = read_archive(str(file))
        assert len(good.programs) == 1
        write_archive(str(file), Archive(good.document, good.arrays, [data]))
        return file

    return write


def test_a_graph_file_with_a_hostile_program_ends_no_importer(
    archive: Callable[[bytes], Path],
) -> None:
    for data in (BLOBS[0], BLOBS[2], hostile.program("recursion")):
        with (
            tf.Graph().as_default(),
            pytest.raises(tf.errors.InvalidArgumentError, match="malformed exported graph"),
        ):
            tf.train.import_meta_graph(str(archive(data)))


def test_a_graph_file_with_a_good_program_is_validated_once(
    archive: Callable[[bytes], Path],
) -> None:
    file = archive(b"")
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, (), name="x")
        y = tf.lax.reduce(x[None], np.float32(1), lambda a, b: jnp.sin(a) * b, (0,))
        y = tf.identity(y, name="y")
        tf.train.export_meta_graph(str(file))
        with tf.Session() as session:
            wanted = session.run(y, {x: 0.5})
    before = VALIDATOR.n_validated
    for _ in range(2):
        with tf.Graph().as_default() as graph, tf.Session() as session:
            tf.train.import_meta_graph(str(file))
            x, y = (graph.get_tensor_by_name(f"{name}:0") for name in "xy")
            assert session.run(y, {x: 0.5}) == wanted
    assert VALIDATOR.n_validated == before + 1


def test_a_program_that_many_sessions_run_is_validated_once() -> None:
    with tf.train.Server.create_local_server() as server:
        before = VALIDATOR.n_validated
        for _ in range(3):
            with tf.Graph().as_default(), tf.Session(server.target) as session:
                x = tf.placeholder(tf.float32, (2,))
                session.run(tf.nn.tanh(x) * 1.75, {x: [1, 2]})
        assert VALIDATOR.n_validated == before + 1

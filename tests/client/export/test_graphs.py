"""Graphs in files: what comes back in another process and in another graph, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from msgspec import structs

import jflow as tf
from jflow.client.export.archive import read_archive, write_archive
from jflow.compiler.graph import request
from tests.client.export import programs
from tests.clusters import Backend
from tests.scripts import run_script


def test_a_graph_is_trained_in_another_process(tmp_path: Path) -> None:
    file = tmp_path / "graph"
    graph = programs.build()
    tf.train.export_meta_graph(file, graph)
    child = run_script(programs.__file__, "train", str(file))
    assert child.returncode == 0, child.stderr
    found = json.loads(child.stdout)
    wanted = json.loads(json.dumps(programs.train(graph)))
    losses = found.pop("losses")
    assert losses[1] < losses[0]
    np.testing.assert_allclose(losses, wanted.pop("losses"), rtol=1e-5)
    np.testing.assert_allclose(found.pop("w"), wanted.pop("w"), rtol=1e-4)
    np.testing.assert_allclose(found.pop("slopes"), wanted.pop("slopes"), rtol=1e-3)
    assert found == wanted
    assert found["step"] == programs.N_STEPS
    assert "programs.py" in found["origin"]


def test_a_file_depends_on_the_graph_only(tmp_path: Path) -> None:
    tf.train.export_meta_graph(tmp_path / "a", programs.build())
    graph = tf.Graph()
    with graph.as_default():
        tf.train.import_meta_graph(tmp_path / "a")
    assert str(graph) == str(programs.build())
    tf.train.export_meta_graph(tmp_path / "b", graph)
    again = tf.Graph()
    with again.as_default():
        tf.train.import_meta_graph(tmp_path / "b")
    assert str(again) == str(graph)


def test_a_graph_from_a_file_runs_on_every_backend(tmp_path: Path, backend: Backend) -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, (None,), name="x")
        total = tf.Variable(0.0, name="total")
        with tf.control_dependencies([total.assign_add(tf.numpy.sum(x))]):
            tf.identity(total.read_value(), name="after")
        tf.train.export_meta_graph(tmp_path / "graph")
    with tf.Graph().as_default():
        tf.train.import_meta_graph(tmp_path / "graph")
        with backend.session() as session:
            session.run(tf.global_variables_initializer())
            assert session.run("after:0", {"x:0": [1.0, 2.0]}) == 3.0
            assert session.run("after:0", {"x:0": [1.0, 2.0, 3.0]}) == 9.0


def test_devices_containers_and_colocation_come_back_and_may_be_cleared(tmp_path: Path) -> None:
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:1"), tf.container("kept"):
            w = tf.Variable(1.0, name="w")
        with tf.colocate_with(w):
            tf.identity(w, name="beside")
        tf.train.export_meta_graph(tmp_path / "graph")
    for clear, device in ((False, "/job:ps/task:1"), (True, "")):
        graph = tf.Graph()
        with graph.as_default():
            tf.train.import_meta_graph(tmp_path / "graph", clear_devices=clear)
            (variable,) = tf.trainable_variables()
        assert (variable.device, variable.container) == (device, "kept")
        beside = graph.get_operation_by_name("beside")
        assert beside.device == device
        assert beside.colocation_groups() == [b"loc:@w"]


def test_an_import_scope_makes_names_and_variables_new(tmp_path: Path) -> None:
    with tf.Graph().as_default():
        w = tf.Variable(2.0, name="w")
        tf.identity(w * w, name="square")
        tf.train.export_meta_graph(tmp_path / "graph")
    with tf.Graph().as_default() as graph:
        for _ in range(2):
            tf.train.import_meta_graph(tmp_path / "graph", import_scope="model")
        first, second = tf.trainable_variables()
        assert (first.name, second.name) == ("model/w:0", "model_1/w:0")
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run(second.assign(5.0))
            squares = session.run(["model/square:0", "model_1/square:0"])
            assert [float(one) for one in squares] == [4.0, 25.0]
            assert float(session.run(graph.get_tensor_by_name("model_1/w:0"))) == 5.0
        with pytest.raises(ValueError, match="not a valid name scope"):
            tf.train.import_meta_graph(tmp_path / "graph", import_scope="a b")


def test_a_name_that_is_taken_is_refused_before_anything_is_added(tmp_path: Path) -> None:
    with tf.Graph().as_default():
        tf.constant(1.0, name="free")
        tf.constant(1.0, name="taken")
        tf.train.export_meta_graph(tmp_path / "graph")
    with tf.Graph().as_default() as graph:
        tf.constant(2.0, name="Taken")
        with pytest.raises(ValueError, match=r"already has an operation 'taken'.*import_scope"):
            tf.train.import_meta_graph(tmp_path / "graph")
        assert len(graph.get_operations()) == 1


def test_a_variable_of_varying_size_keeps_its_kind(tmp_path: Path) -> None:
    with tf.Graph().as_default():
        rows = tf.placeholder(tf.float32, (None, 2), name="rows")
        tf.Variable(rows, name="w", validate_shape=False)
        tf.train.export_meta_graph(tmp_path / "graph")
    with tf.Graph().as_default():
        tf.train.import_meta_graph(tmp_path / "graph")
        (w,) = tf.global_variables()
        with tf.Session() as session:
            for n in (2, 3):
                session.run(w.initializer, {"rows:0": np.ones((n, 2))})
                assert session.run(w).shape == (n, 2)


def test_queue_runners_come_back(tmp_path: Path) -> None:
    with tf.Graph().as_default():
        names = tf.train.string_input_producer(["a", "b"], num_epochs=1, shuffle=False)
        names.dequeue(name="name")
        tf.train.export_meta_graph(tmp_path / "graph")
    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.import_meta_graph(tmp_path / "graph")
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        assert [session.run("name:0") for _ in range(2)] == [b"a", b"b"]
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run("name:0")
        coordinator.request_stop()
        coordinator.join(threads)


def test_a_python_function_is_refused_with_the_operation_and_the_line(tmp_path: Path) -> None:
    def loop(x: jax.Array) -> jax.Array:
        def body(_: int, value: jax.Array) -> jax.Array:
            return jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), np.float32), value)

        return jax.lax.fori_loop(0, 3, body, x)

    def noisy(x: jax.Array) -> jax.Array:
        jax.debug.print("{}", x)
        return x

    for fun, text in ((noisy, "calls a Python function"), (loop, "JAX cannot export it")):
        with tf.Graph().as_default() as graph:
            graph.apply(fun, (tf.constant(1.0),))
            with pytest.raises(tf.errors.UnimplementedError, match=text) as caught:
                tf.train.export_meta_graph(tmp_path / "graph")
        assert "test_graphs.py" in str(caught.value)
        assert caught.value.op
    assert not list(tmp_path.iterdir())


def test_a_collection_member_without_a_written_form_is_left_out_with_a_warning(
    tmp_path: Path,
) -> None:
    with tf.Graph().as_default() as graph:
        graph.add_to_collection("mixed", object())
        graph.add_to_collection("mixed", tf.constant(1.0, name="one"))
        with pytest.warns(UserWarning, match="'mixed' is exported without <object"):
            tf.train.export_meta_graph(tmp_path / "graph")
    with tf.Graph().as_default() as graph:
        tf.train.import_meta_graph(tmp_path / "graph")
        (member,) = graph.get_collection("mixed")
        assert member.name == "one:0"


def test_another_setting_of_64_bits_is_refused(tmp_path: Path) -> None:
    with jax.enable_x64(True), tf.Graph().as_default():
        tf.constant(np.float64(1.0))
        tf.train.export_meta_graph(tmp_path / "graph")
    with (
        tf.Graph().as_default(),
        pytest.raises(tf.errors.FailedPreconditionError, match="jax_enable_x64', True"),
    ):
        tf.train.import_meta_graph(tmp_path / "graph")


def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    file = str(tmp_path / "graph")
    tf.export.save_graph(file, tf.Graph())
    archive = read_archive(file)
    document = structs.replace(archive.document, version=99)
    write_archive(file, replace(archive, document=document))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"expected version 1.*got 99"):
        tf.export.load_graph(file)


def test_a_loop_over_devices_keeps_its_devices_and_window(tmp_path: Path) -> None:
    def body(total: jax.Array, x: jax.Array) -> tuple[jax.Array, None]:
        with tf.device("/job:worker/task:1"):
            y = x * 2.0
        with tf.device("/job:ps"):
            return total + y, None

    def looping(xs: jax.Array) -> jax.Array:
        with tf.loop(window=3):
            total: jax.Array = jax.lax.scan(body, 0.0, xs)[0]
        return total

    graph, again = tf.Graph(), tf.Graph()
    with graph.as_default():
        xs = tf.placeholder("float32", (4,), name="xs")
        graph.apply(looping, (xs,), name="total")
    tf.train.export_meta_graph(tmp_path / "graph", graph)
    with again.as_default():
        tf.train.import_meta_graph(tmp_path / "graph")
    for one in (graph, again):
        eqn = one.get_operation_by_name("total").eqn
        assert sorted(map(str, request.requests_in_bodies(eqn))) == [
            "/job:ps",
            "/job:worker/task:1",
        ]
        assert request.requested(eqn).window == 3
    cleared = tf.Graph()
    with cleared.as_default():
        tf.train.import_meta_graph(tmp_path / "graph", clear_devices=True)
        with tf.Session() as session:
            assert session.run("total:0", {"xs:0": [1, 2, 3, 4]}) == 20.0
    eqn = cleared.get_operation_by_name("total").eqn
    assert not request.requests_in_bodies(eqn)
    total = again.get_tensor_by_name("total:0")
    refused = pytest.raises(tf.errors.InvalidArgumentError, match="/job:worker/task:1")
    with tf.Session(graph=again) as session, refused:
        session.run(total, {"xs:0": [1, 2, 3, 4]})


def test_a_loop_over_devices_with_callbacks_is_not_written(tmp_path: Path) -> None:
    def body(total: jax.Array, x: jax.Array) -> tuple[jax.Array, None]:
        with tf.device("/cpu:0"):
            y = x * 2.0
        jax.debug.callback(lambda _: None, y)
        with tf.device("/cpu:1"):
            return total + y, None

    with tf.Graph().as_default() as graph:
        xs = tf.placeholder("float32", (4,))
        graph.apply(lambda xs: jax.lax.scan(body, 0.0, xs)[0], (xs,))
        with pytest.raises(Exception, match=r"'scan' \(at .*several devices.*effects"):
            tf.train.export_meta_graph(tmp_path / "graph", graph)


def test_a_loop_whose_device_a_function_chooses_is_not_written(tmp_path: Path) -> None:
    def body(total: jax.Array, x: jax.Array) -> tuple[jax.Array, None]:
        with tf.device(lambda op: "/cpu:0"):
            y = x * 2.0
        with tf.device("/cpu:1"):
            return total + y, None

    with tf.Graph().as_default() as graph:
        xs = tf.placeholder("float32", (4,))
        graph.apply(lambda xs: jax.lax.scan(body, 0.0, xs)[0], (xs,))
        with pytest.raises(Exception, match="give the device by name"):
            tf.train.export_meta_graph(tmp_path / "graph", graph)

"""`Supervisor`: sessions of a chief and of others, services, and how it stops."""

import threading

import numpy as np
import pytest
from google.protobuf import text_format

import jflow as tf
from jflow.testing import wait_until
from tests.clusters import Backend

pytestmark = pytest.mark.filterwarnings("ignore:Supervisor is deprecated:DeprecationWarning")


def _counting():
    step = tf.train.get_or_create_global_step()
    v = tf.Variable(0.0, name="v")
    with tf.control_dependencies([step.assign_add(1)]):
        return step, v, v.assign_add(2.0)


def test_the_chief_initializes_and_others_wait(backend: Backend):
    if not backend.shared:
        pytest.skip("sessions of this process share nothing")
    found = []

    def work() -> None:
        with tf.Graph().as_default():
            _, v, _ = _counting()
            worker = tf.train.Supervisor(is_chief=False, recovery_wait_secs=0.05)
            with worker.managed_session(backend.target) as session:
                found.append(float(session.run(v)))

    thread = threading.Thread(target=work)
    thread.start()
    with tf.Graph().as_default():
        *_, grow = _counting()
        chief = tf.train.Supervisor(init_op=tf.group(tf.global_variables_initializer()))
        with chief.managed_session(backend.target) as session:
            assert session.run(grow) == 2.0
            thread.join(60)
    assert found
    assert found[0] in (0.0, 2.0)


def test_a_restarted_chief_goes_on_from_its_checkpoint(tmp_path, backend: Backend):
    logdir = tmp_path / "run"
    for start in (0, 3):
        with tf.Graph().as_default():
            step, v, grow = _counting()
            supervisor = tf.train.Supervisor(logdir=logdir, save_model_secs=0, summary_op=None)
            assert tf.get_default_graph().finalized
            with supervisor.managed_session(backend.target) as session:
                assert session.run([step, v]) == [start, 2.0 * start]
                for _ in range(3):
                    session.run(grow)
                supervisor.saver.save(session, supervisor.save_path, global_step=step)
        backend.reset()
    assert tf.train.latest_checkpoint(logdir) == f"{logdir}/model.ckpt-6"


def test_checkpoints_are_saved_by_a_thread(tmp_path):
    step, _, grow = _counting()
    supervisor = tf.train.Supervisor(logdir=tmp_path, save_model_secs=0.05)
    with supervisor.managed_session() as session:
        session.run(grow)
        found = tf.train.checkpoints_iterator(tmp_path, timeout=30)
        first = next(found)
        session.run(grow)
        second = next(found)
    assert first != second
    assert second.endswith("model.ckpt-2")
    assert supervisor.global_step is step


def test_the_end_of_the_input_ends_the_block_and_threads_stop():
    (element,) = tf.train.slice_input_producer([np.arange(4)], num_epochs=1, shuffle=False)
    supervisor = tf.train.Supervisor()
    before, taken = {*threading.enumerate()}, []
    with supervisor.managed_session() as session:
        while not supervisor.should_stop():
            taken.append(int(session.run(element)))
    assert taken == [0, 1, 2, 3]
    assert supervisor.coord.joined
    wait_until(lambda: {*threading.enumerate()} <= before, "the threads of the session to end")


def test_an_error_of_the_block_or_of_a_thread_is_raised():
    _counting()
    supervisor = tf.train.Supervisor()
    with pytest.raises(ZeroDivisionError), supervisor.managed_session():
        1 / 0  # noqa: B018
    failing = tf.train.Supervisor(graph=supervisor._graph)

    def run() -> None:
        with failing.managed_session():
            failing.loop(None, {}.__getitem__, ("nothing",))
            failing.wait_for_stop()

    with pytest.raises(KeyError):
        run()


def test_functions_are_called_in_an_interval():
    _counting()
    supervisor, called = tf.train.Supervisor(), threading.Event()
    with supervisor.managed_session():
        supervisor.loop(0.01, called.set)
        assert called.wait(30)


def test_summaries_are_written(tmp_path):
    pytest.importorskip("tensorboardX")
    _, v, grow = _counting()
    summary = tf.summary.scalar("v", v)
    supervisor = tf.train.Supervisor(logdir=tmp_path, summary_op=None, save_model_secs=0)
    with supervisor.managed_session() as session:
        session.run(grow)
        supervisor.summary_computed(session, session.run(summary))
    assert [*tmp_path.glob("events*")]


def test_the_chief_writes_the_definition_of_its_graph_once(tmp_path):
    class Writer:
        def __init__(self):
            self.graphs = []

        def add_graph(self, graph):
            self.graphs.append(graph)

        def close(self):
            pass

    _counting()
    writer = Writer()
    options = {"summary_writer": writer, "save_model_secs": 0, "summary_op": None}
    supervisor = tf.train.Supervisor(logdir=tmp_path / "run", **options)
    for _ in range(2):
        with supervisor.managed_session(start_standard_services=False):
            text = (tmp_path / "run" / "graph.pbtxt").read_text()
    definition = tf.get_default_graph().as_graph_def(add_shapes=True)
    assert writer.graphs == [definition]
    assert text_format.Parse(text, tf.GraphDef()) == definition


def test_what_is_refused_and_said():
    with pytest.warns(DeprecationWarning, match="MonitoredTrainingSession"):
        supervisor = tf.train.Supervisor(is_chief=False)
    with pytest.raises(RuntimeError, match="Only chief"):
        supervisor.start_standard_services(tf.Session())
    with pytest.raises(RuntimeError, match="requires a summary writer"):
        supervisor.summary_computed(tf.Session(), b"")


def test_checkpoints_end_after_a_timeout(tmp_path):
    calls = []

    def is_over() -> bool:
        calls.append(1)
        return len(calls) == 2

    found = tf.train.checkpoints_iterator(tmp_path, timeout=0.01, timeout_fn=is_over)
    assert [*found] == []
    assert len(calls) == 2
    assert [*tf.train.checkpoints_iterator(tmp_path, timeout=0.0)] == []

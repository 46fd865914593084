import threading

import jax
import numpy as np
import pytest

import jflow as tf
from jflow.client.runtime.steps import register_step
from jflow.compiler.graph import stack


def _on_a_thread(fun):
    """What `fun` returns or raises on a thread of its own, with defaults of its own."""
    results = []

    def call():
        try:
            results.append(fun())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    return results[0]


# Opening and closing


def test_a_small_program_gives_its_result():
    a = tf.constant(1.0)
    b = a + 2
    c = a * 3
    with tf.Session():
        assert (b.eval(), c.eval()) == (3.0, 3.0)


def test_a_session_runs_the_graph_that_was_the_default_when_it_was_made():
    a = tf.constant(1.0)
    session = tf.Session()
    with tf.Graph().as_default() as other:
        b = tf.constant(2.0)
        assert session.run(a) == 1.0
        with tf.Session() as inner:
            assert inner.graph is other
            assert inner.run(b) == 2.0
    assert session.graph is tf.get_default_graph()
    assert tf.Session(graph=other).run(b) == 2.0


def test_a_closed_session_runs_nothing_and_may_be_closed_again():
    a = tf.constant(1.0)
    session = tf.Session()
    assert session.run(a) == 1.0
    session.close()
    session.close()
    with pytest.raises(RuntimeError, match=r"Attempted to use a closed Session\."):
        session.run(a)


def test_an_empty_graph_is_an_error():
    with tf.Session() as session, pytest.raises(RuntimeError, match="The Session graph is empty"):
        session.run([])
    tf.constant(1.0)
    with tf.Session() as session:
        assert session.run([]) == []


@pytest.mark.parametrize("target", ["local", "http://a:1", "grpc:/a:1", "a:2222", " "])
def test_a_target_of_another_kind_is_not_found(target):
    with pytest.raises(tf.errors.NotFoundError, match="No session factory registered") as raised:
        tf.Session(target)
    assert repr(target) in str(raised.value)
    with pytest.raises(tf.errors.NotFoundError):
        tf.Session.reset(target)


@pytest.mark.parametrize("target", ["grpc://", "grpc://:2222", "grpc://a:port", "grpc://a:70000"])
def test_a_malformed_address_is_a_value_error(target):
    with pytest.raises(
        ValueError, match=f"the address {target!r} has|of the address {target!r} is"
    ):
        tf.Session(target)


@pytest.mark.parametrize(
    "arguments", [{"target": 3}, {"target": None}, {"graph": "g"}, {"config": {}}, {"config": 3}]
)
def test_an_argument_of_another_type_is_a_type_error(arguments):
    with pytest.raises(TypeError, match="must be a"):
        tf.Session(**arguments)


def test_a_local_session_has_nothing_to_reset():
    tf.Session.reset("")
    tf.Session.reset("", ["anything"])


def test_a_session_describes_itself():
    session = tf.Session()
    assert (session.target, repr(session)) == ("", "<jflow.Session on this process>")
    session.close()
    assert repr(session) == "<jflow.Session closed on this process>"


def test_the_devices_of_this_process_are_listed():
    tf.constant(1.0)
    devices = tf.Session().list_devices()
    cpus = [device.name for device in devices if device.device_type == "CPU"]
    assert cpus == [f"/job:localhost/task:0/device:CPU:{i}" for i in range(len(cpus))]
    assert len(cpus) == jax.local_device_count()
    assert all(device.memory_limit_bytes > 2**20 for device in devices)


# Default sessions


def test_a_block_makes_a_session_and_its_graph_the_default_and_closes_it():
    with tf.Graph().as_default() as graph:
        a = tf.constant(1.0)
    assert tf.get_default_session() is None
    with tf.Session(graph=graph) as session:
        assert tf.get_default_session() is session
        assert tf.get_default_graph() is graph
        assert a.eval() == 1.0
    assert tf.get_default_session() is None
    assert tf.get_default_graph() is not graph
    with pytest.raises(RuntimeError, match="closed"):
        session.run(a)


def test_a_block_closes_the_session_after_an_error_too():
    session = tf.Session()
    with pytest.raises(KeyError), session:
        raise KeyError
    assert tf.get_default_session() is None
    with pytest.raises(RuntimeError, match="closed"):
        session.run([])


def test_the_innermost_block_is_the_default():
    tf.constant(1.0)
    with tf.Session() as outer:
        with tf.Session() as inner:
            assert tf.get_default_session() is inner
        assert tf.get_default_session() is outer


def test_a_block_cannot_be_entered_inside_itself():
    session = tf.Session()
    with session:
        with pytest.raises(RuntimeError, match="cannot be entered again"), session:
            pass
        assert tf.get_default_session() is session
    assert tf.get_default_session() is None


def test_a_session_can_be_the_default_without_being_closed_and_again_inside():
    a = tf.constant(1.0)
    session = tf.Session()
    with session.as_default() as same:
        assert same is session
        with session.as_default():
            assert a.eval() == 1.0
        assert a.eval() == 1.0
    assert tf.get_default_session() is None
    assert session.run(a) == 1.0


def test_blocks_that_cross_are_an_error():
    tf.constant(1.0)
    first, second = tf.Session(), tf.Session()

    def cross():
        first.__enter__()
        second.__enter__()
        try:
            first.__exit__(None, None, None)
        finally:
            second.__exit__(None, None, None)

    error = _on_a_thread(cross)
    assert isinstance(error, AssertionError)
    assert "Nesting violated" in str(error)


def test_the_default_session_belongs_to_its_thread():
    tf.constant(1.0)
    with tf.Session():
        assert _on_a_thread(tf.get_default_session) is None
        assert _on_a_thread(lambda: stack.sessions.top) is None


def test_without_a_default_session_nothing_can_be_evaluated():
    a, x = tf.constant(1.0), tf.Variable(1.0)
    for call in (a.eval, a.op.run, x.eval, x.initializer.run, lambda: x.load(2.0)):
        with pytest.raises(ValueError, match="no default session"):
            call()


def test_a_session_can_be_given_instead_of_the_default():
    p = tf.placeholder("float32", ())
    x = tf.Variable(3.0)
    y = x * p
    with tf.Session() as outer:
        session = tf.Session()
        x.initializer.run(session=session)
        assert y.eval({p: 2.0}, session) == 6.0
        assert y.eval(feed_dict={p: 2.0}, session=session) == 6.0
        assert x.eval(session=session) == 3.0
        with pytest.raises(tf.errors.FailedPreconditionError):
            outer.run(x)


def test_an_operation_runs_with_feeds():
    p = tf.placeholder("float32", ())
    x = tf.Variable(0.0)
    assign = x.assign(p)
    with tf.Session():
        assert assign.op.run({p: 7.0}) is None
        assert x.eval() == 7.0


# Growing graphs and errors


def test_what_is_added_after_the_first_step_runs_too():
    a = tf.constant(2.0)
    with tf.Session() as session:
        assert session.run(a) == 2.0
        b = a * 5
        assert session.run(b) == 10.0
        x = tf.Variable(b)
        session.run(x.initializer)
        assert session.run([x, a]) == [10.0, 2.0]


def test_threads_may_build_while_others_run():
    start = threading.Barrier(4)
    x = tf.constant(1.0)
    graph = tf.get_default_graph()
    with tf.Session() as session:

        def work(number):
            start.wait()
            total = x
            with graph.as_default():
                for i in range(4):
                    total = total + float(number)
                    if session.run(total) != 1 + number * (i + 1):
                        return False
            return True

        results = []
        threads = [threading.Thread(target=lambda n=n: results.append(work(n))) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [True] * 4


def _bad_device():
    value = tf.constant(1.0)
    with tf.device("/device:CPU:7"):
        return [tf.numpy.sin(value, name="lost")]


def _bad_job():
    value = tf.constant(1.0)
    with tf.device("/job:ps"):
        return [tf.numpy.sin(value, name="lost")]


ERRORS = {
    "unfed": (lambda: [tf.placeholder("float32", ()) * 2], tf.errors.InvalidArgumentError),
    "shape": (lambda: ["a:0", {"a:0": [1.0]}], ValueError),
    "dtype": (lambda: ["a:0", {"a:0": "x"}], TypeError),
    "key": (lambda: ["a:0", {"nothing:0": 1.0}], TypeError),
    "fetch": (lambda: [None], TypeError),
    "name": (lambda: ["nothing"], ValueError),
    "uninitialized": (lambda: [tf.Variable(1.0)], tf.errors.FailedPreconditionError),
    "uninitialized update": (
        lambda: [tf.Variable(1.0).assign_add(1.0)],
        tf.errors.FailedPreconditionError,
    ),
    "device": (_bad_device, tf.errors.InvalidArgumentError),
    "job": (_bad_job, tf.errors.InvalidArgumentError),
}


@pytest.mark.parametrize("kind", ERRORS)
def test_a_session_is_usable_after_an_error(kind):
    make, error = ERRORS[kind]
    a = tf.constant(1.0, name="a")
    x = tf.Variable(0.0, name="x")
    add = x.assign_add(a)
    bad = make()
    with tf.Session() as session:
        session.run(x.initializer)
        for expected in (1.0, 2.0):
            with pytest.raises(error):
                session.run(*bad)
            assert session.run(add) == expected


def test_a_device_that_is_not_there_is_an_error_that_lists_what_is():
    (lost,) = _bad_device()
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError) as raised:
        session.run(lost)
    message = str(raised.value)
    for i in range(3):
        assert f"/job:localhost/task:0/device:CPU:{i}" in message
    for part in ("'lost'", "/device:CPU:7", f"{__file__}:"):
        assert part in message
    assert message.count(__file__) == 1


def test_a_job_that_is_not_there_is_an_error_that_lists_the_tasks():
    (lost,) = _bad_job()
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError) as raised:
        session.run(lost)
    assert "'/job:localhost/task:0'" in str(raised.value)


def test_a_bad_operation_that_is_not_needed_does_no_harm():
    _bad_device()
    with tf.Session() as session:
        assert session.run(tf.constant(1.0)) == 1.0


def test_a_step_is_registered_once_for_its_fetches_and_feeds(monkeypatch):
    registered = []

    def register(graph, key, *rest):
        registered.append(key)
        return register_step(graph, key, *rest)

    monkeypatch.setattr("jflow.client.session.steps.register_step", register)
    x = tf.placeholder("float32", ())
    y, z = x + 1, x * 2
    with tf.Session() as session:
        assert [session.run(y, {x: i}) for i in (1, 2, 3)] == [2, 3, 4]
        assert len(registered) == 1
        assert [session.run([y, z], {x: i}) for i in (1, 2)] == [[2, 2], [3, 4]]
        assert len(registered) == 2


def test_placement_tells_where_a_step_would_run():
    with tf.device("/device:CPU:2"):
        x = tf.Variable(1.0, name="x")
    y = tf.numpy.sin(x, name="y")
    with tf.Session() as session:
        places = {op.name: str(device) for op, device in session.placement(y).items()}
    assert places == {
        "x/read": "/job:localhost/task:0/device:CPU:2",
        "y": session.list_devices()[0].name,
    }


def test_values_do_not_depend_on_how_large_a_fetch_is():
    x = tf.constant(np.arange(10_000, dtype=np.float32).reshape(100, 100))
    with tf.Session() as session:
        total, whole = session.run([tf.numpy.sum(x), x * 2])
    assert total == np.arange(10_000).sum()
    np.testing.assert_array_equal(whole, np.arange(10_000).reshape(100, 100) * 2)

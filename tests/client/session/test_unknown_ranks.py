"""Placeholders without a shape: the calls on them are recorded, and each step makes them anew."""

from __future__ import annotations

import functools
import re
import sys
import threading

import jax
import numpy as np
import optax
import pytest

import jflow as tf
from jflow.client.runtime import expanding
from jflow.compiler.pipeline import pipeline
from tests.clusters import Backend


def here() -> int:
    """The line of the caller."""
    return sys._getframe(1).f_lineno


def test_a_placeholder_without_a_shape_computes_with_each_shape_that_is_fed(
    backend: Backend,
) -> None:
    with tf.device(backend.devices[1]):
        x = tf.placeholder(tf.float32)
        y = x * 2
        total = tf.numpy.sum(y)
    assert y.shape.ndims is None
    assert total.shape == ()
    with backend.session() as session:
        for value in (3.0, [1.0, 2.0], np.ones((2, 0, 3)), [[1.0, 2.0]], 4.0):
            found, found_total = session.run([y, total], {x: value})
            np.testing.assert_array_equal(found, np.float32(value) * np.float32(2))
            assert found_total == np.sum(found)
            assert np.shape(found) == np.shape(value)


def test_a_learning_rate_is_a_placeholder_without_a_shape(backend: Backend) -> None:
    v = tf.Variable([1.0, 2.0])
    rate = tf.placeholder(tf.float32)
    loss = tf.numpy.sum(v * v)
    steps = [
        tf.train.GradientDescentOptimizer(rate).minimize(loss),
        tf.train.MomentumOptimizer(rate, 0.0).minimize(loss),
        tf.train.Optimizer(optax.scale(1.0), tf.train.exponential_decay(rate, 0, 1, 0.5)).minimize(
            loss
        ),
    ]
    initializer = tf.global_variables_initializer()
    with backend.session() as session:
        for step in steps:
            session.run(initializer)
            session.run(step, {rate: 0.25})
            assert session.run(v).tolist() == [0.5, 1.0]
            session.run(step, {rate: np.float32(0.5)})
            assert session.run(v).tolist() == [0.0, 0.0]
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"a scalar, got .* \(1,\)"):
            session.run(steps[0], {rate: [0.5]})


def test_a_model_is_trained_on_inputs_without_a_shape(backend: Backend) -> None:
    numbers = np.random.RandomState(0)
    inputs, wanted = numbers.randn(12, 4).astype("f"), np.eye(3, dtype="f")[np.arange(12) % 3]
    x, y, keep = (tf.placeholder(tf.float32) for _ in range(3))
    with tf.device(backend.devices[1]):
        w = tf.Variable(np.zeros((4, 3), np.float32))
    b = tf.Variable(np.zeros(3, np.float32))
    kept = tf.numpy.where(keep > 0.5, x / keep, 0.0)
    logits = tf.numpy.matmul(kept, w) + b
    loss = -tf.numpy.mean(tf.numpy.sum(y * tf.nn.log_softmax(logits), axis=-1))
    assert (logits.shape, loss.shape) == (None, ())
    optimizer = tf.train.GradientDescentOptimizer(0.5)
    pairs = optimizer.compute_gradients(loss)
    assert [grad.shape for grad, _ in pairs] == [(4, 3), (3,)]
    step = optimizer.apply_gradients(pairs)

    @jax.jit
    @functools.partial(jax.value_and_grad, argnums=(0, 1))
    def expected(w: jax.Array, b: jax.Array) -> jax.Array:
        logits = jax.numpy.matmul(inputs, w) + b
        return -jax.numpy.mean(jax.numpy.sum(wanted * jax.nn.log_softmax(logits), axis=-1))

    weights = [jax.numpy.zeros((4, 3)), jax.numpy.zeros(3)]
    feeds = {x: inputs, y: wanted, keep: 1.0}
    with backend.session() as session:
        session.run(tf.global_variables_initializer())
        run = session.make_callable([loss, step], [x, y, keep])
        for _ in range(3):
            value, slopes = expected(*weights)
            assert np.isclose(run(inputs, wanted, 1.0)[0], value, rtol=1e-5)
            weights = [w - 0.5 * g for w, g in zip(weights, slopes, strict=True)]
        for found, value in zip(session.run([w, b]), weights, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-6)
        assert session.run(loss, {x: inputs[:1], y: wanted[:1], keep: 1.0}).shape == ()
        assert session.run(logits, {x: inputs[0], keep: 1.0}).shape == (3,)
        # A feed cuts off what computes it, but not the gradients that flow through it.
        session.run(step, {**feeds, logits: np.zeros((12, 3), np.float32)})


def test_a_flag_of_training_chooses_a_branch(backend: Backend) -> None:
    flag, x = tf.placeholder(tf.bool), tf.placeholder(tf.float32, (None, 3))
    v = tf.Variable(2.0)
    y = tf.lax.cond(flag, lambda a: a * v, lambda a: a, x)
    assert tf.numpy.sum(y).shape == ()
    # Only a scalar can choose a branch, so the shape of the result is known.
    assert len(y.shape) == 2
    slopes = tf.gradients(tf.numpy.sum(y), [v, x])
    with backend.session() as session:
        session.run(v.initializer)
        ones = np.ones((2, 3))
        found, by_v, by_x = session.run([y, *slopes], {flag: True, x: ones})
        assert (found.tolist(), by_v, by_x.tolist()) == ([[2] * 3] * 2, 6, [[2] * 3] * 2)
        found, by_v, by_x = session.run([y, *slopes], {flag: False, x: ones})
        assert (found.tolist(), by_v, by_x.tolist()) == ([[1] * 3] * 2, 0, [[1] * 3] * 2)


def test_a_recorded_call_keeps_its_device_scope_and_control_inputs(backend: Backend) -> None:
    x, v = tf.placeholder(tf.float32), tf.Variable(0.0)
    with tf.device(backend.devices[1]):
        device = tf.no_op().device
    types = []

    def chosen(op: tf.Operation) -> str:
        types.append(op.type)
        return backend.devices[1]

    with tf.control_dependencies([v.assign_add(1.0)]), tf.device(chosen), tf.name_scope("scope"):
        y = tf.numpy.sin(x)
    assert (y.name, y.op.type, y.device) == ("scope/sin:0", "sin", device)
    assert types == ["sin"]
    with tf.control_dependencies([y]), tf.colocate_with(y):
        after = v.read_value() + x
    with backend.session() as session:
        session.run(v.initializer)
        options = tf.RunOptions(output_partition_graphs=True)
        metadata = tf.RunMetadata()
        assert session.run(after, {x: [1.0]}, options, metadata).tolist() == [2.0]
        assert any(device in text for text in metadata.partition_graphs)
        assert types == ["sin"]


def test_what_a_recorded_function_does_happens_once(backend: Backend) -> None:
    x, v = tf.placeholder(tf.float32), tf.Variable(1.0)

    def count(value: jax.Array) -> tuple[jax.Array, jax.Array]:
        v.assign_add(value.sum())
        return value * 2, v.value()

    doubled, total = tf.get_default_graph().apply(count, (x,))
    only = tf.get_default_graph().apply(lambda value: [v.assign(value.sum()), ()][1], (x,))
    more = doubled + 1
    with backend.session() as session:
        session.run(v.initializer)
        for expected in (4, 7):
            assert session.run([more, total], {x: [1.0, 2.0]})[1] == expected
        session.run(only, {x: [5.0]})
        assert session.run(v) == 5


def test_derivatives_through_recorded_calls_have_derivatives(backend: Backend) -> None:
    x, seed = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    y = x**3
    (first,) = tf.gradients(y, x)
    (second,) = tf.gradients(first, x)
    (scaled,) = tf.gradients(y, x, seed)
    (by_y,) = tf.gradients(x * x, x, stop_gradients=[x])
    nothing = tf.gradients(y, [seed])
    assert nothing == [None]
    with backend.session() as session:
        found = session.run([first, second, scaled], {x: [1.0, 2.0], seed: [1.0, 10.0]})
        assert [value.tolist() for value in found] == [[3, 12], [6, 12], [3, 120]]
        assert session.run(by_y, {x: 3.0}) == 6
        # Gradients flow through a tensor that is fed.
        assert session.run(first, {x: [1.0, 2.0], y: [7.0, 7.0]}).tolist() == [3, 12]


def test_rows_of_unknown_indices_have_a_gradient(backend: Backend) -> None:
    with tf.device(backend.devices[1]):
        table = tf.Variable(np.arange(8, dtype=np.float32).reshape(4, 2))
    ids = tf.placeholder(tf.int32)
    rows = tf.nn.embedding_lookup(table, ids)
    ((slope, _),) = tf.train.GradientDescentOptimizer(1.0).compute_gradients(tf.numpy.sum(rows))
    with backend.session() as session:
        session.run(table.initializer)
        assert session.run(rows, {ids: 2}).tolist() == [4, 5]
        assert session.run(rows, {ids: [[0], [3]]}).shape == (2, 1, 2)
        assert session.run(slope, {ids: [1, 1, 3]}).tolist() == [[0, 0], [2, 2], [0, 0], [1, 1]]


def test_values_of_the_host_compute_once_their_rank_is_known(backend: Backend) -> None:
    text, number = tf.placeholder(tf.string), tf.placeholder(tf.int32)
    doubled = tf.string_to_number(text) * 2
    halved = tf.identity(tf.cast(number, tf.float32)) / 2
    with backend.session() as session:
        assert session.run(doubled, {text: ["1", "2.5"]}).tolist() == [2, 5]
        assert session.run(halved, {number: 3}) == 1.5


def test_random_keys_without_a_shape(backend: Backend) -> None:
    keys = tf.placeholder(jax.random.key(0).dtype)
    drawn = tf.random.normal(keys, (3,))
    data = tf.random.key_data(keys)
    assert drawn.shape == (3,)
    with backend.session() as session:
        key = jax.random.key(1)
        np.testing.assert_array_equal(session.run(drawn, {keys: key}), jax.random.normal(key, (3,)))
        several = jax.random.split(key, 2)
        found = session.run(data, {keys: several})
        np.testing.assert_array_equal(found, jax.random.key_data(several))


# Errors ---------------------------------------------------------------------------------------


def test_an_error_in_a_step_names_the_line_that_recorded_the_call(backend: Backend) -> None:
    x, v = tf.placeholder(tf.float32, name="x"), tf.Variable([1.0, 2.0, 3.0])
    y, line = x + v, here()
    later = tf.numpy.sum(y * 2)
    with backend.session() as session:
        session.run(v.initializer)
        place = re.escape(f"'add' (made at {__file__}:{line} in ")
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=place + r".*float32 \(2,\), float32 \(3,\)"
        ) as caught:
            session.run(later, {x: [1.0, 2.0]})
        assert caught.value.op == "add"
        assert session.run(later, {x: 1.0}) == 18
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"must feed .* placeholder 'x'"):
            session.run(later)
        assert session.run(later, {y: [[1.0]]}) == 2


def test_what_needs_a_rank_before_the_step_names_set_shape(backend: Backend) -> None:
    x = tf.placeholder(tf.float32)
    w = tf.Variable(np.zeros((2, 3), np.float32))
    y = x * 2
    for build in (
        lambda: x.ndim,
        lambda: tf.numpy.shape(x),
        lambda: tf.numpy.unstack(x),
        lambda: w.update(lambda old, new: old * new, x),
        lambda: tf.scatter_add(w, tf.cast(x, tf.int32), np.ones((1, 3), np.float32)),
        lambda: tf.function(lambda value: value * 2)(x),
        lambda: tf.numpy.reshape(x, (-1, 5, 7, 11, 13)),
    ):
        with pytest.raises((TypeError, ValueError), match="set_shape"):
            build()
    with pytest.raises(TypeError, match="unexpected keyword argument 'axes'"):
        tf.numpy.sum(x, axes=1)
    with backend.session() as session:
        for ask in (session.placement, session.explain):
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"'mul'.*rank.*set_shape"):
                ask(y, [x])
    with pytest.raises(tf.errors.UnimplementedError, match=r"'mul'.*set_shape"):
        tf.train.export_meta_graph("unused")


def test_a_shape_that_was_found_for_some_ranks_is_checked_for_others(backend: Backend) -> None:
    x = tf.placeholder(tf.float32)

    def fun(value: jax.Array) -> jax.Array:
        return value if value.ndim > 4 else value.sum()

    y, line = tf.get_default_graph().apply(fun, (x,), name="fun"), here()
    assert y.shape == ()
    with backend.session() as session:
        assert session.run(y, {x: [1.0, 2.0]}) == 3
        with pytest.raises(tf.errors.InvalidArgumentError, match=f":{line} in .*expected"):
            session.run(y, {x: np.ones((1,) * 5)})


# Steps ----------------------------------------------------------------------------------------


def test_a_signature_is_expanded_once(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = tf.placeholder(tf.float32), tf.placeholder(tf.float32, (None,))
    z = tf.numpy.sum(x) * y
    made: list[object] = []
    expansion = pipeline.Expansion

    def counted(*args: object) -> object:
        made.append(args)
        return expansion(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(pipeline, "Expansion", counted)
    monkeypatch.setattr(expanding, "MAX_SIGNATURES", 2)
    with backend.session() as session:

        def run(value: object, size: int) -> None:
            wanted = [np.sum(value)] * size
            assert session.run(z, {x: value, y: np.ones(size)}).tolist() == wanted

        for size in (1, 2, 3):  # these are no part of the signature
            run(2.0, size)
        assert len(made) == 1
        run([2.0, 3.0], 2)
        run(3.0, 2)
        assert len(made) == 2
        run([[1.0]], 2)  # the signature (2,) was used longest ago
        run(2.0, 2)
        assert len(made) == 3
        run([2.0, 3.0], 2)
        assert len(made) == 4


def test_threads_step_with_signatures_of_their_own(backend: Backend) -> None:
    x, v = tf.placeholder(tf.float32), tf.Variable(1.0)
    y = tf.numpy.sum(x * v)
    failures: list[BaseException] = []
    with backend.session() as session:
        session.run(v.initializer)

        def work(size: int) -> None:
            try:
                for _ in range(5):
                    assert session.run(y, {x: np.ones(size)}) == size
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(size,)) for size in (1, 2, 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


def test_a_finalized_graph_takes_steps_of_new_signatures(backend: Backend) -> None:
    x = tf.placeholder(tf.float32)
    y = x + 1
    n_operations = len(tf.get_default_graph().get_operations())
    tf.get_default_graph().finalize()
    with backend.session() as session:
        assert session.run(y, {x: 1.0}) == 2
        assert session.run(y, {x: [1.0]}).tolist() == [2]
    assert len(tf.get_default_graph().get_operations()) == n_operations


def test_a_step_of_recorded_calls_is_traced(backend: Backend) -> None:
    x = tf.placeholder(tf.float32)
    y = tf.numpy.sum(x * 2)
    with backend.session() as session:
        metadata = tf.RunMetadata()
        options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
        assert session.run(y, {x: [1.0]}, options, metadata) == 2
        assert metadata.trace.spans


def test_variables_stay_where_other_steps_have_put_them(backend: Backend) -> None:
    v = tf.Variable([1.0, 2.0])
    x = tf.placeholder(tf.float32)
    grown = v.assign_add(tf.ensure_shape(x * v, (2,)))
    with backend.session() as session:
        session.run(v.initializer)
        assert session.run(grown, {x: 1.0}).tolist() == [2, 4]
        assert session.run(grown, {x: [1.0, 0.0]}).tolist() == [4, 4]
        assert session.run(v).tolist() == [4, 4]


# Declared shapes --------------------------------------------------------------------------------


def test_a_declared_shape_holds_for_what_is_built_later(backend: Backend) -> None:
    x = tf.placeholder(tf.float32)
    before = x * 2
    x.set_shape([None, 3])
    x.set_shape(None)
    after = x * 2
    assert before.shape.ndims is None
    assert (len(after.shape), after.shape[1]) == (2, 3)
    queue = tf.FIFOQueue(1, tf.float32)
    taken = queue.dequeue()
    taken.set_shape([2])
    more = taken + 1
    with backend.session() as session:
        found = session.run([before, after], {x: np.ones((2, 3))})
        assert [value.shape for value in found] == [(2, 3)] * 2
        with pytest.raises(ValueError, match=r"value of shape \(3,\) .* shape \(None, 3\)"):
            session.run(before, {x: np.ones(3)})
        session.run(queue.enqueue([1.0, 2.0]))
        assert session.run(more).tolist() == [2, 3]


def test_a_shape_that_contradicts_the_graph_is_refused() -> None:
    x = tf.placeholder(tf.float32, (None, 3))
    with pytest.raises(ValueError, match=r"cannot have the shape \[2, 4\]"):
        x.set_shape([2, 4])
    _ = x * 2
    with pytest.raises(ValueError, match=r"'mul'.*unknown sizes.*ensure_shape"):
        x.set_shape([2, 3])
    unknown = tf.placeholder(tf.float32) * 2
    with pytest.raises(ValueError, match=r"of unknown rank.*ensure_shape"):
        unknown.set_shape([None])
    unknown.set_shape([2])
    assert unknown.shape == (2,)
    tf.get_default_graph().finalize()
    with pytest.raises(RuntimeError, match="finalized"):
        unknown.op.inputs[0].set_shape([2])


def test_gradients_flow_through_a_shape_that_is_ensured(backend: Backend) -> None:
    x = tf.placeholder(tf.float32)
    v = tf.Variable(np.ones((2, 3), np.float32))
    known = tf.ensure_shape(x @ v, (None, 3))
    (slope,) = tf.gradients(known * known, v)
    total = tf.numpy.sum(known)
    assert known.shape == [None, 3]
    with backend.session() as session:
        session.run(v.initializer)
        for n in (1, 4):
            assert session.run(slope, {x: np.ones((n, 2))}).tolist() == [[4.0 * n] * 3] * 2
        assert session.run(total, {x: np.ones((2, 2))}) == 12
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"'EnsureShape'.* got \(3,\)"):
            session.run(slope, {x: np.ones(2)})


def test_gradients_are_scaled_and_clipped_by_what_is_fed(backend: Backend) -> None:
    scale, limit = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    rows = tf.placeholder(tf.float32, (None,))
    v = tf.Variable([3.0, 4.0])
    (slope,) = tf.gradients(tf.numpy.sum(v * v) / 2, v)
    clipped, (within,) = tf.clip_by_norm(slope, limit), tf.clip_by_global_norm([slope], limit)[0]
    assert clipped.shape == within.shape == [2]
    descent = tf.train.GradientDescentOptimizer(1.0)
    steps = [descent.apply_gradients([(g, v)]) for g in (slope * scale, clipped, within, rows)]
    feeds = [{scale: 0.5}, {limit: 2.5}, {limit: 2.5}, {rows: [1.0, 1.0]}]
    with backend.session() as session:
        for step, fed, value in zip(
            steps, feeds, ([1.5, 2], [1.5, 2], [1.5, 2], [2, 3]), strict=True
        ):
            session.run(v.initializer)
            session.run(step, fed)
            np.testing.assert_allclose(session.run(v), value, rtol=1e-6)
        for step, fed in ((steps[0], {scale: np.ones((2, 2))}), (steps[3], {rows: [1.0]})):
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"EnsureShape.*, got"):
                session.run(step, fed)
        np.testing.assert_allclose(session.run(v), [2, 3], rtol=1e-6)

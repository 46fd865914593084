import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.compiler import lowering
from jflow.compiler.lowering.segment import HOISTED_BYTES
from jflow.compiler.partition import prune
from tests.compiler.lowering.programs import lowered, run

CPU = jax.local_devices(backend="cpu")[0]


def _lower(ops, reads=(), inputs=(), writes=(), outputs=()):
    """A segment of tensors and operations, with variables for references to them."""
    refs = [[variable._ref for variable in variables] for variables in (reads, writes)]
    return lowering.lower([getattr(op, "op", op) for op in ops], refs[0], inputs, refs[1], outputs)


def test_a_pure_segment_takes_its_inputs_and_gives_its_outputs():
    x, y = tf.placeholder("float32", ()), tf.placeholder("float32", (2,))
    total = x + y
    program = lowered(total, x * 2, inputs=(x, y))
    found = run(program, CPU, np.float32(1), np.float32([2, 3]))
    np.testing.assert_array_equal(found[0], [3.0, 4.0])
    assert found[1] == 2.0


def test_reads_come_first_and_writes_go_first():
    x, y = tf.Variable(0.0), tf.Variable(0.0)
    p = tf.placeholder("float32", ())
    scaled = y * p
    new = x.assign_add(scaled)
    out = new + 1
    program = _lower([y.value(), scaled, new, out], [y, x], [p], [x], [out])
    found = run(program, CPU, np.float32(10), np.float32(1), np.float32(3))
    assert found == [31.0, 32.0]


def test_inside_a_segment_a_read_sees_the_last_write_before_it():
    x = tf.Variable(0.0)
    before = x.read_value()
    first = x.assign_add(1.0)
    between = x.read_value()
    second = x.assign(between * 10)
    after = x.read_value()
    sums = [before + 0, between + 0, after + 0]
    one, ten = first.op.inputs[0], second.op.inputs[0]
    ops = [before, one, first, between, ten, second, after, *sums]
    found = run(_lower(ops, [x], [], [x], sums), CPU, np.float32(5))
    assert found == [60.0, 5.0, 6.0, 60.0]


def test_a_read_that_only_leaves_is_no_part_of_the_program():
    x = tf.Variable(0.0)
    program = _lower([x.read_value()])
    assert program.jaxpr.jaxpr.eqns == []


def test_a_fed_output_counts_and_the_computed_one_does_not():
    first, second = tf.numpy.split(tf.placeholder("float32", (2,)), 2)
    both = first + second
    fed = (first.op.inputs[0], first)
    program = lowering.lower([first.op, both.op], (), fed, (), [both])
    found = run(program, CPU, np.float32([1, 2]), np.float32([100]))
    np.testing.assert_array_equal(found[0], [102.0])


def test_a_fed_update_is_written_but_its_consumers_see_what_was_fed():
    x = tf.Variable(0.0)
    one = tf.constant(1.0)
    new = x.assign_add(one)
    out = new * 10
    program = _lower([one, new, out], [x], [new], [x], [out])
    assert run(program, CPU, np.float32(1), np.float32(5)) == [2.0, 50.0]


@pytest.mark.parametrize(
    ("size", "is_hoisted"), [(HOISTED_BYTES // 4, True), (HOISTED_BYTES // 4 - 1, False)]
)
def test_a_large_constant_is_an_argument_and_a_small_one_is_in_the_code(size, is_hoisted):
    value = np.arange(size, dtype=np.float32)
    total = tf.numpy.sum(tf.constant(value) * 2)
    program = lowered(total)
    assert [len(array) for array in program.constants] == [size] * is_hoisted
    assert len(program.jaxpr.in_avals) == is_hoisted
    np.testing.assert_allclose(run(program, CPU)[0], value.sum() * 2, rtol=1e-5)


def test_constants_come_after_everything_else_in_the_order_of_their_arrays():
    x = tf.Variable(0.0)
    p = tf.placeholder("float32", ())
    a, b = (np.full(HOISTED_BYTES, fill, np.float32) for fill in (2, 3))
    one, two = tf.constant(a), tf.constant(b)
    out = x * p + one[0] + two[1] * 10
    program = _lower(prune(out.graph, [], [out], {p}), [x], [p], [], [out])
    assert [array[0] for array in program.constants] == [2.0, 3.0]
    assert run(program, CPU, np.float32(5), np.float32(7)) == [67.0]


def test_a_large_array_that_a_function_closes_over_is_an_argument_too():
    table = np.arange(HOISTED_BYTES, dtype=np.float32)
    picked, _ = tf.lax.scan(lambda c, i: (c + jnp.take(table, i), i), 0.0, tf.constant([1, 5]))
    program = lowered(picked)
    assert [array.nbytes for array in program.constants] == [table.nbytes]
    assert run(program, CPU) == [6.0]


def _results_that_could_be_arguments():
    x, y = tf.Variable(np.zeros(3, np.float32)), tf.Variable(np.zeros(3, np.float32))
    p = tf.placeholder("float32", (3,))
    small = tf.constant(np.ones(3, np.float32))
    large = tf.constant(np.ones(HOISTED_BYTES, np.float32))
    seven = tf.get_default_graph().apply(lambda: jnp.float32(7.0), ())
    read = x.value()
    copied, fed = y.assign(read), y.assign(p)
    added = x.assign_add(small)
    tiny, key = tf.placeholder("int4", (3,)), tf.placeholder(jax.random.key(0).dtype, (3,))
    state = tf.Variable(np.zeros(3, "int4"))
    kept = state.assign(tiny)
    return {
        "a carried input twice": _lower([], [], [tiny], [], [tiny, tiny]),
        "random keys twice": _lower([], [], [key], [], [key, key]),
        "a carried variable set to an input": _lower([kept], [state], [tiny], [state], [kept]),
        "an input": _lower([], [], [p], [], [p]),
        "an input twice": _lower([], [], [p], [], [p, p]),
        "a variable": _lower([read], [x], [], [], [read]),
        "a variable set to another": _lower([read, copied], [x], [], [y], []),
        "a variable set to an input": _lower([fed], [], [p], [y], [fed]),
        "a new value twice": _lower([small, added], [x], [], [x], [added]),
        "a small constant": _lower([small], [], [], [], [small, small]),
        "a large constant": _lower([large], [], [], [], [large]),
        "a number": _lower([seven], [], [], [], [seven, seven]),
    }


def test_no_result_shares_memory_with_an_argument_or_another_result():
    for name, program in _results_that_could_be_arguments().items():
        (executable,) = lowering.compile_all([(program, CPU, ())])
        args = [
            jax.device_put(np.zeros(aval.shape, aval.dtype), CPU) for aval in program.jaxpr.in_avals
        ]
        arrays = [*args, *executable(*args)]
        addresses = [array.unsafe_buffer_pointer() for array in arrays]
        assert len(set(addresses)) == len(addresses), name


def test_no_result_is_an_argument_another_result_or_a_constant_in_the_program():
    for name, program in _results_that_could_be_arguments().items():
        jaxpr = program.jaxpr.jaxpr
        made = [var for eqn in jaxpr.eqns for var in eqn.outvars]
        assert len(set(jaxpr.outvars)) == len(jaxpr.outvars), name
        assert set(jaxpr.outvars) <= set(made), name

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf

FLOATS = np.array([[1.5, -2.0, 0.5], [3.0, 0.25, -1.0]], np.float32)
ROW = np.array([2.0, -0.5, 4.0], np.float32)
HALVES = np.array([0.5, 1.0, 2.0], np.float16)
INTS = np.array([[7, -8, 3], [1, 2, -5]], np.int32)
BYTES = np.array([3, 2, 1], np.int8)
BOOLS = np.array([True, False, True])

ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv]
DIVISION = [operator.floordiv, operator.mod]
ORDER = [operator.lt, operator.le, operator.gt, operator.ge]
BITS = [operator.and_, operator.or_, operator.xor]
SHIFTS = [operator.lshift, operator.rshift]

PAIRS = {
    "two shapes": (FLOATS, ROW),
    "column and row": (FLOATS[:, :1], ROW),
    "float and int": (FLOATS, INTS),
    "half and float": (HALVES, ROW),
    "byte and int": (BYTES, INTS),
    "int and number": (INTS, 3),
    "byte and number": (BYTES, 3),
    "float and number": (FLOATS, 2),
    "half and number": (HALVES, 2.5),
    "int and float number": (INTS, 2.5),
    "array scalar": (FLOATS, np.float32(0.5)),
    "jax array": (FLOATS, jnp.asarray(ROW)),
}
INT_PAIRS = {name: PAIRS[name] for name in ("byte and int", "int and number", "byte and number")}
MIXED = ["column and row", "float and int", "byte and number"]
CASES = [
    *((fun, name, PAIRS[name]) for fun in ARITHMETIC for name in PAIRS),
    *((fun, name, PAIRS[name]) for fun in [*DIVISION, *ORDER] for name in MIXED),
    *((fun, name, pair) for fun in BITS for name, pair in INT_PAIRS.items()),
    *((fun, "bools", (BOOLS, np.array([[True], [False]]))) for fun in BITS),
    *((fun, "bool and number", (BOOLS, True)) for fun in BITS),
    *((fun, name, (left, 2)) for fun in SHIFTS for name, left in (("int", INTS), ("byte", BYTES))),
]


def _run(fetches):
    with tf.Session() as session:
        return session.run(fetches)


def _agree(found, wanted):
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_binary_operators_broadcast_and_promote_as_jax_arrays_do():
    graph = []
    for fun, _, (left, right) in CASES:
        tensor = tf.constant(left)
        graph += [fun(tensor, right), fun(tensor, tf.identity(right))]

    @jax.jit  # else each operator is a program of its own
    def wanted_of(lefts, rights):
        found = []
        for (fun, _, (_, right)), array, other in zip(CASES, lefts, rights, strict=True):
            found += [fun(array, right), fun(array, other)]
        return found

    lefts = [jnp.asarray(left) for _, _, (left, _) in CASES]
    rights = [jnp.asarray(np.asarray(jnp.asarray(right))) for _, _, (_, right) in CASES]
    wanted = wanted_of(lefts, rights)
    for tensor, value, array in zip(graph, _run(graph), wanted, strict=True):
        assert (tensor.dtype, tensor.shape) == (array.dtype, array.shape)
        _agree(value, array)


def test_reflected_operators_take_numbers_and_arrays_on_the_left():
    cases = [
        *((fun, left, FLOATS) for fun in [*ARITHMETIC, *DIVISION] for left in (3, 1.5, ROW)),
        *((fun, np.float32(2), FLOATS) for fun in ARITHMETIC),
        *((fun, ROW, FLOATS) for fun in ORDER),
        *((fun, True, BOOLS) for fun in BITS),
        *((fun, BOOLS, BOOLS[::-1].copy()) for fun in BITS),
        *((fun, INTS, BYTES) for fun in [*BITS, *SHIFTS]),
        (operator.lshift, 1, BYTES),
        (operator.pow, 2.0, ROW),
        (operator.matmul, FLOATS, ROW),
    ]
    graph = [fun(left, tf.constant(right)) for fun, left, right in cases]

    @jax.jit
    def wanted_of(lefts, rights):
        wanted = [fun(*pair) for (fun, *_), *pair in zip(cases, lefts, rights, strict=True)]
        promoted = [fun(left, right) for (fun, left, _), right in zip(cases, rights, strict=True)]
        return wanted, promoted

    lefts, rights = ([jnp.asarray(case[i]) for case in cases] for i in (1, 2))
    wanted, promoted = wanted_of(lefts, rights)
    for value, array, same in zip(_run(graph), wanted, promoted, strict=True):
        np.testing.assert_allclose(value, array, rtol=1e-6)
        assert value.dtype == same.dtype


def test_unary_operators_agree_with_jax():
    cases = [
        (operator.neg, FLOATS),
        (operator.pos, FLOATS),
        (abs, FLOATS),
        (operator.neg, INTS),
        (abs, INTS),
        (operator.invert, INTS),
        (operator.invert, BOOLS),
    ]
    values = _run([fun(tf.constant(array)) for fun, array in cases])
    for value, (fun, array) in zip(values, cases, strict=True):
        _agree(value, fun(jnp.asarray(array)))


def test_powers_and_matrix_products_agree_with_jax():
    x = tf.constant(FLOATS)
    values = _run([x**2, x**-1, x**2.0, tf.constant(INTS) ** 2, x @ ROW, x @ FLOATS.T])
    x = jnp.asarray(FLOATS)
    wanted = [x**2, x**-1, x**2.0, jnp.asarray(INTS) ** 2, x @ ROW, x @ FLOATS.T]
    for value, array in zip(values, wanted, strict=True):
        _agree(value, array)


@pytest.mark.parametrize(
    "index",
    [
        0,
        -1,
        slice(None, None, -1),
        slice(1, None),
        (slice(None), 1),
        (..., 0),
        None,
        (None, slice(None), None),
        (1, 2),
        np.array([1, 0]),
        (np.array([0, 1]), np.array([2, 0])),
        (slice(1), np.array([2, 1])),
    ],
    ids=str,
)
def test_indexing_agrees_with_numpy(index):
    value = _run(tf.constant(FLOATS)[index])
    np.testing.assert_array_equal(value, FLOATS[index])


def test_an_index_can_be_a_tensor():
    x = tf.constant(FLOATS)
    one = tf.placeholder("int32", ())
    with tf.Session() as session:
        row, item = session.run([x[one], x[0, one]], {one: 1})
    np.testing.assert_array_equal(row, FLOATS[1])
    assert item == FLOATS[0, 1]


def test_variables_take_the_same_operators():
    variable = tf.Variable(FLOATS)
    cases = [variable + 1, 1 - variable, variable @ ROW, -variable, variable[0], variable > 0]
    x = jnp.asarray(FLOATS)
    with tf.Session() as session:
        session.run(variable.initializer)
        values = session.run(cases)
    for value, wanted in zip(values, [x + 1, 1 - x, x @ ROW, -x, x[0], x > 0], strict=True):
        _agree(value, wanted)


@pytest.mark.parametrize("make", [tf.constant, tf.Variable])
@pytest.mark.parametrize(
    ("use", "words"),
    [
        (bool, "jflow.numpy.where or jflow.lax.cond"),
        (lambda x: 1 if x > 0 else 2, "jflow.numpy.where or jflow.lax.cond"),
        (lambda x: x and 1, "jflow.numpy.where or jflow.lax.cond"),
        (list, "index it instead"),
        (np.asarray, "use the same name in jflow.numpy"),
        (lambda x: np.asarray(x, np.float64), "use the same name in jflow.numpy"),
        (lambda x: np.array([x, x]), "use the same name in jflow.numpy"),
        (lambda x: np.stack([x, x]), "use the same name in jflow.numpy"),
        (jnp.asarray, "use the same name in jflow.numpy, jflow.nn"),
        (lambda x: jnp.stack([x, x]), "use the same name in jflow.numpy, jflow.nn"),
    ],
)
def test_using_a_tensor_as_a_value_is_an_error_that_says_what_to_do(make, use, words):
    with pytest.raises(
        (TypeError, ValueError), match="no value while the graph is built"
    ) as raised:
        use(make([1.0, 2.0]))
    assert words in str(raised.value)


@pytest.mark.parametrize(
    "call", [jnp.sin, jnp.sum, lambda x: jnp.add(x, 1), lambda x: jnp.dot(x, x)]
)
def test_a_function_of_jax_itself_is_an_error_that_says_where_to_find_it(call):
    with pytest.raises(ValueError, match=r"use the same name in jflow\.numpy"):
        call(tf.constant([1.0, 2.0]))


def test_an_array_leaves_its_operators_to_a_tensor():
    with tf.Session() as session:
        total, product = session.run(
            [jnp.ones(2) + tf.constant(1.0), jnp.ones(2) @ tf.Variable([1.0, 2.0]).initial_value]
        )
    np.testing.assert_array_equal(total, [2.0, 2.0])
    assert product == 3.0


@pytest.mark.parametrize("call", [np.sin, lambda x: np.add(x, 1)])
def test_a_numpy_function_of_a_tensor_is_a_type_error(call):
    with pytest.raises(TypeError, match="Tensor"):
        call(tf.constant([1.0, 2.0]))


@pytest.mark.parametrize("body", [lambda x, t: x + t, lambda x, t: t + x])
def test_a_tensor_inside_a_function_that_jax_traces_is_a_type_error_that_says_so(body):
    tensor = tf.constant(1.0)
    with pytest.raises(TypeError, match=r"no value while the graph is built|as one of them"):
        tf.lax.cond(True, lambda x: body(x, tensor), lambda x: x, tf.constant(2.0))


OPERATORS = {
    name: getattr(operator, name)
    for name in (
        *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"),
        *("lt", "le", "gt", "ge"),
    )
}
OPERATORS["divmod"] = divmod
BITWISE = {name: getattr(operator, name) for name in ("and_", "or_", "xor", "lshift", "rshift")}
OPERANDS = {
    "list": [1.0, 2.0],
    "tuple": (3.0, 2.0),
    "array": np.array([1.0, 2.0], np.float32),
    "array of JAX": jnp.array([1.0, 2.0]),
    "nested": [[1.0, 2.0], (3.0, 1.0)],
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, "list") for name in [*OPERATORS, *BITWISE]), *(("sub", kind) for kind in OPERANDS)],
)
def test_lists_and_arrays_are_operands_on_both_sides(name: str, kind: str) -> None:
    fun = (OPERATORS | BITWISE)[name]
    dtype = np.int32 if name in BITWISE else np.float32
    other = OPERANDS[kind]
    if name in BITWISE:
        other = jax.tree.map(lambda x: x.astype(dtype) if hasattr(x, "astype") else int(x), other)
    given = np.array([[1, 2], [3, 1]], dtype)
    x = tf.constant(given)
    found = [fun(x, other), fun(other, x)]
    plain = jnp.asarray(np.asarray(other, dtype))
    wanted = [fun(jnp.asarray(given), plain), fun(plain, jnp.asarray(given))]
    with tf.Session() as session:
        for one, expected in zip(session.run(found), wanted, strict=True):
            np.testing.assert_array_equal(np.asarray(one), np.asarray(expected))
            assert np.asarray(one).dtype == np.asarray(expected).dtype


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [
        ("bfloat16", [1.0, 2.0], "bfloat16"),
        ("float16", [1, 2], "float16"),
        ("int8", [1, 2], "int8"),
        ("int32", [1.5, 2.0], "float32"),
        ("int8", np.array([1, 2], np.int32), "int32"),
        ("int8", [np.int16(1), np.int16(2)], "int16"),
        ("bool", [1, 2], "int32"),
        ("float32", [1j, 2], "complex64"),
    ],
)
def test_numbers_in_a_list_are_promoted_as_single_ones_are(
    dtype: str, values: Any, expected: str
) -> None:
    x = tf.cast(tf.constant([1, 0]), dtype)
    assert (x + values).dtype.name == expected
    assert (values + x).dtype.name == expected
    with pytest.raises(TypeError, match="out of its range"):
        operator.add(tf.constant([1], "int8"), [300])


def test_a_list_may_hold_tensors_and_variables() -> None:
    x, y = tf.constant(1.0), tf.Variable(2.0)
    total = operator.add([x, 10.0], operator.add(x, [x, y]) * ((y, 3.0),))
    with tf.Session() as session:
        session.run(y.initializer)
        assert session.run(total).tolist() == [[5.0, 19.0]]


def test_lists_are_operands_of_live_variables_too() -> None:
    with tf.connect():
        x = tf.Variable([1.0, 2.0])
        assert (x * [1, 2.5]).tolist() == [1, 5]
        assert ((3.0, 4.0) * x).tolist() == [3, 8]
        assert tf.function(lambda a: x * [a, 2.0])(np.float32(5)).tolist() == [5, 4]

"""Operations on strings, and from strings to numbers, as part of graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.base.values import is_known
from jflow.state.records import encode_example
from tests.client.queues.helpers import session
from tests.client.readers.helpers import files, lines, reading
from tests.clusters import BACKENDS, Backend


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module", params=list(BACKENDS))
def opened(request: pytest.FixtureRequest, root: Path) -> Iterator[Backend]:
    with reading(request.param, root) as backend:
        yield backend


@pytest.fixture
def backend(opened: Backend) -> Iterator[Backend]:
    yield opened
    opened.reset()


def vector() -> tf.Tensor:
    return tf.placeholder(tf.string, (None,))


def static(tensor: tf.Tensor) -> tuple[tuple[int | None, ...], str]:
    """Shape, None where a size is not known, and dtype."""
    shape = tuple(int(dim) if is_known(dim) else None for dim in tensor.shape)
    return shape, tensor.dtype.name


TEXTS = ["3", " 12", "-7"]
OPS: dict[str, tuple[Callable[[Any], Any], Any, tuple[Any, ...], str, list[Any]]] = {
    "to int32": (lambda s: tf.string_to_number(s, "int32"), TEXTS, (None,), "int32", [3, 12, -7]),
    "to int64": (lambda s: tf.string_to_number(s, "int64"), TEXTS, (None,), "int64", [3, 12, -7]),
    "to float": (tf.string_to_number, ["1.5", "nan"], (None,), "float32", [1.5, np.nan]),
    "raw": (
        lambda s: tf.decode_raw(s, tf.uint8),
        ["ab", "cd"],
        (None, None),
        "uint8",
        [[97, 98], [99, 100]],
    ),
    "raw wide": (
        lambda s: tf.decode_raw(s, "int64", little_endian=False),
        [b"\0\0\0\1\0\0\0\0"],
        (None, None),
        "int64",
        [[2**32]],
    ),
    "strip": (tf.string_strip, [" a\n", "b"], (None,), "string", [b"a", b"b"]),
    "join": (
        lambda s: tf.string_join(["<", s, s], "|"),
        ["a", ""],
        (None,),
        "string",
        [b"<|a|a", b"<||"],
    ),
    "substr": (lambda s: tf.substr(s, -2, 1), ["abc", "xy"], (None,), "string", [b"b", b"x"]),
    "substr of characters": (
        lambda s: tf.substr(s, 1, 1, unit="UTF8_CHAR"),
        ["aéb"],
        (None,),
        "string",
        ["é".encode()],
    ),
    "as string": (
        lambda s: tf.as_string(tf.string_to_number(s, "int64")),
        TEXTS,
        (None,),
        "string",
        [b"3", b"12", b"-7"],
    ),
    "cast": (
        lambda s: tf.cast(tf.string_to_number(s, "int64"), tf.float32),
        TEXTS,
        (None,),
        "float32",
        [3.0, 12.0, -7.0],
    ),
}


@pytest.mark.parametrize("kind", OPS)
def test_shapes_and_dtypes_are_known_early_and_values_fit_them(backend: Backend, kind: str) -> None:
    build, given, shape, dtype, expected = OPS[kind]
    strings = vector()
    result = build(strings)
    assert static(result) == (shape, dtype)
    with session(backend) as sess:
        found = sess.run(result, {strings: given})
    assert found.dtype == (object if dtype == "string" else dtype)
    np.testing.assert_array_equal(found, np.array(expected, found.dtype))


def test_columns_of_records(backend: Backend) -> None:
    strings = vector()
    columns = tf.decode_csv(strings, [[0], tf.float32, [""], np.int64], field_delim=";")
    kinds = ["int32", "float32", "string", "int64"]
    assert [static(column) for column in columns] == [((None,), kind) for kind in kinds]
    with session(backend) as sess:
        found = sess.run(columns, {strings: [f'1;2.5;"a;b";{2**40}', ";1;;-1"]})
        assert [column.tolist() for column in found] == [
            [1, 0],
            [2.5, 1],
            [b"a;b", b""],
            [2**40, -1],
        ]
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"Field 1 is required"):
            sess.run(columns, {strings: ["1;;a;1"]})


def test_parts_of_strings_are_rows_of_a_sparse_matrix(backend: Backend) -> None:
    strings = vector()
    parts = tf.string_split(strings, ",")
    assert [static(part) for part in parts] == [
        ((None, 2), "int64"),
        ((None,), "string"),
        ((2,), "int64"),
    ]
    with session(backend) as sess:
        indices, values, shape = sess.run(parts, {strings: ["a,,b", "", "c"]})
    assert indices.tolist() == [[0, 0], [0, 1], [2, 0]]
    assert values.tolist() == [b"a", b"b", b"c"]
    assert shape.tolist() == [3, 2]


FEATURES = {
    "x": tf.FixedLenFeature((2,), tf.float32),
    "n": tf.FixedLenFeature((), "int64", 7),
    "small": tf.FixedLenFeature((), tf.int32, 1),
    "tags": tf.VarLenFeature(tf.string),
}


def test_examples_give_a_tensor_for_each_feature(backend: Backend) -> None:
    example = encode_example({"x": np.array([1, 2], np.float32), "tags": [b"a", b"b"]})
    other = encode_example({"x": np.array([3, 4], np.float32), "n": np.array([2**40])})
    batch, single = vector(), tf.placeholder(tf.string, ())
    many, one = tf.parse_example(batch, FEATURES), tf.parse_single_example(single, FEATURES)
    assert static(many["x"]) == ((None, 2), "float32")
    assert static(one["x"]) == ((2,), "float32")
    assert static(many["n"]) == ((None,), "int64")
    assert static(one["small"]) == ((), "int32")
    with session(backend) as sess:
        found = sess.run(many, {batch: [example, other]})
        assert found["x"].tolist() == [[1, 2], [3, 4]]
        assert found["n"].tolist() == [7, 2**40]
        assert found["tags"].indices.tolist() == [[0, 0], [0, 1]]
        assert found["tags"].dense_shape.tolist() == [2, 2]
        assert sess.run(one, {single: other})["n"] == 2**40


def test_images_keep_what_was_encoded(backend: Backend) -> None:
    image = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    fed = tf.placeholder(tf.uint8, (None, None, 3))
    encoded = tf.encode_png(fed)
    decoded, grey = tf.decode_image(encoded, 3), tf.decode_png(encoded, 1)
    assert static(encoded) == ((), "string")
    assert (static(decoded), static(grey)) == (
        ((None, None, 3), "uint8"),
        ((None, None, 1), "uint8"),
    )
    with session(backend) as sess:
        found = sess.run([decoded, grey, tf.decode_jpeg(tf.encode_jpeg(fed))], {fed: image})
    np.testing.assert_array_equal(found[0], image)
    assert [value.shape for value in found[1:]] == [(2, 4, 1), (2, 4, 3)]


WRONG: dict[str, tuple[Callable[[Any], Any], bytes, str]] = {
    "string_to_number": (lambda s: tf.string_to_number(s, "int64"), b"x", "not a valid int64"),
    "decode_raw": (lambda s: tf.decode_raw(s, tf.int32), b"abc", "not a multiple of 4"),
    "decode_csv": (lambda s: tf.decode_csv(s, [[0], [0]])[0], b"1,z", "Field 1 in record 0"),
    "substr": (lambda s: tf.substr(s, 5, 2), b"abc", "pos 5 out of range"),
    "decode_png": (tf.decode_png, b"junk", "not a PNG file"),
    "parse": (lambda s: tf.parse_single_example(s, FEATURES)["x"], b"junk", "Can't parse"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_errors_name_the_operation_and_the_line(backend: Backend, kind: str) -> None:
    build, given, words = WRONG[kind]
    string = tf.placeholder(tf.string, ())
    result = build(string)
    with session(backend) as sess, pytest.raises(tf.errors.InvalidArgumentError) as caught:
        sess.run(result, {string: given})
    assert words in str(caught.value)
    assert caught.value.op == result.op.name
    assert "test_decoding.py" in str(caught.value)


def test_what_can_never_work_is_refused_early() -> None:
    strings, numbers = vector(), tf.placeholder(tf.int32, (None,))
    for build in (
        lambda: tf.string_to_number(numbers),
        lambda: tf.string_to_number(strings, tf.string),
        lambda: tf.decode_raw(strings, tf.string),
        lambda: tf.cast(strings, tf.int32),
        lambda: tf.cast(numbers, tf.string),
    ):
        with pytest.raises(TypeError):
            build()
    with pytest.raises(ValueError, match="at least one"):
        tf.string_join([])
    with pytest.raises(TypeError, match=r"64-bit types.*jflow\.cast"):
        tf.string_to_number(strings, "int64") + 1


def test_wide_integers_stay_whole_through_queues_and_tasks(backend: Backend) -> None:
    strings = vector()
    with tf.device(backend.devices[0]):
        numbers = tf.string_to_number(strings, "int64")
    with tf.device(backend.devices[1]):
        queue = tf.FIFOQueue(10, [tf.string], [()])
        done = queue.enqueue_many(tf.as_string(numbers))
        moved = tf.identity(numbers)
        small = tf.cast(moved, tf.int32)
    with session(backend) as sess:
        found = sess.run([numbers, moved, done], {strings: [str(2**40), "-1"]})
        for value in found[:2]:
            assert (value.dtype, value.tolist()) == ("int64", [2**40, -1])
        assert sess.run(queue.dequeue_many(2)).tolist() == [b"%d" % 2**40, b"-1"]
        assert sess.run(small, {strings: ["5"]}).tolist() == [5]


def test_sizes_that_only_decoding_tells_go_through_jax(backend: Backend) -> None:
    string = tf.placeholder(tf.string, ())
    numbers = tf.decode_raw(string, tf.float32)
    centred = tf.function(lambda x: (x - x.mean()) / x.shape[0])(numbers)
    with session(backend) as sess:
        for n in (1, 4, 8):  # whose means are exact
            x = np.arange(n, dtype=np.float32)
            np.testing.assert_allclose(
                sess.run(centred, {string: x.tobytes()}), (x - x.mean()) / n, rtol=1e-6
            )


N_ROWS, BATCH, RATE = 48, 8, 0.1


def _gradient_step(weights: Any, x: Any, y: Any) -> Any:
    def loss(weights: Any) -> Any:
        hidden = jnp.tanh(x @ weights["in"])
        return jnp.mean((hidden @ weights["out"] - y) ** 2)

    return jax.tree.map(lambda w, g: w - RATE * g, weights, jax.grad(loss)(weights))


def _rows() -> np.ndarray[Any, Any]:
    return np.random.default_rng(3).normal(size=(N_ROWS, 4)).astype(np.float32)


def test_a_pipeline_from_files_to_training_is_what_plain_jax_does(
    backend: Backend, root: Path
) -> None:
    rows = _rows()
    texts = [",".join(repr(float(value)) for value in row) for row in rows]
    work = [lines(root, f"part{i}.csv", "a,b,c,y", *texts[i::3]) for i in range(3)]
    names = files()
    _, line = tf.TextLineReader(skip_header_lines=1).read(names)
    columns = tf.decode_csv(line, [[0.0]] * 4)
    shuffled = tf.RandomShuffleQueue(100, 10, [tf.float32], [(4,)], seed=5)
    fill = shuffled.enqueue(tf.numpy.stack(columns))
    batch = shuffled.dequeue_many(BATCH)
    rng = np.random.default_rng(4)
    start = {
        "in": rng.normal(size=(3, 5)).astype(np.float32),
        "out": rng.normal(size=5).astype(np.float32),
    }
    weights = {name: tf.Variable(value, name=name) for name, value in start.items()}
    read = {name: weight.value() for name, weight in weights.items()}
    stepped = tf.function(lambda w, b: _gradient_step(w, b[:, :3], b[:, 3]))(read, batch)
    train = [weights[name].assign(value) for name, value in stepped.items()]
    seen, expected = [], start
    with session(backend) as sess:
        sess.run([weight.initializer for weight in weights.values()])
        sess.run(names.enqueue_many(work))
        sess.run(names.close())
        for _ in range(N_ROWS):
            sess.run(fill)
        with pytest.raises(tf.errors.OutOfRangeError):
            sess.run(fill)
        sess.run(shuffled.close())
        for _ in range(N_ROWS // BATCH):
            rows_of_step = sess.run([batch, *train])[0]
            seen.append(rows_of_step)
            expected = _gradient_step(expected, rows_of_step[:, :3], rows_of_step[:, 3])
        for name, weight in weights.items():
            np.testing.assert_allclose(sess.run(weight), expected[name], rtol=1e-4, atol=1e-6)
    found = np.concatenate(seen)
    np.testing.assert_array_equal(np.sort(found, axis=0), np.sort(rows, axis=0))
    assert sorted(map(tuple, found.tolist())) == sorted(map(tuple, rows.tolist()))
    assert not np.array_equal(found, rows)


PLAIN: dict[str, Callable[[Any], Any]] = {
    "delimiter": lambda text: tf.string_split(["a b"], delimiter=text),
    "field_delim": lambda text: tf.decode_csv(["1,2"], [0, 0], field_delim=text),
    "na_value": lambda text: tf.decode_csv(["1,2"], [0, 0], na_value=text),
    "separator": lambda text: tf.string_join(["a", "b"], separator=text),
    "unit": lambda text: tf.substr(["abc"], 0, 1, unit=text),
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_tensor_is_no_value_of_what_the_graph_has_to_know(name: str) -> None:
    for value, what in ((tf.constant(","), "jflow.Tensor 'Const"), (3, "3"), (None, "None")):
        with pytest.raises(TypeError, match=rf"{name} is text.*got <?{what}"):
            PLAIN[name](value)


def test_text_arguments_may_be_bytes() -> None:
    split = tf.string_split(["a b"], delimiter=b" ").values
    joined = tf.string_join(["a", "b"], separator=b"-")
    with tf.Session() as session:
        assert session.run(split).tolist() == [b"a", b"b"]
        assert session.run(joined) == b"a-b"


@pytest.mark.parametrize(
    "make",
    [
        lambda x: tf.decode_png(b"", channels=x),
        lambda x: tf.encode_jpeg(np.zeros((1, 1, 3), np.uint8), quality=x),
        lambda x: tf.string_split(["a"], skip_empty=x),
        lambda x: tf.decode_csv(["1"], [0], use_quote_delim=x),
        lambda x: tf.decode_csv(["1"], [0], select_cols=[x]),
        lambda x: tf.decode_raw([b"1"], "uint8", little_endian=x),
    ],
)
def test_a_tensor_is_refused_as_an_attribute(make: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"known when the graph is built.*got .*jflow.Tensor 'x:0'"):
        make(tf.placeholder("int32", (), name="x"))

"""Lookup tables on every backend: values, initialization, sharing, what is refused."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import jflow as tf
from tests.clusters import Backend

NUMBERS = {"emerson": 7, "lake": 8, "palmer": 9}


def table(entries: dict[Any, Any] = NUMBERS, default: Any = -1, **options: Any) -> Any:
    """A table of these entries."""
    initializer = tf.lookup.KeyValueTensorInitializer([*entries], [*entries.values()])
    return tf.lookup.StaticHashTable(initializer, default, **options)


def vocabulary(words: list[Any], n_buckets: int = 2, **options: Any) -> Any:
    """A vocabulary of words in their order."""
    initializer = tf.lookup.KeyValueTensorInitializer(words, np.arange(len(words)))
    return tf.lookup.StaticVocabularyTable(initializer, n_buckets, **options)


@pytest.mark.parametrize("shape", [(), (4,), (2, 2), (0,)])
def test_a_key_has_its_value_in_any_shape(backend: Backend, shape: tuple[int, ...]) -> None:
    words = np.resize(np.array(["lake", "and", "palmer", "lake"], object), shape)
    values = np.resize([8, -1, 9, 8], shape)
    names = tf.placeholder(tf.string, shape)
    found = table().lookup(names)
    with backend.session() as sess:
        sess.run(tf.tables_initializer())
        value = sess.run(found, {names: words})
    assert (found.dtype, found.shape) == (tf.int32, shape)
    assert value.dtype == np.int32
    np.testing.assert_array_equal(value, values)


@pytest.mark.parametrize("shape", [(None,), None])
def test_a_step_finds_out_how_many_keys_there_are(backend: Backend, shape: Any) -> None:
    names = tf.placeholder(tf.string, shape)
    found = table().lookup(names)
    with backend.session() as sess:
        sess.run(tf.tables_initializer())
        for words, values in ((["lake"], [8]), (["x", "palmer", "x"], [-1, 9, -1])):
            np.testing.assert_array_equal(sess.run(found, {names: words}), values)


def test_keys_of_a_sparse_tensor_keep_their_places(backend: Backend) -> None:
    lines = tf.string_split(tf.constant(["lake palmer", "", "the lake"]))
    fetches = [table().lookup(lines), vocabulary(["lake"]).lookup(lines)]
    with backend.session() as sess:
        sess.run(tf.tables_initializer())
        numbers, ids = sess.run(fetches)
    assert numbers.indices.tolist() == [[0, 0], [0, 1], [2, 0], [2, 1]]
    assert numbers.values.tolist() == [8, 9, -1, 8]
    assert numbers.dense_shape.tolist() == [3, 2]
    assert ids.values[[0, 3]].tolist() == [0, 0]
    assert {*ids.values[1:3].tolist()} <= {1, 2}


def test_before_it_is_initialized_a_table_is_empty_and_gives_nothing(backend: Backend) -> None:
    own, words = table(), vocabulary(["lake"])
    with backend.session() as sess:
        assert sess.run([own.size(), words.size()]) == [0, 2]
        for lookup in (own.lookup(["lake"]), words.lookup(["lake"])):
            with pytest.raises(
                tf.errors.FailedPreconditionError,
                match=r"Table not initialized: .*jflow\.tables_initializer\(\).*_Lookup.*made at",
            ):
                sess.run(lookup)
        sess.run(own.initializer)
        assert sess.run([own.size(), words.size()]) == [3, 2]
        assert sess.run(own.lookup(["lake"])) == [8]
        sess.run(words.init)
        assert sess.run(words.size()) == 3


def test_a_session_has_its_own_table_unless_it_has_a_shared_name(backend: Backend) -> None:
    own, named = table(), table(shared_name="names")
    with backend.session() as one, backend.session(1) as other:
        one.run(tf.tables_initializer())
        assert other.run([own.size(), named.size()]) == [0, 3 if backend.shared else 0]
    if backend.shared:
        with backend.session() as later:
            assert later.run(named.lookup(["lake"])) == [8]
        backend.reset()


def test_entries_are_set_once(shared_backend: Backend) -> None:
    """A table with as many other entries keeps its own, as in TensorFlow."""
    others = {"a": 1, "b": 2, "c": 3}
    named = [table(entries, shared_name="names") for entries in (NUMBERS, others, {"a": 1})]
    with shared_backend.session() as sess:
        for one in (named[0], named[0], named[1]):
            sess.run(one.initializer)
            assert sess.run(one.lookup(["lake", "a"])).tolist() == [8, -1]
        with pytest.raises(
            tf.errors.FailedPreconditionError,
            match=r"already initialized with different data: .* has 3 entries, and was to get 1",
        ):
            sess.run(named[2].initializer)
    with shared_backend.session(1) as sess:
        assert sess.run(named[2].size()) == 3
        other = table({"a": 1.5}, 0.0, shared_name="names")
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"value dtype\. Expected float32, found int32"
        ):
            sess.run(other.size())
    shared_backend.reset()


def test_the_default_value_belongs_to_the_handle(shared_backend: Backend) -> None:
    one, other = table(shared_name="names"), table(default=-7, shared_name="names")
    with shared_backend.session() as sess:
        sess.run(one.initializer)
        assert sess.run([one.lookup(["x"]), other.lookup(["x"])]) == [-1, -7]
    shared_backend.reset()


def test_a_key_may_occur_twice_but_not_with_two_values(backend: Backend) -> None:
    def of(values: list[int]) -> Any:
        keys = tf.lookup.KeyValueTensorInitializer(["a", "b", "a"], values)
        return tf.lookup.StaticHashTable(keys, -1)

    same, different = of([1, 2, 1]), of([1, 2, 3])
    with backend.session() as sess:
        sess.run(same.initializer)
        assert sess.run(same.size()) == 2
        with pytest.raises(
            tf.errors.FailedPreconditionError,
            match=r"different value for same key\. Key b'a' has 1 and trying to add value 3",
        ):
            sess.run(different.initializer)
        assert sess.run(different.size()) == 0


@pytest.mark.parametrize(
    ("keys", "values", "default", "wanted", "found"),
    [
        (np.int64([5, 2**40]), ["x", "y"], "?", np.int64([2**40, 6]), [b"y", b"?"]),
        ([5, 6], [1.5, 2.5], 0.0, np.int8([6, 7]), [2.5, 0.0]),
        (["a", "b"], ["x", "y"], "", ["b", "c"], [b"y", b""]),
        (["a", "b"], [True, True], False, ["b", "c"], [True, False]),
        (["a", "b"], np.float64([1.5, 1e300]), 0.0, ["b", "c"], [1e300, 0.0]),
        (["a", "b"], np.int64([1, 2]), -1, ["b", "c"], [2, -1]),
    ],
)
def test_keys_are_strings_or_integers_and_values_of_any_dtype(
    backend: Backend, keys: Any, values: Any, default: Any, wanted: Any, found: Any
) -> None:
    initializer = tf.lookup.KeyValueTensorInitializer(keys, values)
    own = tf.lookup.StaticHashTable(initializer, default)
    with backend.session() as sess:
        sess.run(own.initializer)
        assert sess.run(own.lookup(wanted)).tolist() == found


def test_numbers_that_devices_cannot_take_are_refused_and_not_changed(backend: Backend) -> None:
    initializer = tf.lookup.KeyValueTensorInitializer(["a", "b"], np.int64([1, 2**40]))
    own = tf.lookup.StaticHashTable(initializer, -1)
    with backend.session() as sess:
        sess.run(own.initializer)
        assert sess.run(own.lookup(["a"])).tolist() == [1]
        with pytest.raises(tf.errors.InvalidArgumentError, match="jax_enable_x64"):
            sess.run(own.lookup(["b"]))


def test_words_become_rows_of_a_table_of_embeddings(backend: Backend) -> None:
    rows = tf.Variable(np.arange(10, dtype=np.float32).reshape(5, 2))
    ids = tf.contrib.lookup.index_table_from_tensor(["a", "b", "c"]).lookup(tf.constant(["c", "a"]))
    taken = tf.nn.embedding_lookup(rows, ids)
    (slope,) = tf.gradients(tf.reduce_sum(taken), rows)
    with backend.session() as sess:
        sess.run([rows.initializer, tf.tables_initializer()])
        np.testing.assert_array_equal(sess.run(taken), [[4, 5], [0, 1]])
        whole = sess.run(tf.convert_to_tensor(slope))
    np.testing.assert_array_equal(whole[:, 0], [1, 0, 1, 0, 0])


def test_other_words_have_the_buckets_that_tensorflow_gives_them(backend: Backend) -> None:
    """The values are those of TensorFlow 2.21."""
    words = vocabulary(["a", "b"], 3)
    integers = vocabulary([10, 20], 7)
    only = tf.lookup.StaticVocabularyTable(None, 7)
    strings = tf.placeholder(tf.string, (None,))
    hashed = tf.string_to_hash_bucket_fast(strings, 1000003)
    lengths = [0, 1, 5, 16, 17, 32, 33, 64, 65, 200]
    with backend.session() as sess:
        sess.run(tf.tables_initializer())
        found = sess.run(
            [
                words.lookup(["a", "b", "c", "d", "e", ""]),
                integers.lookup([10, 20, 30, -5]),
                only.lookup(["a", "b"]),
                [words.size(), integers.size(), only.size()],
                tf.string_to_hash_bucket_fast(["hello"], 2**62),
            ]
        )
        by_length = sess.run(hashed, {strings: ["x" * n for n in lengths]})
        assert sess.run(only.initializer) is None
    assert [part.tolist() for part in found[:3]] == [[0, 1, 3, 4, 3, 4], [0, 1, 2, 2], [5, 2]]
    assert found[3:] == [[5, 9, 7], [3786372426573024488]]
    assert by_length.tolist() == BY_LENGTH


BY_LENGTH = [377723, 598337, 40416, 762252, 200771, 750362, 302064, 518772, 595507, 603131]


def test_without_the_package_of_the_hash_a_step_says_what_to_install() -> None:
    words = vocabulary(["a"])
    with pytest.MonkeyPatch.context() as patch, tf.Session() as sess:
        patch.setitem(sys.modules, "farmhash", None)
        sess.run(tf.tables_initializer())
        with pytest.raises(tf.errors.UnimplementedError, match=r"pip install 'jflow\[hash\]'"):
            sess.run(words.lookup(["b"]))


def test_index_tables_go_both_ways(backend: Backend) -> None:
    """The values are those of TensorFlow 2.21."""
    names = ["emerson", "lake", "palmer"]
    lookup = tf.contrib.lookup
    words = lookup.index_table_from_tensor(names, num_oov_buckets=2)
    integers = lookup.index_table_from_tensor(np.int64([5, 7, 9]), default_value=-7, dtype=tf.int64)
    small = lookup.index_table_from_tensor([5, 7, 9], dtype=tf.int32, num_oov_buckets=4)
    back = lookup.index_to_string_table_from_tensor(names)
    fetches = [
        words.lookup(["lake", "zz", "q"]),
        integers.lookup([7, 8]),
        small.lookup(tf.constant([7, 8])),
        back.lookup([0, 3]),
        [one.size() for one in (words, integers, small, back)],
    ]
    with backend.session() as sess:
        sess.run(tf.initialize_all_tables())
        found = sess.run(fetches)
    assert [part.tolist() for part in found[:4]] == [
        [1, 3, 4],
        [1, -7],
        [1, 6],
        [b"emerson", b"UNK"],
    ]
    assert found[4] == [5, 3, 7, 3]


def test_tables_of_the_older_names_do_the_same(backend: Backend) -> None:
    lookup = tf.contrib.lookup
    initializer = lookup.KeyValueTensorInitializer(["a", "b"], np.arange(2))
    own = lookup.HashTable(initializer, -1, "names", "words")
    ids = lookup.IdTableWithHashBuckets(own, 1, lookup.FastHashSpec, "ids", tf.string)
    assert (own.name, own.op.name, ids.name, ids.key_dtype) == ("names", "words", "ids", tf.string)
    with backend.session() as sess:
        sess.run(ids.initializer)
        assert sess.run(own.lookup(["b", "c"])).tolist() == [1, -1]
        assert sess.run(ids.lookup(["b", "c"])).tolist() == [1, 2]
    if backend.shared:
        backend.reset()


def test_tables_are_in_the_collection_of_their_initializers() -> None:
    one, other = table(name="one"), vocabulary(["a"])
    initializers = tf.get_collection(tf.GraphKeys.TABLE_INITIALIZERS)
    assert initializers == [one.initializer, other.initializer]
    assert (one.name, one.initializer.name) == ("one", "key_value_init")
    assert tf.tables_initializer().name == "init_all_tables"
    assert {*tf.tables_initializer().control_inputs} == {*initializers}
    assert one.lookup(["a"]).op.name == "one_Lookup"
    assert one.size().op.name == "one_Size"
    assert (one.key_dtype, one.value_dtype) == (tf.string, np.int32)
    assert (other.key_dtype, other.value_dtype, other.name) == (tf.string, np.int64, "hash_table")
    assert one.default_value.dtype == np.int32


def test_the_scaffold_initializes_tables_of_every_session(backend: Backend) -> None:
    found = table().lookup(["lake"])
    tf.train.get_or_create_global_step()
    with tf.train.MonitoredTrainingSession(
        backend.target, config=tf.ConfigProto(), save_checkpoint_steps=None
    ) as sess:
        assert sess.run(found).tolist() == [8]


def test_a_table_is_not_in_a_checkpoint_and_stays_as_it_is(tmp_path: Any) -> None:
    own, v = table(), tf.Variable(1.0, name="v")
    with tf.Session() as sess:
        sess.run([own.initializer, v.initializer])
        tf.checkpoint.save(tmp_path / "saved", sess)
        with tf.checkpoint.open_checkpoint(tmp_path / "saved") as checkpoint:
            assert checkpoint.keys() == ["v"]
            assert not checkpoint.state_keys()
        tf.checkpoint.restore(tmp_path / "saved", sess)
        assert sess.run(own.lookup(["lake"])) == [8]


def test_a_graph_in_a_file_keeps_its_tables(tmp_path: Any) -> None:
    found = tf.identity(table().lookup(["lake", "x"]), name="found")
    tf.add_to_collection("found", found)
    tf.train.export_meta_graph(tmp_path / "graph")
    with tf.Graph().as_default():
        tf.train.import_meta_graph(tmp_path / "graph")
        with tf.Session() as sess:
            sess.run(tf.tables_initializer())
            assert sess.run(tf.get_collection("found")[0]).tolist() == [8, -1]


def test_arguments_that_do_not_fit_are_refused_when_the_graph_is_built() -> None:
    of, own = tf.lookup.KeyValueTensorInitializer, table()
    with pytest.raises(TypeError, match="Dtype of argument `keys` must be string"):
        own.lookup(tf.constant([1]))
    with pytest.raises(TypeError, match="text"):
        table({1: 2}).lookup(["a"])
    with pytest.raises(TypeError, match="strings or integers, got float32"):
        of([1.5], [1])
    with pytest.raises(ValueError, match="a value for each of"):
        of(["a", "b"], [1])
    with pytest.raises(ValueError, match="keys as a vector"):
        of([["a"]], [[1]])
    with pytest.raises(TypeError, match="values of dtype float32"):
        of(["a"], tf.constant([1]), value_dtype=tf.float32)
    for default in ("x", 1.5):
        with pytest.raises(TypeError, match="int32"):
            table(default=default)
    with pytest.raises(ValueError, match="scalar"):
        table(default=[1])
    with pytest.raises(ValueError, match="None values"):
        table(default=None)
    with pytest.raises(TypeError, match="is not an array; look keys up"):
        float(own)
    with pytest.raises(tf.errors.InvalidArgumentError, match="shared name"):
        table(shared_name="_names")


def test_vocabularies_that_do_not_fit_are_refused_when_the_graph_is_built() -> None:
    lookup = tf.contrib.lookup
    with pytest.raises(ValueError, match="use StaticHashTable"):
        vocabulary(["a"], 0)
    with pytest.raises(TypeError, match="expected int64 but got int32; pass value_dtype"):
        tf.lookup.StaticVocabularyTable(tf.lookup.KeyValueTensorInitializer(["a"], [0]), 1)
    with pytest.raises(TypeError, match="expected int64 but got string"):
        vocabulary(["a"], lookup_key_dtype=tf.int64)
    with pytest.raises(ValueError, match="`vocabulary_list` must be specified"):
        lookup.index_table_from_tensor(None)
    with pytest.raises(ValueError, match="greater or equal than 0, got -1"):
        lookup.index_table_from_tensor(["a"], num_oov_buckets=-1)
    for words, dtype in ((["a"], tf.int64), ([1], tf.string)):
        with pytest.raises(ValueError, match="Invalid `dtype`"):
            lookup.index_table_from_tensor(words, dtype=dtype)
    with pytest.raises(TypeError, match="integer or string"):
        lookup.index_table_from_tensor([1.0], dtype=tf.float32)
    with pytest.raises(ValueError, match="known size"):
        lookup.index_table_from_tensor(tf.placeholder(tf.string, (None,)))
    with pytest.raises(ValueError, match="FastHashSpec"):
        lookup.index_table_from_tensor(["a"], 1, hasher_spec=lookup.HasherSpec("strong"))
    with pytest.raises(ValueError, match="at least one bucket, got 0"):
        tf.string_to_hash_bucket_fast(["a"], 0)
    with pytest.raises(AttributeError, match=r"jflow\.data"):
        lookup.MutableHashTable  # noqa: B018


def test_checkpoints_of_sessions_have_neither_tables_nor_files(tmp_path):
    """A program may gain or lose them, and its former checkpoints are still restored."""

    def build(is_more):
        variable = tf.Variable(1.0, name="v")
        if is_more:
            entries = tf.lookup.KeyValueTensorInitializer(["a"], [1])
            tf.lookup.StaticHashTable(entries, -1).lookup(tf.constant("a"))
            tf.read_file("anything")
        return variable

    for saved, restored in ((False, True), (True, False)):
        with tf.Graph().as_default(), tf.Session() as session:
            session.run(build(saved).assign(5.0))
            tf.checkpoint.save(tmp_path / "c", session)
        with tf.Graph().as_default(), tf.Session() as session:
            variable = build(restored)
            tf.checkpoint.restore(tmp_path / "c", session)
            assert session.run(variable) == 5.0

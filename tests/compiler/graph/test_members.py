"""Collections: lists by key that a graph keeps."""

from __future__ import annotations

import pytest

import jflow as tf
from jflow.compiler.graph.members import Collections


def test_a_collection_is_returned_as_a_copy_and_by_reference() -> None:
    tf.add_to_collection("mine", 1)
    tf.get_collection("mine").append(2)
    assert tf.get_collection("mine") == [1]
    tf.get_collection_ref("mine").append(3)
    assert tf.get_collection("mine") == [1, 3]
    assert tf.get_collection_ref("new") == tf.get_collection("nothing") == []


def test_a_value_can_be_added_to_several_collections() -> None:
    tf.add_to_collections(["a", "b", "a"], 1)
    tf.add_to_collections("single", 2)
    assert [tf.get_collection(name) for name in ("a", "b", "single")] == [[1], [1], [2]]


def test_a_scope_filters_by_a_match_at_the_beginning_of_names() -> None:
    with tf.variable_scope("layer1"):
        w = tf.get_variable("w", [1])
    with tf.variable_scope("other/layer1"):
        tf.get_variable("w", [1])
    tf.add_to_collection(tf.GraphKeys.GLOBAL_VARIABLES, "without a name")
    keys = tf.GraphKeys
    assert tf.get_collection(keys.GLOBAL_VARIABLES, "layer1") == [w]
    assert tf.get_collection(keys.GLOBAL_VARIABLES, "l.*1/") == [w]
    assert tf.global_variables("layer1/") == tf.trainable_variables("lay") == [w]
    assert len(tf.get_collection(keys.GLOBAL_VARIABLES)) == 3


def test_keys_are_listed_and_collections_cleared() -> None:
    graph = tf.get_default_graph()
    tf.Variable(1.0)
    graph.add_to_collection("mine", 1)
    assert set(graph.get_all_collection_keys()) == {"variables", "trainable_variables", "mine"}
    graph.clear_collection("mine")
    graph.clear_collection("mine")
    assert "mine" not in graph.get_all_collection_keys()
    assert isinstance(graph, Collections)


def test_programs_list_their_model_s_variables_and_averages() -> None:
    keys = tf.GraphKeys
    own = tf.Variable(1.0, collections=[keys.GLOBAL_VARIABLES, keys.MODEL_VARIABLES])
    mean = tf.Variable(1.0, collections=[keys.MOVING_AVERAGE_VARIABLES], trainable=False)
    assert tf.model_variables() == [own]
    assert tf.moving_average_variables() == [mean]


@pytest.mark.parametrize("key", ["QUEUE_RUNNERS", "GLOBAL_STEP"])
def test_the_keys_are_those_that_the_library_uses(key: str) -> None:
    if key == "GLOBAL_STEP":
        made: object = tf.train.create_global_step()
    else:
        queue = tf.FIFOQueue(1, [tf.float32], [()])
        made = tf.train.QueueRunner(queue, [queue.enqueue(1.0)])
        tf.train.add_queue_runner(made)
    assert tf.get_collection(getattr(tf.GraphKeys, key)) == [made]


def test_what_is_made_is_in_the_collections_of_tensorflow() -> None:
    keys = tf.GraphKeys
    tf.get_variable("w", [1], regularizer=tf.numpy.sum)
    tf.Variable(1.0, collections=[keys.LOCAL_VARIABLES], trainable=False)
    tf.summary.scalar("s", tf.constant(1.0))
    queue = tf.FIFOQueue(1, [tf.float32], [()])
    tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue(1.0)]))
    tf.train.create_global_step()
    pairs = tf.lookup.KeyValueTensorInitializer(tf.constant(["a"]), tf.constant([1]))
    tf.lookup.StaticHashTable(pairs, -1)
    tf.train.Scaffold().finalize()
    graph = tf.get_default_graph()
    sizes = {key: len(graph.get_collection(key)) for key in graph.get_all_collection_keys()}
    # TensorFlow 2.21 has these for the same program.
    once = (
        "global_step init_op local_init_op local_variables queue_runners ready_for_local_init_op "
        "ready_op regularization_losses savers summaries summary_op table_initializer "
        "trainable_variables"
    )
    assert sizes == dict.fromkeys(once.split(), 1) | {"variables": 2}

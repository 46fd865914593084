"""`write_graph`: the definition of a graph in a file."""

import pytest
from google.protobuf import text_format

import jflow as tf


def test_a_graph_or_its_definition_is_written_as_text_or_bytes(tmp_path):
    tf.add(tf.placeholder(tf.float32, (2,), name="x"), 1.0, name="y")
    graph = tf.get_default_graph()
    folder = tmp_path / "new" / "folder"
    path = tf.train.write_graph(graph, folder, "graph.pbtxt")
    assert path == str(folder / "graph.pbtxt")
    text = (folder / "graph.pbtxt").read_text()
    assert text_format.Parse(text, tf.GraphDef()) == graph.as_graph_def()
    with_shapes = graph.as_graph_def(add_shapes=True)
    tf.train.write_graph(with_shapes, folder, "graph.pb", as_text=False)
    assert tf.GraphDef.FromString((folder / "graph.pb").read_bytes()) == with_shapes
    assert sorted(file.name for file in folder.iterdir()) == ["graph.pb", "graph.pbtxt"]


def test_what_is_no_graph_and_no_local_directory_is_refused(tmp_path):
    with pytest.raises(TypeError, match="expected a graph or a GraphDef, got str"):
        tf.train.write_graph("graph", tmp_path, "graph.pbtxt")
    with pytest.raises(tf.errors.UnimplementedError, match="local directory only, got 'gs://b'"):
        tf.train.write_graph(tf.Graph(), "gs://b", "graph.pbtxt")
    assert not [*tmp_path.iterdir()]

"""`Graph.as_graph_def`: the message that TensorFlow 2.21 writes for the same program."""

import numpy as np
import pytest

import jflow as tf
from jflow.base.values import NUMBERS, string
from jflow.state.records.tensor_proto import dtype_number

# Written by TensorFlow 2.21 for what `_program` builds.
BY_TENSORFLOW = bytes.fromhex(
    "0a670a04696e2f78120b506c616365686f6c6465722a270a0e5f6f75747075745f73686170657312150a133a11120b"
    "08ffffffffffffffffff01120208032a0b0a056474797065120230012a1c0a05736861706512133a11120b08ffffff"
    "ffffffffffff01120208030a760a01731205436f6e73742a260a205f6861735f6d616e75616c5f636f6e74726f6c5f"
    "646570656e64656e63696573120228012a1a0a0e5f6f75747075745f73686170657312080a063a04120208022a0b0a"
    "056474797065120230072a190a0576616c75651210420e08071204120208024201614201620a660a05436f6e737412"
    "05436f6e7374220e2f6a6f623a70732f7461736b3a302a1a0a0e5f6f75747075745f73686170657312080a063a0412"
    "0208022a0b0a056474797065120230032a1d0a0576616c756512144212080312041202080222080100000002000000"
    "0a610a0f70617274732f73706c69745f64696d1205436f6e7374220e2f6a6f623a70732f7461736b3a302a160a0e5f"
    "6f75747075745f73686170657312040a023a002a0b0a056474797065120230032a120a0576616c7565120942070803"
    "12003a01010a9f010a057061727473120653706c6974561a04696e2f781a05436f6e73741a0f70617274732f73706c"
    "69745f64696d220e2f6a6f623a70732f7461736b3a302a0a0a04546c656e120230032a070a0154120230012a3a0a0e"
    "5f6f75747075745f73686170657312280a263a11120b08ffffffffffffffffff01120208013a11120b08ffffffffff"
    "ffffffff01120208022a0f0a096e756d5f73706c6974120218020a4c0a017912084964656e746974791a0770617274"
    "733a311a025e732a070a0154120230012a270a0e5f6f75747075745f73686170657312150a133a11120b08ffffffff"
    "ffffffffff0112020802220308aa13"
)

# The numbers of TensorFlow 2.21's DataType.
NUMBERS_OF_TENSORFLOW = {
    "float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "complex64": 8,
    "int64": 9, "bool": 10, "bfloat16": 14, "uint16": 17, "complex128": 18, "float16": 19,
    "uint32": 22, "uint64": 23, "float8_e5m2": 24, "float8_e4m3fn": 25, "float8_e4m3fnuz": 26,
    "float8_e4m3b11fnuz": 27, "float8_e5m2fnuz": 28, "int4": 29, "uint4": 30, "int2": 31,
    "uint2": 32,
}  # fmt: skip


def _program():
    with tf.name_scope("in"):
        x = tf.placeholder(tf.float32, [None, 3], name="x")
    s = tf.constant([b"a", b"b"], name="s")
    with tf.device("/job:ps/task:0"):
        _, b = tf.split(x, [1, 2], axis=1, name="parts")
    with tf.control_dependencies([s.op]):
        tf.identity(b, name="y")


def _definition(**options):
    """The nodes of the default graph by name."""
    return _by_name(tf.get_default_graph().as_graph_def(**options))


def _by_name(definition):
    return {node.name: node for node in definition.node}


def test_a_definition_is_what_tensorflow_writes_but_for_the_operations():
    _program()
    ours = _definition(add_shapes=True)
    for name, node in _by_name(tf.GraphDef.FromString(BY_TENSORFLOW)).items():
        if name in ours:
            assert ours[name].device == node.device
            own = ours[name].attr
            assert {key: own[key] for key in own} == {key: node.attr[key] for key in own}
    assert ours.keys() >= {"in/x", "s", "parts", "y"}
    assert list(ours["y"].input) == ["parts:1", "^s"]
    assert list(ours["parts"].input) == ["in/x"]
    types = {op.name: op.type for op in tf.get_default_graph().get_operations()}
    assert {name: node.op for name, node in ours.items()} == types


def test_a_definition_of_tensorflow_is_read_whole():
    definition = tf.GraphDef.FromString(BY_TENSORFLOW)
    assert definition.SerializeToString(deterministic=True) == BY_TENSORFLOW
    assert definition.versions.producer == 2474
    definition.DiscardUnknownFields()
    assert definition.ByteSize() == len(BY_TENSORFLOW)


def test_the_shapes_of_outputs_are_there_only_if_requested():
    _program()
    assert "_output_shapes" not in _definition()["y"].attr
    with tf.Session() as session:
        assert session.graph_def == tf.get_default_graph().as_graph_def()


def test_what_uses_a_variable_or_a_queue_takes_its_handle_first():
    with tf.container("c"), tf.device("/job:ps"):
        v = tf.Variable([1.0, 2.0], name="v")
        queue = tf.FIFOQueue(3, ["float32"], [()], name="q", shared_name="shared")
    v.assign_add([1.0, 1.0], name="grow")
    queue.enqueue(2.0, name="put")
    nodes = _definition(add_shapes=True)
    handle = nodes["v"]
    assert (handle.op, handle.device, list(handle.input)) == ("variable", "/job:ps", [])
    assert handle.attr["dtype"].type == NUMBERS_OF_TENSORFLOW["float32"]
    assert [dim.size for dim in handle.attr["shape"].shape.dim] == [2]
    assert [len(shape.dim) for shape in handle.attr["_output_shapes"].list.shape] == [0]
    assert (handle.attr["container"].s, handle.attr["shared_name"].s) == (b"c", b"v")
    users = [node for node in nodes.values() if node.op in ("read", "assign", "update")]
    assert len(users) >= 2
    assert all(node.input[0] == "v" for node in users)
    assert nodes["put"].input[0] == "q"
    assert nodes["q"].attr["shared_name"].s == b"shared"


def test_colocation_is_the_class_attribute():
    v = tf.Variable(1.0, name="v")
    with tf.colocate_with(v):
        tf.constant(2.0, name="beside")
    assert list(_definition()["beside"].attr["_class"].list.s) == [b"loc:@v"]


def test_an_unknown_rank_and_unknown_sizes_are_marked():
    tf.placeholder(tf.float32, None, name="any")
    tf.placeholder(tf.float32, (None, 2), name="rows")
    nodes = _definition(add_shapes=True)
    (any_shape,) = nodes["any"].attr["_output_shapes"].list.shape
    assert any_shape.unknown_rank
    assert nodes["any"].attr["shape"].shape.unknown_rank
    (rows,) = nodes["rows"].attr["_output_shapes"].list.shape
    assert [dim.size for dim in rows.dim] == [-1, 2]


def test_small_constants_have_their_value():
    tf.constant(np.arange(3, dtype=np.int32), name="small")
    tf.constant(np.float16([1.5, -2]), name="half")
    tf.constant(np.arange(5000, dtype=np.int32), name="large")
    tf.constant(["a" * 2000], name="text")
    nodes = _definition()
    assert list(nodes["small"].attr["value"].tensor.int_val) == [0, 1, 2]
    half = nodes["half"].attr["value"].tensor
    assert np.frombuffer(half.tensor_content, np.float16).tolist() == [1.5, -2]
    for name in ("large", "text"):
        assert "value" not in nodes[name].attr
        assert nodes[name].attr["dtype"].type


def test_random_keys_have_no_dtype_of_tensorflow():
    tf.get_default_graph().apply(tf.random.key, [0], name="key")
    tf.random.normal(tf.random.key(0), (2,), name="noise")
    assert all(not node.attr["dtype"].type for node in _definition().values() if node.attr)


def test_a_loop_is_one_node():
    before = {op.name for op in tf.get_default_graph().get_operations()}
    result = tf.while_loop(lambda i: i < 3, lambda i: i + 1, [tf.constant(0, name="zero")])
    nodes = _definition()
    assert before.isdisjoint(nodes)
    node = nodes[result.op.name]
    assert node.op == "while"
    assert "zero" in node.input


@pytest.mark.parametrize("name", [*NUMBERS])
def test_dtypes_have_the_numbers_of_tensorflow(name):
    assert dtype_number(NUMBERS[name]) == NUMBERS_OF_TENSORFLOW.get(name, 0)
    assert dtype_number(string) == 7

import dataclasses
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf

Pair = namedtuple("Pair", "left right")


@pytest.fixture
def graph():
    """A small graph: a = 1, b = a + 2 and an operation."""
    a = tf.constant(1.0, name="a")
    return Pair(a, tf.numpy.add(a, 2.0, name="b"))


def _run(fetches, feeds=None):
    with tf.Session() as session:
        return session.run(fetches, feeds)


# Fetches


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_list_that_is_fetched_again_is_not_parsed_again(graph, kind, monkeypatch):
    x = tf.placeholder(tf.bfloat16, ())
    nothing = tf.group()
    fetches = kind([graph.right, nothing, x * 2, graph.left, graph.right])
    with tf.Session() as session:
        first = session.run(fetches, {x: 3.0})
        monkeypatch.setattr("jflow.client.session.session.parse_fetches", None)
        again = session.run(fetches, {x: 4.0})
    assert type(first) is type(again) is kind
    assert list(first) == [3.0, None, 6.0, 1.0, 3.0]
    assert list(again) == [3.0, None, 8.0, 1.0, 3.0]
    assert [type(value) for value in first] == [type(value) for value in again]


def test_a_list_and_a_tuple_of_the_same_are_told_apart(graph):
    with tf.Session() as session:
        for _ in range(2):
            assert session.run([graph.left, graph.right]) == [1.0, 3.0]
            assert session.run((graph.left, graph.right)) == (1.0, 3.0)
            assert session.run([graph.left], {graph.right: 5.0}) == [1.0]
            assert session.run(graph.left, {graph.right: 5.0}) == 1.0


def test_one_tensor_gives_one_array():
    value = _run(tf.constant([1.0, 2.0]))
    assert isinstance(value, np.ndarray)
    assert value.tolist() == [1.0, 2.0]


def test_a_scalar_comes_as_a_numpy_scalar(graph):
    value = _run(graph.left)
    assert type(value) is np.float32
    assert type(_run(tf.constant(True))) is np.bool_
    assert _run(tf.constant(1.0, tf.bfloat16)).dtype == tf.bfloat16


def test_an_operation_runs_and_gives_none(graph):
    assert _run(graph.right.op) is None
    assert _run([graph.left, graph.right.op]) == [1.0, None]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda a, b: [a, b],
        lambda a, b: (a, b),
        lambda a, b: [a, (b, [a])],
        lambda a, b: {"x": a, "y": [b]},
        lambda a, b: {"deep": {"er": (a, {"est": b})}},
        Pair,
        lambda a, b: [Pair([a], {"z": b}), a],
        lambda a, b: (a,),
        lambda a, b: [],
        lambda a, b: (),
        lambda a, b: {},
        lambda a, b: [[], {}, a, ()],
        lambda a, b: {2: a, 1: b},
    ],
)
def test_a_structure_comes_back_as_it_went_in(graph, wrap):
    found, wanted = _run(wrap(*graph)), wrap(1.0, 3.0)
    assert found == wanted
    assert type(found) is type(wanted)


def test_an_ordered_dict_keeps_its_type_and_order(graph):
    found = _run(OrderedDict([("z", graph.right), ("a", graph.left)]))
    assert isinstance(found, OrderedDict)
    assert list(found.items()) == [("z", 3.0), ("a", 1.0)]


def test_names_stand_for_tensors_and_operations(graph):
    assert _run(["a:0", "b", {"x": "b:0"}]) == [1.0, None, {"x": 3.0}]


def test_a_variable_stands_for_its_value():
    x = tf.Variable(5.0)
    with tf.Session() as session:
        session.run(x.initializer)
        assert session.run([x, x.value(), x.name.replace(":0", "/read:0")]) == [5.0] * 3


def test_what_is_asked_for_twice_is_computed_once():
    x = tf.Variable(0.0)
    add = x.assign_add(1.0)
    with tf.Session() as session:
        session.run(x.initializer)
        assert session.run([add, [add], add.op, add.op, add.name]) == [1.0, [1.0], None, None, 1.0]
        assert session.run(x) == 1.0


@pytest.mark.parametrize("bad", [None, 1, 1.0, [None], {"x": None}, np.ones(2), object(), (1, 2)])
def test_what_is_no_part_of_a_graph_is_a_type_error(graph, bad):
    with pytest.raises(TypeError, match="expected a tensor, variable, operation"):
        _run(bad)
    with pytest.raises(TypeError, match="expected a tensor, variable, operation"):
        _run([graph.left, bad])


@pytest.mark.parametrize("name", ["c", "c:0", "a:1", "a:x", "", ":"])
def test_a_name_that_is_not_in_the_graph_is_a_value_error_that_quotes_it(graph, name):
    with pytest.raises(ValueError, match="cannot fetch") as raised:
        _run([graph.left, name])
    assert repr(name) in str(raised.value)


def test_a_tensor_of_another_graph_is_a_value_error(graph):
    with tf.Graph().as_default():
        foreign = [tf.constant(1.0), tf.constant(1.0).op, tf.Variable(1.0)]
    for one in foreign:
        with pytest.raises(ValueError, match="not an element of this session's graph"):
            _run([graph.left, one])


class Listed(list):
    def __init__(self, label, *items):
        super().__init__(items)
        self.label = label


class Named(dict):
    label = None


class Tupled(tuple):
    __slots__ = ()


@dataclasses.dataclass(frozen=True)
class Data:
    left: Any
    right: Any = dataclasses.field(kw_only=True)
    both: Any = dataclasses.field(init=False, default=None)

    def __post_init__(self):
        if isinstance(self.left, np.generic):
            object.__setattr__(self, "both", self.left + self.right["x"])


class Attribute:
    """A field, as attrs describes it."""

    def __init__(self, name, alias=None, init=True):
        self.name, self.init = name, init
        if alias is not None:
            self.alias = alias


class Attrs:
    __attrs_attrs__ = (Attribute("left"), Attribute("_right"), Attribute("none", init=False))

    def __init__(self, left, right):
        self.left, self._right, self.none = left, right, None


class Renamed(Attrs):
    __attrs_attrs__ = (Attribute("left", "links"), Attribute("_right", "rechts"))

    def __init__(self, links, rechts):
        super().__init__(links, rechts)


@jax.tree_util.register_pytree_node_class
class Node:
    def __init__(self, *children):
        self.children = children

    def tree_flatten(self):
        return self.children, None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


def test_dicts_keep_the_order_of_their_keys_whatever_these_are(graph):
    a, b = graph
    keys = [b, "z", 3, a, "a", (1, "x"), None, 1.5, a.op, tf.Variable(1.0)]
    for kind in (dict, OrderedDict):
        found = _run(kind((key, [a, {"y": b, "x": a}]) for key in keys))
        assert type(found) is kind
        assert all(one is other for one, other in zip(found, keys, strict=True))
        assert all(value == [1.0, {"y": 3.0, "x": 1.0}] for value in found.values())
        assert [*found[b][1]] == ["y", "x"]


def test_subclasses_of_containers_come_back_as_they_are(graph):
    a, b = graph
    listed = Listed("label", a, [b])
    found = _run(listed)
    assert (type(found), found, found.label) == (Listed, [1.0, [3.0]], "label")
    assert listed[0] is a
    named = Named(z=b, a=(a, b))
    named.label = "label"
    found = _run({"k": named})["k"]
    assert (type(found), found, found.label) == (Named, {"z": 3.0, "a": (1.0, 3.0)}, "label")
    assert [*found] == ["z", "a"]
    missing = defaultdict(list, x=a)
    found = _run(missing)
    assert (found, found["new"]) == ({"x": 1.0, "new": []}, [])
    assert "new" not in missing
    found = _run(UserDict(b=a))
    assert (type(found), found["b"]) == (UserDict, 1.0)
    found = _run(Tupled([a, Pair(b, {"x": a})]))
    assert (type(found), found) == (Tupled, (1.0, Pair(3.0, {"x": 1.0})))


def test_dataclasses_and_classes_of_attrs_are_structures(graph):
    a, b = graph
    found = _run([Data(a, right={"x": b})])[0]
    assert found == Data(np.float32(1.0), right={"x": np.float32(3.0)})
    assert found.both == 4.0
    for kind in (Attrs, Renamed):
        found = _run(kind([a], b.op))
        assert (type(found), found.left, found._right) == (kind, [1.0], None)
    with pytest.raises(TypeError, match=r"expected a tensor.*as a fetch, got <class .*Data'>"):
        _run(Data)
    with pytest.raises(TypeError, match="got 3 of type int"):
        _run(Data(a, right=3))


def test_pytrees_of_jax_are_structures_and_may_hold_others(graph):
    found = _run({"z": Node(graph.left, {"y": graph.right, "x": [Node()]})})["z"]
    assert type(found) is Node
    assert found.children[0] == 1.0
    assert [*found.children[1]] == ["y", "x"]
    assert found.children[1]["x"][0].children == ()


# Feeds


@pytest.mark.parametrize("value", [2, 2.0, True, np.float32(2), np.float64(2), np.array(2)])
def test_a_fed_value_is_cast_to_the_dtype_of_its_tensor(value):
    p = tf.placeholder("float32", ())
    found = _run(p * 1, {p: value})
    assert found == value
    assert found.dtype == np.float32


def test_lists_and_arrays_and_jax_arrays_can_be_fed():
    p = tf.placeholder("int32", (2,))
    for value in ([1, 2], (1, 2), np.array([1, 2]), np.int8([1, 2]), jnp.asarray([1, 2])):
        assert _run(p + 0, {p: value}).tolist() == [1, 2]


def test_any_tensor_can_be_fed_and_cuts_what_computes_it():
    p = tf.placeholder("float32", ())
    x = tf.Variable(0.0)
    with tf.control_dependencies([x.assign_add(1.0)]):
        middle = tf.numpy.sin(p)
    end = middle * 2
    with tf.Session() as session:
        session.run(x.initializer)
        assert session.run(end, {middle: 5.0}) == 10.0
        assert session.run(x) == 0.0
        session.run(end, {p: 0.0})
        assert session.run(x) == 1.0


def test_a_constant_can_be_fed(graph):
    assert _run(graph.right, {graph.left: 10.0}) == 12.0


def test_a_fed_tensor_can_be_fetched(graph):
    assert _run([graph.left, graph.right], {graph.left: 10.0}) == [10.0, 12.0]
    assert _run(graph.left, {graph.left: 10.0}) == 10.0


def test_one_output_of_several_can_be_fed():
    first, second = tf.numpy.split(tf.constant([1.0, 2.0]), 2)
    total = first + second
    assert _run([total, second, first], {first: [100.0]}) == [[102.0], [2.0], [100.0]]
    assert _run(total, {first: [100.0], second: [10.0]}) == [110.0]


def test_a_fed_variable_has_that_value_for_the_step_only():
    x = tf.Variable(1.0)
    fresh = x.read_value()
    with tf.Session() as session:
        session.run(x.initializer)
        assert session.run([x, x * 2, fresh], {x: 5.0}) == [5.0, 10.0, 1.0]
        assert session.run(x) == 1.0


def test_an_uninitialized_variable_can_be_fed():
    x = tf.Variable(1.0)
    assert _run(x * 2, {x: 5.0}) == 10.0


def test_an_update_whose_result_is_fed_does_not_run():
    x = tf.Variable(1.0)
    new = x.assign_add(1.0)
    with tf.control_dependencies([new]):
        after = x.read_value()
    with tf.Session() as session:
        session.run(x.initializer)
        assert session.run([new, new.op, new * 10, after], {new: 5.0}) == [5.0, None, 50.0, 1.0]
        assert session.run(x) == 1.0


def test_a_fed_placeholder_can_be_waited_for():
    p = tf.placeholder("float32", ())
    with tf.control_dependencies([p]):
        y = tf.constant(1.0) * 3
    assert _run([y, tf.group(p)], {p: 0.0}) == [3.0, None]


def test_a_name_can_be_fed(graph):
    assert _run("b:0", {"a:0": 10.0}) == 12.0


def test_tensors_in_nested_tuples_are_fed_at_once():
    p, q, r = (tf.placeholder("float32", ()) for _ in range(3))
    total = p + 10 * q + 100 * r
    assert _run(total, {(p, (q, r)): (1.0, (2.0, 3.0))}) == 321.0
    assert _run(total, {(p, q): [1.0, 2.0], r: 4.0}) == 421.0
    for values in ((1.0, 2.0), (1.0, (2.0,)), 1.0):
        with pytest.raises(ValueError, match="expected 2 values"):
            _run(total, {(p, (q, r)): values})


def test_what_is_fed_and_not_needed_does_no_harm(graph):
    p = tf.placeholder("float32", (3,))
    assert _run(graph.right, {p: np.zeros(3)}) == 3.0


def test_steps_with_other_feeds_do_not_mix_up(graph):
    p, q = tf.placeholder("float32", ()), tf.placeholder("float32", ())
    difference = p - q
    with tf.Session() as session:
        assert session.run(difference, {p: 5.0, q: 3.0}) == 2.0
        assert session.run(difference, {q: 5.0, p: 3.0}) == -2.0
        assert session.run([q, difference], {p: 1.0, q: 0.5}) == [0.5, 0.5]


@pytest.mark.parametrize("value", [[1.0], [[1.0, 2.0]], [1.0, 2.0, 3.0], 1.0, np.zeros((2, 0))])
def test_a_value_of_another_shape_is_a_value_error_that_shows_both(value):
    p = tf.placeholder("float32", (2,), name="p")
    with pytest.raises(ValueError, match=r"Cannot feed value of shape .*'p:0'.*\(2,\)") as raised:
        _run(p * 2, {p: value})
    assert str(np.shape(value)) in str(raised.value)
    assert f"{__file__}:" in str(raised.value)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("int32", 1.5),
        ("int8", 300),
        ("uint8", -1),
        ("float32", 1j),
        ("bool", 1),
        ("float32", "1"),
        ("float32", None),
        ("int32", 2**40),
        ("int32", 10**30),
        ("float32", object()),
    ],
)
def test_a_value_that_does_not_fit_the_dtype_is_a_type_error(dtype, value):
    p = tf.placeholder(dtype, (), name="p")
    with pytest.raises(TypeError, match=r"cannot feed .*'p:0'"):
        _run(tf.identity(p), {p: value})


def test_an_unknown_size_is_none_in_messages():
    p = tf.placeholder("float32", (None, 3), name="p")
    with pytest.raises(ValueError, match=r"shape \(2, 2\) for tensor 'p:0'.*shape \(None, 3\)"):
        _run(p * 2, {p: np.zeros((2, 2))})


def test_an_empty_list_can_be_fed_whatever_the_dtype():
    p = tf.placeholder("int32", (0,))
    assert _run(tf.numpy.sum(p), {p: []}) == 0


def test_a_graph_element_is_no_value(graph):
    p = tf.placeholder("float32", ())
    for value in (graph.left, graph.left.op, tf.Variable(1.0)):
        with pytest.raises(TypeError, match="is a graph element"):
            _run(p * 2, {p: value})


def test_a_key_that_is_no_tensor_of_this_graph_is_a_type_error(graph):
    with tf.Graph().as_default():
        foreign, variable = tf.constant(1.0), tf.Variable(1.0)
    for key in (foreign, variable, "c:0", "a", graph.left.op, 3, None, ("x",)):
        with pytest.raises(TypeError, match="Cannot interpret feed_dict key"):
            _run(graph.right, {key: 1.0})


@pytest.mark.parametrize("feeds", [[1.0], 3, "a"])
def test_feeds_are_a_dict(graph, feeds):
    with pytest.raises(TypeError, match="feed_dict must be a dict"):
        _run(graph.right, feeds)


def test_an_unfed_placeholder_is_an_error_that_says_which_and_where_it_was_made():
    p = tf.placeholder("int8", (2, 3), name="p")
    with pytest.raises(tf.errors.InvalidArgumentError, match="You must feed a value") as raised:
        _run(tf.numpy.sum(p))
    for part in ("'p'", "int8", "(2, 3)", f"{__file__}:"):
        assert part in str(raised.value)
    assert raised.value.op == "p"


# Callables


def test_a_callable_takes_values_in_the_order_of_its_list(graph):
    p, q = tf.placeholder("float32", ()), tf.placeholder("float32", ())
    with tf.Session() as session:
        call = session.make_callable({"x": p - q}, [p, q])
        assert call(5.0, 3.0) == {"x": 2.0}
        assert call(1.0, 2.0) == {"x": -1.0}
        assert session.make_callable(graph.right)() == 3.0
        with pytest.raises(ValueError, match=r"as tensors in feed_list \(2\), got 1"):
            call(1.0)
        with pytest.raises(TypeError, match="feed_list must be a list or tuple"):
            session.make_callable(graph.right, {p: 1.0})
    with pytest.raises(RuntimeError, match="closed Session"):
        call(1.0, 2.0)

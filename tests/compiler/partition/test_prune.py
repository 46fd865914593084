import pytest

import jflow as tf
from jflow.compiler.graph.control import control_sources
from jflow.compiler.partition import prune


def _prune(targets=(), fetches=(), fed=()):
    graph = tf.get_default_graph()
    return [op.name for op in prune(graph, targets, fetches, set(fed))]


def _chain():
    a = tf.constant(1.0, name="a")
    b = tf.numpy.sin(a, name="b")
    c = tf.numpy.cos(b, name="c")
    tf.numpy.exp(b, name="unneeded")
    return a, b, c


def test_only_ancestors_of_what_is_asked_for_run_in_the_graphs_order():
    a, b, c = _chain()
    assert _prune(fetches=[c]) == ["a", "b", "c"]
    assert _prune(fetches=[a]) == ["a"]
    assert _prune(targets=[b.op]) == ["a", "b"]
    assert _prune(fetches=[c, a], targets=[b.op]) == ["a", "b", "c"]
    assert _prune() == []


def test_a_fed_tensor_cuts_the_graph():
    _, b, c = _chain()
    assert _prune(fetches=[c], fed=[b]) == ["c"]
    assert _prune(fetches=[b], fed=[b]) == []


def test_an_operation_runs_for_those_of_its_outputs_that_are_not_fed():
    first, second = tf.numpy.split(tf.constant([1.0, 2.0], name="a"), 2, name="s")
    both = tf.numpy.add(first, second, name="c")
    assert _prune(fetches=[both], fed=[first]) == ["a", "s", "c"]
    assert _prune(fetches=[both], fed=[first, second]) == ["c"]


def test_control_inputs_run_too():
    a, _, _ = _chain()
    other = tf.constant(2.0, name="other")
    with tf.control_dependencies([other]):
        late = tf.numpy.tanh(a, name="late")
    assert _prune(fetches=[late]) == ["a", "other", "late"]


def test_feeding_cuts_the_control_inputs_of_what_is_fed():
    a, _, _ = _chain()
    with tf.control_dependencies([tf.constant(2.0)]):
        late = tf.numpy.tanh(a, name="late")
    end = tf.numpy.exp(late, name="end")
    assert _prune(fetches=[end], fed=[late]) == ["end"]


def test_a_placeholder_that_is_needed_must_be_fed():
    p = tf.placeholder("int8", (2,), name="p")
    y = p + 1
    with pytest.raises(tf.errors.InvalidArgumentError, match="You must feed a value") as raised:
        _prune(fetches=[y])
    message = str(raised.value)
    for part in ("placeholder 'p'", f"{__file__}:", "int8", "(2,)"):
        assert part in message
    assert raised.value.op == "p"
    assert _prune(fetches=[y], fed=[p]) == ["add"]


def test_a_placeholder_that_is_not_needed_need_not_be_fed():
    tf.placeholder("float32", ())
    a, _, _ = _chain()
    assert _prune(fetches=[a]) == ["a"]


def test_a_fed_placeholder_can_be_a_control_input():
    p = tf.placeholder("float32", (), name="p")
    with tf.control_dependencies([p]):
        y = tf.constant(1.0, name="y")
    assert _prune(fetches=[y], fed=[p]) == ["y"]
    assert _prune(targets=[tf.group(p, name="g")], fed=[p]) == ["g"]
    with pytest.raises(tf.errors.InvalidArgumentError, match="placeholder 'p'"):
        _prune(fetches=[y])


def test_groups_are_seen_through():
    a, b = tf.constant(1.0), tf.constant(2.0)
    with tf.control_dependencies([tf.group(tf.group(a), b), a]):
        late = tf.no_op()
    assert set(control_sources(late)) == {a.op, b.op}


@pytest.mark.timeout(20)
def test_groups_of_groups_take_no_time_that_doubles_with_each_level():
    a = tf.constant(1.0)
    left = right = tf.group(a)
    for _ in range(40):
        left, right = tf.group(left, right), tf.group(left, right)
    with tf.control_dependencies([left]):
        late = tf.no_op()
    assert control_sources(late) == [a.op]

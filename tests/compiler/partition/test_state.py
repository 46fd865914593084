import jflow as tf
from jflow.compiler.partition.state import analyse


def _use(ops, leaving=()):
    """How operations use variables, with names for variables."""
    use = analyse([getattr(op, "op", op) for op in ops], list(leaving))
    return {
        "reads": [ref.name for ref in use.reads],
        "writes": [ref.name for ref in use.writes],
        "before": [(ref.name, tensor) for ref, tensor in use.before],
        "after": [(ref.name, tensor) for ref, tensor in use.after],
        "outputs": use.outputs,
    }


def _expected(**changed):
    return {"reads": [], "writes": [], "before": [], "after": [], "outputs": [], **changed}


def test_pure_operations_use_no_variable():
    a = tf.constant(1.0)
    b = a + 1
    assert _use([a, b], [b]) == _expected(outputs=[b])


def test_a_read_that_is_used_takes_the_old_value():
    x = tf.Variable(1.0, name="x")
    y = x * 2
    assert _use([x.value(), y], [y]) == _expected(reads=["x"], outputs=[y])


def test_a_read_that_only_leaves_is_the_buffer_as_it_was():
    x = tf.Variable(1.0, name="x")
    read = x.value()
    assert _use([read], [read]) == _expected(before=[("x", read)])


def test_a_read_can_be_used_and_leave():
    x = tf.Variable(1.0, name="x")
    read, y = x.value(), x * 2
    assert _use([read, y], [read, y]) == _expected(reads=["x"], before=[("x", read)], outputs=[y])


def test_an_assignment_does_not_take_the_old_value():
    x = tf.Variable(1.0, name="x")
    two = tf.constant(2.0)
    new = x.assign(two)
    assert _use([two, new]) == _expected(writes=["x"])
    assert _use([two, new], [new]) == _expected(writes=["x"], after=[("x", new)])


def test_an_update_takes_the_old_value_and_gives_a_new_one():
    x = tf.Variable(1.0, name="x")
    new = x.assign_add(1.0)
    assert _use([new], [new]) == _expected(reads=["x"], writes=["x"], after=[("x", new)])


def test_variables_that_are_written_are_read_first_and_in_the_order_of_the_writes():
    x, y, z = (tf.Variable(1.0, name=name) for name in "xyz")
    values = [v.value() for v in (x, y, z)]
    total = values[0] + values[1]
    both = total + values[2]
    use = _use([*values, total, both, z.assign(both), y.assign(both)])
    assert use == _expected(reads=["z", "y", "x"], writes=["z", "y"])


def test_an_update_after_an_assignment_does_not_take_the_old_value():
    x = tf.Variable(1.0, name="x")
    first, second = x.assign(5.0), x.assign_add(1.0)
    assert _use([first, second], [first, second]) == _expected(
        writes=["x"], after=[("x", second)], outputs=[first]
    )


def test_reads_before_and_after_a_write_are_told_apart():
    x = tf.Variable(1.0, name="x")
    before = x.read_value()
    new = x.assign_add(1.0)
    after = x.read_value()
    assert _use([before, new, after], [before, after]) == _expected(
        reads=["x"], writes=["x"], before=[("x", before)], after=[("x", after)]
    )


def test_a_read_between_two_writes_is_an_output_of_the_program():
    x = tf.Variable(1.0, name="x")
    first = x.assign_add(1.0)
    between = x.read_value()
    second = x.assign_add(1.0)
    assert _use([first, between, second], [between, second]) == _expected(
        reads=["x"], writes=["x"], after=[("x", second)], outputs=[between]
    )


def test_variables_do_not_mix():
    x, y = tf.Variable(1.0, name="x"), tf.Variable(1.0, name="y")
    new = x.assign(y * 2)
    ops = [y.value(), new.op.inputs[0], new, x.value()]
    assert _use(ops, [x.value()]) == _expected(reads=["y"], writes=["x"], after=[("x", x.value())])

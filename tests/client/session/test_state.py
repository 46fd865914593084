"""Variables of a local session: order, atomic updates, copies, and memory that stays in place."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import jflow as tf
from jflow.base.cluster import Device
from jflow.plan import VariableKey, VariableSpec
from tests.variables import get_variable


def _address(session, variable):
    """Where the value of a variable of a local session lies."""
    spec = VariableSpec(
        VariableKey(variable.container, variable.op.name), variable.dtype.name, variable.shape
    )
    (device,) = set(session.placement(variable).values())
    assert isinstance(device, Device)
    array = get_variable(session._backend._containers, device, spec).buffer.array
    array.block_until_ready()
    return array.unsafe_buffer_pointer()


def _in_threads(n, work):
    """Runs `work(number)` on so many threads that begin together; raises what they raise."""
    together, errors = threading.Barrier(n), []

    def run(number):
        together.wait()
        try:
            work(number)
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


# Whose state it is


def test_a_counter_counts_from_step_to_step():
    x = tf.Variable(0.0, name="x")
    increment = tf.assign(x, x + 1)
    with tf.Session() as session:
        session.run(x.initializer)
        assert [session.run(increment) for _ in range(3)] == [1.0, 2.0, 3.0]
        assert x.eval() == 3.0


def test_local_sessions_share_no_state():
    x = tf.Variable(1.0)
    first, second = tf.Session(), tf.Session()
    first.run(x.initializer)
    with pytest.raises(tf.errors.FailedPreconditionError):
        second.run(x)
    second.run(x.assign(5.0))
    first.run(x.assign_add(1.0))
    assert (first.run(x), second.run(x)) == (2.0, 5.0)
    first.close()
    assert second.run(x) == 5.0


def test_the_state_of_a_session_is_gone_when_the_next_one_begins():
    x = tf.Variable(1.0)
    with tf.Session() as session:
        session.run(x.initializer)
    with tf.Session() as session, pytest.raises(tf.errors.FailedPreconditionError):
        session.run(x)


def test_variables_are_kept_in_the_containers_they_ask_for():
    with tf.container("a"):
        x = tf.Variable(1.0, name="x")
    with tf.container("b"):
        y = tf.Variable(2.0, name="x")
    z = tf.Variable(3.0, name="z")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run([x, y, z]) == [1.0, 2.0, 3.0]
        found = {(one.container, one.name) for one in session._backend._containers.variables()}
        assert found == {("a", "x"), ("b", "x_1"), ("", "z")}


@pytest.mark.parametrize("use", ["read", "add", "fused"])
def test_an_uninitialized_variable_is_an_error_that_says_everything(use):
    with tf.container("problem"), tf.device("/device:CPU:1"):
        x = tf.Variable(1.0, name="weights")
    fetch = {"read": x, "add": x.assign_add(1.0), "fused": tf.numpy.sin(x * 2)}[use]
    with tf.Session() as session, pytest.raises(tf.errors.FailedPreconditionError) as raised:
        session.run(fetch)
    message = str(raised.value)
    where = "/job:localhost/task:0/device:CPU:1"
    for part in ("uninitialized", "'weights'", "'problem'", where, f"{__file__}:", "initializer"):
        assert part in message
    assert (raised.value.op, raised.value.task) == ("weights", "/job:localhost/task:0")


# Order inside a step


def test_a_read_after_an_update_sees_it():
    x = tf.Variable(0.0)
    with tf.control_dependencies([x.assign_add(1.0)]):
        after = x.read_value()
        computed = tf.identity(x.read_value()) * 10
    with tf.Session() as session:
        session.run(x.initializer)
        assert session.run(after) == 1.0
        assert session.run([after, computed]) == [2.0, 20.0]


def test_a_read_before_an_update_does_not_see_it():
    x = tf.Variable(np.zeros(3, np.float32))
    before = x.read_value()
    with tf.control_dependencies([before]):
        new = x.assign_add(np.ones(3, np.float32))
    with tf.Session() as session:
        session.run(x.initializer)
        for i in range(3):
            old, fresh = session.run([before, new])
            assert (old.tolist(), fresh.tolist()) == ([i] * 3, [i + 1] * 3)


def test_updates_in_a_chain_happen_in_its_order():
    x = tf.Variable(1.0)
    first = x.assign(10.0)
    with tf.control_dependencies([first]):
        second = x.assign_add(5.0)
    with tf.control_dependencies([second]):
        third = x.assign(x.read_value() * 2)
    with tf.control_dependencies([third]):
        last = x.read_value()
    with tf.Session() as session:
        session.run(x.initializer)
        assert session.run([first, second, third, last]) == [10.0, 15.0, 30.0, 30.0]
        assert session.run(x) == 30.0


def test_updates_without_an_order_all_happen():
    x = tf.Variable(0.0)
    updates = [x.assign_add(float(2**i)) for i in range(5)]
    with tf.Session() as session:
        session.run(x.initializer)
        session.run(tf.group(*updates))
        assert session.run(x) == 31.0


def test_updates_from_several_devices_all_happen():
    with tf.device("/device:CPU:1"):
        x = tf.Variable(0.0)
    updates = []
    for i in range(3):
        with tf.device(f"/device:CPU:{i}"):
            updates.append(x.assign_add(tf.numpy.exp2(tf.constant(float(i)))))
    with tf.Session() as session:
        session.run(x.initializer)
        session.run(tf.group(*updates))
        assert session.run(x) == 7.0


def test_a_chain_across_devices_happens_in_its_order():
    with tf.device("/device:CPU:1"):
        x = tf.Variable(1.0)
    with tf.device("/device:CPU:2"):
        y = tf.Variable(0.0)
    first = y.assign(x * 3)
    with tf.control_dependencies([first]):
        second = x.assign_add(10.0)
    with tf.control_dependencies([second]):
        third = y.assign_sub(x.read_value())
    with tf.control_dependencies([third]):
        last = [x.read_value(), y.read_value()]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run([first, second, third, last]) == [3.0, 11.0, -8.0, [11.0, -8.0]]


def test_variables_can_swap_their_values():
    x, y = tf.Variable([1.0, 2.0]), tf.Variable([3.0, 4.0])
    old_x, old_y = x.read_value(), y.read_value()
    with tf.control_dependencies([old_x, old_y]):
        swap = tf.group(x.assign(old_y), y.assign(old_x))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(swap)
        np.testing.assert_array_equal(session.run([x, y]), [[3.0, 4.0], [1.0, 2.0]])
        session.run([x.assign_add([1.0, 1.0]).op])
        np.testing.assert_array_equal(session.run([x, y]), [[4.0, 5.0], [1.0, 2.0]])


# Copies and memory


@pytest.mark.parametrize("size", [3, 200_000])
def test_what_was_fetched_does_not_change_later(size):
    x = tf.Variable(np.zeros(size, np.float32))
    add = x.assign_add(np.ones(size, np.float32))
    with tf.Session() as session:
        session.run(x.initializer)
        fetched = [session.run(x), session.run(add), *session.run([x, add])]
        copies = [array.copy() for array in fetched]
        for _ in range(3):
            session.run(add.op)
        for array, copy in zip(fetched, copies, strict=True):
            np.testing.assert_array_equal(array, copy)


def test_writing_into_a_fetched_variable_does_not_change_it():
    x = tf.Variable(np.zeros(1000, np.float32))
    with tf.Session() as session:
        session.run(x.initializer)
        fetched = session.run(x)
        if fetched.flags.writeable:
            fetched[:] = 5.0
        assert session.run(x).max() == 0.0


@pytest.mark.parametrize("size", [16, 1_000_000])
def test_a_fed_array_may_be_overwritten_as_soon_as_the_step_is_over(size):
    p = tf.placeholder("float32", (size,))
    y = p
    for _ in range(8):
        y = tf.numpy.sin(y) + p
    x = tf.Variable(np.zeros(size, np.float32))
    assign = x.assign(y)
    with tf.Session() as session:
        session.run(assign.op, {p: np.ones(size, np.float32)})
        wanted = session.run(x)
        for _ in range(5):
            given = np.ones(size, np.float32)
            session.run(assign.op, {p: given})
            given[:] = 77.0
            np.testing.assert_array_equal(session.run(x), wanted)


@pytest.mark.parametrize("size", [16, 1_000_000])
def test_a_fed_array_may_be_overwritten_after_an_update_whose_result_is_fetched(size):
    p = tf.placeholder("float32", (size,))
    x = tf.Variable(np.zeros(size, np.float32))
    total = tf.numpy.sum(p)
    assign = x.assign(tf.numpy.sin(p) + total)
    with tf.Session() as session:
        session.run(x.initializer)
        ones = np.ones(size, np.float32)
        wanted = np.sin(ones) + np.float32(size)
        for _ in range(5):
            given = ones.copy()
            session.run([total, assign.op], {p: given})
            given[:] = 77.0
            np.testing.assert_allclose(session.run(x), wanted, rtol=1e-6)


def test_an_assigned_array_is_not_the_variables_memory():
    p = tf.placeholder("float32", (1000,))
    x = tf.Variable(np.zeros(1000, np.float32))
    assign = x.assign(p)
    add = x.assign_add(np.ones(1000, np.float32))
    given = np.full(1000, 7.0, np.float32)
    with tf.Session() as session:
        session.run(assign.op, {p: given})
        session.run(add.op)
        assert (given.min(), given.max()) == (7.0, 7.0)
        given[:] = -1.0
        assert session.run(x).tolist() == [8.0] * 1000


def test_initializing_again_gives_the_initial_value_after_updates_in_place():
    x = tf.Variable(np.zeros(1000, np.float32))
    large = tf.Variable(np.zeros(100_000, np.float32))
    with tf.Session() as session:
        for _ in range(2):
            session.run(tf.global_variables_initializer())
            assert session.run(x).max() == session.run(large).max() == 0.0
            session.run([x.assign_add(np.ones(1000, np.float32)).op, large.assign_add(1.0).op])


@pytest.mark.parametrize("device", ["/device:CPU:0", "/device:CPU:2"])
def test_an_update_stays_at_the_same_address(device):
    with tf.device(device):
        x = tf.Variable(np.zeros(10_000, np.float32))
        add = x.assign_add(np.ones(10_000, np.float32))
        scale = x.assign(x * 0.5 + 1)
    with tf.Session() as session:
        session.run(x.initializer)
        before = _address(session, x)
        for step in (add.op, scale.op, add.op, add.op):
            session.run(step)
            assert _address(session, x) == before


def test_an_update_stays_at_the_same_address_after_fetches_and_reads():
    x = tf.Variable(np.zeros(10_000, np.float32))
    add = x.assign_add(np.ones(10_000, np.float32))
    with tf.device("/device:CPU:1"):
        elsewhere = tf.numpy.sum(x)
    with tf.Session() as session:
        session.run(x.initializer)
        before = _address(session, x)
        fetched = [session.run(x), session.run(x * 2), session.run(elsewhere), session.run([x, x])]
        session.run(add.op)
        assert _address(session, x) == before
        assert fetched[0].max() == 0.0


def test_rows_that_an_earlier_program_of_the_step_has_read_are_updated_in_place():
    table, ids = tf.Variable(np.zeros((10_000, 4), np.float32)), np.array([3, 5], np.int32)
    with tf.device("/device:CPU:0"):
        rows = tf.numpy.take(table, ids, axis=0)
    with tf.device("/device:CPU:1"):
        slopes = rows + 1.0
    update = tf.scatter_add(table, ids, slopes)
    with tf.Session() as session:
        session.run(table.initializer)
        before = _address(session, table)
        for _ in range(3):
            session.run(update.op)
            assert _address(session, table) == before
        assert session.run(table)[ids].tolist() == [[7.0] * 4] * 2


def test_a_step_that_needs_the_old_value_beside_the_new_one_may_move_it_only_then():
    x = tf.Variable(np.zeros(10_000, np.float32))
    old = x.read_value()
    with tf.control_dependencies([old]):
        new = x.assign_add(np.ones(10_000, np.float32))
    with tf.Session() as session:
        session.run(x.initializer)
        both = session.run([old, new])
        assert [array.max() for array in both] == [0.0, 1.0]
        before = _address(session, x)
        session.run(new.op)
        assert _address(session, x) == before


# Threads


def test_updates_of_a_hundred_threads_count_exactly():
    x = tf.Variable(0, name="x")
    add = x.assign_add(1)
    with tf.Session() as session:
        session.run(x.initializer)

        def work(_):
            for _ in range(5):
                session.run(add.op)

        _in_threads(100, work)
        assert session.run(x) == 500


def test_each_of_many_updates_gives_a_value_of_its_own():
    x = tf.Variable(0, name="x")
    add = x.assign_add(1)
    found = []
    with tf.Session() as session:
        session.run(x.initializer)
        _in_threads(20, lambda _: found.extend(int(session.run(add)) for _ in range(10)))
    assert sorted(found) == list(range(1, 201))


def test_updates_count_exactly_while_others_fetch_the_variable():
    x = tf.Variable(np.zeros(512, np.float32))
    add = x.assign_add(np.ones(512, np.float32))
    torn = []
    with tf.device("/device:CPU:1"):
        elsewhere = tf.identity(x)
    with tf.Session() as session:
        session.run(x.initializer)

        def work(number):
            for _ in range(10):
                if number % 4:
                    session.run(add.op)
                else:
                    for value in session.run([x, elsewhere] if number % 8 else [x, add]):
                        if value.min() != value.max():
                            torn.append(value)

        _in_threads(40, work)
        adding = sum(1 for number in range(40) if number % 4 or not number % 8)
        assert session.run(x).tolist() == [adding * 10] * 512
    assert not torn


def test_a_read_and_an_update_of_one_step_are_a_moment_of_their_own():
    x = tf.Variable(np.zeros(256, np.float32))
    old = x.read_value()
    with tf.control_dependencies([old]):
        new = x.assign_add(np.ones(256, np.float32))
    found = []
    with tf.Session() as session:
        session.run(x.initializer)

        def work(_):
            for _ in range(10):
                before, after = session.run([old, new])
                found.append((set(before.tolist()), set(after.tolist())))

        _in_threads(12, work)
    assert sorted(after.pop() for _, after in found) == list(range(1, 121))
    assert all(len(before) == 1 for before, _ in found)


def test_sessions_of_many_threads_do_not_disturb_each_other():
    x = tf.Variable(0.0)
    add = x.assign_add(1.0)

    def work(number):
        session = tf.Session(graph=x.graph)
        session.run(x.initializer)
        for i in range(number + 1):
            assert session.run(add) == i + 1

    _in_threads(8, work)

import threading

import jax
import numpy as np

from jflow.plan import VariableKey, VariableSpec
from jflow.state.resources import Buffer, VariableState

SPEC = VariableSpec(VariableKey("", "x"), "float32", (3,))


def _variable():
    return VariableState(SPEC, Buffer(jax.numpy.zeros(3)))


def test_a_value_without_a_lease_is_donated_itself():
    variable = _variable()
    assert variable.donate() is variable.buffer.array


def test_a_value_with_a_lease_is_given_away_as_a_copy():
    variable = _variable()
    lease = variable.lease()
    given = variable.donate()
    assert given is not variable.buffer.array
    given.delete()
    np.testing.assert_array_equal(lease.buffer.array, np.zeros(3))


def test_after_the_last_lease_the_value_itself_is_given_away_again():
    variable = _variable()
    first, second = variable.lease(), variable.lease()
    first.release()
    assert variable.donate() is not variable.buffer.array
    second.release()
    assert variable.donate() is variable.buffer.array


def test_releasing_a_lease_again_does_not_end_another_one():
    variable = _variable()
    first, _ = variable.lease(), variable.lease()
    first.release()
    first.release()
    assert variable.donate() is not variable.buffer.array


def test_a_lease_is_on_a_value_not_on_what_replaces_it():
    variable = _variable()
    lease = variable.lease()
    variable.buffer = Buffer(jax.numpy.ones(3))
    assert variable.donate() is variable.buffer.array
    np.testing.assert_array_equal(lease.buffer.array, np.zeros(3))
    lease.release()
    np.testing.assert_array_equal(variable.buffer.array, np.ones(3))


def test_leases_may_end_on_any_thread_while_others_begin():
    variable = _variable()
    together = threading.Barrier(8)

    def work():
        together.wait()
        for _ in range(500):
            variable.lease().release()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert variable.donate() is variable.buffer.array

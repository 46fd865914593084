"""Results of functions that are received into memory which earlier ones have had."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import jflow as tf
from jflow.testing import wait_until

SIZE = 1 << 20
"""Items of a result that is large enough to be received into memory that is used again."""


@pytest.mark.parametrize("backend", ["processes"], indirect=True)
def test_a_result_that_was_dropped_gives_its_memory_to_the_next(connection):
    ones = tf.Variable(lambda: jnp.ones(SIZE), name="ones")

    @tf.function
    def read():
        return ones.value()

    addresses = []

    def have_one_address():
        addresses.append(read().unsafe_buffer_pointer())
        return len(addresses) >= 4 and len(set(addresses[-4:])) == 1

    wait_until(have_one_address, "four results in a row at one address")


@pytest.mark.parametrize("backend", ["processes"], indirect=True)
def test_a_result_that_is_kept_is_never_overwritten(connection):
    counts = tf.Variable(lambda: jnp.zeros(SIZE), name="counts")

    @tf.function
    def count():
        counts.assign_add(jnp.ones(SIZE))
        return counts.value()

    kept = [count() for _ in range(8)]
    assert [(float(result.min()), float(result.max())) for result in kept] == [
        (n, n) for n in range(1, 9)
    ]

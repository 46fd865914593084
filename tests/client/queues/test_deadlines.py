"""The error of a step that waits for a queue until its deadline."""

from __future__ import annotations

import pytest

import jflow as tf
from tests.clusters import Backend


@pytest.mark.parametrize("where", [0, 1])
def test_a_step_that_waits_in_vain_names_the_operation_its_line_and_the_queue(
    backend: Backend, where: int
) -> None:
    with tf.device(backend.devices[where]):
        queue = tf.FIFOQueue(10, tf.int32, (), name="jobs")
        taken = queue.dequeue(name="take")
    with tf.device(backend.devices[0]):
        later = taken + 1
    # Long enough that the step is registered and waits by then, on a busy machine too.
    options = tf.RunOptions(timeout_in_ms=2_000)
    with backend.session() as session:
        session.run(queue.enqueue(1))
        assert session.run(later) == 2
        with pytest.raises(tf.errors.DeadlineExceededError) as caught:
            session.run(later, options=options)
    assert caught.value.op == "take"
    assert "waited to dequeue an element from FIFOQueue 'jobs'" in caught.value.message
    assert f"'take' was made at {__file__}:" in caught.value.message

"""What waits for elements that the same step puts into a queue."""

from __future__ import annotations

import numpy as np
import pytest

import jflow as tf
from jflow.compiler.placement.elements import awaited_elements
from jflow.compiler.schedule import scheduled, simulate
from jflow.compiler.schedule.strategies import STRATEGIES
from jflow.lab.workloads import WORKLOADS
from jflow.lab.workloads.workload import problem_of


@pytest.fixture
def queue():
    with tf.Graph().as_default():
        yield tf.FIFOQueue(10, tf.float32, [()])


def awaited() -> dict[str, list[str]]:
    """The names of those that wait, by the operations that they wait for."""
    found = awaited_elements(tf.get_default_graph().get_operations())
    return {put.name: [each.name for each in taking] for put, taking in found.items()}


def test_a_dequeue_waits_for_the_element_that_it_takes(queue) -> None:
    queue.enqueue(1.0, name="first")
    queue.dequeue(name="one")
    queue.enqueue(2.0, name="second")
    queue.dequeue(name="other")
    assert awaited() == {"first": ["one"], "second": ["other"]}


def test_a_batch_waits_for_all_of_its_elements_and_no_others(queue) -> None:
    queue.enqueue_many(np.ones(3, np.float32), name="three")
    for number in range(3):
        queue.enqueue(1.0, name=f"put_{number}")
    queue.dequeue_many(2, name="two")
    queue.dequeue_many(3, name="batch")
    assert awaited() == {"three": ["two", "batch"], "put_0": ["batch"], "put_1": ["batch"]}


def test_what_is_put_after_an_element_was_taken_cannot_be_it(queue) -> None:
    taken = queue.dequeue(name="take")
    queue.enqueue(taken * 2.0, name="back")
    with tf.control_dependencies([taken]):
        queue.enqueue(1.0, name="next")
    assert awaited() == {}


def test_elements_of_two_queues_make_no_cycle(queue) -> None:
    other = tf.FIFOQueue(10, tf.float32, [()])
    queue.enqueue(other.dequeue(name="of_other"), name="into_queue")
    other.enqueue(queue.dequeue(name="of_queue"), name="into_other")
    assert awaited() == {"into_other": ["of_other"]}  # the first that is taken


def test_a_queue_that_a_step_only_fills_or_empties_holds_nothing_up(queue) -> None:
    queue.enqueue(1.0)
    tf.FIFOQueue(10, tf.float32, [()]).dequeue()
    assert awaited() == {}


def test_the_learner_is_predicted_to_wait_for_its_actors() -> None:
    problem = problem_of(WORKLOADS["actor_learner"].build("small"), 2)
    names = [op.name for op in problem.graph.operations]
    (take,) = (i for i, name in enumerate(names) if "DequeueMany" in name)
    puts = [i for i, name in enumerate(names) if name.endswith("_enqueue")]
    assert len(puts) == 2
    for strategy in ("single", "heft", "random"):
        timeline = simulate(problem, scheduled(problem, STRATEGIES[strategy]))
        assert timeline.start[take] >= max(timeline.finish[put] for put in puts)

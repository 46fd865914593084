"""Compiled steps as problems of their programs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import jflow as tf
from jflow.base.cluster import Device, Task, Wiring
from jflow.compiler.pipeline import StepRequest, compile_placed, prune_step, region_problem
from jflow.compiler.placement.calibration import PRIOR, Link
from jflow.compiler.schedule import predicted_seconds, simulate
from jflow.errors import InvalidArgumentError

WORKER, PS = (Device(Task(job, 0), "CPU", 0) for job in ("worker", "ps"))
CPU = PRIOR.rates["CPU"]
LINK = Link(latency=1e-3, bandwidth=1e6)
CALIBRATION = replace(
    PRIOR, links={"grpc/host": LINK}, step_seconds={"grpc": 0.5}, task_seconds={"grpc": 0.25}
)


def compiled(graph: tf.Graph, *fetched, platforms=None):
    """A step with its operations where they ask to be, the worker if they do not."""
    request = StepRequest((), fetched, ())
    ops = prune_step(graph, request)
    placement = {op: PS if "ps" in op.device else WORKER for op in ops}
    return compile_placed(request, placement, platforms)


def round_trip(platforms=None):
    """1,000 numbers of a variable on the parameter server, doubled on the worker, summed there."""
    with tf.Graph().as_default() as graph:
        with tf.device("/job:ps/task:0"):
            values = tf.Variable(np.ones(1000, np.float32)).value()
        with tf.device("/job:worker/task:0"):
            doubled = values * 2.0
        with tf.device("/job:ps/task:0"):
            total = tf.numpy.sum(doubled)
        return compiled(graph, total, platforms=platforms)


def test_a_step_is_its_programs_and_what_is_sent_between_them() -> None:
    problem, schedule = region_problem(round_trip(), CALIBRATION)
    timeline = simulate(problem, schedule)
    sizes = [problem.graph.edges[each.edge].n_bytes for each in timeline.transfers]
    assert sizes == [4000.0, 4000.0]
    regions = problem.graph.operations
    assert [(region.device, bool(region.program)) for region in regions] == [
        (PS, False),  # the variable is sent from where it is
        (WORKER, True),
        (PS, True),
    ]
    assert problem.costs.step_seconds == 0.5
    further = predicted_seconds(problem, schedule) - timeline.makespan
    assert further == pytest.approx(0.25)  # two tasks


def test_the_predicted_time_is_that_of_dispatches_programs_and_transfers() -> None:
    problem, schedule = region_problem(round_trip(), CALIBRATION)
    bytes_touched = 4 * (1000 + 1000) + 4 * (1000 + 1)
    programs = bytes_touched / CPU.near_bandwidth + 2000 / CPU.elements + CPU.kernel + CPU.reduction
    transfers = 2 * (LINK.latency + 4000 / LINK.bandwidth)
    assert simulate(problem, schedule).makespan == pytest.approx(
        CPU.call + 2 * CPU.dispatch + programs + transfers
    )


def test_what_messages_take_of_processors_is_in_the_prediction() -> None:
    busy = replace(LINK, overhead=2e-4, processor_share=0.5)
    calibration = replace(CALIBRATION, links={"grpc/host": busy})
    free, apart = (
        region_problem(round_trip(), CALIBRATION),
        region_problem(round_trip(), calibration),
    )
    # Nothing computes meanwhile that could be delayed, so only the bounds of overlap differ.
    assert predicted_seconds(*apart) == pytest.approx(predicted_seconds(*free))
    assert apart[0].costs.overhead is not None
    assert apart[0].costs.overhead.tolist() == [[0.0, 2e-4], [2e-4, 0.0]]


def test_measured_programs_replace_their_estimates() -> None:
    step = round_trip()
    problem, schedule = region_problem(step, CALIBRATION)
    before = simulate(problem, schedule).makespan
    name = next(region.program for region in problem.graph.operations if region.program)
    estimate = problem.costs.seconds[1, 1] - CPU.dispatch
    problem, schedule = region_problem(step, CALIBRATION, measured={name: 0.25})
    after = simulate(problem, schedule).makespan
    assert after - before == pytest.approx(0.25 - estimate, rel=1e-6)


def test_operations_that_stay_together_are_one_region() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.Variable(np.ones((64, 64), np.float32)).value()
        for _ in range(10):
            x = tf.numpy.tanh(x @ x)
        step = compiled(graph, tf.numpy.sum(x))
    problem, schedule = region_problem(step)
    assert len(problem.graph) == 1
    assert not simulate(problem, schedule).transfers


@pytest.mark.parametrize(("n_late", "is_sent_first"), [(1, False), (20, True)])
def test_what_is_sent_does_not_wait_for_what_takes_long_beside_it(n_late, is_sent_first) -> None:
    with tf.Graph().as_default() as graph:
        x = tf.Variable(np.ones((256, 256), np.float32)).value()
        early = x + 1.0
        late = x
        for _ in range(n_late):
            late = late @ x
        with tf.device("/job:ps/task:0"):
            away = tf.numpy.sum(early)
        step = compiled(graph, tf.numpy.sum(late), away)
    problem, schedule = region_problem(step, CALIBRATION)
    timeline = simulate(problem, schedule)
    (transfer,) = timeline.transfers
    assert transfer.start == pytest.approx(timeline.finish[0])
    product = 2 * 256**3 / CPU.flops
    assert (transfer.start < product) == is_sent_first


def test_calls_of_the_host_separate_regions() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.Variable(np.ones((), np.float32)).value()
        text = tf.as_string(x + 1.0)
        step = compiled(graph, tf.string_to_number(text) * 2.0)
    problem, schedule = region_problem(step)
    assert [bool(region.program) for region in problem.graph.operations] == [
        True,
        False,
        False,
        True,
    ]
    timeline = simulate(problem, schedule)
    assert list(timeline.start) == sorted(timeline.start)
    assert timeline.start[3] >= timeline.finish[2] >= timeline.finish[1]


def test_what_takes_an_element_waits_for_what_puts_it_there() -> None:
    with tf.Graph().as_default() as graph:
        queue = tf.FIFOQueue(10, tf.float32, [(64,)])
        taken = queue.dequeue(name="take")  # stands before what it waits for
        with tf.device("/job:ps/task:0"):
            made = tf.Variable(np.ones(64, np.float32)).value() * 2.0
        with tf.control_dependencies([queue.enqueue(made, name="put")]):
            done = tf.constant(0.0) + 1.0
        step = compiled(graph, tf.numpy.sum(taken), done)
    problem, schedule = region_problem(step, CALIBRATION)
    timeline = simulate(problem, schedule)
    number = {region.name: region.number for region in problem.graph.operations}
    assert timeline.start[number["take"]] >= timeline.finish[number["put"]] > LINK.latency


def test_links_follow_the_wiring() -> None:
    wiring = Wiring("grpc", {WORKER.task: "a", PS.task: "b"})
    slow = replace(CALIBRATION, links={"grpc/network": Link(latency=1.0, bandwidth=1e9)})
    problem, schedule = region_problem(round_trip(), slow, wiring)
    assert simulate(problem, schedule).makespan > 2.0


def test_a_step_that_was_compiled_for_a_cluster_is_refused() -> None:
    exported = round_trip({WORKER: "cpu", PS: "cpu"})
    with pytest.raises(InvalidArgumentError, match="compile it without platforms"):
        region_problem(exported)

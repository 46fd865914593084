"""Costs from counts and calibrations."""

from __future__ import annotations

from dataclasses import replace

import jax
import pytest

import jflow as tf
from jflow.base.cluster import Device, Task, Wiring
from jflow.compiler.placement import Inventory
from jflow.compiler.placement.calibration import PRIOR, Link
from jflow.compiler.placement.costs import estimated
from jflow.compiler.placement.equations import size_of
from jflow.compiler.placement.place import assign
from jflow.compiler.placement.scheduled import ScheduledAssignment
from jflow.compiler.schedule.strategies import STRATEGIES

ONE, TWO = Task("worker", 0), Task("worker", 1)
DEVICES = [Device(ONE, "CPU", 0), Device(ONE, "GPU", 0), Device(TWO, "CPU", 0)]
CPU = PRIOR.rates["CPU"]


def product_and_sum():
    """The operations of a large product and of a sum of its result."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, (500, 500))
        y = x @ x
        z = tf.numpy.sum(y)
        return graph.get_operations(), y.op, z.op


def test_tensors_of_any_kind_have_a_size() -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, (None, 3))
        assert size_of(x.aval) == 32 * 3 * 4
        assert size_of(tf.constant(["a", "b"]).aval) == 2 * 64
        assert size_of(tf.constant(jax.random.key(0)).aval) > 0
        assert size_of(tf.placeholder(tf.float32).aval) > 0


def test_devices_of_a_task_are_nearer_than_those_of_another() -> None:
    ops, _, _ = product_and_sum()
    costs = estimated(ops, DEVICES)
    near, far = PRIOR.links["process"], PRIOR.links["host"]
    gpu = PRIOR.rates["GPU"].dispatch
    assert costs.transfer(6e6, 0, 1) == pytest.approx(near.latency + gpu + 6e6 / near.bandwidth)
    assert costs.transfer(6e6, 0, 2) == pytest.approx(
        far.latency + CPU.dispatch + 6e6 / far.bandwidth
    )
    assert costs.transfer(6e6, 1, 1) == 0
    slowest = costs.seconds.max(axis=0)
    assert slowest[1] < slowest[0] / 10
    assert slowest[0] == slowest[2]


def test_links_are_those_of_the_addresses_of_the_tasks() -> None:
    slow = Link(latency=1.0, bandwidth=1.0)
    calibration = replace(PRIOR, links={"grpc/network": slow})
    ops, _, _ = product_and_sum()
    here = estimated(ops, DEVICES, calibration, Wiring("grpc", {ONE: "a", TWO: "a"}))
    apart = estimated(ops, DEVICES, calibration, Wiring("grpc", {ONE: "a", TWO: "b"}))
    assert here.transfer(10.0, 0, 2) < 0.01
    assert apart.transfer(10.0, 0, 2) == pytest.approx(11.0 + CPU.dispatch)


def test_another_transport_only_needs_a_calibration_of_its_links() -> None:
    calibration = replace(PRIOR, links={"ring/host": Link(latency=0.5, bandwidth=1e9)})
    ops, _, _ = product_and_sum()
    costs = estimated(ops, DEVICES, calibration, Wiring("ring"))
    assert costs.latency[0, 2] == pytest.approx(0.5 + CPU.dispatch)


def test_a_calibration_decides_what_operations_take() -> None:
    ops, y, z = product_and_sum()
    halved = replace(PRIOR, rates={"CPU": replace(CPU, flops=CPU.flops / 2)})
    before, after = estimated(ops, DEVICES), estimated(ops, DEVICES, halved)
    product, total = ops.index(y), ops.index(z)
    assert after.seconds[product, 0] == pytest.approx(2 * before.seconds[product, 0], rel=0.1)
    assert after.seconds[total, 0] == before.seconds[total, 0]
    assert after.seconds[product, 1] == before.seconds[product, 1]


def test_the_share_of_ports_and_the_step_are_those_of_the_calibration() -> None:
    ops, _, _ = product_and_sum()
    calibration = replace(PRIOR, port_share=0.25, step_seconds={"grpc": 0.125})
    costs = estimated(ops, DEVICES, calibration)
    assert costs.port_share == 0.25
    assert costs.step_seconds == 0.125


def test_messages_take_processors_that_compute_and_tasks_add_to_a_step() -> None:
    ops, _, _ = product_and_sum()
    link = Link(latency=1e-3, bandwidth=1e9, overhead=1e-4, processor_share=0.5)
    calibration = replace(PRIOR, links={"grpc/host": link}, task_seconds={"grpc": 0.25})
    devices = [*DEVICES, Device(Task("worker", 2), "CPU", 0)]
    costs = estimated(ops, devices, calibration, Wiring("grpc", {}, TWO))
    assert costs.overhead is not None
    assert costs.processor_share is not None
    assert costs.overhead[0].tolist() == [0.0, 0.0, 1e-4, 1e-4]
    assert costs.overhead[1].tolist() == [0.0] * 4, "an accelerator computes meanwhile"
    assert costs.processor_share[2].tolist() == [0.5, 0.0, 0.0, 0.5]
    assert costs.tasks == (1, 1, 0, 2), "0 is that of the master"
    assert costs.tasks_seconds([2]) == 0.0
    assert costs.tasks_seconds([0, 1, 2, 3]) == 0.5


def test_a_problem_sends_nothing_to_a_group() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, (2,))
        sums = [x + float(i) for i in range(2)]
        with tf.control_dependencies([tf.group(*sums)]):
            last = x * 2.0
        found = graph.get_operations()
    rules = assign(found, Inventory(ONE, (ONE,)))
    assignment = ScheduledAssignment(STRATEGIES["single"], rules, (ONE,))
    problem = assignment.problem({ONE: [DEVICES[0]]})
    named = {
        (problem.graph.operations[edge.producer], problem.graph.operations[consumer])
        for edge in problem.graph.edges
        for consumer in edge.consumers
    }
    assert {(one.op, last.op) for one in sums} <= named
    assert not any(other.type == "group" for _, other in named)

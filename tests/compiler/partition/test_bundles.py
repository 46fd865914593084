"""Bundles: what one program makes for one other device is sent as one array, if it is small."""

from __future__ import annotations

import numpy as np
import pytest

import jflow as tf
from jflow.base.cluster import Device, Task
from jflow.compiler.graph import Tensor
from jflow.compiler.graph.bundle import SMALL_BYTES, Bundle
from jflow.compiler.partition import Partition, partition, prune
from jflow.compiler.partition.bundles import MIN_VARIABLES
from jflow.plan import Recv, Run, Send

HERE, THERE, ELSEWHERE = (Device(Task(job, 0), "CPU", 0) for job in ("ps", "worker", "other"))
JOBS = {"/job:worker": THERE, "/job:other": ELSEWHERE}


def _cut(*fetched: Tensor, **options: object) -> Partition:
    """A step with its operations where they ask to be, `HERE` if they do not."""
    ops = prune(tf.get_default_graph(), [], fetched, set())
    placement = {op: JOBS.get(op.device.partition("/task")[0], HERE) for op in ops}
    return partition(ops, placement, [], fetched, **options)  # type: ignore[arg-type]


def _made(n: int, shape: tuple[int, ...] = (), dtype: object = tf.float32) -> list[Tensor]:
    """Results of one program."""
    source = tf.constant(np.ones(shape, np.float32))
    return [tf.cast(tf.numpy.sin(source + number), dtype) for number in range(n)]


def _used(values: list[Tensor], device: str = "/job:worker/task:0") -> Tensor:
    """Something that another device computes of values."""
    with tf.device(device):
        total = tf.numpy.sum(tf.cast(values[0], tf.float32))
        for value in values[1:]:
            total = total + tf.numpy.sum(tf.cast(value, tf.float32))
        return total


def _of(cut: Partition, device: Device, kind: type) -> list[object]:
    (plan,) = (plan for plan in cut.plans if plan.device == device)
    return [one for one in plan.instructions if isinstance(one, kind)]


def _sizes(cut: Partition) -> list[int]:
    """How many tensors each edge brings."""
    return [len(one.tensors) if isinstance(one, Bundle) else 1 for one in cut.edges]


def test_small_results_of_one_program_are_one_result_one_send_and_one_argument() -> None:
    cut = _cut(_used(_made(3)))
    assert _sizes(cut) == [3]
    (run,), (send,) = _of(cut, HERE, Run), _of(cut, HERE, Send)
    assert isinstance(run, Run)
    assert isinstance(send, Send)
    assert run.outputs == (send.slot,)
    (taken,), (received,) = _of(cut, THERE, Run), _of(cut, THERE, Recv)
    assert isinstance(taken, Run)
    assert isinstance(received, Recv)
    assert taken.inputs == (received.slot,)
    assert cut.edges[0].name == "sin:0 and 2 more"


def test_each_dtype_has_a_bundle_of_its_own() -> None:
    values = [*_made(2), *_made(3, dtype=tf.int32)]
    assert sorted(_sizes(_cut(_used(values)))) == [2, 3]


def test_results_of_two_programs_do_not_wait_for_each_other() -> None:
    values = _made(2)
    assert _sizes(_cut(_used(values), max_segment_ops=1)) == [1, 1]


@pytest.mark.parametrize(
    ("n", "sizes"), [(SMALL_BYTES // 4, [2]), (SMALL_BYTES // 4 + 1, [1, 1]), (0, [1, 1])]
)
def test_what_is_not_small_is_sent_as_it_is(n: int, sizes: list[int]) -> None:
    assert _sizes(_cut(_used(_made(2, (n,))))) == sizes


def test_random_keys_are_sent_as_they_are() -> None:
    keys = [tf.random.fold_in(tf.random.key(0), number) for number in range(2)]
    with tf.device("/job:worker/task:0"):
        numbers = [tf.random.uniform(key, ()) for key in keys]
        total = numbers[0] + numbers[1]
    assert set(_sizes(_cut(total))) == {1}


def test_what_the_host_takes_there_is_sent_as_it_is() -> None:
    values = _made(3)
    with tf.device("/job:worker/task:0"):
        text = tf.as_string(values[0])
    assert sorted(_sizes(_cut(_used(values), text))) == [1, 2]


def test_unknown_sizes_are_sent_as_they_are() -> None:
    x = tf.placeholder(tf.float32, (None,))
    values = [tf.numpy.sin(x), tf.numpy.cos(x)]
    total = _used(values)
    ops = prune(tf.get_default_graph(), [], [total], {x})
    placement = {op: JOBS.get(op.device.partition("/task")[0], HERE) for op in ops}
    assert _sizes(partition(ops, placement, [x], [total])) == [1, 1]


def test_what_is_fetched_too_is_a_result_of_its_own_beside_the_bundle() -> None:
    values = _made(3)
    cut = _cut(_used(values), values[1])
    (run,) = _of(cut, HERE, Run)
    assert isinstance(run, Run)
    assert len(run.outputs) == 2
    assert _sizes(cut) == [3]


def test_devices_that_take_the_same_values_take_the_same_bundle() -> None:
    values = _made(3)
    cut = _cut(_used(values), _used(values[::-1], "/job:other/task:0"))
    (run,), sends = _of(cut, HERE, Run), _of(cut, HERE, Send)
    assert isinstance(run, Run)
    assert len(run.outputs) == 1
    assert [(one.slot, one.target) for one in sends if isinstance(one, Send)] == [
        (run.outputs[0], THERE),
        (run.outputs[0], ELSEWHERE),
    ]


@pytest.mark.parametrize(
    ("n", "sizes"), [(MIN_VARIABLES - 1, [1] * (MIN_VARIABLES - 1)), (MIN_VARIABLES, [16])]
)
def test_many_variables_are_bundled_and_few_are_sent_from_their_own_memory(
    n: int, sizes: list[int]
) -> None:
    values = [tf.Variable(float(number)).value() for number in range(n)]
    cut = _cut(_used(values))
    assert _sizes(cut) == sizes
    programs = [one for one in _of(cut, HERE, Run) if isinstance(one, Run) and one.program]
    assert len(programs) == (len(sizes) == 1)


def test_nothing_is_bundled_where_each_result_is_checked_for_nan() -> None:
    assert _sizes(_cut(_used(_made(3)), checks_nans=True)) == [1, 1, 1]

"""Steps on meshes are priced by what each device computes, and by what the devices send."""

from __future__ import annotations

from dataclasses import replace

import jax.extend.core as jex
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jflow as tf
from jflow.base.cluster import Device
from jflow.compiler.graph.primitives import is_on_host
from jflow.compiler.pipeline import StepRequest, compile_placed, region_problem
from jflow.compiler.placement.calibration import PRIOR
from jflow.compiler.placement.costs import estimated
from jflow.compiler.placement.equations import Count
from jflow.compiler.placement.mesh_work import count_program_on_mesh, on_mesh
from jflow.compiler.placement.work import count_operations
from jflow.plan import Run

N = 256
MESH = Device.parse("/job:localhost/task:0/device:MESH:0[x=2,y=2]")
CPUS = [Device(MESH.task, "CPU", i) for i in range(4)]
GPUS = [Device(MESH.task, "GPU", i) for i in range(4)]
CPU = PRIOR.rates["CPU"]


def layers(first=None, second=None):
    """The operations of two layers and their gradients, on a mesh, and the updates."""
    with tf.Graph().as_default() as graph, tf.device(str(MESH)):
        w = tf.Variable(np.ones((N, N), np.float32), name="w", sharding=first)
        v = tf.Variable(np.ones((N, N), np.float32), name="v", sharding=second)
        x = tf.placeholder(tf.float32, (N, N))
        loss = tf.numpy.sum(tf.numpy.tanh(x @ w) @ v)
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    ops = [op for op in graph.get_operations() if "Initializer" not in op.name]
    return ops, train, loss, x


def total(ops, kind):
    """The counts of all operations of a kind on the mesh, and on one device."""
    alone = count_operations(ops)
    together = on_mesh(alone, ops, MESH.axes, set(ops))
    rows = [i for i, op in enumerate(ops) if op.type == kind]
    return together[rows].sum(axis=0), alone[rows].sum(axis=0)


def test_what_is_divided_counts_once_and_what_is_not_for_each_device() -> None:
    divided, alone = total(layers(P(None, ("x", "y")), P(("x", "y"), None))[0], "dot_general")
    assert alone[Count.FLOPS] > 0
    assert divided[Count.FLOPS] == pytest.approx(alone[Count.FLOPS])
    by_two, _ = total(layers(P(None, "x"), P("x", None))[0], "dot_general")
    assert by_two[Count.FLOPS] == pytest.approx(2 * alone[Count.FLOPS])
    whole, _ = total(layers(P(), P())[0], "dot_general")
    assert whole[Count.FLOPS] == pytest.approx(4 * alone[Count.FLOPS])
    assert whole[Count.MESSAGES] == 0


def test_the_sum_of_a_divided_dimension_is_sent() -> None:
    found, _ = total(layers(P(None, ("x", "y")), P(("x", "y"), None))[0], "dot_general")
    # Each of four devices sends 2 (n - 1) / n times the result of the second layer.
    assert found[Count.SENT_BYTES] == pytest.approx(4 * 2 * 3 / 4 * N * N * 4)
    assert found[Count.MESSAGES] == 2 * 3


def test_each_update_is_divided_as_its_variable() -> None:
    with tf.Graph().as_default() as graph, tf.device(str(MESH)):
        for spec in (P(None, ("x", "y")), P("x"), P()):
            v = tf.Variable(np.ones((N, N), np.float32), sharding=spec)
            v.assign(tf.numpy.tanh(v))
    ops = graph.get_operations()
    alone = count_operations(ops)
    together = on_mesh(alone, ops, MESH.axes, set(ops))
    rows = [i for i, op in enumerate(ops) if op.type == "tanh"]
    kind = Count.TRANSCENDENTALS
    assert together[rows, kind] / alone[rows, kind] == pytest.approx([1, 2, 4])


def test_other_operations_keep_their_counts() -> None:
    ops, *_ = layers(P(None, "x"), P("x", None))
    alone = count_operations(ops)
    products = {op for op in ops if op.type == "dot_general"}
    together = on_mesh(alone, ops, MESH.axes, products)
    others = [i for i, op in enumerate(ops) if op not in products]
    assert np.array_equal(together[others], alone[others])
    assert np.array_equal(on_mesh(alone, ops, MESH.axes, set()), alone)


def test_cpu_devices_share_processors_and_accelerators_have_their_own() -> None:
    ops, *_ = layers(P(None, ("x", "y")), P(("x", "y"), None))
    products = [i for i, op in enumerate(ops) if op.type == "dot_general"]
    meshes = {MESH.axes: set(ops)}
    silent = {
        kind: replace(rates, message=0.0, sent_bandwidth=1e30, kernel=0.0)
        for kind, rates in PRIOR.rates.items()
    }
    calibration = replace(PRIOR, rates=silent)
    cpus = estimated(ops, [*CPUS, MESH], calibration, on_meshes=meshes).seconds[products]
    gpus = estimated(ops, [*GPUS, MESH], calibration, on_meshes=meshes).seconds[products]
    assert cpus[:, -1] == pytest.approx(cpus[:, 0], rel=0.05)
    assert gpus[:, -1] == pytest.approx(gpus[:, 0] / 4, rel=0.05)


def test_the_calibration_says_what_collectives_take() -> None:
    ops, *_ = layers(P(None, ("x", "y")), P(("x", "y"), None))
    meshes = {MESH.axes: set(ops)}

    def seconds(**rates):
        calibration = replace(PRIOR, rates={"CPU": replace(CPU, **rates)})
        return estimated(ops, [*CPUS, MESH], calibration, on_meshes=meshes).seconds

    slow, fast = seconds(message=1.0), seconds(message=0.0)
    n_messages = on_mesh(count_operations(ops), ops, MESH.axes, set(ops))[:, Count.MESSAGES].sum()
    assert (slow - fast)[:, -1].sum() == pytest.approx(n_messages)
    assert np.array_equal(slow[:, :-1], fast[:, :-1])
    few, many = seconds(sent_bandwidth=1e6), seconds(sent_bandwidth=1e9)
    assert few[:, -1].sum() > many[:, -1].sum() + 0.5


def test_a_program_on_a_mesh_is_priced_as_its_operations() -> None:
    ops, train, loss, x = layers(P(None, ("x", "y")), P(("x", "y"), None))
    request = StepRequest((train,), (loss,), (x,))
    needed = [op for op in ops if op.type not in ("variable", "placeholder", "initialize", "group")]
    placement = {op: MESH for op in needed if not is_on_host(op.eqn)}
    placement |= {op: MESH for op in ops if op.type in ("variable", "group")}
    compiled = compile_placed(request, {op: MESH for op in ops if op in placement})
    (program,) = compiled.programs.values()
    (plan,) = compiled.plans
    (run,) = (each for stage in plan.stages for each in stage if isinstance(each, Run))
    specs = [variable.sharding for variable in plan.variables]
    reads, writes = ([specs[i] for i in each] for each in (run.reads, run.writes))
    found = count_program_on_mesh(program, reads, writes)
    members = {*placement}
    by_operation = on_mesh(count_operations(ops), ops, MESH.axes, members).sum(axis=0)
    assert found[Count.FLOPS] == pytest.approx(by_operation[Count.FLOPS], rel=0.05)
    assert found[Count.SENT_BYTES] == pytest.approx(by_operation[Count.SENT_BYTES], rel=0.05)
    problem, _ = region_problem(compiled)
    wanted = float(found @ CPU.seconds_per_count) + CPU.mesh_dispatch
    assert problem.costs.seconds.sum() == pytest.approx(wanted)


def test_the_first_program_on_a_mesh_has_its_dispatch() -> None:
    with tf.Graph().as_default(), tf.device("/device:MESH:0[x=2,y=2]"):
        y = tf.constant(np.ones(4, np.float32)) + 1.0
        with tf.Session(config=tf.ConfigProto(placement="auto")) as session:
            predicted = session.explain(y).predicted_seconds
    assert predicted > CPU.mesh_dispatch


def test_unknown_sizes_are_taken_for_a_number_as_on_one_device() -> None:
    with tf.Graph().as_default() as graph, tf.device(str(MESH)):
        x = tf.placeholder(tf.float32, (None, N))
        v = tf.Variable(np.ones((N, N), np.float32), sharding=P(("x", "y"), None))
        _ = tf.numpy.tanh(x) @ v.value()
    ops = graph.get_operations()
    found, alone = total(ops, "dot_general")
    assert found[Count.FLOPS] == alone[Count.FLOPS]
    assert found[Count.SENT_BYTES] > 0


def test_what_jax_cannot_lower_is_left_to_where_the_step_is_compiled() -> None:
    unknown = jex.Primitive("unknown")
    unknown.def_abstract_eval(lambda x: x)
    with tf.Graph().as_default() as graph, tf.device(str(MESH)):
        _ = graph.apply(unknown.bind, (tf.constant(np.ones((N, N), np.float32)),))
    ops = graph.get_operations()
    alone = count_operations(ops)
    assert np.array_equal(on_mesh(alone, ops, MESH.axes, set(ops)), alone)


def test_explain_predicts_that_collectives_take_time() -> None:
    with tf.Graph().as_default(), tf.device("/device:MESH:0[x=2,y=2]"):
        w = tf.Variable(np.ones((N, N), np.float32), sharding=P(("x", "y"), None))
        y = w.value() @ w.value()
        session = tf.Session(config=tf.ConfigProto(placement="auto"))
        with session:
            sent = session.explain(tf.numpy.sum(y)).predicted_seconds
    with tf.Graph().as_default(), tf.device("/device:MESH:0[x=2,y=2]"):
        w = tf.Variable(np.ones((N, N), np.float32), sharding=P())
        x = tf.Variable(np.ones((N, N), np.float32), sharding=P(("x", "y"), None))
        y = x.value() @ w.value()
        with tf.Session(config=tf.ConfigProto(placement="auto")) as session:
            alone = session.explain(tf.numpy.sum(y)).predicted_seconds
    assert sent > alone

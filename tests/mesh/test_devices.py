"""A mesh is a device: its names, the tasks that offer it, and where it is refused."""

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jflow as tf
from jflow import errors
from jflow.base.cluster import Device, DeviceSpec, Task, mesh_of_all
from jflow.compiler.pipeline import StepRequest, compile_step
from jflow.compiler.placement import Inventory, Placer, strategy_of
from jflow.compiler.placement.scheduled import ByFunction
from jflow.compiler.schedule.strategies import STRATEGIES

SQUARE = {"data": 2, "model": 2}
X = np.arange(32, dtype=np.float32).reshape(8, 4)
AUTO = (AxisType.Auto,)
CPUS = [Device(Task("worker", 0), "CPU", i) for i in range(4)]


# Names ------------------------------------------------------------------------------------------


def test_the_name_of_a_mesh_has_its_axes():
    name = "/job:worker/task:0/device:MESH:1[data=2,model=2]"
    mesh = Device.parse(name)
    assert str(mesh) == str(DeviceSpec.parse(name)) == name
    assert mesh.axes == (("data", 2), ("model", 2))
    assert mesh.n_devices == 4
    assert str(DeviceSpec.parse("device:MESH[a=3]")) == "/device:MESH:*[a=3]"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/device:CPU:0[a=2]", "only a device of the type MESH has axes"),
        ("/device:MESH:0[a]", r"cannot read '\[a\]'"),
        ("/device:MESH:0[a=0]", r"cannot read '\[a=0\]'"),
        ("/device:MESH:0[]", r"cannot read '\[\]'"),
        ("/device:MESH:0[a=2,a=2]", "different names of axes"),
    ],
)
def test_a_name_with_axes_that_mean_nothing_is_refused(name, message):
    with pytest.raises(ValueError, match=message):
        DeviceSpec.parse(name)


def test_meshes_of_a_size_follow_each_other_and_accelerators_come_first():
    assert Device.parse("/job:worker/task:0/device:MESH:1[m=2]").members(CPUS) == CPUS[2:]
    assert not Device.parse("/job:worker/task:0/device:MESH:2[m=2]").members(CPUS)
    gpus = [Device(Task("worker", 0), "GPU", i) for i in range(2)]
    assert Device.parse("/job:worker/task:0/device:MESH:0[m=2]").members(CPUS + gpus) == gpus
    assert str(mesh_of_all(CPUS + gpus)) == "/job:worker/task:0/device:MESH:0[devices=2]"
    assert mesh_of_all([*gpus[:1], *CPUS[:1]]) is None


def test_a_request_inside_of_another_one_has_a_mesh_of_its_own():
    outer = DeviceSpec.parse("/job:a/device:CPU:2")
    mesh = outer.merge(DeviceSpec.parse("/device:MESH:*[m=2]"))
    assert str(mesh) == "/job:a/device:MESH:*[m=2]"
    assert str(mesh.merge(DeviceSpec.parse("/task:1"))) == "/job:a/task:1/device:MESH:*[m=2]"
    assert str(mesh.merge(DeviceSpec.parse("/gpu:1"))) == "/job:a/device:GPU:1"


def test_a_task_offers_the_mesh_of_all_its_devices_after_them():
    with tf.Session() as session:
        infos = session.list_devices()
    n = jax.local_device_count()
    assert [one.device_type for one in infos] == ["CPU"] * n + ["MESH"]
    assert infos[-1].name == f"/job:localhost/task:0/device:MESH:0[devices={n}]"
    assert infos[-1].memory_limit_bytes == sum(one.memory_limit_bytes for one in infos[:-1])


# Blocks -----------------------------------------------------------------------------------------


def placed(fetch, **options) -> set[str]:
    with tf.Session(config=tf.ConfigProto(**options)) as session:
        return {str(device).rpartition("/")[2] for device in session.placement(fetch).values()}


@pytest.mark.parametrize(
    "mesh",
    [
        SQUARE,
        AbstractMesh((2, 2), ("data", "model")),
        Mesh(np.array(jax.local_devices()[:4]).reshape(2, 2), ("data", "model")),
    ],
    ids=["sizes", "abstract", "concrete"],
)
def test_a_block_takes_a_mesh_by_its_shape_and_axes(mesh):
    with tf.device("/device:MESH:0", mesh=mesh):
        y = tf.numpy.sin(tf.constant(X))
    assert placed(y) == {"device:MESH:0[data=2,model=2]"}


def test_a_name_with_axes_means_the_same_as_a_mesh():
    @tf.function
    def constrained(x):
        with tf.device("/device:MESH:0[m=4]"):
            return jax.lax.with_sharding_constraint(x, P("m"))

    np.testing.assert_array_equal(constrained(X), X)


def test_a_block_inside_leaves_the_mesh_or_goes_to_another_task():
    seen = []
    with tf.device("/job:a/task:0", mesh=SQUARE):
        seen.append(jax.sharding.get_abstract_mesh().axis_names)
        with tf.device("/cpu:0"):
            seen.append(jax.sharding.get_abstract_mesh().axis_names)
        with tf.device("/task:1"):
            seen.append(jax.sharding.get_abstract_mesh().axis_names)
        with tf.device(None):
            seen.append(jax.sharding.get_abstract_mesh().axis_names)
        with tf.device(mesh={"m": 2}):
            seen.append(jax.sharding.get_abstract_mesh().axis_names)
    square = ("data", "model")
    assert seen == [square, (), square, (), ("m",)]
    assert jax.sharding.get_abstract_mesh().empty


@pytest.mark.parametrize("soft", [True, False])
def test_nothing_is_on_a_mesh_that_does_not_ask_for_one(soft):
    y = tf.numpy.sin(tf.Variable(X, name="x"))
    with tf.device("/device:CPU:7" if soft else ""):
        z = tf.numpy.cos(y)
    assert placed(z, allow_soft_placement=soft) == {"device:CPU:0"}


@pytest.mark.parametrize("name", ["auto", "heft", "round_robin", "etf_c"])
def test_no_strategy_chooses_a_mesh_and_each_keeps_one(name):
    with tf.device(mesh=SQUARE):
        y = tf.numpy.matmul(tf.constant(X), tf.constant(X.T))
    z = sum(tf.numpy.sin(y * i) for i in range(4))
    with tf.Session(config=tf.ConfigProto(placement=name)) as session:
        places = {op.name: str(device) for op, device in session.placement(z).items()}
        np.testing.assert_allclose(
            session.run(z), sum(np.sin(X @ X.T * i) for i in range(4)), rtol=1e-4, atol=1e-4
        )
    assert places.pop(y.op.name).endswith("MESH:0[data=2,model=2]")
    on_mesh = [op for op, device in places.items() if "MESH" in device]
    assert all(op.startswith("Const") for op in on_mesh)


def test_a_strategy_finds_the_task_that_has_an_open_mesh():
    """The first one of the job, which the rules would take, is too small."""
    small, large = Task("worker", 0), Task("worker", 1)
    devices = {
        task: tuple(Device(task, "CPU", i) for i in range(n))
        for task, n in ((small, 1), (large, 4))
    }
    with tf.Graph().as_default() as graph, tf.device("/job:worker", mesh={"m": 4}):
        y = tf.placeholder("float32", [4]) * 2
    inventory = Inventory(small, (small, large), devices)
    strategy = strategy_of("auto")
    placement = Placer(False, False, strategy).assign(graph.get_operations(), inventory)
    assert str(placement.place(devices)[y.op]) == "/job:worker/task:1/device:MESH:0[m=4]"


KB = 1024
MATRIX = (16, 16)  # of a kilobyte


@pytest.mark.parametrize(
    ("sharding", "limit", "fits"),
    [
        # Two shards of half a kilobyte each, and two kilobytes on the first device.
        (P("a"), 2.5 * KB, True),
        (P("a"), 2.4 * KB, False),
        # Each device has all of it.
        (P(), 3 * KB, True),
        (P(), 2.9 * KB, False),
    ],
)
def test_a_variable_counts_by_shard_beside_those_of_single_devices(sharding, limit, fits):
    task = Task("worker", 0)
    devices = {task: tuple(Device(task, "CPU", i) for i in range(2))}
    memory = dict.fromkeys(devices[task], limit)
    with tf.Graph().as_default():
        with tf.device("/job:worker/task:0", mesh={"a": 2}):
            mesh = tf.Variable(np.zeros(MATRIX, np.float32), sharding=sharding)
        with tf.device("/job:worker/task:0/cpu:0"):
            alone = [tf.Variable(np.zeros(MATRIX, np.float32)) for _ in range(2)]
        reads = [v.read_value() for v in (mesh, *alone)]
    assignment = Placer(False, False, strategy_of("heft")).assign(
        [read.op for read in reads], Inventory(task, (task,), devices)
    )
    if fits:
        placement = assignment.place(devices, memory)
        assert str(placement[reads[0].op]) == f"{task}/device:MESH:0[a=2]"
    else:
        with pytest.raises(errors.ResourceExhaustedError, match=r"CPU:0 can keep \d+ bytes"):
            assignment.place(devices, memory)


def test_free_state_goes_where_a_mesh_leaves_room():
    """The mesh takes two kilobytes of each device but the last."""
    task = Task("worker", 0)
    devices = {task: tuple(Device(task, "CPU", i) for i in range(3))}
    with tf.Graph().as_default() as graph:
        with tf.device("/job:worker/task:0", mesh={"a": 2}):
            mesh = tf.Variable(np.zeros((64, 16), np.float32), sharding=P("a"))
        with tf.device("/job:worker/task:0"):
            free = tf.Variable(np.zeros(MATRIX, np.float32))
        reads = [mesh.read_value(), free.read_value()]
    inventory = Inventory(task, (task,), devices)
    strategy = ByFunction(STRATEGIES["heft"], places_state=True)
    assignment = Placer(False, False, strategy).assign(graph.get_operations(), inventory)
    placement = assignment.place(devices, dict.fromkeys(devices[task], 2.5 * KB))
    assert str(placement[reads[1].op]) == f"{task}/device:CPU:2"


def test_an_explanation_prices_what_each_device_computes_again():
    with tf.device(mesh=SQUARE):
        y = tf.numpy.matmul(tf.constant(X), tf.constant(X.T))
    with tf.device("/cpu:0"):
        z = tf.numpy.matmul(tf.constant(X), tf.constant(X.T))
    with tf.Session() as session:
        explanation = session.explain([y, z])
    together, alone = (explanation.reason(one.op).seconds for one in (y, z))
    assert 0 < alone < together, "nothing is divided, and CPU devices share their processors"
    assert explanation.reason(y.op).why.startswith("asks for '/device:MESH:*[data=2,model=2]'")


# What is refused --------------------------------------------------------------------------------


def run(function, *args):
    return tf.function(function)(*args)


def test_a_mesh_larger_than_the_task_is_refused_with_both_sides():
    def large(x):
        with tf.device(mesh={"m": 64}):
            return x + 1

    with pytest.raises(errors.InvalidArgumentError) as caught:
        run(large, X)
    message = str(caught.value)
    assert "a mesh of 64 devices of one type" in message
    assert "device:CPU:3'" in message
    assert f"{__file__}:" in message


def test_soft_placement_does_not_replace_a_mesh():
    with tf.device(mesh={"m": 64}):
        y = tf.constant(X) + 1
    with (
        tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session,
        pytest.raises(errors.InvalidArgumentError, match="64 devices"),
    ):
        session.run(y)


def test_an_axis_that_the_mesh_lacks_is_refused_at_the_line():
    def wrong(x):
        with tf.device(mesh=SQUARE):
            return jax.lax.with_sharding_constraint(x, P("rows"))

    with pytest.raises(ValueError, match=r"rows.*data"):
        run(wrong, X)


def test_a_size_that_an_axis_does_not_divide_is_refused_at_the_line():
    def odd(x):
        with tf.device(mesh={"m": 4}):
            return jax.shard_map(lambda a: a, in_specs=P("m"), out_specs=P("m"))(x[:6])

    with pytest.raises(ValueError, match="4 does not evenly divide 6"):
        run(odd, X)


def test_two_meshes_in_one_operation_are_refused_with_both():
    other = NamedSharding(AbstractMesh((4,), ("rows",), AUTO), P("rows"))

    def two(x):
        with tf.device(mesh=SQUARE):
            return jax.lax.with_sharding_constraint(x, other)

    with pytest.raises(errors.InvalidArgumentError) as caught:
        run(two, X)
    assert "rows=4" in str(caught.value)
    assert "data=2, model=2" in str(caught.value)
    assert f"{__file__}:" in str(caught.value)


def test_a_mesh_without_a_block_is_refused_with_what_to_do():
    here = NamedSharding(AbstractMesh((4,), ("rows",), AUTO), P("rows"))
    with pytest.raises(errors.InvalidArgumentError, match=r"rows=4.*jflow.device\(.*mesh="):
        run(lambda x: jax.lax.with_sharding_constraint(x, here), X)


def test_pmap_on_a_mesh_is_refused_by_name():
    def mapped(x):
        with tf.device(mesh={"m": 4}):
            return jax.pmap(lambda a: a * 2)(x[:4])

    with pytest.raises(errors.UnimplementedError, match=r"jax.pmap.*jax.shard_map"):
        run(mapped, X)


def test_callbacks_inside_of_a_program_on_a_mesh_are_refused_at_the_line():
    def calling(x):
        with tf.device(mesh={"m": 4}):
            return jax.lax.fori_loop(0, 2, lambda _, a: (jax.debug.print("{}", a), a)[1], x)

    with pytest.raises(errors.UnimplementedError, match="debug_print"):
        run(calling, X)


@pytest.mark.parametrize(
    ("block", "error"),
    [
        (lambda: tf.device(None, mesh=SQUARE), TypeError),
        (lambda: tf.device(lambda op: "", mesh=SQUARE), TypeError),
        (lambda: tf.device("", mesh=4), TypeError),
        (lambda: tf.device("/cpu:0", mesh=SQUARE), ValueError),
        (lambda: tf.device("", mesh={}), ValueError),
        (lambda: tf.device("", mesh={"a-b": 2}), ValueError),
        (lambda: tf.device("", mesh={"a": 2.0}), ValueError),
    ],
)
def test_a_block_with_a_mesh_that_is_none_is_refused(block, error):
    with pytest.raises(error):
        block()


# On tasks ---------------------------------------------------------------------------------------


def test_the_bytes_of_a_program_do_not_depend_on_the_task_or_the_place_of_its_mesh():
    tasks = [Task("worker", i) for i in range(2)]
    devices = {task: [Device(task, "CPU", i) for i in range(4)] for task in tasks}
    platforms = {device: "cpu" for group in devices.values() for device in group}
    inventory = Inventory(tasks[0], tuple(tasks), devices, platforms)

    def digests(name, sizes):
        with tf.Graph().as_default() as graph, tf.device(name, mesh=sizes):
            x = tf.placeholder("float32", X.shape)
            y = tf.lax.with_sharding_constraint(tf.numpy.sin(x), P("data"))
        request = StepRequest((), (y,), (x,))
        (plan,) = compile_step(graph, request, inventory).plans
        return plan.device.task, plan.artifacts

    (first, same), (second, other) = (digests(str(task), {"data": 2}) for task in tasks)
    assert first != second
    assert same == other == digests("/task:0/device:MESH:1", {"data": 2})[1]
    assert same != digests("/task:0", {"data": 4})[1]

"""What is measured, in groups that can be taken apart, and what is wanted of it."""

from __future__ import annotations

from dataclasses import dataclass

from bench import peers


@dataclass(frozen=True)
class Case:
    """A process that prints figures.

    Attributes:
      module: its name in `bench.cases`.
      needs: the peer that has to be in its Python, "" for this Python; "gpu" for this Python on a
        machine with a GPU, "links" on one with network namespaces and TUN devices.
      rounds: how often it runs, for a median.
    """

    module: str
    needs: str = ""
    rounds: int = 3


@dataclass(frozen=True)
class Row:
    """A figure in seconds beside another one; `target` is the largest ratio that is wanted."""

    figure: str
    peer: str
    target: float | None = None


@dataclass(frozen=True)
class Alone:
    """A figure by itself; `most` is the largest value that is wanted."""

    figure: str
    most: float | None = None
    unit: str = "s"


@dataclass(frozen=True)
class Group:
    """Cases that belong together, as their rows compare them with each other."""

    cases: tuple[Case, ...]
    rows: tuple[Row | Alone, ...]


CALLS = Group(
    (
        Case("local"),
        Case("functions"),
        Case("remote"),
        Case("cnn"),
        Case("graphs"),
        Case("tensorflow_peer", "tensorflow"),
    ),
    (
        Row("local constant", "jax.jit scalar", 1.5),
        Row("local fed scalar", "jax.jit scalar", 1.5),
        Row("local constant", "TensorFlow local constant"),
        Row("function call", "jax.jit call", 1.5),
        Row("function call of 100 leaves", "jax.jit call of 100 leaves", 3.0),
        Row("function call with an unused argument", "jax.jit call with an unused argument", 1.5),
        Row("function call with a random key", "jax.jit call with a random key", 1.3),
        Row("NNX training step", "jax.jit NNX training step", 1.3),
        Row("scatter_add into 5000000", "scatter_add into 10000", 3.0),
        Row("scatter_add into 5000000", "TensorFlow scatter_add into 5000000", 1.0),
        Row("scatter_add into 10000", "TensorFlow scatter_add into 10000"),
        Row("local MLP step", "jax.jit MLP step", 1.1),
        Row("remote constant", "raw unary echo", 0.85),
        Row("remote constant", "raw stream echo"),
        Row("remote constant", "TensorFlow remote constant", 0.7),
        Row("remote fed scalar", "TensorFlow remote fed scalar"),
        Row("remote assign_add", "TensorFlow remote assign_add"),
        Row("remote scalar of another task", "remote constant", 2.0),
        Row("remote scalar of another task", "TensorFlow remote scalar of another task"),
        Row("CNN step over two workers", "jax.jit CNN step"),
        Row("feed 100 MB", "raw 100 MB in", 1.25),
        Row("feed 100 MB", "TensorFlow feed 100 MB", 1 / 3),
        Row("fetch 100 MB", "raw 100 MB out", 1.25),
        Row("fetch 100 MB", "TensorFlow fetch 100 MB", 1 / 3),
        Row("100 MB from task to task", "TensorFlow 100 MB from task to task"),
        Alone("memory to fetch 100 MB", unit="B"),
        Row("build 100000 operations", "build 10000 operations"),
        Row("cut 100000 operations", "cut 10000 operations"),
        Row("import jflow", "import jax"),
        Row("start a local session", "jax.jit scalar"),
    ),
)

PEERS = Group(
    (
        Case("beside_peers"),
        Case("ray_peer", "ray"),
        Case("dask_peer", "dask"),
        Case("tensorflow_front", "tensorflow"),
        Case("tensorflow_tasks", "tensorflow"),
        Case("jax_distributed"),
    ),
    (
        *(
            Row(figure, f"{peer} {figure}")
            for figure in (
                peers.CALL,
                peers.UPDATE,
                peers.STEP,
                peers.PUT,
                peers.GET,
                peers.TASKS,
                peers.RESTART,
            )
            for peer in ("Ray", "Dask", "TensorFlow")
            if (figure, peer) != (peers.RESTART, "TensorFlow")  # it restarts nothing
        ),
        Row(peers.SYNCHRONOUS, f"jax.distributed {peers.SYNCHRONOUS}"),
    ),
)

FUNCTIONS = Group(
    (Case("remote_functions"),),
    tuple(
        Row(f"{step} by a function", f"{step} by a session", wanted)
        for step, wanted in (
            ("constant", 1.4),
            ("fed scalar", 1.25),
            ("MLP step of a ps", 1.1),
            ("fetch of 100 MB", 1.1),
        )
    ),
)

OPTIMIZERS = Group(
    (Case("adam"),),
    (
        Row("Adam over 100 variables", "jax.jit Adam over 100 variables", 1.15),
        Row("Adam over 100 small variables", "jax.jit Adam over 100 small variables"),
    ),
)

LONG_PROGRAM = Group(
    (Case("long_program", rounds=1),),  # XLA takes minutes for what it compares with
    (
        Row("first run of 10000 equations", "jax.jit's first run of 10000 equations", 0.2),
        Row("run of 10000 equations", "jax.jit's run of 10000 equations", 1.5),
    ),
)

QUEUES = Group(
    (
        Case("queues"),
        Case("parked"),
        Case("tensorflow_queues", "tensorflow"),
        Case("reverb_queue", "reverb"),
    ),
    (
        Row("local enqueue and dequeue", "TensorFlow local enqueue and dequeue", 1 / 3),
        Row("remote enqueue and dequeue", "TensorFlow remote enqueue and dequeue", 1 / 2),
        Row("item through a server", "item through a raw relay", 1 / 0.6),
        Row("item through a server", "item written to Reverb", 1.0),
        Row("item through a server", "grpc: item through a server", 0.7),
        Row("item through a server", "item through Reverb"),
        Row("100 MB through a queue", "100 MB fed and fetched", 1 / 0.6),
        Alone("memory of a server with a queue of 64 MB", 1.1 * 64e6, "B"),
        Alone("memory of a server with a queue of 256 MB", 1.1 * 256e6, "B"),
        Row("echo beside 5000 parked dequeues, median", "echo on an idle server, median"),
        Alone("echo beside 5000 parked dequeues, median", 25e-3),
        Alone("echo beside 5000 parked dequeues, 99 of 100", 25e-3),
        Alone("memory of a parked dequeue", 20e3, "B"),
        Alone("release of 5000 parked dequeues", 2.0),
    ),
)

PIPELINES = Group(
    (Case("pipelines"), Case("tensorflow_pipelines", "tensorflow")),
    (
        Row("example, one by one", "TensorFlow example, one by one"),
        Row("example, in blocks", "TensorFlow example, in blocks"),
        Row("MLP step fed by a pipeline", "MLP step fed from memory", 1.05),
    ),
)

SAVING = Group(
    (Case("saving", rounds=1),),
    (
        Row("save over two tasks", "dd with fsync", 2.0),
        Row("restore over two tasks", "dd with fsync", 2.0),
        Row("cold restore over two tasks", "dd from the disk", 2.0),
        Alone("memory of two tasks to save", 0.2e9, "B"),
        Alone("memory of two new tasks to restore", 0.2e9, "B"),
        Alone("memory of two tasks to restore again", unit="B"),
        Row("step beside a save", "step without a save", 1.5),
    ),
)

EFFECTS = Group(
    (Case("effects"),),
    tuple(
        Row(f"{step}, applied once", step)
        for step in (
            "update of one task",
            "step on a worker and one ps",
            "step on a worker and two ps",
            "update of 4 MB by a worker",
        )
    ),
)

CHECKPOINTS = Group(
    (Case("checkpoints", rounds=1),),  # it alternates by itself
    (
        Row("write 1 GB in two shards", "dd of 1 GB with fsync", 2.0),
        Row("write 1 GB in two shards", "Orbax writes 1 GB"),
        Row("read 1 GB in two shards", "dd of 1 GB from the disk", 2.0),
        Row("read 1 GB in two shards", "Orbax reads 1 GB"),
        Alone("memory to write 1 GB", 0.2e9, "B"),
        Alone("memory to read 1 GB", 0.2e9, "B"),
        Alone("memory for Orbax to write 1 GB", unit="B"),
        Alone("memory for Orbax to read 1 GB", unit="B"),
    ),
)

COORDINATOR = Group(
    (
        Case("coordinator", rounds=1),
        Case("tensorflow_coordinator", "tensorflow", rounds=1),
        Case("tolerance", rounds=1),
    ),
    (
        Row("tiny closure", "TensorFlow tiny closure", 0.1),
        Row("tiny closure, exactly once", "tiny closure"),
        Row("schedule and fetch", "TensorFlow schedule and fetch", 0.25),
        Row("schedule and fetch", "raw stream echo"),
        Row("MLP closure", "TensorFlow MLP closure", 1 / 3),
        Row("MLP closure", "raw stream echo of 0.8 MB"),
        Row("tiny closure with fault tolerance", "tiny closure without fault tolerance", 1.02),
        Row("MLP closure with fault tolerance", "MLP closure without fault tolerance", 1.02),
    ),
)

FAILURES = Group(
    (Case("failures", rounds=1),),
    (
        Alone("closure moved after a kill, median", 0.5),
        Alone("closure moved after a kill, worst", 1.0),
        Alone("closure moved after a stop, 3 s timers", 4.0),
        Row("closure, each worker killed once in the time", "closure, three workers", 1 / 0.88),
        Row("closure, one of three workers ten times slower", "closure, two workers", 1 / 0.8),
        Row("closure of a survivor after a kill", "closure of a survivor before a kill", 1 / 0.9),
    ),
)

_HARMS: dict[str, float | None] = {
    "200 streams without a handshake": 32e6,
    "5000 connections that are idle": 200e6,
    "200 early values of 5 MB": 96e6,
    "200 replies of 5 MB that are not read": 32e6,
    "7.8 kB of plans with many slots": 32e6,
    "a plan of 300000 stages": 32e6,
    "a plan of 2000000 variables": None,
    "a plan of 4000000 inputs": None,
    "64 MB of empty strings": 96e6,
    "300000 empty tensors": None,
}
"""What is sent to a server, and how much memory that should cost it at most."""

BOUNDS = Group(
    (Case("bounds", rounds=1), Case("pauses")),
    (
        *(Alone(f"memory for {harm}", most, "B") for harm, most in _HARMS.items()),
        *(Alone(f"silence for {harm}", 0.5) for harm in _HARMS),
        Alone("a step of a new session beside 5000 connections", 5.0),
        Alone("told of a kill in a feed of 400 MB", 1.0),
        Alone("told of a kill in a value of 240 MB from the master", 1.0),
        Alone("told of a kill in a value of 240 MB from another task", 1.0),
        Alone("told of a kill in a registration", 1.0),
        Alone("step after a stop of 5 s, 3 s timers", 2.0),
    ),
)

_ON_TRANSPORTS = {
    "constant": ("TensorFlow remote constant", 0.20),
    "fed scalar": ("TensorFlow remote fed scalar", 0.22),
    "assign_add": ("TensorFlow remote assign_add", 0.25),
    "enqueue and dequeue": ("TensorFlow remote enqueue and dequeue", 0.20),
    "scalar of another task": ("TensorFlow remote scalar of another task", 0.30),
    "scalar to a worker and back": ("TensorFlow remote scalar to a worker and back", 0.35),
    "feed 100 MB": ("TensorFlow feed 100 MB", 0.15),
    "fetch 100 MB": ("TensorFlow fetch 100 MB", 0.15),
    "100 MB from task to task": ("TensorFlow 100 MB from task to task", 0.5),
}

DATA_STREAMS = Group(
    (Case("transports"), Case("tensorflow_steps", "tensorflow")),
    (
        Row("unix: constant", "raw unary echo", 0.35),
        *(Row(f"unix: {name}", peer, target) for name, (peer, target) in _ON_TRANSPORTS.items()),
        *(Row(f"grpc: {name}", peer) for name, (peer, _) in _ON_TRANSPORTS.items()),
        *(Row(f"inproc: {name}", f"unix: {name}") for name in _ON_TRANSPORTS),
        *(Row(f"unix: {name}", f"grpc: {name}") for name in _ON_TRANSPORTS),
        *(Row(f"tcp: {name}", f"grpc: {name}") for name in _ON_TRANSPORTS),
        *(Row(f"tcp with TLS: {name}", f"grpc with TLS: {name}") for name in _ON_TRANSPORTS),
    ),
)

_ON_PS = (
    "MLP step of a ps",
    "MLP step of two workers at once",
    "MLP step of two workers, summed by accumulators",
    "step of 10 MB on a ps",
    "step of 100 MB on a ps",
)
_COMPUTED_ALONE = tuple(name for name in _ON_PS if "two workers" not in name)

PARAMETER_SERVERS = Group(
    (
        Case("parameter_servers", rounds=1),  # it takes turns by itself
        Case("tensorflow_parameter_servers", "tensorflow", rounds=1),
        Case("cnn"),
    ),
    (
        *(Row(f"unix: {name}", f"TensorFlow {name}", 0.5) for name in _ON_PS),
        *(Row(f"grpc: {name}", f"TensorFlow {name}") for name in _ON_PS),
        *(Row(f"unix: {name}", f"jax.jit {name}") for name in _COMPUTED_ALONE),
        *(Row(f"TensorFlow {name}", f"jax.jit {name}") for name in _COMPUTED_ALONE),
        Row("CNN step over two workers and a ps", "jax.jit CNN step"),
        Row("CNN step over two workers and a ps, two images", "jax.jit CNN step, two images"),
        Alone("CNN step over two workers and a ps, two images", 3e-3),
        Row("grpc: CNN step over two workers and a ps, two images", "jax.jit CNN step, two images"),
    ),
)

_BOTH = ("unix", "grpc")


def _callers(
    way: str,
    saturated: float | None = None,
    more: float | None = None,
    in_line: float | None = None,
) -> tuple[Row, ...]:
    """The rows of 200 threads on one server, and the ratios that are wanted."""
    one, many = f"{way}: time a call, 1 threads", f"{way}: time a call, 200 threads"
    half, alone = f"{way}: 200 at half of saturation, 99 of 100", f"{way}: one caller, median"
    line, shared = f"{way}: 200 callers in line, 99 of 100", f"{way}: 200 calls at their throughput"
    return Row(half, alone, saturated), Row(many, one, more), Row(line, shared, in_line)


SCALE = Group(
    (
        Case("tasks"),
        Case("crossings"),
        Case("callers", rounds=1),
        Case("connections", rounds=1),
        Case("busy", rounds=1),
    ),
    (
        Row("each further task of a step", "raw unary echo", 0.25),
        *(Row(f"step over {n} tasks", "raw unary echo") for n in (8, 16, 32, 64)),
        Row("step over 64 tasks", "line through the steps over 8 and 32 tasks, at 64", 1.2),
        Row("unix: 1000 scalars cross", "unix: one scalar crosses", 3.0),
        Row("grpc: 1000 scalars cross", "grpc: one scalar crosses"),
        *(Alone(f"{way}: memory of an idle connection", 200e3, "B") for way in _BOTH),
        *(
            Row(f"{way}: time a call, {n} threads", f"{way}: time a call, 1 threads")
            for way in _BOTH
            for n in (4, 16, 64)
        ),
        *_callers("unix", saturated=20.0, more=1.0, in_line=3.0),
        *_callers("grpc"),
        *(
            Row(f"{way}: {name}, busy machine", "raw unary echo, busy machine")
            for way in _BOTH
            for name in ("constant", "assign_add", "scalar of another task")
        ),
    ),
)

_KEPT = {
    "feed 100 MB, kept in a variable": 0.35,
    "fetch 100 MB, results kept": 0.35,
    "delivery of 100 MB to another task": 0.35,
}
_SIZES = ("8 B", "1 kB", "64 kB", "1 MB", "10 MB", "1 GB")

BULK = Group(
    (
        Case("bulk"),
        Case("tensorflow_bulk", "tensorflow"),
        Case("sizes", rounds=1),
        Case("large", rounds=1),
    ),
    (
        *(Row(f"unix: {name}", f"TensorFlow {name}", most) for name, most in _KEPT.items()),
        *(Row(f"unix: {name}", f"grpc: {name}") for name in _KEPT),
        Row("unix: delivery of 100 MB to another task", "loopback socket, 100 MB", 1 / 1.5),
        *(
            Row(f"unix: first {what} of 100 MB", f"grpc: first {what} of 100 MB")
            for what in ("feed", "fetch")
        ),
        *(
            Row(f"unix: {what} {size}", f"grpc: {what} {size}")
            for size in _SIZES
            for what in ("feed", "fetch")
        ),
        Alone("memory to send 4 GB, beyond the tensor", 128 << 20, "B"),
        Alone("memory to receive 4 GB, beyond the tensor", 128 << 20, "B"),
    ),
)

CLUSTERS = Group(
    (Case("starting", rounds=1), Case("inspection", rounds=1)),  # they repeat by themselves
    (
        Row(
            "jflow up of 1 + 2, until all are ready",
            "Python that imports jflow and finds its devices",
            1.5,
        ),
        Row(
            "killed task, until it is ready again",
            "Python that imports jflow and finds its devices",
            0.5,
        ),
        Row("new session and first step", "new channel and echo", 5.0),
        Row("new session and first step of a new program", "new channel and echo"),
        Row("new connection", "new channel and echo"),
        Row("list 10000 variables of 64 tasks", "list the variables of one of 64 tasks", 32.0),
        Alone("list 10000 variables of 64 tasks", 1.0),
        Alone("status of 64 tasks"),
        Alone("processor time of a task watched at 1 Hz", 0.01, "%"),
    ),
)

SEEING = Group(
    (Case("reports"), Case("live_page"), Case("pictures", rounds=1)),
    (
        Row("5 ms step in this process, in a report", "5 ms step in this process, alone", 1.1),
        Row("5 ms step of one task, in a report", "5 ms step of one task, alone", 1.1),
        Row("5 ms step of two tasks, in a report", "5 ms step of two tasks, alone", 1.1),
        Row("5 ms step, beside the page", "5 ms step, alone", 1.02),
        Alone("processor time of a task under the page at 2 Hz", 0.01, "%"),
        Alone("picture of 1000 operations", 1.0),
        Alone("picture of 100000 operations", 5.0),
    ),
)


def _emulated(p: int, m: int, part_ms: int, most: float) -> tuple[Row, ...]:
    """The rows of emulated devices, and the ratio to the ideal that is wanted."""
    where = f"{p} devices, {m} microbatches, parts of {part_ms} ms"
    return tuple(Row(f"{name}, {where}", f"ideal, {where}", most) for name in ("GPipe", "1F1B"))


_PIPELINES = {"forward": 1 / 1.4, "grad(scan)": 1 / 1.4, "scan(grad)": 1 / 1.25}

LOOPS = Group(
    (
        Case("loops"),
        Case("transformer", rounds=1),
        Case("emulated_loops", rounds=1),
        Case("tensorflow_loops", "tensorflow"),
    ),
    (
        *(
            Row(f"{name}, two tasks", f"jax.jit {name}, one core", most)
            for name, most in _PIPELINES.items()
        ),
        Row("forward, unrolled, two tasks", "jax.jit forward, unrolled, one core"),
        Row("grad, unrolled, two tasks", "jax.jit grad, unrolled, one core"),
        Row("transformer step, two stages", "transformer step, one device"),
        Row("transformer step, Python loop over two stages", "transformer step, one device"),
        Row("scan of 100000 iterations, one device", "jax.jit scan of 100000 iterations", 1.05),
        Alone("crossing of a loop, there and back", 0.3e-3),
        Alone("crossing of a loop, one way", 0.3e-3),
        Row(
            "while of 1000 iterations over two tasks",
            "TensorFlow while_loop of 1000 iterations over two tasks",
            0.8,
        ),
        Alone("making a scan(grad) of 16 microbatches", 1.0),
        Alone("making a scan(grad) of 128 microbatches", 1.0),
        *(Alone(f"memory of a scan(grad) of {m} microbatches", 16e6, "B") for m in (16, 128)),
        *(
            row
            for part_ms, most in ((10, 1.15), (5, 1.25))
            for p, m in ((2, 8), (2, 32), (4, 8), (4, 16), (4, 32))
            for row in _emulated(p, m, part_ms, most)
        ),
    ),
)

MODELS = Group(
    (
        Case("bound_models"),
        Case("embeddings"),
        Case("tensorflow_embeddings", "tensorflow"),
        Case("decoupled"),
        Case("recording"),
    ),
    (
        Row("bind of 1,000 arrays", "1,000 variables initialized by a step of a session", 1.1),
        Alone("bind of 1,000 arrays that are there", 1.0),
        Row("step of a bound model", "step of variables by hand", 1.05),
        Row("embedding step, 10 million rows", "embedding step, 100 thousand rows", 1.3),
        Row("embedding step, 10 million rows", "TensorFlow embedding step, 10 million rows", 0.5),
        Row("embedding step, 100 thousand rows", "TensorFlow embedding step, 100 thousand rows"),
        Row("steps of a learner", "steps alone", 1.05),
        Row("recorded closures of an MLP", "closures of an MLP", 1.03),
        Row("recorded step that adds to a variable", "step that adds to a variable"),
    ),
)

MESHES = Group(
    (Case("meshes"), Case("transformer", rounds=1), Case("predicted_meshes", rounds=1)),
    (
        Row("sharded step in this process", "jax.jit sharded step", 1.05),
        Row("sharded step on a task", "jax.jit sharded step, beside a task", 1.05),
        Row("update of a sharded 100 MB variable", "jax.jit update of a sharded 100 MB array"),
        Row("100 MB from a mesh of 4 to a mesh of 2", "100 MB from a device to a device", 1.2),
        Row(
            "100 MB of columns from a mesh of 4 to a mesh of 2", "100 MB from a device to a device"
        ),
        *(
            Row(f"transformer step, two stages{on}", f"transformer step, {peer}")
            for on in ("", " on meshes of two")
            for peer in ("one device", "shard_map in one process")
        ),
        *(
            Row(f"predicted transformer, {way}", f"measured transformer, {way}")
            for way in ("two stages", "two stages on meshes of two", "a mesh of two")
        ),
    ),
)

SESSIONS = Group(
    (Case("sessions"),),
    (
        Row("step of run_many", "local donated update", 2.0),
        Row("scalar steps by 100 threads", "scalar steps by one thread", 1.0),
        Row("while_loop of 1,000 iterations", "jax.jit while_loop of 1,000 iterations"),
        Row("element by a producer loop, local", "element by a client's steps, local", 1.25),
        Row(
            "element by a producer loop, on a server",
            "element by a client's steps, on a server",
            1.25,
        ),
    ),
)

GUESTS = Group(
    (Case("guests"),),
    (
        Row(
            "update beside 50 idle sessions",
            "update on a cluster of one session",
            1.05,
        ),
    ),
)

_ON_LINKS = {
    "feed far away": "there",
    "fetch from far away": "back",
    "to a far task": "there",
    "from a far task": "back",
}
"""What is sent over a link, and what a plain socket does beside it."""

_AT_ONCE = ("steps far away at once", "updates far away at once", "steps far away by threads")


def _distant(way: str, most: float | None) -> tuple[Row, ...]:
    """The rows of a transport over links, and the ratio that is wanted of arrays."""
    beside = f"plain socket beside {way}"
    arrays = [
        Row(f"{way}: {figure}, {size}", f"{beside}, {where}, {size}", most)
        for size in ("10 MB at 1 % loss", "100 MB")
        for figure, where in _ON_LINKS.items()
    ]
    steps = [Row(f"{way}: 64 {what}", f"{beside}, round trip", 2.0) for what in _AT_ONCE]
    others = ("reads by a near task at once", "closures at once", "steps, one after another")
    return (
        *arrays,
        Row(f"{way}: a step far away", f"{beside}, round trip", 1.1),
        *steps,
        *(Row(f"{way}: 64 {what}", f"{beside}, round trip") for what in others),
    )


WAN = Group(
    (Case("wan", "links", rounds=1),),  # it takes turns by itself
    (*_distant("tcp", 1 / 0.8), *_distant("tcp with TLS", 1 / 0.8), *_distant("grpc", None)),
)

GPU = Group(
    (Case("gpu", "gpu"), Case("shared_gpu", "gpu")),
    (
        Row("MLP step on a GPU", "jax.jit MLP step on a GPU", 1.1),
        Row("feed 100 MB to a GPU", "jax.device_put of 100 MB"),
        Row("fetch 100 MB from a GPU", "np.asarray of 100 MB on a GPU"),
        Row("MLP step of two tasks that share a GPU", "MLP step of a task on a GPU"),
    ),
)

GROUPS = {
    "peers": PEERS,
    "calls": CALLS,
    "functions": FUNCTIONS,
    "transports": DATA_STREAMS,
    "parameter-servers": PARAMETER_SERVERS,
    "scale": SCALE,
    "bulk": BULK,
    "optimizers": OPTIMIZERS,
    "saving": SAVING,
    "long-program": LONG_PROGRAM,
    "queues": QUEUES,
    "pipelines": PIPELINES,
    "checkpoints": CHECKPOINTS,
    "coordinator": COORDINATOR,
    "failures": FAILURES,
    "clusters": CLUSTERS,
    "effects": EFFECTS,
    "bounds": BOUNDS,
    "seeing": SEEING,
    "loops": LOOPS,
    "meshes": MESHES,
    "models": MODELS,
    "sessions": SESSIONS,
    "guests": GUESTS,
    "wan": WAN,
    "gpu": GPU,
}

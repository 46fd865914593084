"""`ConfigProto`: the options of a session or connection."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from jflow.base.cluster import DeviceFilters
from jflow.base.options.fields import Options
from jflow.errors import InvalidArgumentError


@dataclass(repr=False)
class RunOptions(Options):
    """Options of one step, which can be assigned.

    Attributes:
      timeout_in_ms: time limit of this call in milliseconds, in place of
        `ConfigProto.operation_timeout_in_ms`; 0 for the session's.
      trace_level: `NO_TRACE`, or one of the others, which all record the same: when each program,
        call and wait of the step began and ended on each device, and its transfers.
      output_partition_graphs: whether to return the text of the plans that the step ran.

    What is recorded is in the `RunMetadata` that the call was given.

    Raises:
      TypeError: if an option has the wrong type; also when it is assigned.
      InvalidArgumentError: likewise if the trace level is not one of these, or the limit is
        negative.
    """

    NO_TRACE: ClassVar[int] = 0
    SOFTWARE_TRACE: ClassVar[int] = 1
    HARDWARE_TRACE: ClassVar[int] = 2
    FULL_TRACE: ClassVar[int] = 3

    timeout_in_ms: int = 0
    trace_level: int = NO_TRACE
    output_partition_graphs: bool = False

    def checked(self, name: str, value: Any) -> Any:
        if name == "trace_level" and value not in range(4):
            raise InvalidArgumentError(
                "expected RunOptions.NO_TRACE, SOFTWARE_TRACE, HARDWARE_TRACE or FULL_TRACE (0 to "
                f"3) as trace_level, got {value!r}"
            )
        if name == "timeout_in_ms" and value < 0:
            raise InvalidArgumentError(
                f"RunOptions.timeout_in_ms must not be negative, got {value}"
            )
        return value


_DEVICE_TYPE = re.compile(r"[A-Z][A-Z0-9_]*")


@dataclass(repr=False)
class OptimizerOptions(Options):
    """TensorFlow's options for optimizing graphs; without effect: XLA optimizes each step.

    Attributes:
      do_common_subexpression_elimination, do_constant_folding, do_function_inlining,
        max_folded_constant_in_bytes, opt_level, global_jit_level, cpu_global_jit: TensorFlow's.

    Raises:
      TypeError: if an option has the wrong type; also when it is assigned.
    """

    L1: ClassVar[int] = 0
    L0: ClassVar[int] = -1
    DEFAULT: ClassVar[int] = 0
    OFF: ClassVar[int] = -1
    ON_1: ClassVar[int] = 1
    ON_2: ClassVar[int] = 2

    do_common_subexpression_elimination: bool = False
    do_constant_folding: bool = False
    max_folded_constant_in_bytes: int = 0
    do_function_inlining: bool = False
    opt_level: int = L1
    global_jit_level: int = DEFAULT
    cpu_global_jit: bool = False

    def checked(self, name: str, value: Any) -> Any:
        allowed = {
            "opt_level": (self.L1, self.L0),
            "global_jit_level": (self.DEFAULT, self.OFF, self.ON_1, self.ON_2),
        }
        if name in allowed and value not in allowed[name]:
            raise InvalidArgumentError(
                f"OptimizerOptions.{name} must be one of {sorted(allowed[name])}, got {value}"
            )
        return value


@dataclass(repr=False)
class GraphOptions(Options):
    """TensorFlow's options for graphs; without effect.

    Shapes are always inferred, graphs are pruned before they are placed, and values are received as
    soon as they are needed.

    Attributes:
      optimizer_options: see there.
      enable_recv_scheduling, infer_shapes, place_pruned_graph, build_cost_model,
        build_cost_model_after, timeline_step: TensorFlow's.

    Raises:
      TypeError: if an option has the wrong type; also when it is assigned.
    """

    optimizer_options: OptimizerOptions = field(default_factory=OptimizerOptions)
    enable_recv_scheduling: bool = False
    infer_shapes: bool = False
    place_pruned_graph: bool = False
    build_cost_model: int = 0
    build_cost_model_after: int = 0
    timeline_step: int = 0


@dataclass(repr=False)
class GPUOptions(Options):
    """The use of GPUs by a process, which JAX decides when it starts; without effect on a session.

    Each has a variable of the environment in its place, which a warning names if there are GPUs.

    Attributes:
      per_process_gpu_memory_fraction: the part of the memory of each GPU that the process takes
        when it starts, above 1 for more than there is; `XLA_PYTHON_CLIENT_MEM_FRACTION`.
      allow_growth: whether it takes memory only as it needs it;
        `XLA_PYTHON_CLIENT_PREALLOCATE=false`.
      visible_device_list: numbers of the GPUs that it uses, such as "0,2"; `CUDA_VISIBLE_DEVICES`.
      allocator_type: TensorFlow's; `XLA_PYTHON_CLIENT_ALLOCATOR` has other names.
      deferred_deletion_bytes, polling_active_delay_usecs, polling_inactive_delay_msecs,
        force_gpu_compatible: TensorFlow's.

    Raises:
      TypeError: if an option has the wrong type; also when it is assigned.
      InvalidArgumentError: likewise if the fraction is negative, or a GPU is not a number.
    """

    per_process_gpu_memory_fraction: float = 0.0
    allow_growth: bool = False
    allocator_type: str = ""
    deferred_deletion_bytes: int = 0
    visible_device_list: str = ""
    polling_active_delay_usecs: int = 0
    polling_inactive_delay_msecs: int = 0
    force_gpu_compatible: bool = False

    def checked(self, name: str, value: Any) -> Any:
        if name == "per_process_gpu_memory_fraction" and value < 0:
            raise InvalidArgumentError(f"GPUOptions.{name} must not be negative, got {value}")
        if name == "visible_device_list" and not re.fullmatch(r"(\s*\d+\s*(,\s*\d+\s*)*)?", value):
            raise InvalidArgumentError(
                f"GPUOptions.{name} must be numbers of GPUs, such as '0,2', got {value!r}"
            )
        return value


@dataclass(repr=False)
class ConfigProto(Options):
    """Options of a session or connection, which can be assigned.

    What is made with options has a copy of them: a later assignment changes no session.

    Attributes:
      operation_timeout_in_ms: time limit of a call in milliseconds, for everything that it does:
        connecting, waiting for tasks, compiling, running. When it passes, the call raises
        `DeadlineExceededError`. Computing and compiling in this process are not interrupted; the
        limit is checked afterwards. 0 for no limit.
      connect_timeout_in_ms: how long to wait, in milliseconds, for a server or task that does not
        answer; then the call raises `UnavailableError`.
      allow_soft_placement: whether an operation that requests a device type or index that its
        task does not have runs on another device of the task. Jobs and tasks are never changed.
      log_device_placement: whether to log the device of each operation, once, as a warning of the
        logger "jflow.compiler.placement.placer", which is shown by default.
      placement: what chooses the devices of operations that request none: "rules" for the first
        device of the master, the name of another strategy (`jflow.lab.STRATEGIES`, such as
        "auto"), "module:function", or a function `place(graph, devices, costs, constraints)` that
        returns one of `devices` for each of `graph.operations`. Device requests, colocation and
        the devices of variables are kept.
      device_filters: parts of device names, such as "/job:ps" and "/job:worker/task:0". A session
        sees the devices that match one of them, and those of its own server; nothing waits for the
        others, and no operation can request them. Empty for all devices. Only consistent saves,
        which hold back the steps of all sessions, reach the others.
      isolate_session_state: whether the variables, queues and other resources of the session are
        its own, in all containers: no other session sees them, and they go with it. Always so in
        this process.
      record: the path of a run log, from which `jflow replay` computes again what the sessions of
        this process that have it do on the cluster; "" to record nothing. Nothing of that path may
        be there. Its values are in a file beside it, whose name ends with ".data".
      record_limit_bytes: the largest size of the run log and its values together; a log that has
        reached it ends, and the run goes on.
      device_count: the largest number of devices of a type, such as {"GPU": 0}, that a session in
        this process uses, or that a server has which is given these options. A session on a server
        uses all of its devices. There are as many as JAX has, whatever number is allowed.
      intra_op_parallelism_threads, inter_op_parallelism_threads, use_per_session_threads: without
        effect: XLA has the threads of the process, as many as there are cores, or as the variable
        `NPROC` of the environment says when JAX starts; `jflow.TaskResources` sets it for tasks.
      placement_period: without effect: an operation is placed once.
      gpu_options, graph_options: without effect; see there.

    Raises:
      TypeError: if an option has the wrong type, or the filters are not a list of strings; also
        when an option is assigned.
      InvalidArgumentError: likewise if a filter is not a device name, a time or a limit is
        negative, or a number of devices is negative, 0 CPUs, or of what is not a type of device.
    """

    operation_timeout_in_ms: int = 0
    connect_timeout_in_ms: int = 30_000
    allow_soft_placement: bool = False
    log_device_placement: bool = False
    placement: str | Callable[..., Any] = "rules"
    device_filters: Sequence[str] = ()
    isolate_session_state: bool = False
    record: str = ""
    record_limit_bytes: int = 4 << 30
    device_count: Mapping[str, int] = field(default_factory=dict)
    intra_op_parallelism_threads: int = 0
    inter_op_parallelism_threads: int = 0
    use_per_session_threads: bool = False
    placement_period: int = 0
    gpu_options: GPUOptions = field(default_factory=GPUOptions)
    graph_options: GraphOptions = field(default_factory=GraphOptions)

    def checked(self, name: str, value: Any) -> Any:
        where = f"ConfigProto.{name}"
        times = ("operation_timeout_in_ms", "connect_timeout_in_ms")
        if name in (*times, "record_limit_bytes") and value < 0:
            raise InvalidArgumentError(f"{where} must not be negative, got {value}")
        if name == "device_filters":
            try:
                return [*DeviceFilters(value).texts]  # a list, so that scripts can append
            except ValueError as error:
                raise InvalidArgumentError(f"{where}: {error}") from None
        if name == "device_count":
            return _counts(value, where)
        return value


def _counts(value: Any, where: str) -> dict[str, int]:
    """Checks and converts numbers of devices by type. Raises as `Options.checked`."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{where} must be a dict such as {{'GPU': 0}}, got {value!r:.80}")
    counts = {}
    for kind, n in value.items():
        if not isinstance(kind, str) or not _DEVICE_TYPE.fullmatch(kind):
            raise InvalidArgumentError(
                f"{where} must name types of devices, such as 'CPU' or 'GPU', got {kind!r}"
            )
        try:
            counts[kind] = operator.index(n)
        except TypeError:
            raise TypeError(f"{where}[{kind!r}] must be an int, got {n!r}") from None
        least = 1 if kind == "CPU" else 0  # strings, files and queues are on a CPU
        if counts[kind] < least:
            raise InvalidArgumentError(f"{where}[{kind!r}] must be at least {least}, got {n}")
    return counts

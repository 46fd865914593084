"""The backend of this process, where each session has its own variables."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import jax
from jax.sharding import Mesh

from jflow.base import forks
from jflow.base.cluster import LOCAL_TASK, SAME_PROCESS, Device, DeviceSpec, Task, Wiring
from jflow.base.deadline import Deadline
from jflow.base.options import ConfigProto
from jflow.base.values import Array
from jflow.client.runtime.backend import DeviceInfo, Executable, with_meshes
from jflow.client.runtime.restarts import Restarts
from jflow.client.runtime.saving import path_on_tasks
from jflow.compiler.graph import VariableRef
from jflow.compiler.graph.callbacks import Callback, has_callback
from jflow.compiler.lowering import Lowered, compile_all
from jflow.compiler.pipeline import CompiledStep
from jflow.compiler.placement import Inventory
from jflow.plan import Plan, Program, VariableKey, verify, verify_step
from jflow.plan.xla import CompiledProgram, internals
from jflow.plan.xla.hardware import DeviceOrMesh
from jflow.plan.xla.shardings import text_of_sharding
from jflow.state.checkpoint_files import ANYWHERE
from jflow.state.core import ClusterState
from jflow.state.moves import StateId
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.resources import Containers
from jflow.state.resources.watching import list_containers
from jflow.state.saves import StateItems, tensor_functions
from jflow.state.watch import ContainerStatus, CoordinatorStatus, StatusRequest
from jflow.task.execution import (
    LinkedPlan,
    LocalExecutable,
    link,
    local_devices,
    memory_limits,
    put,
)
from jflow.task.execution.device_order import DEVICE_ORDER
from jflow.task.execution.devices import DevicesByName, DevicesOfTask
from jflow.task.execution.local_task import LocalTask

_LOG = logging.getLogger(__name__)

_VARIABLES = {
    "allow_growth": ("XLA_PYTHON_CLIENT_PREALLOCATE", "false"),
    "per_process_gpu_memory_fraction": ("XLA_PYTHON_CLIENT_MEM_FRACTION", None),
    "visible_device_list": ("CUDA_VISIBLE_DEVICES", None),
}
"""By GPU option: the environment variable with the same effect, and the value to set it to (None
for that of the option)."""

_warned: set[str] = set()


def warn_of_process_options(config: ConfigProto, device_types: Collection[str]) -> None:
    """Warns once about each option that has no effect because JAX has already started.

    Args:
      config: the options.
      device_types: the types of the devices of this process.
    """
    if "GPU" not in device_types:
        return
    for name, (variable, fixed) in _VARIABLES.items():
        value = getattr(config.gpu_options, name)
        if value and variable not in os.environ and name not in _warned:
            _warned.add(name)
            _LOG.warning(
                "ConfigProto.gpu_options.%s has no effect, because JAX has started; set the "
                "environment variable %s=%s before the program starts",
                name,
                variable,
                value if fixed is None else fixed,
            )


_FUNCTIONS = tensor_functions(ANYWHERE)

R = TypeVar("R")


@forks.guarded(
    "inventory",
    "register",
    "call_state",
    "claim",
    "move_state",
    "list_devices",
    ignored=("close",),
)
class LocalBackend:
    """Runs steps on the devices of this process and owns their state, which is freed with it.

    Args:
      config: options, of which the number of devices is used; None for the default ones.
    """

    owner = "local"
    keeps_weak_types = True
    tasks_leave = False
    moves_private = True
    reconnects = False
    restarts = Restarts()
    is_lost = False

    def __init__(self, config: ConfigProto | None = None) -> None:
        forks.mark_used()
        config = ConfigProto() if config is None else config
        named = local_devices(LOCAL_TASK, config.device_count)
        self._devices = DevicesOfTask(named)
        self.has_one_device = len(self._devices) == 1
        warn_of_process_options(config, {device.type for device in self._devices})
        self._memory = memory_limits(named)
        self._specs = {
            jax_device: DeviceSpec(type=device.type, index=device.index)
            for device, jax_device in named.items()
        }
        self._first = next(iter(self._specs))
        self._containers = Containers(LOCAL_TASK, AllowedDirectories.anywhere())
        self._task = LocalTask(self._containers, DevicesByName(self._devices))

    def inventory(self, tasks: Collection[Task], deadline: Deadline) -> Inventory:
        devices = {LOCAL_TASK: tuple(self._devices)}
        return Inventory(
            LOCAL_TASK,
            (LOCAL_TASK,),
            devices,
            platforms=None,
            wiring=Wiring(SAME_PROCESS),
            memory={device: limit for device, limit in self._memory.items() if limit},
        )

    def members(self, _: Deadline) -> None:
        return None  # this process is the only task

    def forget_members(self) -> None:
        pass  # this process is the only task

    def register(self, compiled: CompiledStep) -> Executable:
        for plan in compiled.plans:
            verify(plan)
        verify_step(compiled.plans, compiled.n_fetches)
        programs = {
            program.digest: (compiled.programs[program.digest], device, program.donated)
            for plan in compiled.plans
            for device in [self._devices[plan.device]]
            for program in plan.programs
        }
        executables = dict(zip(programs, compile_all([*programs.values()]), strict=True))

        def link_plan(plan: Plan) -> LinkedPlan:
            device = self._devices[plan.device]
            return link(
                plan,
                device,
                lambda program: executables[program.digest],
                lambda name: put(compiled.artifacts[name], device),
                _FUNCTIONS,
                wrap=partial(self._in_order, device, compiled.programs),
            )

        functions = [*map(_function, compiled.callbacks)]
        plans = [*map(link_plan, compiled.plans)]
        has_state = any(plan.variables or plan.resources for plan in compiled.plans)
        task = self._task if has_state else None
        return LocalExecutable(
            plans, compiled.n_fetches, self._containers, functions, compiled.names, task
        )

    def _in_order(
        self,
        device: DeviceOrMesh,
        programs: Mapping[str, Lowered],
        program: Program,
        executable: CompiledProgram,
    ) -> CompiledProgram:
        """Returns a program that starts when its devices are free, if there could be meshes."""
        if not isinstance(device, Mesh) and len(local_devices(LOCAL_TASK)) == 1:
            return executable
        calls_python = any(has_callback(op.eqn) for op in programs[program.digest].ops)
        return DEVICE_ORDER.ordered(executable, device, calls_python=calls_python)

    def complete_options(self, config: ConfigProto, deadline: Deadline) -> ConfigProto:
        return config

    def incarnation(self, deadline: Deadline) -> int:
        return 0

    def call_state(
        self, method: Callable[..., Coroutine[Any, Any, R]], *args: Any, deadline: Deadline
    ) -> R:
        return self._task.call_state(method, *args, 0.0, deadline)

    def claim(self, name: str, epoch: int, deadline: Deadline) -> int:
        return self.call_state(ClusterState.claim, name, epoch, deadline=deadline)

    def move_state(
        self, states: Sequence[StateId], target: str, hold_s: float, deadline: Deadline
    ) -> None:
        self.call_state(ClusterState.move, states, target, hold_s, deadline=deadline)

    def to_tasks(self, prefix: str, items: StateItems, deadline: Deadline) -> tuple[str, bytes]:
        return path_on_tasks(prefix, {}), items.to_bytes()

    def was_restored(self, items: StateItems, deadline: Deadline) -> None:
        pass  # steps of this process are not recorded

    def peek(self, ref: VariableRef) -> jax.Array | None:
        try:
            device = Device.parse(str(ref.spec))
        except ValueError:
            return None  # it is not known where it is
        return self._containers.peek(device, VariableKey(ref.container, ref.name))

    def default_device(self, values: Iterable[Any]) -> DeviceSpec | None:
        if self.has_one_device:
            return None
        default = internals.default_device()
        others: set[jax.Device] = set()
        for value in values:
            if (
                internals.is_committed(value)
                if type(value) is internals.ConcreteArray
                else isinstance(value, jax.Array) and value.committed
            ):
                devices = value.devices()
                # Results of functions are committed to the default device, and do not decide.
                if len(devices) == 1 and default not in devices:
                    others |= devices
        device = others.pop() if len(others) == 1 else default
        return None if device == self._first else self._specs.get(device)

    def list_devices(self, deadline: Deadline) -> list[DeviceInfo]:
        return with_meshes(
            DeviceInfo(str(device), device.type, 0, memory_limit_bytes=self._memory[device])
            for device in self._devices
        )

    def containers(self, deadline: Deadline) -> Mapping[Task, Sequence[ContainerStatus]]:
        request = StatusRequest(("containers",))
        return {LOCAL_TASK: list_containers(self._containers, request)[1]}

    def sharding_of(self, ref: VariableRef, deadline: Deadline) -> str:
        array = self.peek(ref)
        return "" if array is None else text_of_sharding(array.sharding, array.ndim)

    def page(self) -> str:
        return ""

    def publish_coordinator(self, status: CoordinatorStatus | None, deadline: Deadline) -> None:
        """Does nothing: a session of this process has no watchers."""

    def close(self) -> None:
        """Frees the state, even if other objects still refer to this backend."""
        self._containers.clear_all()


def _function(callback: Callback) -> Callable[[Sequence[Array]], Sequence[Array]]:
    """Returns a function that runs a callback in the thread of the step, after pending effects."""
    if not callback.effects:
        return callback

    def call(operands: Sequence[Array]) -> Sequence[Array]:
        # Programs with callbacks inside of loops may still run; theirs come first.
        jax.effects_barrier()
        return callback(operands)

    return call

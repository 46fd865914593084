"""Runs steps in this process, with variables of the session's own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import jax

from jflow import _forks, lowering, xla
from jflow.cluster import LOCAL_TASK
from jflow.deadline import Deadline
from jflow.execution import InlineStep, LinkedPlan, link, local_devices, put
from jflow.graph import VariableRef
from jflow.graph.callbacks import Callback
from jflow.partition import Partition, Segment
from jflow.placement import Inventory
from jflow.plan import Plan, Program, VariableKey
from jflow.records import Roots
from jflow.resources import Containers
from jflow.runtime.backend import Array, DeviceInfo, Step
from jflow.xla.compile import Executable


@_forks.guarded("inventory", "lower", "register", "list_devices", ignored=("close",))
class LocalBackend:
    """A session without a cluster: its devices are this process's, its state dies with it."""

    def __init__(self) -> None:
        _forks.mark_used()
        self._devices = local_devices(LOCAL_TASK)
        self._store = Containers(LOCAL_TASK, Roots.anywhere())
        self._names = itertools.count()
        self._prepared: dict[str, Callable[[], Executable]] = {}
        self._constants: dict[str, Array] = {}

    owner = "local"
    keeps_weak_types = True

    def inventory(self, deadline: Deadline) -> Inventory:
        return Inventory(LOCAL_TASK, (LOCAL_TASK,), lambda _: tuple(self._devices))

    def lower(self, segment: Segment) -> Program:
        lowered = lowering.lower(
            segment.ops, segment.reads, segment.inputs, segment.writes, segment.outputs
        )
        constants = tuple(self.keep(array) for array in lowered.constants)
        device = self._devices[segment.device]
        name = f"program {next(self._names)}"
        with lowering.explained(segment.ops, xla.export_platform(device)):
            self._prepared[name] = lowering.prepare(lowered.jaxpr, device, segment.donated)
        return Program(name, constants, segment.donated)

    def keep(self, constant: Array) -> str:
        name = f"constant {next(self._names)}"
        self._constants[name] = constant
        return name

    def register(
        self, plans: Partition, n_fetches: int, callbacks: Sequence[Callback] = ()
    ) -> Step:
        executables = self._compiled([p.digest for plan in plans for p in plan.programs])
        linked = [self._linked(plan, self._devices[plan.device], executables) for plan in plans]
        return InlineStep(linked, n_fetches, self._store, [*map(_function, callbacks)])

    def _compiled(self, names: Sequence[str]) -> dict[str, Executable]:
        prepared = [self._prepared.pop(name) for name in names]
        if len(names) == 1:
            return {names[0]: prepared[0]()}
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            return dict(zip(names, threads.map(lambda compile_: compile_(), prepared), strict=True))

    def _linked(
        self, plan: Plan, device: jax.Device, executables: Mapping[str, Executable]
    ) -> LinkedPlan:
        return link(
            plan,
            device,
            lambda program: executables[program.digest],
            lambda name: put(self._constants.pop(name), device),
        )

    def peek(self, ref: VariableRef) -> jax.Array | None:
        device = next((device for device in self._devices if str(device) == str(ref.spec)), None)
        key = VariableKey(ref.container, ref.name)
        return None if device is None else self._store.peek(device, key)

    def list_devices(self, deadline: Deadline) -> list[DeviceInfo]:
        return [DeviceInfo(str(device), device.type, 0) for device in self._devices]

    def close(self) -> None:
        """Frees the state, which somebody may still know the way to; nothing runs elsewhere."""
        self._store.clear_all()


def _function(callback: Callback) -> Callable[[Sequence[Array]], Sequence[Array]]:
    """Calls a callback in the thread of the step."""
    if not callback.effects:
        return callback

    def call(operands: Sequence[Array]) -> Sequence[Array]:
        # Loops before it may still run, with callbacks of their own that come first.
        jax.effects_barrier()
        return callback(operands)

    return call

"""`PlanLinker`: compiles and links the plans that a task receives."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from jflow.base.cluster import Device, Task
from jflow.base.drivers.loop import all_of
from jflow.base.values import Array, memory_bytes
from jflow.errors import InternalError, InvalidArgumentError
from jflow.net.protocol import Artifacts
from jflow.plan import Plan, Program
from jflow.plan.validator import VALIDATOR
from jflow.plan.xla.cache import ProgramCache
from jflow.plan.xla.compilation import Compile, compile_here
from jflow.plan.xla.compile import CompiledProgram
from jflow.plan.xla.export import digest_of
from jflow.plan.xla.hardware import DeviceOrMesh
from jflow.plan.xla.validation import ValidProgram
from jflow.state.quotas import UNKNOWN, ChargedSession
from jflow.task.execution.devices import put
from jflow.task.execution.functions import HostFunction
from jflow.task.execution.link import link
from jflow.task.execution.linked import LinkedPlan
from jflow.task.execution.memory import program_limits

_CONSTANTS_BYTES = 4 << 30
"""How many bytes of constants a task keeps; linked plans keep theirs alive beyond it."""


@dataclass
class DroppedError(Exception):
    """A cache evicted an artifact after the worker had found it."""

    digest: str


def sent(artifacts: Artifacts, digest: str) -> Callable[[], np.ndarray[Any, Any]]:
    """Returns a function that returns a sent artifact or raises DroppedError."""

    def artifact() -> np.ndarray[Any, Any]:
        if digest not in artifacts:
            raise DroppedError(digest)
        return artifacts[digest]

    return artifact


class ConstantCache:
    """LRU cache of arrays by digest and device; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrays: OrderedDict[tuple[str, str], Any] = OrderedDict()

    def has(self, digest: str, device: DeviceOrMesh) -> bool:
        """Whether the constant is on the device."""
        with self._lock:
            return (digest, str(device)) in self._arrays

    def get(self, digest: str, device: DeviceOrMesh, source: Callable[[], Array]) -> Any:
        """Returns a constant on the device; transfers it from `source()` if it is not cached."""
        key = (digest, str(device))
        with self._lock:
            if key not in self._arrays:
                self._arrays[key] = put(source(), device)
            self._arrays.move_to_end(key)
            array = self._arrays[key]
            while sum(map(memory_bytes, self._arrays.values())) > _CONSTANTS_BYTES:
                self._arrays.popitem(last=False)
        return array


ValidPrograms = Mapping[str, ValidProgram]
"""Programs by their digests."""


class PlanLinker:
    """Compiles and links plans for the devices of one task. Call it on the event loop only.

    Args:
      task: the task.
      devices: this process's devices by name.
      threads: compile and link.
      compiled_by: what compiles programs.

    Attributes:
      programs: the cache of compiled programs.
    """

    def __init__(
        self,
        task: Task,
        devices: Mapping[Device, DeviceOrMesh],
        threads: ThreadPoolExecutor,
        compiled_by: Compile = compile_here,
    ) -> None:
        self._task = task
        self._devices = devices
        self._threads = threads
        self._constants = ConstantCache()
        self._memory = program_limits(devices)
        self.programs = ProgramCache(compiled_by=compiled_by)

    def check(self, plans: Sequence[Plan], artifacts: Artifacts) -> None:
        """Checks that plans are for this task's devices and that artifacts have their digests."""
        task = self._task
        for plan in plans:
            if plan.device not in self._devices:
                raise InvalidArgumentError(
                    f"{task} received a plan for {plan.device}; "
                    f"it has the devices {', '.join(map(str, self._devices))}",
                    task=str(task),
                )
        for digest, artifact in artifacts.items():
            if digest_of(artifact) != digest:
                raise InvalidArgumentError(f"the bytes of artifact {digest} have another digest")

    def missing(self, plans: Sequence[Plan], artifacts: Artifacts) -> tuple[str, ...]:
        """Returns the digests of artifacts that plans need and that are neither cached nor sent."""
        missing: dict[str, None] = {}
        for plan in plans:
            device = self._devices[plan.device]
            for program in plan.programs:
                if not self.programs.has(program.digest, device, program.donated):
                    missing[program.digest] = None
            for digest in plan.constants:
                if not self._constants.has(digest, device):
                    missing[digest] = None
        return tuple(digest for digest in missing if digest not in artifacts)

    async def link(
        self,
        plans: Sequence[Plan],
        artifacts: Artifacts,
        functions: Mapping[str, HostFunction],
        creator: ChargedSession = UNKNOWN,
    ) -> list[LinkedPlan]:
        """Compiles the programs that are new on this task, and links the plans.

        Args:
          plans, artifacts: the plans and what was sent with them.
          functions: host functions that they may call in addition to those of every task.
          creator: the session whose step they are of.

        Raises:
          DroppedError: if an artifact is not cached any more.
          InvalidArgumentError: if a program is refused or cannot be compiled, or a plan is
            malformed.
          DeadlineExceededError, InternalError: as what compiles programs.
        """
        valid = await self._validate(plans, artifacts)
        await self._compile(plans, valid)
        loop = asyncio.get_running_loop()
        made_with = (artifacts, valid, functions, creator)
        return [
            await loop.run_in_executor(self._threads, self._link, plan, *made_with)
            for plan in plans
        ]

    async def _validate(self, plans: Sequence[Plan], artifacts: Artifacts) -> ValidPrograms:
        """Returns the programs that were sent, as the validator has serialized them again."""
        programs = {program.digest for plan in plans for program in plan.programs}
        sent_here = [digest for digest in artifacts if digest in programs]
        validations = [
            VALIDATOR.validate(digest, artifacts[digest].tobytes()) for digest in sent_here
        ]
        valid = await all_of(map(asyncio.wrap_future, validations))
        return dict(zip(sent_here, valid, strict=True))

    async def _compile(self, plans: Sequence[Plan], valid: ValidPrograms) -> None:
        """Compiles several programs concurrently; `_link` finds them in the cache."""
        loop = asyncio.get_running_loop()
        work = [(plan.device, program) for plan in plans for program in plan.programs]
        # A thread must not wait for a program that another thread compiles: repeated registrations
        # of one slow program would occupy all threads. So the event loop waits first.
        for device, program in work:
            program_future = self.programs.future_of(
                program.digest, self._devices[device], program.donated
            )
            if program_future is not None and not program_future.done():
                await asyncio.wait([asyncio.wrap_future(program_future)])
        if len(work) > 1:
            with suppress(InternalError):  # `_link` meets it again, and knows the operation
                await all_of(
                    loop.run_in_executor(self._threads, self._executable, *each, valid)
                    for each in work
                )

    def _link(
        self,
        plan: Plan,
        artifacts: Artifacts,
        valid: ValidPrograms,
        functions: Mapping[str, HostFunction],
        creator: ChargedSession,
    ) -> LinkedPlan:
        device = self._devices[plan.device]
        return link(
            plan,
            device,
            lambda program: self._executable(plan.device, program, valid),
            lambda digest: self._constants.get(digest, device, sent(artifacts, digest)),
            functions,
            creator=creator,
            memory_bytes=self._memory.get(plan.device, 0),
        )

    def _executable(
        self, device: Device, program: Program, valid: ValidPrograms
    ) -> CompiledProgram:
        def source() -> ValidProgram:
            if program.digest not in valid:
                raise DroppedError(program.digest)
            return valid[program.digest]

        return self.programs.get(program.digest, self._devices[device], program.donated, source)

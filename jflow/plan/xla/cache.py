"""`ProgramCache`: the programs that a process has compiled."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from jflow.plan.xla.compilation import Compile, compile_here
from jflow.plan.xla.compile import CompiledProgram, compile_exported
from jflow.plan.xla.hardware import DeviceOrMesh
from jflow.plan.xla.shared_cache import SharedCache
from jflow.plan.xla.validation import ValidProgram

_Key = tuple[str, DeviceOrMesh, tuple[int, ...]]


class ProgramCache:
    """A thread-safe LRU cache of executables by program digest.

    Each program is compiled once per device.

    Args:
      capacity: maximum number of executables; registered plans keep theirs in any case.
      compiled_by: what compiles them.
    """

    def __init__(self, capacity: int = 512, compiled_by: Compile = compile_here) -> None:
        self._compiled_by = compiled_by
        self._executables: SharedCache[_Key, CompiledProgram] = SharedCache(capacity)

    @property
    def n_compiled(self) -> int:
        """Number of compilations so far."""
        return self._executables.n_made

    def has(self, digest: str, device: DeviceOrMesh, donated: tuple[int, ...]) -> bool:
        """Whether the program is compiled or being compiled."""
        return self.future_of(digest, device, donated) is not None

    def get(
        self,
        digest: str,
        device: DeviceOrMesh,
        donated: tuple[int, ...],
        source: Callable[[], ValidProgram],
    ) -> CompiledProgram:
        """Returns the executable; compiles `source()` if it is not cached.

        Raises:
          InvalidArgumentError: if the program cannot be compiled; the failure is not cached.
          DeadlineExceededError, InternalError: as what compiles it.
        """
        return self._executables.get(
            (digest, device, donated),
            lambda: compile_exported(source(), device, donated, self._compiled_by),
        )

    def future_of(
        self, digest: str, device: DeviceOrMesh, donated: tuple[int, ...]
    ) -> Future[CompiledProgram] | None:
        """Returns the future of a program that is cached or being compiled; None if neither."""
        return self._executables.future_of((digest, device, donated))

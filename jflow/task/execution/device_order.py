"""`DEVICE_ORDER`: which programs the devices of this process may run at a time.

The parts of a program on a mesh wait for each other. If two such programs started in different
orders on two devices, neither would end; if another program keeps one device busy for 40 s
meanwhile, XLA ends the process. So a program on a mesh starts when it has all of its devices for
itself, and what is cancelled before has started on none of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax

from jflow.plan.xla.compile import CompiledProgram
from jflow.plan.xla.hardware import DeviceOrMesh, devices_of


class DeviceUse:
    """A program that uses devices, or waits for them.

    Args:
      on: the device, or the mesh, of which it needs all devices for itself.
    """

    __slots__ = ("devices", "is_exclusive", "then")

    def __init__(self, on: DeviceOrMesh) -> None:
        self.devices = frozenset(devices_of(on))
        self.is_exclusive = len(self.devices) > 1
        self.then: Callable[[], None] | None = None

    def excludes(self, other: DeviceUse) -> bool:
        """Whether two programs must not run at the same time."""
        is_either = self.is_exclusive or other.is_exclusive
        return is_either and not self.devices.isdisjoint(other.devices)


class DeviceOrder:
    """The programs that use devices, in order of arrival; thread-safe.

    Invariant: a program runs if no earlier one excludes it. "Waits for" therefore points to earlier
    programs only, so that there is no deadlock and none waits for ever behind later ones.

    Attributes:
      has_meshes: whether there has been a program on a mesh.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uses: list[DeviceUse] = []
        self.has_meshes = False

    def begin(self, use: DeviceUse, then: Callable[[], None]) -> bool:
        """Returns whether a program may start; if not, `then` is called as soon as it may.

        `end` must follow in any case, also instead of a start.
        """
        with self._lock:
            self.has_meshes |= use.is_exclusive
            self._uses.append(use)
            if self._may_run(use):
                return True
            use.then = then
            return False

    def end(self, use: DeviceUse) -> None:
        """Ends the use of a program, or its wait; others start then, in the thread of this call."""
        with self._lock:
            self._uses.remove(use)
            ready = [one for one in self._uses if one.then is not None and self._may_run(one)]
            calls = [one.then for one in ready]
            for one in ready:
                one.then = None
        for call in calls:
            if call is not None:
                call()

    def _may_run(self, use: DeviceUse) -> bool:
        for other in self._uses:
            if other is use:
                return True
            if other.excludes(use):
                return False
        raise AssertionError("a use that has ended cannot start")

    @contextmanager
    def using(self, on: DeviceOrMesh) -> Iterator[None]:
        """Context manager of a program in the thread of its caller, which waits for its devices."""
        use, may_start = DeviceUse(on), threading.Event()
        try:
            if not self.begin(use, may_start.set):
                may_start.wait()
            yield
        finally:
            self.end(use)

    def ordered(self, program: CompiledProgram, on: DeviceOrMesh) -> CompiledProgram:
        """Wraps a program so that its caller's thread starts it when the order allows it."""
        is_mesh = DeviceUse(on).is_exclusive

        def call(*args: Any, **options: Any) -> list[jax.Array]:
            if not is_mesh and not self.has_meshes:
                return program(*args)
            with self.using(on):
                return program(*args, **options)

        return call


DEVICE_ORDER = DeviceOrder()
"""The order of all programs of this process, of whatever server or session."""

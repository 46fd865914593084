"""`DEVICE_ORDER`: which programs the devices of this process may run at a time.

The parts of a program on a mesh wait for each other. If two such programs started in different
orders on two devices, neither would end; if another program keeps one device busy for 40 s
meanwhile, XLA ends the process. So a program on a mesh starts when it has all of its devices for
itself, and what is cancelled before has started on none of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import jax
from jax.sharding import Mesh

from jflow.errors import UnimplementedError
from jflow.plan.xla.compile import CompiledProgram
from jflow.plan.xla.hardware import DeviceOrMesh, devices_of
from jflow.plan.xla.mesh_program import MeshProgram

_CHECKED_S = 0.05
"""How often a thread that waits for devices looks whether it has to end."""


class DeviceUse:
    """A program that uses devices, or waits for them.

    Args:
      on: the device, or the mesh, of which it needs all devices for itself.
    """

    __slots__ = ("devices", "is_exclusive", "then")

    def __init__(self, on: DeviceOrMesh) -> None:
        self.devices = frozenset(devices_of(on))
        self.is_exclusive = isinstance(on, Mesh)
        self.then: Callable[[], None] | None = None

    def excludes(self, other: DeviceUse) -> bool:
        """Whether two programs must not run at the same time."""
        is_either = self.is_exclusive or other.is_exclusive
        return is_either and not self.devices.isdisjoint(other.devices)


class _OfThread(threading.local):
    """What a thread is doing.

    Attributes:
      devices: those that it is running programs on; more than one program if the first one calls a
        function of Python.
      check: raises an error if it must not wait any longer.
    """

    devices: frozenset[jax.Device] = frozenset()
    check: Callable[[str], None] | None = None


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
        self._here = _OfThread()
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
            with suppress(RuntimeError):  # the loop that waited was closed, and ends its use itself
                if call is not None:
                    call()

    def _may_run(self, use: DeviceUse) -> bool:
        for other in self._uses:
            if other is use:
                return True
            if other.excludes(use):
                return False
        raise AssertionError("a use that has ended cannot start")

    # In the thread of the caller --------------------------------------------------------------

    @contextmanager
    def checking(self, check: Callable[[str], None]) -> Iterator[None]:
        """Context manager in which this thread calls `check` while it waits for devices."""
        before, self._here.check = self._here.check, check
        try:
            yield
        finally:
            self._here.check = before

    @contextmanager
    def using(self, on: DeviceOrMesh) -> Iterator[None]:
        """Context manager of a program in the thread of its caller, which waits for its devices.

        Raises:
          UnimplementedError: if the program is for a mesh, and the thread runs a program of one of
            its devices, which has called it back.
        """
        use, held = DeviceUse(on), self._here.devices
        is_inside = not held.isdisjoint(use.devices)
        if is_inside and use.is_exclusive:
            raise UnimplementedError(
                f"a function that a program calls while it runs cannot use {on}: the program has "
                "one of its devices; return the value, and call the function after it"
            )
        self._here.devices = held | use.devices
        try:
            if is_inside:
                yield
                return
            with self._granted(use):
                yield
        finally:
            self._here.devices = held

    @contextmanager
    def _granted(self, use: DeviceUse) -> Iterator[None]:
        may_start = threading.Event()
        try:
            if not self.begin(use, may_start.set):
                while not may_start.wait(_CHECKED_S):
                    if self._here.check is not None:
                        self._here.check("waiting for devices")
            yield
        finally:
            self.end(use)

    def ordered(
        self, program: CompiledProgram, on: DeviceOrMesh, *, calls_python: bool = False
    ) -> CompiledProgram:
        """Wraps a program so that its caller's thread starts it when the order allows it.

        From the first mesh on, a program keeps its device until its results are computed.

        Args:
          program: the program.
          on: its device or mesh.
          calls_python: whether it calls functions while it runs. These may use devices, too, on
            other threads; so it is not in the order, which it could keep waiting for ever.
        """
        is_mesh = isinstance(on, Mesh)

        def call(*args: Any, **options: Any) -> list[jax.Array]:
            if not is_mesh and not self.has_meshes:
                return program(*args)
            if isinstance(program, MeshProgram):
                compilation = program.compilation(*args, **options)
                if compilation is not None:
                    compilation.make()
            with self._inside(on) if calls_python else self.using(on):
                results = program(*args, **options)
                for result in results[-1:]:  # they are computed together
                    result.block_until_ready()
                return results

        return call

    @contextmanager
    def _inside(self, on: DeviceOrMesh) -> Iterator[None]:
        held, self._here.devices = self._here.devices, self._here.devices | {*devices_of(on)}
        try:
            yield
        finally:
            self._here.devices = held


DEVICE_ORDER = DeviceOrder()
"""The order of all programs of this process, of whatever server or session."""

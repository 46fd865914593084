"""What takes the place of clocks, threads, random numbers and the validator in a simulation."""

from __future__ import annotations

import random
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

from jflow.base.drivers import LoopDriver
from jflow.plan.xla.cache import ProgramCache
from jflow.plan.xla.compile import CompiledProgram, compile_exported
from jflow.plan.xla.validation import ValidProgram, inspected
from jflow.task.server import running
from jflow.task.worker import device_pool, inline, linking
from tests.simulation.loop import SimulatedLoop, SimulatedThreads

_ROOMS = ("jflow.base", "jflow.net", "jflow.state", "jflow.task", "jflow.plan")
_P_SLOW = 0.1
_SLOW_S = 5e-3


class _Clock:
    """The clock by which programs are timed: at times one takes so long that it gets a thread."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop, self._extra_s = loop, 0.0

    def now(self) -> float:
        if self._loop.random.random() < _P_SLOW:
            self._extra_s += _SLOW_S
        return self._loop.time() + self._extra_s


@contextmanager
def simulated(loop: SimulatedLoop) -> Iterator[None]:
    """A context in which jflow has the time and the random numbers of a simulation, and no threads.

    Programs are compiled once in the process; each life of a task believes that it does so itself.
    """
    rng = random.Random(f"secrets {loop.random.random()}")
    clock = SimpleNamespace(
        monotonic=loop.time, perf_counter=loop.time, time=loop.time, sleep=_no_sleep
    )
    numbers = SimpleNamespace(
        randbits=rng.getrandbits,
        token_bytes=rng.randbytes,
        token_hex=lambda n=16: rng.randbytes(n).hex(),
    )
    timing = _Clock(loop)
    changes: list[tuple[Any, str, Any]] = [
        (module, name, clock if value is time else loop.time if callable(value) else numbers)
        for module, name, value in _places()
    ]
    changes += [
        (LoopDriver, "now", staticmethod(loop.time)),
        (LoopDriver, "wall_time", staticmethod(lambda: 1.7e9 + loop.time())),
        (LoopDriver, "random_bits", staticmethod(rng.getrandbits)),
        (device_pool, "ThreadPoolExecutor", SimulatedThreads),
        (device_pool, "time", SimpleNamespace(perf_counter=timing.now)),
        (inline, "now", timing.now),
        (linking, "VALIDATOR", _Validator()),
        (linking, "ProgramCache", _Programs),
        (running, "file_system_id", lambda: "that of a simulation"),
    ]
    former = [(where, name, vars(where)[name]) for where, name, _ in changes]
    for where, name, value in changes:
        setattr(where, name, value)
    try:
        yield
    finally:
        for where, name, value in reversed(former):
            setattr(where, name, value)


def _no_sleep(seconds: float) -> None:
    raise AssertionError(f"something sleeps for {seconds} s on the event loop")


@cache
def _places() -> tuple[tuple[ModuleType, str, Any], ...]:
    """Returns where jflow has the real clock and real random numbers."""
    functions: tuple[Callable[..., Any], ...] = (time.perf_counter, time.monotonic, time.time)
    return tuple(
        (module, name, value)
        for module_name, module in sorted(sys.modules.items())
        if module_name.startswith(_ROOMS)
        for name, value in vars(module).items()
        if value is time or value is secrets or any(value is one for one in functions)
    )


class _Programs(ProgramCache):
    """The programs that one life of a task has compiled."""

    def get(
        self,
        digest: str,
        device: Any,
        donated: tuple[int, ...],
        source: Callable[[], ValidProgram],
    ) -> CompiledProgram:
        def own() -> CompiledProgram:
            compiled = _compiled(digest, device, donated, source())

            # What is known of a program hangs on its object, and ends with the life of a task.
            def program(*args: Any) -> list[Any]:
                return compiled(*args)

            return program

        return self._executables.get((digest, device, donated), own)


_COMPILED: dict[Any, CompiledProgram] = {}


def _compiled(
    digest: str, device: Any, donated: tuple[int, ...], valid: ValidProgram
) -> CompiledProgram:
    key = digest, donated
    if key not in _COMPILED:
        _COMPILED[key] = compile_exported(valid, device, donated)
    return _COMPILED[key]


@cache
def _valid(digest: str, data: bytes) -> ValidProgram:
    return inspected(data)


class _Validator:
    """Stands for the validator, which is a process: programs of a simulation are its own."""

    def validate(self, digest: str, data: bytes) -> Future[ValidProgram]:
        future: Future[ValidProgram] = Future()
        future.set_result(_valid(digest, data))
        return future

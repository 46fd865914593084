"""Workers of two tasks, joined in memory, and plans that are written by hand."""

import asyncio
import gc
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from jflow.base.cluster import Device, Task
from jflow.compiler import lowering
from jflow.plan import (
    Plan,
    Program,
    Run,
    VariableKey,
    VariableSpec,
    xla,
)
from jflow.task.execution import local_devices
from jflow.task.worker import Worker
from jflow.testing import PATIENCE_S
from tests.variables import get_variable, set_variable

A, B = Task("a", 0), Task("b", 0)
A0, A1 = Device(A, "CPU", 0), Device(A, "CPU", 1)
B0 = Device(B, "CPU", 0)
X = VariableSpec(VariableKey("", "x"), "float32", (3,))
THREE = jax.ShapeDtypeStruct((3,), np.float32)


@cache
def code_of(function, n_args):
    """A program of vectors of three numbers: its digest and its bytes."""
    jaxpr = jax.make_jaxpr(function)(*[THREE] * n_args)
    code = lowering.export(jaxpr, "cpu")
    return xla.digest_of(code), code


def double(x):
    return [x * 2]


def add(x, y):
    return [x + y]


def copied(x):
    return [jnp.copy(x)]


def program_run(function, n_args=1, donated=(), **fields):
    return Run(Program(code_of(function, n_args)[0], (), donated), **fields)


ARTIFACTS = {"double": (double, 1), "add": (add, 2), "copied": (copied, 1)}


def artifacts():
    return dict(code_of(*what) for what in ARTIFACTS.values())


def vector(number):
    return np.full(3, number, np.float32)


class TensorTransport:
    """Hands values over in memory; what it does with one may be replaced by a test."""

    def __init__(self):
        self.workers = {}
        self.sent = []

    async def deliver(self, target, step, values):
        self.sent += [(target, step, edge) for edge in values]
        await asyncio.sleep(0)
        for edge, tensor in values.items():
            self.workers[target].deliver(step, edge, None if tensor is None else tensor.copy())


@contextmanager
def workers():
    transport = TensorTransport()
    with ThreadPoolExecutor(4) as threads:
        for task in (A, B):
            transport.workers[task] = Worker(task, local_devices(task), transport, threads)
        yield transport


def check(use):
    """Runs `use(a, b, transport)` on a loop.

    Nothing may be left at either worker after it, go on, or fail unseen.
    """
    unseen = []

    async def check():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unseen.append(context))
        with workers() as transport:
            a, b = transport.workers[A], transport.workers[B]
            async with asyncio.timeout(2 * PATIENCE_S) as limit:
                await use(a, b, transport)
            assert not limit.expired(), "it waited for what did not come"
            for worker in (a, b):
                assert len(worker._context.rendezvous) == 0, "no value is left behind"
            assert asyncio.all_tasks() == {asyncio.current_task()}
        gc.collect()

    asyncio.run(check())
    assert unseen == []


async def registered(worker, *plans):
    """Registers plans with everything they need; returns the handle."""
    registered = await worker.register(plans, artifacts())
    assert registered.handle
    assert registered.missing == ()
    return registered.handle


def plan_on(device, *steps, n_slots=4, variables=(X,)):
    return Plan(device, n_slots, variables, (steps,))


def set_up(worker, device=A0, number=1.0):
    with jax.default_device(worker._devices[device]):
        set_variable(worker.containers, device, X, jnp.full(3, number, np.float32))


UPDATE = (double, 1, (0,))


def update_on(device=A0):
    """Doubles x where it is."""
    return plan_on(device, program_run(*UPDATE, reads=(0,), writes=(0,)))


def value_of(worker, device=A0):
    return get_variable(worker.containers, device, X).buffer.array


async def until(condition):
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)

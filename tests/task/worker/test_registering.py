"""Registering plans with workers, and what they need for that."""

import asyncio

import numpy as np
import pytest

from jflow import errors
from jflow.base.cluster import Device
from jflow.net.protocol import Registered
from jflow.plan import (
    Feed,
    Fetch,
    Program,
    Run,
    xla,
)
from tests.task.worker.two_workers import (
    A0,
    A1,
    B0,
    A,
    add,
    artifacts,
    check,
    code_of,
    double,
    plan_on,
    program_run,
    registered,
    vector,
)

DOUBLE = plan_on(A0, Feed(0, 0), program_run(double, inputs=(0,), outputs=(1,)), Fetch(1, 0))


def test_missing_programs_are_asked_for_and_the_call_is_made_again():
    async def use(a, *_):
        digest, code = code_of(double, 1)
        assert await a.register([DOUBLE], {}) == Registered(0, (digest,))
        again = await a.register([DOUBLE], {digest: code})
        assert again.handle
        assert again.missing == ()

    check(use)


def test_what_was_compiled_for_one_is_there_for_all():
    async def use(a, *_):
        await registered(a, DOUBLE)
        assert a.programs.n_compiled == 1
        another = await a.register([DOUBLE], {})
        assert (another.handle > 0, another.missing) == (True, ())
        assert a.programs.n_compiled == 1
        elsewhere = plan_on(A1, *DOUBLE.instructions)
        assert (await a.register([elsewhere], {})).missing == (code_of(double, 1)[0],)

    check(use)


def test_two_that_register_a_program_at_once_wait_for_one_compilation():
    async def use(a, *_):
        handles = await asyncio.gather(*(registered(a, DOUBLE) for _ in range(4)))
        assert len(set(handles)) == 4
        assert a.programs.n_compiled == 1

    check(use)


def test_a_constant_is_asked_for_sent_once_and_is_the_last_argument():
    async def use(a, *_):
        constant = vector(10)
        digest, code = code_of(add, 2)
        program = Program(digest, (xla.digest_of(constant),))
        plan = plan_on(A0, Feed(0, 0), Run(program, inputs=(0,), outputs=(1,)), Fetch(1, 0))
        missing = (await a.register([plan], {})).missing
        assert set(missing) == {digest, xla.digest_of(constant)}
        sent = {digest: code, xla.digest_of(constant): constant}
        handle = (await a.register([plan], sent)).handle
        (got,) = await a.run_plans(1, handle, [vector(1)])
        assert got.tolist() == [11.0] * 3
        assert (await a.register([plan], {})).missing == ()

    check(use)


def test_the_size_of_what_programs_give_is_known_before_they_run():
    async def use(a, *_):
        digest, code = code_of(double, 1)
        assert (await a.register([DOUBLE], {digest: code})).n_bytes == 12

    check(use)


def test_what_a_cache_dropped_meanwhile_is_asked_for_again(monkeypatch):
    async def use(a, *_):
        monkeypatch.setattr(a.programs, "has", lambda *_: True)
        digest, code = code_of(double, 1)
        assert await a.register([DOUBLE], {}) == Registered(0, (digest,))
        assert (await a.register([DOUBLE], {digest: code})).handle

    check(use)


def test_bytes_under_another_digest_are_refused():
    async def use(a, *_):
        digest, code = code_of(double, 1)
        for bad in (code_of(add, 2)[1], code[:-1], code.reshape(1, -1), code.astype(np.int8)):
            with pytest.raises(errors.InvalidArgumentError, match="have another digest"):
                await a.register([DOUBLE], {digest: bad})
        assert a.programs.n_compiled == 0

    check(use)


def test_bytes_that_are_no_program_are_refused_and_forgotten():
    async def use(a, *_):
        noise = np.arange(100, dtype=np.uint8)
        digest = xla.digest_of(noise)
        plan = plan_on(A0, Run(Program(digest)))
        for _ in range(2):
            with pytest.raises(errors.InvalidArgumentError, match="is refused"):
                await a.register([plan], {digest: noise})
        assert (await a.register([plan], {})).missing == (digest,)

    check(use)


@pytest.mark.parametrize("device", [B0, Device(A, "GPU", 0), Device(A, "CPU", 99)], ids=str)
def test_a_plan_for_a_device_of_another_task_is_refused(device):
    async def use(a, *_):
        with pytest.raises(
            errors.InvalidArgumentError, match=f"{A} received a plan for {device}"
        ) as caught:
            await a.register([DOUBLE, plan_on(device)], artifacts())
        assert caught.value.task == str(A)

    check(use)

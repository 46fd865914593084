"""Workers of two tasks, joined in memory, run plans that were written by hand."""

import asyncio
import gc
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jflow import errors, lowering, xla
from jflow.cluster import Device, Task
from jflow.execution import local_devices
from jflow.plan import (
    Call,
    Feed,
    Fetch,
    Plan,
    Program,
    Recv,
    ResourceSpec,
    Run,
    Send,
    VariableKey,
    VariableSpec,
)
from jflow.protocol import Registered
from jflow.resources import Component, Dequeue, Enqueue, QueueSpec, Reader
from jflow.worker import Worker, all_of

A, B = Task("a", 0), Task("b", 0)
A0, A1 = Device(A, "CPU", 0), Device(A, "CPU", 1)
B0 = Device(B, "CPU", 0)
X = VariableSpec(VariableKey("", "x"), "float32", (3,))
THREE = jax.ShapeDtypeStruct((3,), np.float32)
PATIENCE_S = 20.0


@cache
def _code(function, n_args):
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


def _run(function, n_args=1, donated=(), **fields):
    return Run(Program(_code(function, n_args)[0], (), donated), **fields)


ARTIFACTS = {"double": (double, 1), "add": (add, 2), "copied": (copied, 1)}


def _artifacts():
    return dict(_code(*what) for what in ARTIFACTS.values())


def _vector(number):
    return np.full(3, number, np.float32)


class Transport:
    """Hands values over in memory; what it does with one may be replaced by a test."""

    def __init__(self):
        self.workers = {}
        self.sent = []

    async def deliver(self, target, step, edge, tensor):
        self.sent.append((target, step, edge))
        await asyncio.sleep(0)
        self.workers[target].deliver(step, edge, None if tensor is None else tensor.copy())


@contextmanager
def _workers():
    transport = Transport()
    with ThreadPoolExecutor(4) as threads:
        for task in (A, B):
            transport.workers[task] = Worker(task, local_devices(task), transport, threads)
        yield transport


def _check(use):
    """Runs `use(a, b, transport)` on a loop.

    Nothing may be left at either worker after it, go on, or fail where nobody looks.
    """
    unseen = []

    async def check():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unseen.append(context))
        with _workers() as transport:
            a, b = transport.workers[A], transport.workers[B]
            async with asyncio.timeout(2 * PATIENCE_S) as limit:
                await use(a, b, transport)
            assert not limit.expired(), "it waited for what did not come"
            for worker in (a, b):
                assert len(worker._around.rendezvous) == 0, "no value is left behind"
            assert asyncio.all_tasks() == {asyncio.current_task()}
        gc.collect()

    asyncio.run(check())
    assert unseen == []


async def _ready(worker, *plans):
    """Registers plans with everything they need; returns the handle."""
    registered = await worker.register(plans, _artifacts())
    assert registered.handle
    assert registered.missing == ()
    return registered.handle


def _plan(device, *steps, n_slots=4, variables=(X,)):
    return Plan(device, n_slots, variables, (steps,))


def _set_up(worker, device=A0, number=1.0):
    with jax.default_device(worker._devices[device]):
        worker.store.set(device, X, jnp.full(3, number, np.float32))


UPDATE = (double, 1, (0,))


def _update(device=A0):
    """Doubles x where it is."""
    return _plan(device, _run(*UPDATE, reads=(0,), writes=(0,)))


def _value(worker, device=A0):
    return worker.store.get(device, X).buffer.array


async def _until(condition):
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)


# Values -------------------------------------------------------------------------------------------


def test_fed_and_fetched_values_go_by_the_order_of_their_indices():
    async def use(a, *_):
        plans = [
            _plan(A1, Feed(7, 0), _run(double, inputs=(0,), outputs=(1,)), Fetch(1, 2)),
            _plan(A0, Feed(3, 0), Fetch(0, 9), Feed(5, 1), Fetch(1, 1)),
        ]
        handle = await _ready(a, *plans)
        got = await a.run(1, handle, [_vector(3), _vector(5), _vector(7)])
        assert [value[0] for value in got] == [5, 14, 3]

    _check(use)


def test_values_cross_between_tasks_and_devices_and_come_back():
    there = _plan(
        A0,
        *(Feed(0, 0), Send(1, B0, 0), Send(2, A1, 0)),
        *(Recv(3, B0, 1), Recv(4, A1, 2)),
        _run(add, 2, inputs=(1, 2), outputs=(3,)),
        Fetch(3, 0),
    )
    beside = _plan(A1, Recv(2, A0, 0), _run(double, inputs=(0,), outputs=(1,)), Send(4, A0, 1))
    far = _plan(B0, Recv(1, A0, 0), _run(add, 2, inputs=(0, 0), outputs=(1,)), Send(3, A0, 1))

    async def use(a, b, _):
        handles = await _ready(a, there, beside), await _ready(b, far)
        for step in range(3):
            (got,), nothing = await asyncio.gather(
                a.run(step, handles[0], [_vector(step)]), b.run(step, handles[1], [])
            )
            assert got.tolist() == [4.0 * step] * 3
            assert nothing == []

    _check(use)


def test_strings_stay_on_the_host_on_their_way_between_tasks_and_devices():
    words = np.array([b"a", b"\xff\0"], object)
    digest = xla.digest_of(words)
    there = _plan(
        A0,
        *(Call("identity", (), (0,), (digest,)), Send(1, B0, 0), Send(2, A1, 0)),
        *(Recv(3, B0, 1), Fetch(1, 0), Fetch(0, 1)),
    )
    beside = _plan(A1, Recv(2, A0, 0), Call("identity", (0,), (1,)), Fetch(1, 2))
    far = _plan(B0, Recv(1, A0, 0), Send(3, A0, 0))

    async def use(a, b, _):
        assert (await a.register([there, beside], {})).missing == (digest,)
        here = (await a.register([there, beside], {digest: words})).handle
        handle = await _ready(b, far)
        for step in range(2):
            got, _ = await asyncio.gather(a.run(step, here, []), b.run(step, handle, []))
            assert [value.tolist() for value in got] == [words.tolist()] * 3
            got[1][0] = b"changed"

    _check(use)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (Call("open", (0,), (1,)), "'open'.*identity"),
        (Call("__import__", (0,), (1,)), "identity"),
        (Call("identity", (0, 0), (1,)), "arguments of 'identity'"),
        (Call("identity", (0,), (1, 2)), "does not take"),
    ],
    ids=str,
)
def test_a_call_that_no_function_answers_to_is_refused(call, why):
    async def use(a, *_):
        with pytest.raises(errors.InvalidArgumentError, match=why):
            await a.run(1, await _ready(a, _plan(A0, Feed(0, 0), call)), [np.array([b"a"], object)])

    _check(use)


def test_a_program_does_not_take_strings():
    plan = _plan(A0, Feed(0, 0), _run(double, inputs=(0,), outputs=(1,)), Fetch(1, 0))

    async def use(a, *_):
        with pytest.raises(errors.InvalidArgumentError, match="does not take what it is given"):
            await a.run(1, await _ready(a, plan), [np.array([b"a"] * 3, object)])

    _check(use)


def test_a_bare_signal_makes_a_part_wait():
    waits = _plan(B0, Recv(1, A0, None), Run(None, before=((0, 0),)), Fetch(0, 0))
    signals = _plan(A0, Send(1, B0, None))

    async def use(a, b, _):
        _set_up(b, B0)
        waiting = asyncio.create_task(b.run(1, await _ready(b, waits), []))
        handle = await _ready(a, signals)
        await _until(lambda: len(b._around.rendezvous) == 1)
        _set_up(b, B0, 5.0)
        assert not waiting.done()
        await a.run(1, handle, [])
        assert (await waiting)[0].tolist() == [5.0] * 3

    _check(use)


def test_a_value_may_come_before_its_step_begins_and_after_it_has_ended():
    async def use(a, *_):
        handle = await _ready(a, _plan(A0, Recv(1, B0, 0), Fetch(0, 0)))
        a.deliver(1, 1, _vector(1))
        (got,) = await a.run(1, handle, [])
        assert got.tolist() == [1.0] * 3
        a.deliver(1, 2, _vector(2))

    _check(use)


def test_steps_at_the_same_time_do_not_take_each_other_s_values():
    async def use(a, *_):
        handle = await _ready(a, _plan(A0, Recv(1, B0, 0), Fetch(0, 0)))
        steps = [asyncio.create_task(a.run(step, handle, [])) for step in range(1, 6)]
        await _until(lambda: len(a._around.rendezvous) == 5)
        for step in (3, 1, 5, 4, 2):
            a.deliver(step, 1, _vector(step))
        got = [value.tolist() for (value,) in await asyncio.gather(*steps)]
        assert got == [[float(step)] * 3 for step in range(1, 6)]

    _check(use)


# Variables ----------------------------------------------------------------------------------------


def test_an_update_leaves_the_buffer_where_it_is():
    async def use(a, *_):
        _set_up(a)
        before = _value(a).unsafe_buffer_pointer()
        handle = await _ready(a, _update())
        for step in range(3):
            await a.run(step, handle, [])
        assert _value(a).unsafe_buffer_pointer() == before
        assert _value(a).tolist() == [8.0] * 3

    _check(use)


def test_a_fetched_variable_is_not_changed_by_later_updates():
    async def use(a, *_):
        _set_up(a)
        read = await _ready(a, _plan(A0, Run(None, before=((0, 0),)), Fetch(0, 0)))
        update = await _ready(a, _update())
        before = _value(a).unsafe_buffer_pointer()
        (got,) = await a.run(1, read, [])
        for step in range(2, 5):
            await a.run(step, update, [])
        assert got.tolist() == [1.0] * 3
        assert _value(a).unsafe_buffer_pointer() == before

    _check(use)


def test_a_variable_on_its_way_to_another_task_is_sent_as_it_was_read():
    async def use(a, b, transport):
        _set_up(a)
        send = await _ready(a, _plan(A0, Run(None, before=((0, 0),)), Send(1, B0, 0)))
        receive = await _ready(b, _plan(B0, Recv(1, A0, 0), Fetch(0, 0)))
        update = await _ready(a, _update())
        go_on, deliver = asyncio.Event(), transport.deliver

        async def slow(*args):
            transport.sent.append(args)
            await go_on.wait()
            await deliver(*args)

        transport.deliver = slow
        sending = asyncio.create_task(a.run(1, send, []))
        await _until(lambda: transport.sent)
        await a.run(2, update, [])
        go_on.set()
        (got,), _ = await asyncio.gather(b.run(1, receive, []), sending)
        assert got.tolist() == [1.0] * 3
        before = _value(a).unsafe_buffer_pointer()
        await a.run(3, update, [])
        assert _value(a).unsafe_buffer_pointer() == before, "nobody holds it any more"

    _check(use)


@pytest.mark.parametrize("target", [A1, A0], ids=["another device", "the same device"])
def test_a_variable_on_its_way_to_another_part_is_received_as_it_was_read(target):
    """The part that read it may be done, and its lease ended, before the other part takes it."""

    async def use(a, *_):
        _set_up(a)
        send = _plan(A0, Run(None, before=((0, 0),)), Send(1, target, 0))
        late = _plan(target, Recv(2, B0, None), Recv(1, A0, 0), Fetch(0, 0))
        step = await _ready(a, send, late)
        update = await _ready(a, _update())
        running = asyncio.create_task(a.run(1, step, []))
        await _until(lambda: any(s.kept for s in a._around.rendezvous._steps.values()))
        await asyncio.sleep(0)
        await a.run(2, update, [])
        a.deliver(1, 2, None)
        (got,) = await running
        assert got.tolist() == [1.0] * 3

    _check(use)


def test_a_cancelled_step_holds_no_variable():
    async def use(a, *_):
        _set_up(a)
        plan = _plan(A0, Run(None, before=((0, 0),)), Recv(1, B0, 1), Fetch(0, 0))
        running = asyncio.create_task(a.run(1, await _ready(a, plan), []))
        await _until(lambda: any(s.waiters for s in a._around.rendezvous._steps.values()))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        before = _value(a).unsafe_buffer_pointer()
        await a.run(2, await _ready(a, _update()), [])
        assert _value(a).unsafe_buffer_pointer() == before

    _check(use)


ONE_PLACE = QueueSpec("FIFOQueue", 1, components=(Component("float32", (3,)),))
QUEUE = ResourceSpec("queue", "", "q", "", json.dumps(ONE_PLACE.to_attributes()))


def _enqueue(index, slot):
    return Feed(index, slot), Call("queue.enqueue", (slot,), resources=(0,))


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_cancellation_that_finds_an_element_put_comes_too_late_for_that(goes_on):
    """Who is told that a put was cancelled may do it again."""

    async def use(a, *_):
        steps = [*_enqueue(0, 0), *(_enqueue(1, 1) if goes_on else ())]
        plan = Plan(A0, 2, (), (tuple(steps),), (QUEUE,))
        handle = await _ready(a, plan)
        queue = a.store.resources.get(A0, QUEUE)
        assert queue.submit(Enqueue((_vector(0),)), print)
        running = asyncio.create_task(a.run(1, handle, [_vector(1), _vector(2)][: 1 + goes_on]))
        await _until(lambda: queue.look(lambda state: any(state.n_waiting)))
        first = Dequeue()
        assert queue.submit(first, print)
        running.cancel()
        if goes_on:
            with pytest.raises(asyncio.CancelledError):
                await running
        else:
            assert await running == []
        second = Dequeue()
        assert queue.submit(second, print)
        assert [each.result()[0][0] for each in (first, second)] == [0, 1]
        assert queue.look(lambda state: state.size) == 0

    _check(use)


def test_a_reader_that_is_cancelled_again_while_it_reads_ends_its_turn(monkeypatch):
    """A caller whose time is over cancels, and the end of his session does so once more."""
    may_go_on = threading.Event()
    reads = []

    def read(*args):
        reads.append(args)
        assert may_go_on.wait(PATIENCE_S)
        return original(*args)

    original = Reader.read
    monkeypatch.setattr(Reader, "read", read)
    work = QueueSpec("FIFOQueue", 2, components=(Component("string", ()),))
    queue = ResourceSpec("queue", "", "work", "", json.dumps(work.to_attributes()))
    definition = json.dumps({"kind": "IdentityReader", "options": {}})
    reader = ResourceSpec("reader", "", "r", "", definition)
    steps = (Call("reader.read", (), (0, 1), resources=(0, 1)), Fetch(1, 0))
    plan = Plan(A0, 2, (), (steps,), (reader, queue))

    async def use(a, *_):
        handle = await _ready(a, plan)
        for name in (b"one", b"two"):
            held = a.store.resources.get(A0, queue)
            assert held.submit(Enqueue((np.array(name, object),)), print)
        running = asyncio.create_task(a.run(1, handle, []))
        await _until(lambda: reads)
        for _ in range(3):
            running.cancel()
            await asyncio.sleep(0)
        assert not running.done()
        may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await a.run(2, handle, []) == [b"two"]

    _check(use)


# Failures -----------------------------------------------------------------------------------------

UNINITIALIZED = _plan(A0, Run(None, before=((0, 0),)), Fetch(0, 0))


def test_the_first_error_of_a_part_cancels_its_siblings():
    async def use(a, *_):
        waits = _plan(A1, Recv(1, B0, 0), Fetch(0, 1))
        for plans in [(UNINITIALIZED, waits), (waits, UNINITIALIZED)]:
            handle = await _ready(a, *plans)
            with pytest.raises(errors.FailedPreconditionError, match="'x'") as caught:
                await a.run(1, handle, [])
            assert (caught.value.op, caught.value.task) == ("x", str(A))

    _check(use)


def test_an_error_says_on_which_task_it_happened():
    async def use(a, *_):
        twice = _plan(A0, Send(1, A1, None), Send(1, A1, None))
        with pytest.raises(errors.InternalError, match="sent twice") as caught:
            await a.run(1, await _ready(a, twice), [])
        assert caught.value.task == str(A)

    _check(use)


def test_a_part_that_waits_fails_when_what_it_sends_cannot_be_sent():
    """Else it waits for ever: its partner, without that value, sends nothing back."""

    async def use(a, _, transport):
        async def unreachable(target, *_):
            raise errors.UnavailableError(f"{target} cannot be reached", task=str(target))

        transport.deliver = unreachable
        plan = _plan(A0, Feed(0, 0), Send(1, B0, 0), Recv(2, B0, 1), Fetch(1, 0))
        handle = await _ready(a, plan)
        with pytest.raises(errors.UnavailableError, match="cannot be reached") as caught:
            await asyncio.wait_for(a.run(1, handle, [_vector(1)]), 5)
        assert caught.value.task == str(B)

    _check(use)


def test_a_failed_send_is_an_error_of_the_step():
    async def use(a, _, transport):
        async def unreachable(*_):
            raise errors.UnavailableError("cannot be reached", task=str(B))

        transport.deliver = unreachable
        handle = await _ready(a, _plan(A0, Feed(0, 0), Send(1, B0, 0), Fetch(0, 0)))
        with pytest.raises(errors.UnavailableError) as caught:
            await a.run(1, handle, [_vector(1)])
        assert caught.value.task == str(B)

    _check(use)


@pytest.mark.parametrize("more", [(), (Recv(2, B0, 0),)], ids=["at its end", "in its middle"])
def test_a_cancelled_step_stops_sending(more):
    async def use(a, _, transport):
        started, stopped = asyncio.Event(), asyncio.Event()

        async def stuck(*_):
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        transport.deliver = stuck
        plan = _plan(A0, Feed(0, 0), Send(1, B0, 0), *more)
        handle = await _ready(a, plan)
        running = asyncio.create_task(a.run(1, handle, [_vector(1)]))
        await asyncio.wait_for(started.wait(), PATIENCE_S)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.wait_for(stopped.wait(), PATIENCE_S)

    _check(use)


@pytest.mark.parametrize("bad", [np.zeros(4, np.float32), np.zeros(3, np.int8)], ids=str)
def test_a_fed_value_that_a_program_does_not_take_is_an_error_of_jflow(bad):
    async def use(a, *_):
        plan = _plan(A0, Feed(0, 0), _run(double, inputs=(0,), outputs=(1,)), Fetch(1, 0))
        handle = await _ready(a, plan)
        with pytest.raises(errors.OpError) as caught:
            await a.run(1, handle, [bad])
        assert caught.value.task == str(A)

    _check(use)


def test_the_wrong_number_of_fed_values_is_refused():
    async def use(a, *_):
        handle = await _ready(a, _plan(A0, Feed(0, 0)))
        for feeds in ([], [_vector(1)] * 2):
            with pytest.raises(errors.InvalidArgumentError, match="expected 1 fed values"):
                await a.run(1, handle, feeds)

    _check(use)


def test_parts_that_were_never_registered_or_were_released_are_not_known():
    async def use(a, *_):
        handle = await _ready(a, _plan(A0, Feed(0, 0)))
        a.release(handle)
        a.release(handle)
        for unknown in (handle, handle + 1, 0):
            with pytest.raises(errors.AbortedError, match=r"/job:a/task:0 does not know") as caught:
                await a.run(1, unknown, [])
            assert caught.value.task == str(A)

    _check(use)


# Registering --------------------------------------------------------------------------------------

DOUBLE = _plan(A0, Feed(0, 0), _run(double, inputs=(0,), outputs=(1,)), Fetch(1, 0))


def test_missing_programs_are_asked_for_and_the_call_is_made_again():
    async def use(a, *_):
        digest, code = _code(double, 1)
        assert await a.register([DOUBLE], {}) == Registered(0, (digest,))
        again = await a.register([DOUBLE], {digest: code})
        assert again.handle
        assert again.missing == ()

    _check(use)


def test_what_was_compiled_for_one_is_there_for_all():
    async def use(a, *_):
        await _ready(a, DOUBLE)
        assert a.programs.n_compiled == 1
        another = await a.register([DOUBLE], {})
        assert (another.handle > 0, another.missing) == (True, ())
        assert a.programs.n_compiled == 1
        elsewhere = _plan(A1, *DOUBLE.steps)
        assert (await a.register([elsewhere], {})).missing == (_code(double, 1)[0],)

    _check(use)


def test_two_who_register_a_program_at_once_wait_for_one_compilation():
    async def use(a, *_):
        handles = await asyncio.gather(*(_ready(a, DOUBLE) for _ in range(4)))
        assert len(set(handles)) == 4
        assert a.programs.n_compiled == 1

    _check(use)


def test_a_constant_is_asked_for_sent_once_and_is_the_last_argument():
    async def use(a, *_):
        constant = _vector(10)
        digest, code = _code(add, 2)
        program = Program(digest, (xla.digest_of(constant),))
        plan = _plan(A0, Feed(0, 0), Run(program, inputs=(0,), outputs=(1,)), Fetch(1, 0))
        missing = (await a.register([plan], {})).missing
        assert set(missing) == {digest, xla.digest_of(constant)}
        sent = {digest: code, xla.digest_of(constant): constant}
        handle = (await a.register([plan], sent)).handle
        (got,) = await a.run(1, handle, [_vector(1)])
        assert got.tolist() == [11.0] * 3
        assert (await a.register([plan], {})).missing == ()

    _check(use)


def test_what_a_cache_dropped_meanwhile_is_asked_for_again(monkeypatch):
    async def use(a, *_):
        monkeypatch.setattr(a.programs, "has", lambda *_: True)
        digest, code = _code(double, 1)
        assert await a.register([DOUBLE], {}) == Registered(0, (digest,))
        assert (await a.register([DOUBLE], {digest: code})).handle

    _check(use)


def test_bytes_under_another_digest_are_refused():
    async def use(a, *_):
        digest, code = _code(double, 1)
        for bad in (_code(add, 2)[1], code[:-1], code.reshape(1, -1), code.astype(np.int8)):
            with pytest.raises(errors.InvalidArgumentError, match="do not have the digest"):
                await a.register([DOUBLE], {digest: bad})
        assert a.programs.n_compiled == 0

    _check(use)


def test_bytes_that_are_no_program_are_refused_and_forgotten():
    async def use(a, *_):
        noise = np.arange(100, dtype=np.uint8)
        digest = xla.digest_of(noise)
        plan = _plan(A0, Run(Program(digest)))
        for _ in range(2):
            with pytest.raises(errors.InvalidArgumentError, match="cannot be compiled"):
                await a.register([plan], {digest: noise})
        assert (await a.register([plan], {})).missing == (digest,)

    _check(use)


@pytest.mark.parametrize("device", [B0, Device(A, "GPU", 0), Device(A, "CPU", 99)], ids=str)
def test_a_plan_for_a_device_of_somebody_else_is_refused(device):
    async def use(a, *_):
        with pytest.raises(errors.InvalidArgumentError, match=f"{device} came to {A}") as caught:
            await a.register([DOUBLE, _plan(device)], _artifacts())
        assert caught.value.task == str(A)

    _check(use)


# Awaiting several ---------------------------------------------------------------------------------


def test_all_results_come_in_order():
    async def later(value, n_turns):
        for _ in range(n_turns):
            await asyncio.sleep(0)
        return value

    assert asyncio.run(_all_of([later(1, 3), later(2, 0), later(3, 1)])) == [1, 2, 3]


async def _all_of(coroutines):
    return await all_of(coroutines)


@pytest.mark.parametrize("how", ["an error", "a cancellation"])
def test_an_error_or_a_cancellation_ends_all_before_it_is_raised(how):
    ended = []

    async def forever(name):
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    async def fail():
        await asyncio.sleep(0)
        raise KeyError("first")

    async def check():
        others = [fail()] if how == "an error" else []
        both = asyncio.create_task(all_of([forever(1), *others, forever(2)]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if not others:
            both.cancel()
        with pytest.raises((KeyError, asyncio.CancelledError)) as caught:
            await both
        assert caught.type is (KeyError if others else asyncio.CancelledError)
        assert sorted(ended) == [1, 2]

    asyncio.run(check())

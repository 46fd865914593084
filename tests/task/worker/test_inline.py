"""Plans that one function runs: which they are, what is kept of them, and that they can wait."""

import asyncio
import threading

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jflow as tf
from jflow import errors
from jflow.base.cluster import Task
from jflow.base.drivers.coroutines import Waited
from jflow.plan import Call, Feed, Fetch, Program, Recv, Run, Send, xla
from jflow.state.core import Staging
from jflow.state.effects import Effect, Phase, SupersededError
from jflow.state.watch import StatusRequest
from jflow.task.execution import StepState, variables
from jflow.task.worker import Worker, inline
from jflow.testing import PATIENCE_S, Pause, failpoints
from tests.clusters import in_process
from tests.net.protocol.hosts import eventually
from tests.task.worker.two_workers import (
    A0,
    A1,
    A,
    X,
    check,
    code_of,
    double,
    plan_on,
    program_run,
    registered,
    set_up,
    vector,
)
from tests.variables import get_variable

DOUBLED = program_run(double, inputs=(0,), outputs=(1,))
FED = plan_on(A0, Feed(0, 0), DOUBLED, Fetch(1, 0))
DOUBLE_X = program_run(double, reads=(0,), writes=(0,), after=((0, 0),))
UPDATE = plan_on(A0, DOUBLE_X, Fetch(0, 0))
READ = plan_on(A0, Run(None, before=((0, 0),)), Fetch(0, 0))


def dice(x):
    return [x + lax.rng_uniform(jnp.float32(0), jnp.float32(1), (3,))]


async def made_quick(worker, plan, feeds):
    """Registers a plan and runs it, so that its time is known."""
    handle = await registered(worker, plan)
    for step in range(2):
        await worker.run_plans(step, handle, feeds)
    for linked in worker._registered[handle].plans:
        for run in linked.stages[0]:
            if hasattr(run, "latency"):
                run.latency.note(1e-6)  # whatever the machine does meanwhile
    return handle


def test_a_quick_plan_is_run_by_a_plain_function_outside_of_tasks():
    async def use(a, *_):
        handle = await made_quick(a, FED, [vector(1)])
        begun = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(
            lambda: begun.set_result(
                (asyncio.current_task(), a.begin_plans(5, handle, [vector(4)]))
            )
        )
        task, started = await begun
        assert task is None
        assert started.is_done
        (value,) = started.result
        assert value.tolist() == [8, 8, 8]

    check(use)


def test_fed_and_fetched_values_go_by_the_order_of_their_indices_there_too():
    async def use(a, *_):
        steps = [program_run(double, inputs=(one,), outputs=(one + 2,)) for one in (0, 1)]
        plan = plan_on(A0, Feed(7, 0), Feed(3, 1), *steps, Fetch(2, 6), Fetch(3, 2))
        feeds = [vector(3), vector(7)]
        handle = await made_quick(a, plan, feeds)
        got = a.begin_plans(9, handle, feeds).result
        assert [value[0] for value in got] == [6, 14]
        assert [value[0] for value in await a.run_plans(10, handle, feeds)] == [6, 14]

    check(use)


@pytest.mark.parametrize(
    "plans",
    [
        [plan_on(A0, DOUBLE_X, DOUBLED, Fetch(1, 0))],
        [plan_on(A0, Feed(0, 0), Fetch(0, 0))],
        [plan_on(A0, Feed(0, 0), DOUBLED, Call("identity", (1,), (2,)), Fetch(1, 0))],
        [
            plan_on(A0, Feed(0, 0), DOUBLED, Send(1, A1, 1), Fetch(1, 0)),
            plan_on(A1, Recv(1, A0, 0), Fetch(0, 1)),
        ],
        [FED, plan_on(A1, Feed(0, 0), DOUBLED, Fetch(1, 1))],
    ],
    ids=["two programs on state", "no program", "calls", "sends", "two plans"],
)
def test_a_plan_that_may_wait_for_others_is_run_by_a_coroutine(plans):
    async def use(a, *_):
        set_up(a)
        handle = await registered(a, *plans)
        feeds = [vector(1)] * len(a._registered[handle].feeds)
        for step in range(2):
            await a.run_plans(step, handle, feeds)
        assert a.begin_plans(5, handle, feeds) is None

    check(use)


def test_a_plan_is_not_begun_before_it_is_known_to_be_quick():
    async def use(a, *_):
        handle = await made_quick(a, FED, [vector(1)])
        a._registered[handle].plans[0].stages[0][0].latency.note(1.0)
        assert a.begin_plans(5, handle, [vector(1)]) is None

    check(use)


def test_a_test_that_switches_failpoints_on_reaches_them():
    async def use(a, *_):
        handle = await made_quick(a, FED, [vector(1)])
        with failpoints({"worker.before_run": Pause()}):
            assert a.begin_plans(5, handle, [vector(1)]) is None
        assert a.begin_plans(6, handle, [vector(1)]) is not None

    check(use)


def test_what_does_not_fit_a_program_is_an_error_that_names_the_task():
    async def use(a, *_):
        handle = await made_quick(a, FED, [vector(1)])
        with pytest.raises(errors.InvalidArgumentError, match="does not accept") as caught:
            a.begin_plans(5, handle, [np.zeros((2, 2), np.float32)])
        assert caught.value.task == "/job:a/task:0"

    check(use)


async def constant_of(worker, function, n_runs=3):
    """The handle of a plan that is fed nothing: a program of a constant."""
    digest, code = code_of(function, 1)
    constant = vector(10)
    program = Program(digest, (xla.digest_of(constant),))
    plan = plan_on(A0, Run(program, outputs=(0,)), Fetch(0, 0), variables=())
    sent = {digest: code, xla.digest_of(constant): constant}
    handle = (await worker.register([plan], sent)).handle
    for step in range(n_runs):
        await worker.run_plans(step, handle, [])
    worker._registered[handle].plans[0].stages[0][0].latency.note(1e-6)
    return handle


def test_the_results_of_a_plan_of_constants_are_computed_once(monkeypatch):
    async def use(a, *_):
        handle = await constant_of(a, double)
        (first,) = a.begin_plans(5, handle, []).result
        monkeypatch.setattr(inline, "run_program", None)
        (second,) = a.begin_plans(6, handle, []).result
        assert first.tolist() == second.tolist() == [20, 20, 20]
        with pytest.raises(ValueError, match="read-only"):
            second[0] = 1

    check(use)


def test_a_program_that_draws_random_numbers_itself_is_run_each_time():
    async def use(a, *_):
        handle = await constant_of(a, dice)
        results = [a.begin_plans(step, handle, []).result[0].tolist() for step in range(5, 9)]
        assert len({tuple(result) for result in results}) == 4

    check(use)


def test_large_results_are_computed_each_time(monkeypatch):
    async def use(a, *_):
        handle = await constant_of(a, double)
        monkeypatch.setattr(inline, "MAX_KEPT_BYTES", 11)
        for step in (5, 6):
            assert a.begin_plans(step, handle, []).result[0].tolist() == [20, 20, 20]
        monkeypatch.setattr(inline, "run_program", None)
        with pytest.raises(errors.InvalidArgumentError):
            a.begin_plans(7, handle, [])

    check(use)


class Late:
    """The result of a program that the device computes for ever."""

    nbytes = 12

    def is_ready(self):
        return False

    def __array__(self, *_, **__):
        return vector(3)


def test_a_run_that_waits_for_the_device_goes_on_in_a_task_and_is_seen_meanwhile(monkeypatch):
    async def use(a, *_):
        handle = await made_quick(a, FED, [vector(1)])
        computed = asyncio.Event()

        async def wait(_):
            await computed.wait()

        def late(run, slots, *_):
            slots[run.instruction.outputs[0]] = Late()

        monkeypatch.setattr(a._context.devices, "wait", wait)
        monkeypatch.setattr(inline, "run_program", late)
        n_begun = a.running.n_begun
        started = a.begin_plans(5, handle, [vector(1)])
        assert not started.is_done
        rest = asyncio.ensure_future(started.rest())
        n_steps, (step,) = a.running.listed(StatusRequest(("steps",), 0, 10))
        assert (n_steps, step.step) == (1, "5")
        assert a.running.n_begun == n_begun + 1
        computed.set()
        (value,) = await asyncio.wait_for(rest, PATIENCE_S)
        assert value.tolist() == [3, 3, 3]
        assert a.running.listed(StatusRequest(("steps",), 0, 10)) == (0, ())

    check(use)


def test_a_run_that_is_cancelled_while_it_waits_for_the_device_leaves_nothing(monkeypatch):
    async def use(a, *_):
        handle = await made_quick(a, FED, [vector(1)])

        def late(run, slots, *_):
            slots[run.instruction.outputs[0]] = Late()

        async def wait(_):
            await asyncio.Event().wait()

        monkeypatch.setattr(a._context.devices, "wait", wait)
        monkeypatch.setattr(inline, "run_program", late)
        rest = asyncio.ensure_future(a.begin_plans(5, handle, [vector(1)]).rest())
        await asyncio.sleep(0)
        rest.cancel()
        with pytest.raises(asyncio.CancelledError):
            await rest
        assert a.running.listed(StatusRequest(("steps",), 0, 10)) == (0, ())
        assert not a._context.plans

    check(use)


def test_a_master_has_such_plans_of_other_tasks_run_in_the_same_way(monkeypatch):
    ran, run = [], Worker.run_plans

    def noted(worker, *args, **named):
        ran.append(worker._context.task)
        return run(worker, *args, **named)

    monkeypatch.setattr(Worker, "run_plans", noted)
    with in_process() as backend, tf.Graph().as_default():
        sums = []
        for task in ("/job:worker/task:0", "/job:ps/task:0"):
            with tf.device(task):
                sums.append(tf.constant(1.0) + 2)
        with tf.Session(backend.targets[0]) as session:

            def is_inline():  # once the program is known to be quick
                ran.clear()
                assert session.run(sums) == [3.0, 3.0]
                return Task("ps", 0) not in ran

            eventually(is_inline)


# A program on variables ------------------------------------------------------------------------


def value_of_x(worker):
    return get_variable(worker.containers, A0, X).buffer.array.tolist()


def attempt_of(sequence, **more):
    return Staging(Effect("client", 0, sequence, **more), True, (str(A),))


@pytest.mark.parametrize(("plan", "given"), [(UPDATE, 8), (READ, 4)], ids=["writes", "reads"])
def test_a_program_on_free_variables_is_run_by_a_plain_function_outside_of_tasks(plan, given):
    async def use(a, *_):
        set_up(a)
        handle = await made_quick(a, plan, [])
        set_up(a, number=4)
        begun = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(
            lambda: begun.set_result((asyncio.current_task(), a.begin_plans(5, handle, [])))
        )
        task, started = await begun
        assert task is None
        assert started.is_done
        assert [value.tolist() for value in started.result] == [[given] * 3]
        assert value_of_x(a) == [given] * 3
        assert get_variable(a.containers, A0, X).is_leased is False

    check(use)


def test_one_that_has_to_wait_for_a_variable_goes_on_when_that_is_free():
    async def use(a, *_):
        set_up(a)
        handle = await made_quick(a, UPDATE, [])
        set_up(a, number=4)
        (run,) = a._registered[handle].plans[0].stages[0]
        writer = StepState(a._registered[handle].plans[0], a.containers)
        access = writer.begin_access(run)
        started = a.begin_plans(5, handle, [], attempt_of(0))
        assert not started.is_done
        rest = asyncio.ensure_future(started.rest())
        await asyncio.sleep(0)
        n_steps, (step,) = a.running.listed(StatusRequest(("steps",), 0, 10))
        assert (n_steps, step.step) == (1, "5")
        assert "which operation" in step.waiting_for[0]
        writer.finish(access)
        writer.close()
        (value,) = await asyncio.wait_for(rest, PATIENCE_S)
        assert value.tolist() == value_of_x(a) == [16] * 3
        assert a.running.listed(StatusRequest(("steps",), 0, 10)) == (0, ())
        with pytest.raises(SupersededError, match="is applied"):
            a.begin_plans(6, handle, [], attempt_of(0))

    check(use)


def test_one_that_is_cancelled_while_it_waits_is_not_applied_and_says_what_it_waited_for():
    async def use(a, *_):
        set_up(a)
        handle = await made_quick(a, UPDATE, [])
        (run,) = a._registered[handle].plans[0].stages[0]
        writer = StepState(a._registered[handle].plans[0], a.containers)
        access = writer.begin_access(run)
        before = value_of_x(a)
        rest = asyncio.ensure_future(a.begin_plans(5, handle, [], attempt_of(0)).rest())
        await asyncio.sleep(0)
        rest.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await rest
        assert Waited.of(caught.value).reason.startswith("/job:a/task:0 waited for variable 'x'")
        access.give_up()
        assert value_of_x(a) == before
        assert a.begin_plans(6, handle, [], attempt_of(0, attempt=2)).is_done

    check(use)


def test_a_write_is_applied_once_there_too():
    async def use(a, *_):
        set_up(a)
        handle = await made_quick(a, UPDATE, [])
        set_up(a)
        a.begin_plans(5, handle, [], attempt_of(0))
        with pytest.raises(SupersededError, match="is applied"):
            a.begin_plans(6, handle, [], attempt_of(0))
        earlier = await a.effects.take_over(Effect("client", 0, 0, 2))
        assert earlier.phase is Phase.COMMITTED
        assert [result.tolist() for result in earlier.results] == [[2] * 3]
        assert value_of_x(a) == [2] * 3

    check(use)


def test_a_large_variable_that_is_read_is_not_copied_on_the_event_loop(monkeypatch):
    async def use(a, *_):
        set_up(a)
        handle = await made_quick(a, UPDATE, [])
        monkeypatch.setattr(variables, "COPIED_HERE_BYTES", 4)
        lease = get_variable(a.containers, A0, X).lease()
        before = value_of_x(a)
        threads, finish = [], StepState.finish

        def noted(*args, **named):
            threads.append(threading.get_ident())
            return finish(*args, **named)

        monkeypatch.setattr(StepState, "finish", noted)
        started = a.begin_plans(5, handle, [], attempt_of(0))
        assert not started.is_done
        (value,) = await started.rest()
        assert len(threads) == 1
        assert threading.get_ident() not in threads
        assert value.tolist() == [2 * one for one in before]
        assert lease.buffer.array.tolist() == before
        lease.release()

    check(use)


def test_nothing_is_begun_while_the_state_is_held():
    async def use(a, *_):
        set_up(a)
        handle = await made_quick(a, UPDATE, [])
        states = a._registered[handle].use.states
        gate = a.moves.plans
        gate.directory.hold("hold", states, str(A1))
        assert a.begin_plans(5, handle, []) is None
        gate.release("hold")
        assert a.begin_plans(6, handle, []).is_done
        assert a._registered[handle].use.n_running == 0

    check(use)


def test_a_write_that_the_device_computes_is_waited_for_and_cannot_be_taken_back(monkeypatch):
    async def use(a, *_):
        set_up(a)
        handle = await made_quick(a, UPDATE, [])
        computed, before = asyncio.Event(), value_of_x(a)

        async def wait(_):
            await computed.wait()

        monkeypatch.setattr(a._context.devices, "wait", wait)
        monkeypatch.setattr(StepState, "is_computed", lambda *_: computed.is_set())
        rest = asyncio.ensure_future(a.begin_plans(5, handle, [], attempt_of(0)).rest())
        await asyncio.sleep(0)
        later = asyncio.ensure_future(a.effects.take_over(Effect("client", 0, 0, 2)))
        rest.cancel()
        await asyncio.sleep(0)
        assert not later.done()
        computed.set()
        (value,) = await asyncio.wait_for(rest, PATIENCE_S)
        assert value.tolist() == value_of_x(a) == [2 * one for one in before]
        assert (await later).phase is Phase.COMMITTED
        assert not a._context.plans

    check(use)

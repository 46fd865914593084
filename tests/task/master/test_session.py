"""A client's session on the master, over servers that do no work."""

import asyncio

import numpy as np
import pytest

from jflow.base.cluster import Device
from jflow.base.deadline import FOREVER, Deadline
from jflow.errors import (
    AbortedError,
    CancelledError,
    DeadlineExceededError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    OpError,
    UnavailableError,
)
from jflow.net.protocol import Registered
from jflow.net.protocol.credits import UNKNOWN_BYTES
from jflow.plan import Plan, Program, Run
from jflow.plan.trace.samples import MAX_STEPS, StepSamples
from tests.task.master.servers import (
    OTHER,
    OWN,
    PS,
    answers,
    check,
    fails,
    forever,
    idle,
    plan,
    until,
)

THREE = (plan(OWN), plan(PS), plan(OTHER))

# Devices ------------------------------------------------------------------------------------------


def test_devices_are_listed_in_the_order_of_the_tasks_that_were_asked_for():
    async def use(servers):
        session = servers.master.open_session()
        found = await session.list_devices([OTHER, OWN, PS], 1.5, False)
        assert [(d.device.task, d.incarnation) for d in found] == [
            (OTHER, 1001),
            (OWN, 1),
            (PS, 1000),
        ]
        assert servers.peers[PS].timeouts == [1.5]

    check(use)


def test_a_task_that_is_down_is_an_error_or_left_out_as_the_caller_wants():
    async def use(servers):
        session = servers.master.open_session()
        servers.peers[PS].unavailable = UnavailableError("it is down", task=str(PS))
        with pytest.raises(UnavailableError, match="it is down"):
            await session.list_devices([OWN, PS, OTHER], 1.0, False)
        found = await session.list_devices([OWN, PS, OTHER], 1.0, True)
        assert [d.device.task for d in found] == [OWN, OTHER]

    check(use)


# Registering --------------------------------------------------------------------------------------


def _needs(task, *digests, index=0):
    program = Program(digests[0], digests[1:])
    return Plan(Device(task, "CPU", index), 1, (), ((Run(program),),))


def test_each_task_is_given_its_own_plans_and_what_they_need():
    async def use(servers):
        session = servers.master.open_session()
        plans = [_needs(OWN, "p", "c"), _needs(PS, "q"), _needs(OWN, "q", index=1)]
        sent = {name: np.zeros(3) for name in ("p", "q", "c", "unused")}
        answer = await session.register(plans, 0, sent, 5.0)
        assert answer.handle
        assert answer.missing == ()
        ((_, own, own_artifacts),) = servers.workers[OWN].calls
        ((_, others, other_artifacts),) = servers.workers[PS].calls
        assert list(own) == [plans[0], plans[2]]
        assert sorted(own_artifacts) == ["c", "p", "q"]
        assert list(others) == [plans[1]]
        assert sorted(other_artifacts) == ["q"]
        assert servers.workers[OTHER].calls == []

    check(use)


def test_the_first_reply_is_expected_to_take_what_tasks_say_and_at_least_what_unknown_ones_do():
    async def use(servers):
        async def registered(*_):
            return Registered(7, n_bytes=100 << 20)

        session = servers.master.open_session()
        small = (await session.register(THREE, 0, {}, 5.0)).handle
        assert session.reply_size(small).n_bytes == UNKNOWN_BYTES
        servers.script("register", registered, PS)
        servers.script("register", registered, OWN)
        large = (await session.register(THREE, 0, {}, 5.0)).handle
        assert session.reply_size(large).n_bytes == 200 << 20

    check(use)


def test_what_any_task_misses_is_asked_for_once_and_what_others_registered_is_released():
    async def use(servers):
        async def misses(*_):
            return Registered(0, ("p", "q"))

        async def misses_too(*_):
            return Registered(0, ("q", "r"))

        servers.script("register", misses, PS)
        servers.script("register", misses_too, OWN)
        session = servers.master.open_session()
        answer = await session.register(THREE, 0, {}, 5.0)
        assert (answer.handle, sorted(answer.missing)) == (0, ["p", "q", "r"])
        assert servers.handles == {}
        assert servers.workers[OTHER].requested("release")
        servers.workers[PS].script.clear()
        servers.workers[OWN].script.clear()
        assert (await session.register(THREE, 0, {}, 5.0)).handle
        assert servers.handles == {OWN: 1, PS: 1, OTHER: 1}

    check(use)


@pytest.mark.parametrize("bad", [OWN, PS, OTHER], ids=str)
def test_when_one_task_cannot_register_nothing_stays_registered_on_the_others(bad):
    async def use(servers):
        slow = asyncio.Event()

        async def later(*_):
            await slow.wait()

        servers.script("register", fails(InvalidArgumentError("a bad program")), bad)
        # One of the others registers at once, the other one after the failure.
        (late,) = {OWN, PS, OTHER} - {bad, OTHER if bad != OTHER else PS}
        servers.script("register", later, late)
        session = servers.master.open_session()
        registering = asyncio.create_task(session.register(THREE, 0, {}, 5.0))
        await idle()
        slow.set()
        with pytest.raises(InvalidArgumentError, match="a bad program"):
            await registering
        await idle()
        assert servers.handles == {}

    check(use)


def test_a_cancelled_registration_leaves_nothing_registered():
    async def use(servers):
        servers.script("register", forever, PS)
        session = servers.master.open_session()
        registering = asyncio.create_task(session.register(THREE, 0, {}, 5.0))
        await until(lambda: servers.handles == {OWN: 1, OTHER: 1})
        registering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await registering
        session.close()
        await idle()
        assert servers.handles == {}
        assert servers.workers[PS].cancelled == 1

    check(use)


def test_a_task_is_waited_for_only_until_it_has_been_met():
    async def use(servers):
        session = servers.master.open_session()
        await session.register([plan(PS)], 0, {}, 77.0)
        await session.register([plan(PS)], 0, {}, 77.0)
        first, second = servers.peers[PS].timeouts
        assert (first, second < 10) == (77.0, True)

    check(use)


def test_a_session_belongs_to_the_first_life_of_a_task_that_it_met():
    async def use(servers):
        session = servers.master.open_session()
        handle = await servers.registered(session, plan(PS))
        peer = servers.peers[PS]
        requested = []

        async def refuse(incarnation, *_):
            requested.append(incarnation)
            raise AbortedError("another life")

        old, peer.incarnation = peer.incarnation, 4321
        peer.register = peer.run_plans = refuse
        with pytest.raises(AbortedError):
            await session.register([plan(PS)], 0, {}, 5.0)
        with pytest.raises(AbortedError):
            await session.run_step(handle, FOREVER, [])
        assert requested == [old, old]
        del peer.register
        another = servers.master.open_session()
        assert (await another.register([plan(PS)], 0, {}, 5.0)).handle

    check(use)


# Running ------------------------------------------------------------------------------------------


def test_fed_and_fetched_values_go_to_and_come_from_the_tasks_that_have_them():
    async def use(servers):
        servers.script("run", answers(20, 40), OWN)
        servers.script("run", answers(10, 30), PS)
        session = servers.master.open_session()
        handle = await servers.registered(
            session,
            plan(OWN, feeds=(2, 0), fetches=(3, 1)),
            plan(PS, feeds=(1, 2), fetches=(2, 0)),
            n_fetches=4,
        )
        got = await session.run_step(handle, FOREVER, ["a", "b", "c"])
        assert [float(value) for value in got] == [10, 20, 30, 40]
        ((_, step, own_handle, own_feeds),) = servers.workers[OWN].requested("run")
        ((_, same_step, _, other_feeds),) = servers.workers[PS].requested("run")
        assert step == same_step, "both know the step by one name"
        assert (own_feeds, other_feeds) == (["a", "c"], ["b", "c"])
        assert own_handle in servers.workers[OWN].handles
        await session.run_step(handle, FOREVER, ["a", "b", "c"])
        assert servers.workers[OWN].requested("run")[1][1] != step, "no other step has that name"

    check(use)


@pytest.mark.parametrize("task", [OWN, PS], ids=["on the master's task", "elsewhere"])
def test_a_step_of_one_task_gives_its_values_and_its_errors(task):
    async def use(servers):
        session = servers.master.open_session()
        handle = await servers.registered(session, plan(task, fetches=(0,)), n_fetches=1)
        servers.script("run", answers(5), task)
        assert await session.run_step(handle, FOREVER, []) == [5.0]
        servers.script("run", fails(FailedPreconditionError("not yet", op="x")), task)
        with pytest.raises(FailedPreconditionError, match="not yet"):
            await session.run_step(handle, FOREVER, [])

    check(use)


def test_a_step_for_a_stuck_device_of_the_master_s_task_begins_on_no_task():
    async def use(servers):
        session = servers.master.open_session()
        handle = await servers.registered(session, *THREE)
        servers.workers[OWN].stuck = UnavailableError("it is stuck", task=str(OWN))
        with pytest.raises(UnavailableError, match="it is stuck"):
            await session.run_step(handle, FOREVER, [])
        assert not any(worker.requested("run") for worker in servers.workers.values())

    check(use)


ERROR = FailedPreconditionError("not yet", op="x")


@pytest.mark.parametrize("bad", [OWN, PS, OTHER], ids=str)
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)], ids=str)
def test_the_first_error_stops_the_other_shares_and_is_raised(bad, order):
    """Also if it comes before the others have begun at all."""

    async def use(servers):
        servers.script("run", forever)
        servers.script("run", fails(ERROR), bad)
        session = servers.master.open_session()
        handle = await servers.registered(session, *(THREE[i] for i in order))
        with pytest.raises(FailedPreconditionError, match="not yet"):
            await asyncio.wait_for(session.run_step(handle, FOREVER, []), 2)
        for worker in servers.workers.values():
            assert worker.started in (0, 1)
            assert worker.cancelled == (0 if worker.task == bad else worker.started)

    check(use)


@pytest.mark.parametrize("bad", [OWN, PS], ids=str)
def test_an_error_that_is_not_jflow_s_own_ends_the_step_too(bad):
    async def use(servers):
        servers.script("run", forever)
        servers.script("run", fails(TypeError("a fault of ours")), bad)
        session = servers.master.open_session()
        handle = await servers.registered(session, *THREE)
        with pytest.raises((InternalError, TypeError), match="a fault of ours"):
            await asyncio.wait_for(session.run_step(handle, FOREVER, []), 2)
        assert all(
            worker.cancelled == worker.started for t, worker in servers.workers.items() if t != bad
        )

    check(use)


def test_a_step_fails_only_when_nothing_of_it_runs_any_more():
    async def use(servers):
        tidied_up = asyncio.Event()

        async def slow_to_stop(*_):
            try:
                await forever()
            finally:
                await tidied_up.wait()

        servers.script("run", slow_to_stop, OWN)
        servers.script("run", fails(ERROR), PS)
        session = servers.master.open_session()
        handle = await servers.registered(session, plan(OWN), plan(PS))
        running = asyncio.create_task(session.run_step(handle, FOREVER, []))
        await idle()
        assert not running.done()
        tidied_up.set()
        with pytest.raises(FailedPreconditionError):
            await running

    check(use)


@pytest.mark.parametrize("plans", [(plan(OWN),), (plan(PS),), THREE], ids=["own", "other", "all"])
def test_a_step_that_takes_too_long_is_cancelled_everywhere(plans):
    async def use(servers):
        servers.script("run", forever)
        session = servers.master.open_session()
        handle = await servers.registered(session, *plans)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        with pytest.raises(DeadlineExceededError, match="60 s"):
            await session.run_step(handle, Deadline(60.0), [])
        assert loop.time() - begun == pytest.approx(60.0)
        for p in plans:
            worker = servers.workers[p.device.task]
            assert (worker.started, worker.cancelled) == (1, 1)
        servers.script("run", answers())
        assert await session.run_step(handle, Deadline(5.0), []) == [], "the session stays usable"

    check(use)


@pytest.mark.parametrize("plans", [(plan(OWN),), (plan(PS),), THREE], ids=["own", "other", "all"])
def test_a_cancelled_run_is_cancelled_everywhere(plans):
    async def use(servers):
        servers.script("run", forever)
        session = servers.master.open_session()
        handle = await servers.registered(session, *plans)
        running = asyncio.create_task(session.run_step(handle, FOREVER, []))
        await until(lambda: sum(w.started for w in servers.workers.values()) == len(plans))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        for p in plans:
            assert servers.workers[p.device.task].cancelled == 1

    check(use)


def test_steps_of_one_session_run_at_the_same_time():
    async def use(servers):
        session = servers.master.open_session()
        handle = await servers.registered(session, plan(OWN), plan(PS))
        gate = asyncio.Barrier(6)

        async def together(*_):
            await gate.wait()

        servers.script("run", together)
        await asyncio.gather(*(session.run_step(handle, Deadline(5.0), []) for _ in range(3)))

    check(use)


@pytest.mark.parametrize("plans", [(plan(OWN, feeds=(0, 1)),), (plan(OWN, feeds=(1,)), plan(PS))])
@pytest.mark.parametrize("n_feeds", [0, 1])
def test_too_few_fed_values_are_refused(plans, n_feeds):
    async def use(servers):
        session = servers.master.open_session()
        handle = await servers.registered(session, *plans)
        with pytest.raises(InvalidArgumentError):
            await asyncio.wait_for(session.run_step(handle, FOREVER, ["a"] * n_feeds), 2)

    check(use)


@pytest.mark.parametrize("n_fetches", [2, 2**32 - 1])
def test_more_fetches_than_the_plans_give_are_refused(n_fetches):
    async def use(servers):
        servers.script("run", answers(1))
        session = servers.master.open_session()

        async def register_and_run():
            registered = await session.register([plan(OWN, fetches=(0,))], n_fetches, {}, 5.0)
            await session.run_step(registered.handle, FOREVER, [])

        with pytest.raises(InvalidArgumentError):
            await register_and_run()

    check(use)


@pytest.mark.parametrize(
    "plans", [(plan(PS, fetches=(0, 1)),), (plan(OWN), plan(PS, fetches=(0, 1)))]
)
def test_a_task_that_answers_with_the_wrong_number_of_values_is_an_error_of_jflow(plans):
    async def use(servers):
        servers.script("run", answers(1), PS)
        session = servers.master.open_session()
        handle = await servers.registered(session, *plans, n_fetches=2)
        with pytest.raises(OpError):
            await asyncio.wait_for(session.run_step(handle, FOREVER, []), 2)

    check(use)


def test_a_step_that_was_not_registered_here_is_refused():
    async def use(servers):
        one, other = servers.master.open_session(), servers.master.open_session()
        handle = await servers.registered(one, plan(OWN))
        with pytest.raises(InvalidArgumentError, match="not registered in this session"):
            await other.run_step(handle, FOREVER, [])
        with pytest.raises(InvalidArgumentError, match="not registered in this session"):
            await one.run_step(handle + 1, FOREVER, [])

    check(use)


# Closing ------------------------------------------------------------------------------------------


def test_closing_a_session_releases_what_it_registered_and_nothing_else():
    async def use(servers):
        one, other = servers.master.open_session(), servers.master.open_session()
        for _ in range(2):
            await servers.registered(one, *THREE)
        await servers.registered(other, plan(OWN), plan(PS))
        one.close()
        await idle()
        assert servers.handles == {OWN: 1, PS: 1}
        other.close()
        await idle()
        assert servers.handles == {}

    check(use)


def test_a_task_that_is_gone_does_not_keep_the_others_from_being_released():
    async def use(servers):
        session = servers.master.open_session()
        await servers.registered(session, plan(PS), plan(OTHER), plan(OWN))
        servers.peers[PS].unavailable = UnavailableError("it is gone")
        session.close()
        await idle()
        assert servers.handles == {PS: 1}

    check(use)


# Resetting ----------------------------------------------------------------------------------------


def test_a_reset_frees_the_containers_on_every_task():
    async def use(servers):
        await servers.master.open_session().reset(["", "box"], 5.0)
        for worker in servers.workers.values():
            assert worker.calls == [("reset", ["", "box"])]

    check(use)


def test_a_reset_ends_the_other_sessions_and_cancels_what_they_run():
    async def use(servers):
        requesting, other = servers.master.open_session(), servers.master.open_session()
        kept = await servers.registered(requesting, plan(OWN))
        handle = await servers.registered(other, *THREE)
        servers.script("run", forever)
        running = asyncio.create_task(other.run_step(handle, FOREVER, []))
        await until(lambda: all(w.started == 1 for w in servers.workers.values()))
        await requesting.reset(["box"], 5.0)
        await asyncio.wait([running], timeout=5)
        assert running.cancelled() or isinstance(running.exception(), CancelledError)
        assert all(worker.cancelled == 1 for worker in servers.workers.values())
        for _ in range(2):
            with pytest.raises(AbortedError, match=r"Session is not found.*\['box'\]"):
                await other.run_step(handle, FOREVER, [])
            with pytest.raises(AbortedError, match="open a new one"):
                await other.register([plan(OWN)], 0, {}, 5.0)
        servers.script("run", answers())
        assert await requesting.run_step(kept, FOREVER, []) == [], (
            "the session that requested it goes on"
        )
        assert (await servers.master.open_session().register([plan(OWN)], 0, {}, 5.0)).handle

    check(use)


def test_a_closed_session_is_not_ended_again_by_a_reset():
    async def use(servers):
        requesting, closed = servers.master.open_session(), servers.master.open_session()
        closed.close()
        await requesting.reset([], 5.0)
        assert servers.master._sessions.keys() == {requesting}

    check(use)


def test_a_reset_that_cannot_reach_a_task_frees_the_others_and_says_so():
    async def use(servers):
        servers.peers[PS].unavailable = UnavailableError("it is down", task=str(PS))
        with pytest.raises(
            UnavailableError, match=r"\['box'\] could not be reset: it is down"
        ) as caught:
            await servers.master.open_session().reset(["box"], 5.0)
        assert caught.value.task == str(PS)
        assert str(caught.value) == caught.value.message
        for task in (OWN, OTHER):
            assert servers.workers[task].calls == [("reset", ["box"])]

    check(use)


# Samples for observers ----------------------------------------------------------------------------


def test_an_observer_has_the_next_steps_that_succeed_and_each_other_step_is_untraced():
    async def use(servers):
        session, observer = servers.master.open_session(), servers.master.open_session()
        handle = (await session.register([plan(PS)], 0, {}, 5.0)).handle
        call = asyncio.ensure_future(observer.sample_steps(2, 60.0, FOREVER))
        more = asyncio.ensure_future(observer.sample_steps(1, 60.0, FOREVER))
        await asyncio.sleep(0)
        servers.script("run", fails(InternalError("it failed")), PS)
        with pytest.raises(InternalError):
            await session.run_step(handle, FOREVER, [])
        servers.script("run", answers(), PS)
        for _ in range(2):
            assert await session.run_step(handle, FOREVER, []) == []
        found = [StepSamples.from_bytes(packed.tobytes()) for packed in (await call, await more)]
        assert [len(one.steps) for one in found] == [2, 1]
        assert not session._sampler.is_open
        assert observer.only_watches

    check(use)


def test_an_observer_waits_no_longer_than_it_says_and_may_leave():
    async def use(servers):
        session = servers.master.open_session()
        packed = await session.sample_steps(1, 0.01, FOREVER)
        assert StepSamples.from_bytes(packed.tobytes()).steps == ()
        call = asyncio.ensure_future(session.sample_steps(1, 60.0, FOREVER))
        await asyncio.sleep(0)
        assert session._sampler.is_open
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert not session._sampler.is_open
        for n_steps in (0, MAX_STEPS + 1):
            with pytest.raises(InvalidArgumentError, match="expected from 1 to 100 steps"):
                await session.sample_steps(n_steps, 1.0, FOREVER)

    check(use)

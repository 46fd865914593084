"""Steps on tasks that were cut off and came back in the same incarnation, over fake servers."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from jflow.base.deadline import FOREVER
from jflow.errors import AbortedError, RestartedError, UnavailableError
from jflow.net.protocol import Registered
from jflow.plan import ResourceSpec
from jflow.state.moves import MovedError
from tests.task.master.servers import (
    OTHER,
    OWN,
    PS,
    Servers,
    answers,
    check,
    fails,
    idle,
    plan,
    until,
)

THREE = (plan(OWN), plan(PS, 1, fetches=(0,)), plan(OTHER))


@pytest.mark.parametrize("plans", [THREE[1:2], THREE], ids=["on one task", "on three tasks"])
def test_a_step_is_registered_again_on_a_task_that_was_cut_off(plans) -> None:
    async def use(servers: Servers) -> None:
        session = servers.master.open_session()
        servers.script("run", answers(7), PS)
        handle = await servers.registered(session, *plans, n_fetches=1)
        for _ in range(3):
            servers.peers[PS].cut()
            assert await session.run_step(handle, FOREVER, []) == [7]
            assert await session.run_step(handle, FOREVER, []) == [7]
        n_calls = [len(worker.requested("register")) for worker in servers.workers.values()]
        assert n_calls == [1 if len(plans) == 3 else 0, 4, 1 if len(plans) == 3 else 0]
        assert [call[1] for call in servers.workers[PS].requested("register")] == [(THREE[1],)] * 4
        session.close()
        await until(lambda: not servers.handles)

    check(use)


def test_a_connection_that_ends_as_a_step_begins_is_no_error_of_the_step() -> None:
    async def use(servers: Servers) -> None:
        session = servers.master.open_session()
        servers.script("run", answers(7), PS)
        handle = await servers.registered(session, *THREE, n_fetches=1)
        servers.peers[PS].cut_before_run = 1
        assert await session.run_step(handle, FOREVER, []) == [7]
        assert [len(servers.workers[task].requested("run")) for task in (OWN, PS, OTHER)] == [1] * 3
        servers.peers[PS].cut_before_run = 1000
        with pytest.raises(UnavailableError, match="again and again"):
            await session.run_step(handle, FOREVER, [])
        servers.peers[PS].cut_before_run = 0
        assert await session.run_step(handle, FOREVER, []) == [7]

    check(use)


def test_runs_at_the_same_time_leave_one_registration() -> None:
    async def use(servers: Servers) -> None:
        session = servers.master.open_session()
        handle = await servers.registered(session, *THREE[::2])
        servers.peers[OTHER].cut()
        await asyncio.gather(*(session.run_step(handle, FOREVER, []) for _ in range(5)))
        await idle()
        assert servers.handles[OTHER] == 1
        await session.run_step(handle, FOREVER, [])

    check(use)


def test_a_task_that_is_still_away_is_unavailable_and_nothing_of_the_step_begins() -> None:
    async def use(servers: Servers) -> None:
        session = servers.master.open_session()
        handle = await servers.registered(session, *THREE[::2])
        peer = servers.peers[OTHER]
        peer.cut()
        peer.unavailable = UnavailableError("it is down", task=str(OTHER))
        for _ in range(2):
            with pytest.raises(UnavailableError, match="it is down"):
                await session.run_step(handle, FOREVER, [])
        assert servers.workers[OWN].requested("run") == []
        peer.unavailable = None
        await session.run_step(handle, FOREVER, [])

    check(use)


def test_a_session_that_ends_meanwhile_leaves_nothing_registered() -> None:
    """One task answers late, when the step has failed on another one and its session is over."""

    async def use(servers: Servers) -> None:
        session = servers.master.open_session()
        handle = await servers.registered(session, *THREE, n_fetches=1)
        for peer in servers.peers.values():
            peer.cut()
        servers.peers[OTHER].unavailable = UnavailableError("it is down", task=str(OTHER))
        may_answer = asyncio.Event()

        async def late(*_: object) -> Registered:
            await may_answer.wait()
            return Registered(77)

        servers.script("register", late, PS)
        with pytest.raises(UnavailableError, match="it is down"):
            await session.run_step(handle, FOREVER, [])
        session.close()
        may_answer.set()
        await idle()
        assert servers.handles[PS] == 0
        assert ("release", 77) in servers.workers[PS].calls

    check(use)


def test_queues_that_only_the_session_used_are_gone_and_that_is_an_error() -> None:
    own = replace(plan(PS), resources=(ResourceSpec("fifo_queue", "", "q", "me", b""),))

    async def use(servers: Servers) -> None:
        session = servers.master.open_session()
        handle = await servers.registered(session, own)
        await session.run_step(handle, FOREVER, [])
        servers.peers[PS].cut()
        for _ in range(2):
            with pytest.raises(RestartedError, match="shared_name") as raised:
                await session.run_step(handle, FOREVER, [])
            assert raised.value.task == str(PS)

    check(use)


def test_programs_that_the_task_has_dropped_are_an_error_that_says_so() -> None:
    async def use(servers: Servers) -> None:
        async def misses(*_: object) -> Registered:
            return Registered(0, ("p",))

        session = servers.master.open_session()
        handle = await servers.registered(session, plan(PS))
        servers.peers[PS].cut()
        servers.script("register", misses, PS)
        with pytest.raises(RestartedError, match="1 programs or constants"):
            await session.run_step(handle, FOREVER, [])

    check(use)


@pytest.mark.parametrize("n_cut_late", [0, 1])
def test_state_that_moved_meanwhile_is_told_as_moved_unless_the_step_has_begun(
    n_cut_late: int,
) -> None:
    async def use(servers: Servers) -> None:
        session = servers.master.open_session()
        handle = await servers.registered(session, *THREE[::2])
        servers.script("register", fails(MovedError("it moved")), OTHER)
        servers.peers[OTHER].cut_before_run = n_cut_late
        if not n_cut_late:
            servers.peers[OTHER].cut()
        with pytest.raises(AbortedError, match="it moved") as raised:
            await session.run_step(handle, FOREVER, [])
        assert isinstance(raised.value, MovedError) == (not n_cut_late)
        assert len(servers.workers[OWN].requested("run")) == n_cut_late

    check(use)

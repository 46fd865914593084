"""What the session of a user may do with state, while the users of the cluster change."""

import asyncio

import pytest

from jflow.base.cluster import Device
from jflow.base.deadline import FOREVER
from jflow.base.roles import AccessRole
from jflow.errors import AbortedError, PermissionDeniedError
from jflow.net.protocol import Registered, Rights
from jflow.plan import Fetch, Plan, Run, VariableKey, VariableSpec
from jflow.state.moves import StateId
from tests.task.master.servers import OWN, PS, answers, check, forever, until

USERS = {"ann": AccessRole.USE, "bob": AccessRole.USE}
ANN = Rights(AccessRole.USE, "ann", USERS)


def reading(container, *, writes=False, task=PS):
    """A plan that reads, or writes, a variable in a container."""
    variable = VariableSpec(VariableKey(container, "v"), "float32", ())
    run = Run(None, writes=(0,), inputs=(0,)) if writes else Run(None, reads=(0,), outputs=(0,))
    return Plan(Device(task, "CPU", 0), 1, (variable,), ((run, Fetch(0, 0)),))


async def is_allowed(session, plan):
    try:
        return bool((await session.register([plan], 1, {}, 5.0)).handle)
    except PermissionDeniedError:
        return False


@pytest.mark.parametrize(
    ("container", "owner"),
    [
        ("", ""),
        ("ann", "ann"),
        ("ann/run", "ann"),
        ("ann@5f", "ann"),
        ("ann@5f@6", "ann"),
        ("bob", "bob"),
        ("bob/", "bob"),
        ("bob/ann", "bob"),
        ("bob@5f", "bob"),
        ("@5f", ""),
        ("Bob", ""),
        ("bob.", ""),
        ("/bob", ""),
        ("shared/bob", ""),
    ],
)
def test_a_container_belongs_to_the_user_that_its_first_part_names(container, owner):
    async def use(servers):
        for user in ("ann", "bob"):
            for role in AccessRole:
                session = servers.master.open_session(Rights(role, user, USERS))
                is_of_other = owner not in ("", user) and role < AccessRole.OPERATE
                assert await is_allowed(session, reading(container)) != is_of_other
                writing = await is_allowed(session, reading(container, writes=True))
                assert writing == (role >= AccessRole.USE and not is_of_other)
                session.close()

    check(use)


def test_what_is_not_allowed_reaches_no_task():
    async def use(servers):
        session = servers.master.open_session(ANN)
        with pytest.raises(PermissionDeniedError, match=r"variable 'v' \(container 'bob'\).*'bob'"):
            await session.register([reading("bob")], 1, {}, 5.0)
        state = StateId("/job:ps/task:0/device:CPU:0", "variable", "bob", "v")
        with pytest.raises(PermissionDeniedError, match="belongs to the user 'bob'"):
            await session.state.move([state], "/job:worker/task:0/device:CPU:0", 1.0, 5.0, FOREVER)
        assert not any(worker.calls for worker in servers.workers.values())
        session.close()

    check(use)


def test_a_user_that_is_added_while_a_step_is_registered_has_what_is_theirs():
    async def use(servers):
        session, registering = servers.master.open_session(ANN), asyncio.Event()

        async def registered(*_):
            registering.set()
            await asyncio.sleep(1.0)
            return Registered(7)

        servers.script("register", registered)
        step = asyncio.create_task(session.register([reading("carl")], 1, {}, 5.0))
        await registering.wait()
        session.limit(Rights(AccessRole.USE, "ann", {**USERS, "carl": AccessRole.USE}))
        with pytest.raises(PermissionDeniedError, match="belongs to the user 'carl'"):
            await step
        assert not servers.handles
        session.close()

    check(use)


def test_rights_that_change_end_a_session_only_if_it_has_registered_what_they_do_not_allow():
    async def use(servers):
        one, other = servers.master.open_session(ANN), servers.master.open_session(ANN)
        servers.script("run", forever, PS)
        servers.script("run", answers(1.0), OWN)
        handle = await servers.registered(one, reading("carl"), n_fetches=1)
        kept = await servers.registered(other, reading("ann", task=OWN), n_fetches=1)
        running = asyncio.create_task(one.run_step(handle, FOREVER, []))
        await until(lambda: servers.workers[PS].started)
        changed = Rights(AccessRole.USE, "ann", {**USERS, "carl": AccessRole.USE})
        for session in (one, other):
            session.limit(changed)
        await asyncio.wait([running])
        assert servers.workers[PS].cancelled == 1
        with pytest.raises(AbortedError, match=r"session has ended.* belongs to the user 'carl'"):
            await one.run_step(handle, FOREVER, [])
        assert await other.run_step(kept, FOREVER, []) == [1.0]
        for session in (one, other):
            session.close()

    check(use)

"""Every RPC of both services is tried with every role, over real streams of a real endpoint."""

from __future__ import annotations

import pytest

from jflow.base.cluster import Task
from jflow.base.deadline import FOREVER
from jflow.base.roles import USER_ROLES, AccessRole
from jflow.errors import AlreadyExistsError, PermissionDeniedError, UnauthenticatedError
from jflow.net.protocol import MasterSession, Rights, Secret, WorkerSession, revocation
from jflow.net.protocol.codec import error_of
from jflow.net.protocol.rpcs import (
    CALLED_BACK,
    MASTER,
    REGISTER_PLANS,
    REGISTER_STEP,
    RELEASE,
    RUN_PLANS,
    RUN_STEP,
    SEND_TENSORS,
    WORKER,
)
from jflow.net.protocol.run_rpcs import PlansRequest
from jflow.net.protocol.signatures import rpc_of, rpcs_of
from jflow.net.protocol.tokens import TokenId
from jflow.net.protocol.transport import BrokenStreamError
from jflow.net.protocol.v1 import service_pb2 as pb
from jflow.state.core import TaskEffects
from jflow.state.effects import Effect
from jflow.state.moves import StateId
from tests.net.protocol.example_calls import example_call
from tests.net.protocol.hosts import (
    PEER_METHOD,
    SESSION_METHOD,
    TOKEN,
    Host,
    RawClient,
    eventually_async,
    on_loop,
    raw_call,
    serving,
)

READ, USE, OPERATE, CLUSTER = AccessRole

ALLOWED = {
    MASTER: {
        "called_back": READ,
        "find_waits": READ,
        "list_devices": READ,
        "members.add": OPERATE,
        "members.drain": OPERATE,
        "members.read": READ,
        "publish_coordinator": USE,
        "register_step": READ,
        "release": READ,
        "reset": OPERATE,
        "run_step": READ,
        "run_steps": READ,
        "sample_steps": READ,
        "state.claim": OPERATE,
        "state.move": USE,
        "state.restore": USE,
        "state.save": USE,
        "watch.inspect": READ,
        "watch.list_coordinators": READ,
        "watch.read_journals": OPERATE,
        "watch.stop": OPERATE,
    },
    WORKER: dict.fromkeys(
        [
            *("claims.learn", "effects.decide", "effects.take_over", "inspect"),
            *("members.add", "members.adopt", "members.check_leader", "members.read"),
            *("members.remove", "moves.put_applied", "moves.put_part", "moves.save_applied"),
            *(
                "moves.save_part",
                "list_coordinators",
                "moves.end",
                "moves.hold",
                "moves.outcome",
                "moves.put",
            ),
            *("moves.save", "read_journal", "register_plans", "release", "reset", "run_plans"),
            *("saves.close_writes", "saves.commit", "saves.end", "saves.forget", "saves.load"),
            *("saves.pause", "saves.put", "saves.resume", "saves.take", "saves.write"),
            *("send_tensors", "stop"),
        ],
        CLUSTER,
    ),
}
"""The least role that may call each RPC. A new RPC needs a row here."""

CALLS = {
    MASTER: {
        **{rpc.name: example_call(method) for method, rpc in rpcs_of(MasterSession).items()},
        "called_back": CALLED_BACK.envelope(1, 1, []),
        "register_step": REGISTER_STEP.envelope([], 0, {}, 1.0),
        "release": RELEASE.envelope(1),
        "run_step": RUN_STEP.envelope(1, []),
    },
    WORKER: {
        **{rpc.name: example_call(method) for method, rpc in rpcs_of(WorkerSession).items()},
        "effects.decide": rpc_of(TaskEffects.decide).envelope(Effect("c", 1, 2), 1, True, None),
        "register_plans": REGISTER_PLANS.envelope([], {}),
        "release": RELEASE.envelope(1),
        "run_plans": RUN_PLANS.envelope(PlansRequest(1, 1, [])),
        "send_tensors": SEND_TENSORS.envelope(1, {3: None}),
    },
}
METHODS = {MASTER: SESSION_METHOD, WORKER: PEER_METHOD}
ANSWERED_BY_THE_STREAM = {"called_back"}
"""RPCs that do not reach the session."""


class Reached:
    """A session of either service whose every method notes its name and fails."""

    def __init__(self, names: list[str], path: str = "") -> None:
        self._names, self._path = names, path

    def __getattr__(self, name: str) -> Reached:
        return Reached(self._names, f"{self._path}.{name}".removeprefix("."))

    def __call__(self, *_: object, **__: object) -> object:
        self._names.append(self._path)
        if self._path in ("reply_size", "watch_tasks", "close", "limit"):
            return None
        raise AlreadyExistsError("it was reached")


class Users:
    """Users with roles, one for each role unless it is changed."""

    def __init__(self) -> None:
        self.known = {str(role): role for role in USER_ROLES}

    def accept(self, token_id: TokenId) -> bool:
        return token_id.user in self.known

    def roles(self) -> dict[str, AccessRole]:
        return self.known


class RolesHost(Host):
    """A host whose sessions say what of them was reached."""

    def __init__(self) -> None:
        super().__init__(users=Users())
        self.rights: list[Rights] = []
        self.reached: list[str] = []

    def open_master_session(self, rights: Rights) -> Reached:  # type: ignore[override]
        self.rights.append(rights)
        return Reached(self.reached)

    def open_worker_session(self, caller: Task | None) -> Reached:
        return Reached(self.reached)


def token_of(role: str) -> str:
    return Secret(TOKEN).token_of(TokenId(role, "0" * 16)) if role != "cluster" else TOKEN


async def answer(client: RawClient, call: int, sent: tuple[pb.Envelope, object]) -> object:
    """Sends a call; returns the error of its reply, None if it has none."""
    envelope, tensors = sent
    request = pb.Envelope()
    request.CopyFrom(envelope)
    request.id = call
    await client.stream.send(request, tensors)
    received = await client.receive()
    assert received is not None, "the stream has ended"
    reply, _ = received
    assert reply.id == call
    return error_of(reply.status) if reply.status.code else None


@pytest.mark.parametrize("service", [MASTER, WORKER], ids=["master", "worker"])
def test_every_rpc_has_a_row_and_its_role(service):
    assert {name: rpc.needs for name, rpc in service.rpcs.items()} == ALLOWED[service]
    assert CALLS[service].keys() == ALLOWED[service].keys()


@pytest.mark.parametrize("service", [MASTER, WORKER], ids=["master", "worker"])
@pytest.mark.parametrize("role", ["read", "use", "operate", "cluster"])
def test_every_rpc_is_tried_with_every_role(service, role):
    async def check():
        host = RolesHost()
        async with serving(host) as address, raw_call(address, METHODS[service]) as stream:
            client = RawClient(stream)
            if service is WORKER and role != "cluster":
                with pytest.raises(UnauthenticatedError, match="token of the cluster"):
                    await client.handshake(token=token_of(role))
                assert not host.reached
                return
            await client.handshake(token=token_of(role))
            for number, (name, least) in enumerate(ALLOWED[service].items(), 1):
                host.reached.clear()
                error = await answer(client, number, CALLS[service][name])
                reached = [*{*host.reached} - {"reply_size", "watch_tasks"}]
                if role == "cluster" or least <= AccessRole.of_user(role):
                    assert not isinstance(error, PermissionDeniedError), name
                    assert reached or name in ANSWERED_BY_THE_STREAM, (name, error)
                else:
                    assert isinstance(error, PermissionDeniedError), name
                    assert f"the user {role!r} has the role {role!r}" in error.message
                    assert f"needs the role {str(least)!r}" in error.message
                    assert f"`jflow token role {role} {least}`" in error.message
                    assert not reached, name

    on_loop(check())


@pytest.mark.parametrize("method", [SESSION_METHOD, PEER_METHOD], ids=["master", "worker"])
def test_a_caller_without_an_accepted_token_reaches_no_rpc(method):
    async def check():
        host = RolesHost()
        async with serving(host) as address:
            for token in ("another token", token_of("stranger")):
                async with raw_call(address, method) as stream:
                    with pytest.raises(UnauthenticatedError):
                        await RawClient(stream).handshake(token=token)
        assert not host.reached
        assert not host.rights

    on_loop(check())


def test_a_call_that_is_not_allowed_is_named_as_the_user_knows_it():
    (move,) = (rpc for rpc in rpcs_of(MasterSession).values() if rpc.name == "state.move")
    state = StateId("/job:ps/task:0/device:CPU:0", "variable", "", "x")

    async def check():
        async with serving(RolesHost()) as address, raw_call(address) as stream:
            client = RawClient(stream)
            await client.handshake(token=token_of("read"))
            for number, (states, doing) in enumerate(
                [([state], "moving 'x' to there"), ([], "the call 'state.move'")], 1
            ):
                call = move.envelope(states, "there", 1.0, 1.0, FOREVER)
                error = await answer(client, number, call)
                assert isinstance(error, PermissionDeniedError)
                assert f"{doing} needs the role 'use'" in error.message
            unknown = pb.Envelope(method_call=pb.MethodCall(name="no such")), ()
            error = await answer(client, 9, unknown)
            assert "has no RPC 'no such'" in error.message

    on_loop(check())


def test_a_role_that_changes_is_that_of_open_streams_from_then_on(monkeypatch):
    monkeypatch.setattr(revocation, "LOOK_S", 0.01)
    stop = CALLS[MASTER]["watch.stop"]

    async def check():
        host = RolesHost()
        users = host.users
        async with serving(host) as address, raw_call(address) as stream:
            client = RawClient(stream)
            await client.handshake(token=token_of("use"))
            assert isinstance(await answer(client, 1, stop), PermissionDeniedError)
            users.known = users.known | {"use": OPERATE}
            await eventually_async(lambda: "limit" in host.reached)
            assert isinstance(await answer(client, 2, stop), AlreadyExistsError)
            users.known = users.known | {"use": READ}
            with pytest.raises(BrokenStreamError, match="has the role 'read', and had 'operate'"):
                await client.receive()
            async with raw_call(address) as again:
                client = RawClient(again)
                await client.handshake(token=token_of("use"))
                assert host.rights[-1].role == READ
                assert isinstance(await answer(client, 1, stop), PermissionDeniedError)

    on_loop(check())

"""`UserStreams`: which streams end, when their tokens are no longer accepted."""

import asyncio

import pytest

from jflow.base.roles import AccessRole
from jflow.errors import AbortedError, ResourceExhaustedError, UnauthenticatedError
from jflow.net.protocol import ALL_RIGHTS, Rights, revocation
from jflow.net.protocol.revocation import AdmittedCaller, UserStream, UserStreams
from jflow.net.protocol.tokens import TokenId

ANN, BOB = TokenId("ann", "0" * 16), TokenId("bob", "1" * 16)


class Failing:
    """Users of which nothing can be known while it fails."""

    def __init__(self):
        self.accepted, self.is_failing = {ANN, BOB}, False
        self.known = {"ann": AccessRole.OPERATE, "bob": AccessRole.USE}

    def accept(self, token_id):
        if self.is_failing:
            self.is_failing = False
            raise RuntimeError("not an error that a file has")
        return token_id in self.accepted

    def roles(self):
        return self.known


def following(streams, token_id, refuse, allow=print):
    """A stream that is open in a block, as its caller was admitted before."""
    roles = {"ann": AccessRole.OPERATE, "bob": AccessRole.USE}
    rights = ALL_RIGHTS if token_id is None else Rights(roles[token_id.user], token_id.user, roles)
    return streams.following(UserStream(AdmittedCaller(token_id), rights, refuse, allow))


@pytest.fixture(autouse=True)
def _often(monkeypatch):
    monkeypatch.setattr(revocation, "LOOK_S", 0.01)


def test_a_stream_ends_once_when_its_token_is_not_accepted_and_others_go_on():
    async def run():
        users, ended, errors = Failing(), [], []
        streams = UserStreams(users)
        has_ended = asyncio.Event()

        def end(name):
            def refuse(error):
                ended.append((name, error.message))
                has_ended.set()

            return refuse

        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        with (
            following(streams, ANN, end("a")),
            following(streams, BOB, end("b")),
            following(streams, None, end("c")),
        ):
            users.is_failing = True  # an error of one look does not end the others
            while not errors:
                await asyncio.sleep(0.001)
            users.accepted.discard(ANN)
            await has_ended.wait()
            with following(streams, BOB, end("d")):
                pass
        assert [name for name, _ in ended] == ["a"]
        assert "the user 'ann' was revoked" in ended[0][1]
        assert [type(one["exception"]) for one in errors] == [RuntimeError]
        assert not streams._open

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_token_that_was_revoked_since_the_handshake_ends_its_stream_at_once():
    async def run():
        users, ended = Failing(), []
        users.accepted.clear()
        with following(UserStreams(users), ANN, ended.append):
            assert len(ended) == 1

    asyncio.run(run())


def test_nothing_is_kept_of_a_stream_that_could_not_be_looked_at():
    async def run():
        users = Failing()
        users.is_failing = True
        streams = UserStreams(users)
        with pytest.raises(RuntimeError), following(streams, ANN, print):
            pass
        assert not streams._open

    asyncio.run(run())


def test_a_lower_role_ends_a_stream_and_a_higher_one_or_other_users_do_not():
    async def run():
        users, ended, allowed = Failing(), [], []
        streams = UserStreams(users)

        async def change(**roles):
            users.known = users.known | {
                name: AccessRole.of_user(role) for name, role in roles.items()
            }
            before = len(allowed) + len(ended)
            while len(allowed) + len(ended) == before:
                await asyncio.sleep(0.001)

        with following(streams, BOB, ended.append, allowed.append):
            allowed.clear()
            await change(bob="operate")
            assert allowed[-1] == Rights(AccessRole.OPERATE, "bob", users.known)
            await change(carl="read")
            assert "carl" in allowed[-1].users
            await change(bob="read")
        (error,) = ended
        assert isinstance(error, AbortedError)
        assert "has the role 'read', and had 'operate' before" in error.message

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_certificate_lowers_the_role_and_never_raises_it():
    users = Failing()
    streams = UserStreams(users)
    for limit in AccessRole:
        assert streams.rights_of(AdmittedCaller(None, limit)).role == limit
        assert streams.rights_of(AdmittedCaller(ANN, limit)).role == min(limit, AccessRole.OPERATE)
        assert streams.rights_of(AdmittedCaller(BOB, limit)).role == min(limit, AccessRole.USE)
    users.known = None
    assert streams.rights_of(AdmittedCaller()) == ALL_RIGHTS
    for caller in (
        AdmittedCaller(None, AccessRole.USE),
        AdmittedCaller(ANN),
        AdmittedCaller(BOB, AccessRole.READ),
    ):
        with pytest.raises(UnauthenticatedError):
            streams.rights_of(caller)


def test_a_user_has_a_bounded_number_of_streams_and_another_user_the_same(monkeypatch):
    async def run():
        monkeypatch.setattr(revocation, "MAX_STREAMS_OF_USER", 2)
        streams, refused = UserStreams(Failing()), []
        with following(streams, ANN, refused.append), following(streams, ANN, refused.append):
            with following(streams, ANN, refused.append):
                assert [type(one) for one in refused] == [ResourceExhaustedError]
            with following(streams, BOB, refused.append):
                assert len(refused) == 1
        with following(streams, ANN, refused.append):
            assert len(refused) == 1
        assert not streams._open

    asyncio.run(run())

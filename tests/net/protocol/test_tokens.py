"""Tokens of users: what they are made of, and with which of them a handshake succeeds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jflow import errors
from jflow.base.cluster import Target, Task
from jflow.base.roles import AccessRole
from jflow.net.protocol import Secret
from jflow.net.protocol.handshake import Caller, CallerHandshake, ServerHandshake
from jflow.net.protocol.rpcs import MASTER, WORKER
from jflow.net.protocol.tokens import NO_USERS, TokenId
from tests.net.protocol.hosts import TOKEN

CLUSTER = Secret(TOKEN)
ids = st.builds(
    TokenId,
    st.from_regex(r"\A[a-z][a-z0-9_.-]{0,62}\Z"),
    st.binary(min_size=8, max_size=8).map(bytes.hex),
)


class Known:
    """Users that have given tokens, and what the server was asked."""

    def __init__(self, *accepted):
        self.accepted = set(accepted)

    def accept(self, token_id):
        return token_id in self.accepted

    def roles(self):
        return {token_id.user: AccessRole.OPERATE for token_id in self.accepted}


def meet(own, server=CLUSTER, users=NO_USERS, service=MASTER.name):
    """The handshake of a caller with a token and a server; what the server knows at its end."""
    caller = CallerHandshake(Caller(own, service, Target("a:1")), bytes(32))
    there = ServerHandshake(server, users, service, caller.first_frame("here"))
    there.check(caller.prove(there.challenge(bytes(range(32)), is_other=False)))
    assert caller.opened(there.seal(b"welcome")) == b"welcome"
    return there


@given(ids)
def test_the_token_of_a_user_says_which_one_it_is(token_id):
    assert TokenId.parse(str(token_id)) == token_id
    token = CLUSTER.token_of(token_id)
    assert Secret(token).id == token_id
    assert CLUSTER.id is None
    assert TOKEN not in token
    for cut in (token[:-1], token + "0", token.replace(token_id.serial, "0"), token.upper()):
        assert Secret(cut).id is None


@given(ids, ids)
def test_callers_have_to_have_the_token_that_they_name(one, other):
    theirs = Secret(CLUSTER.token_of(one))
    assert meet(theirs, users=Known(one, other)).user_token == one
    assert meet(CLUSTER, users=Known(one)).user_token is None
    if one == other:
        return
    with pytest.raises(
        errors.UnauthenticatedError, match=rf"{one.serial} of the user '{one.user}'"
    ):
        meet(theirs, users=Known(other))
    # The token of one user is not that of another one.
    posing = Secret(CLUSTER.token_of(one))
    posing.id = other
    with pytest.raises(errors.UnauthenticatedError):
        meet(posing, users=Known(one, other))


def test_tokens_of_users_are_those_of_one_cluster():
    ann = TokenId("ann", "0123456789abcdef")
    elsewhere = Secret(Secret("another secret of many letters").token_of(ann))
    with pytest.raises(errors.UnauthenticatedError, match="or is one of another cluster"):
        meet(elsewhere, users=Known(ann))


def test_without_a_token_one_does_not_learn_which_users_there_are():
    """What a server sends has one form, and a proof that cannot be checked without a token."""
    ann, bob = TokenId("ann", "0" * 16), TokenId("bob", "0" * 16)
    sent = []
    for token_id in (ann, bob, bob):
        stranger = Secret("a secret that the server does not have")
        stranger.id = token_id
        caller = CallerHandshake(Caller(stranger, MASTER.name, Target("a:1")), bytes(32))
        there = ServerHandshake(CLUSTER, Known(ann), MASTER.name, caller.first_frame("here"))
        sent.append(there.challenge(bytes(32), is_other=False))
    assert len({len(frame) for frame in sent}) == 1
    assert len({*sent}) == 2


@pytest.mark.parametrize("named", ["ann", "ann:", ":0123456789abcdef", "Ann:0123456789abcdef", "x"])
def test_what_names_no_token_is_refused(named):
    stranger = Secret(TOKEN)
    stranger.id = named
    caller = CallerHandshake(Caller(stranger, MASTER.name, Target("a:1")), bytes(32))
    with pytest.raises(errors.UnauthenticatedError, match="none of a user"):
        ServerHandshake(CLUSTER, NO_USERS, MASTER.name, caller.first_frame("here"))


def test_a_server_with_the_token_of_a_user_is_theirs():
    ann = Secret(CLUSTER.token_of(TokenId("ann", "0" * 16)))
    for service in (MASTER.name, WORKER.name):
        assert meet(ann, server=ann, service=service).user_token is None
    with pytest.raises(errors.UnauthenticatedError):
        meet(CLUSTER, server=ann)


def test_a_secret_does_not_show_its_token():
    secret = Secret(CLUSTER.token_of(TokenId("ann", "0" * 16)))
    assert repr(secret) == "<jflow.net.protocol.Secret of ann>"
    caller = Caller(secret, MASTER.name, Target("a:1", task=Task("ps", 0)))
    assert secret._token.decode()[-64:] not in repr(caller)

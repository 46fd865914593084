"""The handshake as a state machine: what either end believes of which frames."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jflow import errors
from jflow.base.cluster import ClusterSpec, Target, Task
from jflow.net.protocol import Secret
from jflow.net.protocol.admission import new_nonce
from jflow.net.protocol.handshake import (
    MAC_BYTES,
    MAX_BYTES,
    VERSION,
    Caller,
    CallerHandshake,
    ServerHandshake,
    version_of,
)
from jflow.net.protocol.identity import ServerIdentity, ServerLocation
from jflow.net.protocol.rpcs import MASTER, WORKER
from jflow.net.protocol.tokens import NO_USERS
from jflow.net.protocol.v1 import handshake_pb2 as pb_handshake
from tests.net.protocol.hosts import TASK, TOKEN

TARGET = Target("127.0.0.1:7", "blue", Task("ps", 0), 77)
MACHINE = "this boot:1"
ONE, TWO = bytes(range(32)), bytes(range(32, 64))
OTHER_VERSION = b"jflow\0" + (VERSION + 1).to_bytes(2, "little")


def _caller(token=TOKEN, service=MASTER.name, target=TARGET, nonce=ONE, **caller):
    handshake = CallerHandshake(Caller(Secret(token), service, target, **caller), nonce)
    handshake.first_frame(MACHINE)
    return handshake


def _server(hello, token=TOKEN, service=MASTER.name, users=NO_USERS):
    return ServerHandshake(Secret(token), users, service, hello)


# The state machines -------------------------------------------------------------------------------

names = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40)
nonces = st.binary(min_size=32, max_size=32)
targets = st.builds(
    Target,
    names,
    names,
    st.none() | st.builds(Task, st.just("ps"), st.integers(0, 99)),
    st.integers(0, 2**64 - 1),
)


@given(targets, nonces, nonces, st.sampled_from([MASTER.name, WORKER.name]))
def test_ends_with_one_token_believe_each_other_and_the_server_learns_which_one_is_meant(
    target, one, two, service
):
    caller = _caller(service=service, target=target, nonce=one, task=TASK, address="a:1")
    server = _server(caller.hello, service=service)
    server.check(caller.prove(server.challenge(two, is_other=False)))
    assert caller.opened(server.seal(b"welcome")) == b"welcome"
    caller.check_meant()
    hello = server.hello
    assert (hello.cluster, hello.address) == (target.cluster, target.address)
    assert (hello.task, hello.incarnation) == (str(target.task or ""), target.incarnation)
    assert (hello.caller, hello.caller_address) == (str(TASK), "a:1")


@given(st.data())
def test_no_frame_can_be_altered_on_the_way(data):
    """Neither end goes on if a byte of any frame was changed, added or lost."""

    def altered(frame):
        at = data.draw(st.integers(0, len(frame) - 1))
        how = data.draw(st.sampled_from(["change", "drop", "add"]))
        byte = data.draw(st.integers(1, 255))
        if how == "change":
            return frame[:at] + bytes([frame[at] ^ byte]) + frame[at + 1 :]
        if how == "drop":
            return frame[:at] + frame[at + 1 :]
        return frame[:at] + bytes([byte]) + frame[at:]

    which = data.draw(st.sampled_from(["hello", "challenge", "proof", "answer"]))
    caller = _caller()

    def passed(frame, name):
        return altered(frame) if which == name else frame

    def perform():
        server = _server(passed(caller.hello, "hello"))
        challenge = server.challenge(TWO, is_other=False)
        server.check(passed(caller.prove(passed(challenge, "challenge")), "proof"))
        caller.opened(passed(server.seal(b"welcome"), "answer"))

    with pytest.raises(errors.OpError):
        perform()


@given(st.binary(max_size=200))
def test_neither_end_takes_what_is_no_frame_of_the_handshake(noise):
    for frame in (noise, _caller().hello[:8] + noise, OTHER_VERSION + noise):
        with pytest.raises(errors.OpError):
            _caller().prove(frame)
        caller = _caller()
        for _ in range(2):  # before the challenge, and after it
            with pytest.raises(errors.UnauthenticatedError):
                caller.opened(frame)
            caller.prove(_server(caller.hello).challenge(TWO, is_other=False))
        server = _server(_caller().hello)
        with pytest.raises(errors.UnauthenticatedError):
            server.check(frame)
        server.challenge(TWO, is_other=False)
        with pytest.raises(errors.UnauthenticatedError):
            server.check(frame)
        try:
            hello = _server(frame).hello
        except errors.UnauthenticatedError:
            continue
        assert len(hello.nonce) == 32


def test_the_token_is_in_no_frame_and_in_no_repr():
    caller = _caller()
    server = _server(caller.hello)
    challenge = server.challenge(TWO, is_other=False)
    sent = caller.hello + challenge + caller.prove(challenge)
    assert TOKEN.encode() not in sent
    assert TOKEN not in repr(Secret(TOKEN))
    for service in (MASTER.name, WORKER.name):
        assert Secret(TOKEN).key(service) not in sent


def test_an_end_without_the_token_is_not_believed():
    caller = _caller("another token than theirs")
    server = _server(caller.hello)
    challenge = server.challenge(TWO, is_other=False)
    with pytest.raises(errors.UnauthenticatedError, match="does not have the token") as raised:
        caller.prove(challenge)
    assert "/job:ps/task:0 at 127.0.0.1:7" in str(raised.value)
    impostor = _server(caller.hello, "another token than theirs")
    proof = caller.prove(impostor.challenge(TWO, is_other=False))
    with pytest.raises(errors.UnauthenticatedError, match="JFLOW_TOKEN"):
        server.check(proof)


def test_a_recorded_handshake_proves_nothing_to_a_server():
    caller = _caller()
    first = _server(caller.hello)
    proof = caller.prove(first.challenge(TWO, is_other=False))
    first.check(proof)
    again = _server(caller.hello)
    again.challenge(new_nonce(), is_other=False)
    with pytest.raises(errors.UnauthenticatedError):
        again.check(proof)


def test_a_recorded_handshake_proves_nothing_to_a_caller():
    recorded = _server(_caller().hello).challenge(TWO, is_other=False)
    with pytest.raises(errors.UnauthenticatedError):
        _caller(nonce=new_nonce()).prove(recorded)


def test_a_nonce_that_one_end_uses_twice_does_not_help_to_replay_the_other_s_frames():
    """Each end is safe by its own nonce, whatever the other one draws."""
    for own in (True, False):
        caller = _caller()
        server = _server(caller.hello)
        server.check(caller.prove(server.challenge(TWO, is_other=False)))
        fresh = _caller(nonce=new_nonce()) if own else _caller()
        second = _server(fresh.hello)
        challenge = second.challenge(TWO if own else new_nonce(), is_other=False)
        assert fresh.prove(challenge) != caller.prove(server.challenge(TWO, is_other=False))


def test_the_proof_of_a_server_is_none_of_a_caller():
    caller = _caller()
    server = _server(caller.hello)
    challenge = server.challenge(TWO, is_other=False)
    with pytest.raises(errors.UnauthenticatedError):
        server.check(challenge[-MAC_BYTES:])


def test_a_client_s_proof_is_worth_nothing_where_servers_call():
    caller = _caller(service=MASTER.name)
    server = _server(caller.hello, service=WORKER.name)
    with pytest.raises(errors.UnauthenticatedError):
        caller.prove(server.challenge(TWO, is_other=False))
    # One that does not look at the server's proof, because it is not interested in it:
    relayed = _server(caller.hello, service=MASTER.name)
    proof = caller.prove(relayed.challenge(TWO, is_other=False))
    with pytest.raises(errors.UnauthenticatedError):
        server.check(proof)


def test_a_proof_for_one_server_is_none_for_another():
    """What listens at a stale address cannot pass a live server's proof on as its own."""
    caller = _caller()
    server = _server(caller.hello)
    caller.prove(server.challenge(TWO, is_other=True))
    with pytest.raises(errors.UnavailableError, match="is not the one that was meant"):
        caller.check_meant()


def test_without_the_token_a_caller_does_not_learn_whether_a_server_is_the_one_that_was_meant():
    """Else names of clusters and tasks, and incarnations, could be guessed one by one."""
    server = _server(_caller().hello)
    frames = [server.challenge(TWO, is_other=is_other) for is_other in (False, True)]
    assert len({frame[:-MAC_BYTES] for frame in frames}) == 1
    assert len({frame[-MAC_BYTES:] for frame in frames}) == 2


def test_the_answer_of_one_handshake_is_none_of_another():
    """Neither recorded, nor of a server that is not the one which has proven itself."""
    caller, other = _caller(), _caller(nonce=new_nonce())
    server, elsewhere = _server(caller.hello), _server(other.hello)
    caller.prove(server.challenge(TWO, is_other=False))
    other.prove(elsewhere.challenge(TWO, is_other=False))
    again = _server(caller.hello)
    again.challenge(new_nonce(), is_other=False)
    peer = _server(caller.hello, service=WORKER.name)
    peer.challenge(TWO, is_other=False)
    for one in (elsewhere, again, peer):
        with pytest.raises(errors.UnauthenticatedError, match="on the way changes or inserts"):
            caller.opened(one.seal(b"welcome"))
    assert caller.opened(server.seal(b"welcome")) == b"welcome"


def test_unlike_versions_refuse_each_other_in_words():
    assert version_of(_caller().hello) == VERSION
    words = (
        f"speaks version {VERSION + 1} .* versions {VERSION - 1} and {VERSION}; install the same"
    )
    with pytest.raises(errors.FailedPreconditionError, match=words):
        _caller().prove(OTHER_VERSION)
    with pytest.raises(errors.UnauthenticatedError, match=f"versions {VERSION - 1} and {VERSION}"):
        _server(OTHER_VERSION + _caller().hello[8:])


def test_names_that_are_too_long_for_a_frame_are_refused_where_they_come_from():
    with pytest.raises(errors.InvalidArgumentError, match=f"at most {MAX_BYTES}"):
        _caller(target=replace(TARGET, at="a" * MAX_BYTES))


# The server that is meant -------------------------------------------------------------------------

IDENTITY = ServerIdentity(
    Task("ps", 0),
    77,
    ClusterSpec({"ps": ["Here:7", "there:8"], "worker": ["there:9", "there:0"]}),
    "blue",
    ServerLocation(frozenset({"10.0.0.1"}), frozenset({"gate.example.com:31222", "[fd00::1]:5"})),
)


@pytest.mark.parametrize(
    "hello",
    [
        {},
        {"task": "/job:ps/task:0", "cluster": "blue", "incarnation": 77},
        {"address": "10.0.0.1:7"},
        {"address": "here:7"},
        {"address": "Gate.example.com:31222"},
        {"address": "[fd00::1]:5"},
        {"caller": "/job:worker/task:0", "caller_address": "there:9"},
        {"caller": "/job:worker/task:1", "caller_address": "there:10"},
        {"caller": "/job:chief/task:0", "caller_address": "x:1"},
        {"caller": "/job:worker/task:0", "caller_address": "x:1", "cluster": "blue"},
    ],
    ids=str,
)
def test_a_server_is_meant_if_nothing_that_the_caller_knows_differs(hello):
    assert IDENTITY.refusal(pb_handshake.Hello(**{"address": "Here:7"} | hello)) is None


@pytest.mark.parametrize(
    ("hello", "words"),
    [
        ({"cluster": "green"}, "expected cluster 'green', got cluster 'blue'"),
        ({"task": "/job:ps/task:1"}, "expected /job:ps/task:1, got /job:ps/task:0"),
        ({"address": "Here:8"}, "expected a server at Here:8, got one at Here:7"),
        ({"address": "elsewhere:7"}, r"one at Here:7; .*'\?at=Here:7'"),
        ({"address": "gate.example.com:7"}, "JFLOW_ADVERTISE=gate.example.com:7 for that server"),
        ({"address": "nonsense:x"}, "expected a server at nonsense:x"),
        (
            {"caller": "/job:worker/task:0", "caller_address": "x:1"},
            "with /job:worker/task:0 at x:1, got one with /job:worker/task:0 at there:9; .*CLUSTER",
        ),
    ],
    ids=str,
)
def test_a_server_that_is_not_meant_says_what_was_expected_and_what_it_is(hello, words):
    error = IDENTITY.refusal(pb_handshake.Hello(**{"address": "Here:7"} | hello))
    assert isinstance(error, errors.UnavailableError)
    assert re.search(words, error.message)


def test_another_life_of_the_task_is_refused_as_one_that_has_restarted():
    error = IDENTITY.refusal(pb_handshake.Hello(address="Here:7", incarnation=76))
    assert isinstance(error, errors.RestartedError)

"""`UserStreams`: which streams end, when their tokens are no longer accepted."""

import asyncio

import pytest

from jflow.net.protocol import revocation
from jflow.net.protocol.revocation import UserStreams
from jflow.net.protocol.tokens import TokenId

ANN, BOB = TokenId("ann", "0" * 16), TokenId("bob", "1" * 16)


class Failing:
    """Users of which nothing can be known while it fails."""

    def __init__(self):
        self.accepted, self.is_failing = {ANN, BOB}, False

    def accept(self, token_id):
        if self.is_failing:
            self.is_failing = False
            raise RuntimeError("not an error that a file has")
        return token_id in self.accepted


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
            streams.ending(ANN, end("a")),
            streams.ending(BOB, end("b")),
            streams.ending(None, end("c")),
        ):
            users.is_failing = True  # an error of one look does not end the others
            while not errors:
                await asyncio.sleep(0.001)
            users.accepted.discard(ANN)
            await has_ended.wait()
            with streams.ending(BOB, end("d")):
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
        with UserStreams(users).ending(ANN, ended.append):
            assert len(ended) == 1

    asyncio.run(run())


def test_nothing_is_kept_of_a_stream_that_could_not_be_looked_at():
    async def run():
        users = Failing()
        users.is_failing = True
        streams = UserStreams(users)
        with pytest.raises(RuntimeError), streams.ending(ANN, print):
            pass
        assert not streams._open

    asyncio.run(run())

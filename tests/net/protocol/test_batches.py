"""Values that one task sends another one: which of them leave in one message."""

import asyncio

import numpy as np
import pytest

from jflow import errors
from jflow.net.protocol.frame import CHUNK_BYTES
from jflow.net.protocol.rpc import Incoming
from jflow.net.protocol.rpcs import SEND_TENSORS
from jflow.net.protocol.v1 import service_pb2 as pb
from tests.net.protocol.hosts import (
    INCARNATION,
    PATIENCE_S,
    TASK,
    Host,
    delivered,
    on_loop,
    peer_of,
    same,
    serving,
)


def test_values_of_a_step_that_leave_together_are_one_message_unless_they_are_large():
    whole = np.zeros(CHUNK_BYTES, np.uint8)
    values = {1: np.arange(3.0), 2: None, 3: whole, 4: np.arange(4.0)}
    messages = []

    async def check():
        async with serving(host) as address:
            peer = peer_of(TASK, address)
            await peer.connect(PATIENCE_S)
            link = peer._link
            send = link._send

            def noted(request, *call):
                body = request.body
                if isinstance(body, pb.SendTensors):
                    messages.append((body.step, [*body.edges], [*body.signals]))
                return send(request, *call)

            link._send = noted
            await delivered(peer, 7, values)
            await delivered(peer, 8, {1: None})
            await peer.run_plans(INCARNATION, 9, 1, [])
            await peer.close()

    host = Host()
    on_loop(check())
    assert messages == [
        (7, [1], [2]),
        (7, [3], []),
        (7, [4], []),
        (8, [], [1]),
    ]
    *came, run = host.calls
    assert [call[:3] for call in came] == [
        *(("deliver", 7, edge) for edge in values),
        ("deliver", 8, 1),
    ]
    for call, value in zip(came, values.values(), strict=False):
        if value is None:
            assert call[3] is None
        else:
            same(call[3], value)
    assert run[0] == "run"


def test_edges_without_their_tensors_are_refused():
    message = pb.Envelope(send_tensors=pb.SendTensors(step=1, edges=[1, 2]))
    with pytest.raises(errors.InvalidArgumentError, match="each of 2 edges, got 1"):
        asyncio.run(SEND_TENSORS.serve(None, Incoming(message, [np.zeros(1)], None)))

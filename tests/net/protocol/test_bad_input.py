"""What a server before fake hosts is sent that it should not be, and that it does no harm."""

import socket

import grpc
import numpy as np
import pytest

from jflow import errors
from jflow.base.cluster import Target
from jflow.base.packing import pack
from jflow.net.protocol import Secret
from jflow.net.protocol.frame import encode
from jflow.net.protocol.handshake import Caller, CallerHandshake
from jflow.net.protocol.plan_codec import plan_to_proto
from jflow.net.protocol.rpcs import MASTER
from jflow.net.protocol.transport import BrokenStreamError
from jflow.net.protocol.v1 import service_pb2 as pb
from tests.net.protocol.hosts import (
    PEER_METHOD,
    PLAN,
    SESSION_METHOD,
    TASK,
    TOKEN,
    Host,
    RawClient,
    beside_server,
    both_methods,
    connected,
    eventually_async,
    raw_call,
    reset,
    with_client,
)


def _frame(envelope, tensors=()):
    raw = [tensor.reshape(-1).view(np.uint8) for tensor in tensors]
    (only,) = encode(9, envelope.SerializeToString(), raw)
    return only


GARBAGE = {
    "nothing": b"",
    "zeros": bytes(100),
    "noise": b"\xff" * 100,
    "half a header": b"\x01\x02\x03",
    "unknown kind": b"\x07" + bytes(20),
    "more of nothing": b"\x02" + b"\x01" + bytes(19),
    "control that is no protobuf": next(encode(1, b"\xff\xff\xff", [])),
    "a control part beyond the frame": b"\x01" + bytes(8) + b"\xff" * 4 + bytes(8),
    "a payload of 2^64": b"\x01" + bytes(12) + b"\xff" * 8,
    "a tensor that is not there": _frame(
        pb.Envelope(id=5, tensors=[{"dtype": "float32", "shape": [1000]}])
    ),
    "a tensor of objects": _frame(pb.Envelope(id=5, tensors=[{"dtype": "O", "shape": [0]}])),
    "a hello again": CallerHandshake(
        Caller(Secret(TOKEN), MASTER.name, Target("127.0.0.1:1")), bytes(32)
    ).first_frame(""),
    "a tensor of 65 dimensions": _frame(
        pb.Envelope(id=5, tensors=[{"dtype": "uint8", "shape": [1] * 65}]),
        [np.zeros(1, np.uint8)],
    ),
}


MALFORMED = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
@both_methods
def test_garbage_ends_its_own_stream_and_no_other(method, garbage):
    host = Host()

    async def check(address):
        async with connected(address, method) as good, raw_call(address, method) as call:
            await eventually_async(lambda: len(host.sessions) == 1)
            bad = RawClient(call)
            await bad.handshake()
            await eventually_async(lambda: len(host.sessions) == 2)
            await bad.call.write(garbage)
            with pytest.raises(BrokenStreamError):
                await bad.receive()
            details = await bad.call.details()
            assert "Traceback" not in details
            assert "<class" not in details
            assert await bad.call.code() in MALFORMED
            assert "/" not in details.replace(str(TASK), ""), "no path of the server is told"
            await eventually_async(host.sessions[1].closed.is_set)
            await good.send(id=2, **reset(method, "still there"))
            reply, _ = await good.receive()
            assert reply.id == 2
            assert not host.sessions[0].closed.is_set()
        async with connected(address, method) as another:
            await another.send(id=2, **reset(method))
            assert (await another.receive())[0].id == 2

    beside_server(host, check)


@pytest.mark.parametrize("noise", [b"GET / HTTP/1.1\r\n\r\n", bytes(5000), b"\x16\x03\x01" * 9])
def test_noise_on_the_port_does_no_harm(noise):
    async def check(address):
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(noise)
            async with connected(address):
                pass

    beside_server(Host(), check)


BAD_PLAN = plan_to_proto(PLAN)
BAD_PLAN.device = "/nonsense"
NO_TASK = {
    "method_call": pb.MethodCall(
        name="list_devices",
        arguments=pack({"connect_timeout": 1.0, "only_up": False, "tasks": ["/nonsense"]}),
    )
}
BAD_REQUESTS = {
    "a plan for no device": {"register_step": pb.RegisterStep(plans=[BAD_PLAN])},
    "artifacts without bytes": {
        "register_step": pb.RegisterStep(artifacts=[pb.Artifact(digest="x")])
    },
    "a task that is none": NO_TASK,
    "a worker's request": {"run_plans": pb.RunPlans()},
    "a reply": {"registered": pb.Registered()},
    "no request at all": {},
}


@pytest.mark.parametrize("fields", BAD_REQUESTS.values(), ids=BAD_REQUESTS)
def test_a_bad_request_to_a_master_is_answered_as_such(fields):
    host = Host()

    async def check(client):
        await client.send(id=2, **fields)
        reply, _ = await client.receive()
        assert reply.status.code == errors.Code.INVALID_ARGUMENT
        await client.send(id=3, **reset(SESSION_METHOD))
        assert (await client.receive())[0].id == 3

    with_client(host, check)
    assert [call[:2] for call in host.calls] == [("reset", [])]


BAD_PARTS = {
    "a plan for no device": {"register_plans": pb.RegisterPlans(plans=[BAD_PLAN])},
    "artifacts without bytes": {
        "register_plans": pb.RegisterPlans(artifacts=[pb.Artifact(digest="x")])
    },
    "a master's request": {"run_step": pb.RunStep()},
    "no request at all": {},
}


@pytest.mark.parametrize("fields", BAD_PARTS.values(), ids=BAD_PARTS)
def test_a_bad_request_to_a_worker_is_answered_as_such(fields):
    async def check(client):
        await client.send(id=2, **fields)
        reply, _ = await client.receive()
        assert reply.status.code == errors.Code.INVALID_ARGUMENT

    host = Host()
    with_client(host, check, PEER_METHOD)
    assert host.calls == []

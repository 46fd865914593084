"""The table of remote procedures, and calls by it."""

import pytest

from jflow import errors
from jflow.base.cluster import Device
from jflow.base.deadline import FOREVER
from jflow.net.protocol import DeviceRecord, MasterSession, WorkerService
from jflow.net.protocol.rpcs import MASTER, REGISTER_STEP, WORKER
from jflow.net.protocol.signatures import rpc_of
from jflow.net.protocol.v1 import service_pb2 as pb
from tests.net.protocol.hosts import INCARNATION, PATIENCE_S, TASK, Host, on_loop, peer_of, serving

FIELDS = pb.Envelope.DESCRIPTOR.fields_by_name


@pytest.mark.parametrize("service", [MASTER, WORKER], ids=lambda service: service.role)
def test_every_procedure_has_its_messages(service):
    for name, rpc in service.rpcs.items():
        assert name == rpc.name
        assert (rpc.body or name) in FIELDS
        assert not rpc.reply or rpc.reply in FIELDS


def test_a_client_calls_any_procedure_of_the_master(client, host):
    record = DeviceRecord(Device(TASK, "CPU", 0), "cpu", 1)

    async def devices(*_):
        return [record]

    host.script["list_devices"] = devices
    assert client.call(MasterSession.list_devices, [TASK], 1.0, True, FOREVER) == [record]


def test_a_server_calls_any_procedure_of_another_one_s_worker():
    host = Host()

    async def check():
        async with serving(host) as address:
            peer = peer_of(TASK, address)
            await peer.connect(PATIENCE_S)
            assert await peer.call(WorkerService.reset, INCARNATION, ["box"]) is None
            await peer.close()

    on_loop(check())
    assert host.calls == [("reset", ["box"])]


def test_a_reply_that_makes_no_sense_is_an_internal_error():
    reply = pb.Envelope(method_result=pb.MethodResult(value=b"nonsense"))
    with pytest.raises(errors.InternalError, match="list_devices"):
        rpc_of(MasterSession.list_devices).read(reply, [])


def test_a_wait_is_described_by_its_request():
    listing = rpc_of(MasterSession.list_devices)
    envelope, _ = listing.envelope([TASK, TASK], 1.0, True, FOREVER)
    assert listing.doing(envelope.method_call) == f"listing the devices of {TASK}, {TASK}"
    envelope, _ = REGISTER_STEP.envelope([], 0, {}, 1.0)
    assert REGISTER_STEP.doing(envelope.register_step) == "registering the step on "

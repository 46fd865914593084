"""The table of remote procedures, and calls by it."""

import numpy as np
import pytest

from jflow import errors
from jflow.cluster import Device
from jflow.deadline import FOREVER
from jflow.protocol import DeviceRecord
from jflow.protocol.rpcs import LIST_DEVICES, MASTER, REGISTER_STEP, RUN_PLANS, RUN_STEP, WORKER
from jflow.protocol.run_rpcs import PlansRequest
from jflow.protocol.v1 import service_pb2 as pb
from tests.protocol.hosts import INCARNATION, TASK, Host, on_loop, peer_of, same, serving

FIELDS = pb.Envelope.DESCRIPTOR.fields_by_name


@pytest.mark.parametrize("service", [MASTER, WORKER], ids=lambda service: service.role)
def test_every_procedure_has_its_messages(service):
    for name, rpc in service.rpcs.items():
        assert name == rpc.name
        assert name in FIELDS
        assert not rpc.reply or rpc.reply in FIELDS


def test_a_client_calls_any_procedure_of_the_master(client, host):
    record = DeviceRecord(Device(TASK, "CPU", 0), "cpu", 1)

    async def devices(*_):
        return [record]

    host.script["list_devices"] = devices
    assert client.call(LIST_DEVICES, FOREVER, [TASK], 1.0, only_up=True) == [record]
    (got,) = client.call(RUN_STEP, FOREVER, 1, [np.arange(3)])
    same(got, np.arange(3))


def test_a_server_calls_any_procedure_of_another_one_s_worker():
    async def check():
        async with serving(Host()) as address:
            peer = peer_of(TASK, address)
            (got,) = await peer.call(RUN_PLANS, INCARNATION, PlansRequest(1, 2, [np.arange(3)]))
            same(got, np.arange(3))
            await peer.close()

    on_loop(check())


def test_a_reply_that_makes_no_sense_is_an_internal_error():
    reply = pb.Envelope(device_list=pb.DeviceList(devices=[pb.Device(name="nonsense")]))
    with pytest.raises(errors.InternalError, match="list_devices"):
        LIST_DEVICES.read(reply, [])


def test_a_wait_is_described_by_its_request():
    envelope, _ = LIST_DEVICES.envelope([TASK], 1.0)
    assert LIST_DEVICES.doing(envelope.list_devices) == f"listing the devices of {TASK}"
    envelope, _ = REGISTER_STEP.envelope([], 0, {}, 1.0)
    assert REGISTER_STEP.doing(envelope.register_step) == "registering the step on "

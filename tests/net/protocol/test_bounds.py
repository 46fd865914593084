"""What callers cannot make a server keep or compute: silence, plans, early and unread data."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

import numpy as np
import pytest

from jflow import errors
from jflow.base.cluster import Device
from jflow.net.protocol import ReplySize, codec, plan_codec, settings
from jflow.net.protocol.codec import MAX_STRINGS, open_message
from jflow.net.protocol.credits import MAX_UNREAD_BYTES, Credits
from jflow.net.protocol.frame import Assembler, encode
from jflow.net.protocol.plan_codec import plan_to_proto
from jflow.net.protocol.transport import BrokenStreamError
from jflow.net.protocol.v1 import plan_pb2 as pb_plan
from jflow.net.protocol.v1 import service_pb2 as pb
from jflow.plan import Call, Plan
from jflow.plan.verify import (
    MAX_DEPENDENCIES,
    MAX_OPERANDS,
    MAX_STAGES,
    MAX_STATES,
    SPARE_SLOTS,
    verify,
)
from tests.net.protocol.hosts import (
    PEER_METHOD,
    TASK,
    Host,
    RawClient,
    both_methods,
    connected,
    eventually_async,
    on_loop,
    raw_call,
    serving,
)

DEVICE = Device(TASK, "CPU", 0)

# Streams that do not begin -----------------------------------------------------------------------


@both_methods
def test_a_stream_that_does_not_begin_is_ended(method, monkeypatch) -> None:
    monkeypatch.setattr(settings, "HELLO_S", 0.1)

    async def check() -> None:
        async with serving(host) as address:
            async with raw_call(address, method) as call:
                with pytest.raises(BrokenStreamError, match=r"not complete within 0\.1 s"):
                    await RawClient(call).receive()
            async with connected(address, method) as client:
                await asyncio.sleep(0.2)
                await client.send(id=2, ping=pb.Ping())
                assert (await client.receive()) is not None

    host = Host()
    on_loop(check())
    assert len(host.sessions) == 1


# Plans -------------------------------------------------------------------------------------------


def _answer_to(host: Host, message: pb.RegisterPlans) -> pb.Envelope:
    """The answer to a registration."""

    async def check() -> pb.Envelope:
        async with serving(host) as address, connected(address, PEER_METHOD) as client:
            await client.send(id=2, register_plans=message)
            answer, _ = await client.receive()
            return answer

    return on_loop(check())


def test_a_plan_of_too_many_stages_is_refused_before_any_is_read(monkeypatch) -> None:
    monkeypatch.setattr(plan_codec, "plan_from_proto", None)
    stages = [pb_plan.Stage()] * (MAX_STAGES // 2 + 1)
    plan = pb_plan.Plan(device=str(DEVICE), stages=stages)
    answer = _answer_to(Host(), pb.RegisterPlans(plans=[plan, plan]))
    assert answer.status.code == errors.ResourceExhaustedError.error_code
    assert f"{MAX_STAGES + 2} stages; the limit is {MAX_STAGES}" in answer.status.message


N = MAX_OPERANDS // 2


@pytest.mark.parametrize(
    "instruction",
    [
        pb_plan.Instruction(run=pb_plan.Run(inputs=[0] * N)),
        pb_plan.Instruction(run=pb_plan.Run(program=pb_plan.Program(digest="p", donated=[0] * N))),
        pb_plan.Instruction(run=pb_plan.Run(before=[pb_plan.Held()] * N)),
        pb_plan.Instruction(call=pb_plan.Call(function="f", outputs=[0] * N)),
        pb_plan.Instruction(call=pb_plan.Call(function="f", constants=[""] * N)),
    ],
    ids=["inputs", "donated", "before", "outputs", "constants"],
)
def test_plans_that_name_too_much_are_refused_before_any_is_read(instruction, monkeypatch) -> None:
    monkeypatch.setattr(plan_codec, "plan_from_proto", None)
    one = pb_plan.Stage(instructions=[instruction])
    other = pb_plan.Stage(instructions=[pb_plan.Instruction(run=pb_plan.Run(reads=[0] * (N + 1)))])
    plans = [pb_plan.Plan(device=str(DEVICE), stages=[one, other])]
    with pytest.raises(errors.ResourceExhaustedError, match=f"{2 * N + 1} operands of instr"):
        on_loop(plan_codec.plans_from_proto(plans))


def test_a_plan_of_too_many_variables_is_refused_before_any_is_read(monkeypatch) -> None:
    monkeypatch.setattr(plan_codec, "plan_from_proto", None)
    plan = pb_plan.Plan(
        device=str(DEVICE),
        variables=[pb_plan.VariableSpec()] * (MAX_STATES // 2),
        resources=[pb_plan.ResourceSpec()] * (MAX_STATES // 2 + 1),
    )
    answer = _answer_to(Host(), pb.RegisterPlans(plans=[plan]))
    assert answer.status.code == errors.ResourceExhaustedError.error_code
    assert f"{MAX_STATES + 1} variables and resources; the limit is" in answer.status.message


def test_variables_of_too_many_dimensions_are_refused_before_any_is_read(monkeypatch) -> None:
    monkeypatch.setattr(plan_codec, "plan_from_proto", None)
    variables = [pb_plan.VariableSpec(shape=[1] * N)] * 3
    plans = [pb_plan.Plan(device=str(DEVICE), variables=variables)]
    with pytest.raises(errors.ResourceExhaustedError, match=f"{3 * N} operands"):
        on_loop(plan_codec.plans_from_proto(plans))


def test_a_step_of_100000_operations_is_registered_beside_the_loop(monkeypatch) -> None:
    threads = set()

    def noted(plan: pb_plan.Plan) -> Plan:
        threads.add(threading.current_thread())
        return read(plan)

    read = plan_codec.plan_from_proto
    monkeypatch.setattr(plan_codec, "plan_from_proto", noted)
    calls = tuple(Call("f", (), (slot,), (), (), b"", "") for slot in range(100_000))
    host = Host()
    plan = Plan(DEVICE, len(calls), (), (calls,))
    answer = _answer_to(host, pb.RegisterPlans(plans=[plan_to_proto(plan)]))
    assert answer.registered.handle == 1
    ((_, (got,), *_),) = host.calls
    assert got.n_slots == len(got.instructions) == 100_000
    answer = _answer_to(host, pb.RegisterPlans(plans=[plan_to_proto(Plan(DEVICE, 0, (), ()))]))
    assert answer.registered.handle == 1
    assert [thread.name == "jflow servers" for thread in threads].count(True) == 1
    assert len(threads) == 2


def test_a_plan_may_have_no_more_slots_than_something_fills() -> None:
    filled = Plan(DEVICE, 2, (), ((Call("f", (), (0, 1), (), (), b"", ""),),))
    verify(replace(filled, n_slots=2 + SPARE_SLOTS))
    with pytest.raises(errors.InvalidArgumentError, match="of which 2 are filled"):
        verify(replace(filled, n_slots=3 + SPARE_SLOTS))


def test_the_order_of_stages_costs_no_more_than_its_limit() -> None:
    n_stages = 2000
    empty: tuple[tuple[Call, ...], ...] = ((),) * n_stages
    too_many = tuple(tuple(range(number)) for number in range(n_stages))
    assert sum(map(len, too_many)) > MAX_DEPENDENCIES
    with pytest.raises(errors.InvalidArgumentError, match="order names more than"):
        verify(Plan(DEVICE, 0, (), empty, (), too_many))
    first = (Call("f", (), (0,), (), (), b"", ""),)
    readers = tuple((Call("f", (0,), (), (), (), b"", ""),) for _ in range(n_stages - 1))
    chain = ((), *((number,) for number in range(n_stages - 1)))
    with pytest.raises(errors.InvalidArgumentError, match="that they do not name"):
        verify(Plan(DEVICE, 1, (), (first, *readers), (), chain))


# Strings -----------------------------------------------------------------------------------------


def test_more_strings_than_a_message_may_have_are_refused_at_both_ends() -> None:
    strings = np.full(MAX_STRINGS + 1, b"", object)
    with pytest.raises(errors.ResourceExhaustedError, match=f"the limit is {MAX_STRINGS}"):
        codec.control_of(pb.Envelope(), [strings])
    envelope = pb.Envelope()
    for _ in range(2):
        envelope.tensors.add(dtype="string", shape=[MAX_STRINGS // 2 + 1])
    zeros = memoryview(np.zeros(8 * (MAX_STRINGS // 2 + 1), np.uint8))
    assembler = Assembler()
    *_, message = map(assembler.feed, encode(1, envelope.SerializeToString(), [zeros, zeros]))
    assert message is not None
    with pytest.raises(errors.ResourceExhaustedError, match=f"the limit is {MAX_STRINGS}"):
        open_message(message)


def test_many_strings_are_read_beside_the_loop_and_in_order() -> None:
    async def check() -> None:
        async with serving(host) as address, connected(address) as client:
            await client.send([strings], id=2, run_step=pb.RunStep(handle=1))
            await client.send(id=3, run_step=pb.RunStep(handle=2))
            assert [(await client.receive())[0].id for _ in range(2)] == [2, 3]

    strings = np.array([b"%d" % (i % 7) * (i % 3) for i in range(50_000)], object)
    host = Host()
    on_loop(check())
    (_, handle, _, (got,), *_), (_, other, *_) = host.calls
    assert (handle, other) == (1, 2)
    assert (got == strings).all()


# Values that are early, or not read --------------------------------------------------------------


def test_a_stream_that_brings_too_much_early_is_not_read_until_there_is_room() -> None:
    async def check() -> None:
        host, go_on = Host(script={"deliver": lambda *_: None}), asyncio.Event()
        async with serving(host) as address, connected(address, PEER_METHOD) as client:
            (session,) = host.sessions
            session.make_room = go_on.wait
            session.deliver = lambda *call: session.calls.append(call) or len(session.calls) == 2
            for step in range(4):
                await client.send([np.zeros(2)], send_tensors=pb.SendTensors(step=step, edges=[1]))
            await eventually_async(lambda: len(session.calls) == 2)
            await asyncio.sleep(0.05)
            assert len(session.calls) == 2
            go_on.set()
            await eventually_async(lambda: len(session.calls) == 4)

    on_loop(check())


def test_a_client_that_does_not_read_has_few_steps_begun_and_all_when_it_reads() -> None:
    reply = np.zeros(MAX_UNREAD_BYTES // 4, np.uint8)

    async def run(*_: object) -> list[np.ndarray]:
        await asyncio.sleep(0)
        return [reply]

    async def check() -> None:
        async with serving(host) as address, connected(address) as client:
            for number in range(20):
                await client.send(id=10 + number, run_step=pb.RunStep(handle=1))
            await eventually_async(lambda: host.started >= 4)
            await client.send(id=100, cancel=pb.Cancel(id=29))
            await asyncio.sleep(0.1)
            # gRPC itself takes some chunks of the first one.
            assert host.started <= 5
            answers = {}
            while len(answers) < 20:
                envelope, tensors = await client.receive()
                answers[envelope.id] = envelope.status.code, sum(one.nbytes for one in tensors)
        assert answers.pop(29) == (errors.CancelledError.error_code, 0)
        assert set(answers.values()) == {(0, reply.nbytes)}
        assert host.started == 19

    host = Host(script={"run": run, "reply_size": ReplySize(reply.nbytes)})
    on_loop(check())


def test_a_client_that_does_not_read_has_few_feeds_taken_and_all_when_it_reads() -> None:
    fed = np.zeros(MAX_UNREAD_BYTES // 4, np.uint8)

    async def run(*args: object) -> list[np.ndarray]:
        await asyncio.sleep(0)
        return list(args[2])

    async def check() -> None:
        n_sent = 0

        async def send() -> None:
            nonlocal n_sent
            for number in range(20):
                await client.send([fed], id=10 + number, run_step=pb.RunStep(handle=1))
                n_sent += 1

        async with serving(host) as address, connected(address) as client:
            sending = asyncio.create_task(send())
            await eventually_async(lambda: host.started >= 4)
            await asyncio.sleep(0.2)
            # The next one waits for credits, and one more may be in the buffers of gRPC.
            assert host.started <= 5
            assert n_sent <= 7
            answers = {}
            while len(answers) < 20:
                envelope, tensors = await client.receive()
                answers[envelope.id] = envelope.status.code, sum(one.nbytes for one in tensors)
            await sending
        assert set(answers.values()) == {(0, fed.nbytes)}
        assert host.started == 20

    host = Host(script={"run": run, "reply_size": ReplySize(fed.nbytes)})
    on_loop(check())


def test_steps_that_may_wait_for_others_are_never_kept_from_beginning() -> None:
    async def run(*_: object) -> list[np.ndarray]:
        if host.started == 20:
            everything.set()
        await everything.wait()
        return [np.zeros(MAX_UNREAD_BYTES // 4, np.uint8)]

    async def check() -> None:
        async with serving(host) as address, connected(address) as client:
            for number in range(20):
                await client.send(id=10 + number, run_step=pb.RunStep(handle=1))
            ids = {(await client.receive())[0].id for _ in range(20)}
            assert ids == set(range(10, 30))

    host = Host(script={"run": run})
    everything = asyncio.Event()
    on_loop(check())


def test_credits_are_given_in_order_and_come_back_from_those_that_gave_up() -> None:
    async def check() -> None:
        stream, part = Credits(), MAX_UNREAD_BYTES // 2
        await stream.acquire(2 * MAX_UNREAD_BYTES)  # the only one may be larger
        waiting = [asyncio.create_task(stream.acquire(part)) for _ in range(4)]
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        waiting[0].cancel()
        await asyncio.sleep(0)
        stream.give(2 * MAX_UNREAD_BYTES)
        waiting[1].cancel()  # it has been given credits, and does not know yet
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [task.cancelled() for task in waiting[:2]] == [True, True]
        assert [task.done() for task in waiting[2:]] == [True, True]
        last = asyncio.create_task(stream.acquire(1))
        await asyncio.sleep(0)
        assert not last.done()
        stream.give(part)
        await last

    asyncio.run(check())

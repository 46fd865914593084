"""What callers that do harm, or are broken, cost a server: its memory, and how long it is silent.

Each of them has a server of its own. Memory is the peak of the server over what it had before. A
silence is the longest time in which its event loop did not answer, as a third process finds by
asking all the time; with a target this module is that process.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress

import numpy as np

import jflow as tf
from bench import memory
from bench.timing import tell
from jflow.base.cluster import Device, Target, Task, split_address
from jflow.net.protocol.admission import enter, new_nonce
from jflow.net.protocol.frame import encode
from jflow.net.protocol.handshake import Caller, CallerHandshake
from jflow.net.protocol.rpcs import SEND_TENSORS, WORKER
from jflow.net.protocol.stream import MessageStream
from jflow.net.protocol.v1 import plan_pb2 as pb_plan
from jflow.net.protocol.v1 import service_pb2 as pb
from jflow.net.wire import load_secret
from jflow.net.wire.grpc_channels import aio_channel, method_of, raise_limit
from jflow.net.wire.grpc_stream import GrpcStream, connect
from jflow.testing import FaultProxy

TASK = Task("worker", 0)
DEVICE = str(Device(TASK, "CPU", 0))
N_STREAMS = N_VALUES = N_STEPS = 200
N_CONNECTIONS = 5000
VALUE_BYTES = 5_000_000
WATCHED_S = 12.0
"""How long a server is watched that something is sent to which it does not take."""
REST_S = 0.5
PING_EVERY_S = 0.005

Harm = Callable[[str, Callable[[], None]], Awaitable[None]]
"""Does something to the server at an address, once it has called the function."""


async def connected(address: str) -> tuple[MessageStream, GrpcStream]:
    """A stream to the worker service of the server, after the handshake."""
    stream = await connect(WORKER.name, TASK, address)
    caller = Caller(load_secret(), WORKER.name, Target(address))
    messages, _ = await enter(stream, CallerHandshake(caller, new_nonce()))
    return messages, stream


# What they do -------------------------------------------------------------------------------------


async def say_nothing(address: str, begin: Callable[[], None]) -> None:
    """Opens streams and does not begin the handshake; the server ends them."""

    async def one() -> None:
        async with aio_channel(address) as channel:
            call = channel.stream_stream(method_of(WORKER.name))(wait_for_ready=True)
            with suppress(*GrpcStream.errors):
                await call.read()

    begin()
    await asyncio.gather(*(one() for _ in range(N_STREAMS)))


async def connect_only(address: str, begin: Callable[[], None]) -> None:
    """Opens connections that send nothing, and a session beside them."""
    raise_limit()
    host, port = split_address(address)
    begin()
    idle = [await asyncio.open_connection(host, port) for _ in range(N_CONNECTIONS)]
    begun = time.perf_counter()
    await asyncio.to_thread(_run_one, address)
    tell(
        {f"a step of a new session beside {N_CONNECTIONS} connections": time.perf_counter() - begun}
    )
    for _, writer in idle:
        writer.close()


def _run_one(address: str) -> None:
    with tf.Session(f"grpc://{address}") as session:
        assert session.run(tf.constant(2) * 3) == 6


async def bring_early_values(address: str, begin: Callable[[], None]) -> None:
    """Sends values for steps that do not exist."""
    messages, _ = await connected(address)
    value = np.ones(VALUE_BYTES, np.uint8)
    begin()
    with suppress(TimeoutError):
        async with asyncio.timeout(WATCHED_S):
            for step in range(N_VALUES):
                await messages.send(*SEND_TENSORS.envelope(10**6 + step, {1: value}))
    await messages.close()


async def do_not_read(address: str, begin: Callable[[], None]) -> None:
    """Runs steps with large replies, behind a network that passes no replies on."""
    with FaultProxy(address) as proxy:
        await asyncio.to_thread(_run_many, proxy, begin)


def _run_many(proxy: FaultProxy, begin: Callable[[], None]) -> None:
    large = tf.Variable(np.ones(VALUE_BYTES // 4, np.float32), name="large")
    reply = large * 2
    with tf.Session(proxy.target) as session, ThreadPoolExecutor(N_STEPS) as threads:
        session.run(large.initializer)
        for _ in range(3):
            session.run(reply)
        time.sleep(REST_S)
        begin()
        proxy.to_client.hold()
        steps = [threads.submit(session.run, reply) for _ in range(N_STEPS)]
        time.sleep(WATCHED_S)
        session.close()
        proxy.heal()
        for step in steps:
            assert isinstance(step.exception(), tf.errors.OpError)


async def declare_slots(address: str, begin: Callable[[], None]) -> None:
    """Registers plans that are small and have many slots."""
    await _register(address, begin, [pb_plan.Plan(device=DEVICE, n_slots=1 << 20)] * 200)


async def name_stages(address: str, begin: Callable[[], None]) -> None:
    """Registers a plan of many stages that are empty."""
    await _register(
        address, begin, [pb_plan.Plan(device=DEVICE, stages=[pb_plan.Stage()] * 300_000)]
    )


async def name_variables(address: str, begin: Callable[[], None]) -> None:
    """Registers a plan that uses many variables without a name."""
    variables = [pb_plan.VariableSpec()] * 2_000_000
    await _register(address, begin, [pb_plan.Plan(device=DEVICE, variables=variables)])


async def repeat_inputs(address: str, begin: Callable[[], None]) -> None:
    """Registers a plan of one instruction, whose inputs are one slot, many times."""
    call = pb_plan.Call(function="f", inputs=[0] * 4_000_000)
    stages = [pb_plan.Stage(instructions=[pb_plan.Instruction(call=call)])]
    await _register(address, begin, [pb_plan.Plan(device=DEVICE, n_slots=1, stages=stages)])


async def _register(address: str, begin: Callable[[], None], plans: list[pb_plan.Plan]) -> None:
    messages, _ = await connected(address)
    begin()
    await messages.send(pb.Envelope(id=2, register_plans=pb.RegisterPlans(plans=plans)))
    received = await messages.receive()
    assert received is not None
    assert received[0].status.code, "such plans are refused"
    await messages.close()


async def bring_empty_strings(address: str, begin: Callable[[], None]) -> None:
    """Sends a message of 64 MB that is nothing but the sizes of strings."""
    messages, stream = await connected(address)
    envelope = pb.Envelope(id=2, run_plans=pb.RunPlans(step=1, handle=99))
    envelope.tensors.add(dtype="string", shape=[8_000_000])
    sizes = memoryview(np.zeros(64_000_000, np.uint8))
    begin()
    with suppress(*GrpcStream.errors):  # the server ends the stream
        for frame in encode(77, envelope.SerializeToString(), [sizes]):
            await stream.write(frame)
        await stream.read()
    await messages.close()


async def bring_empty_tensors(address: str, begin: Callable[[], None]) -> None:
    """Sends a message of 300,000 tensors without elements."""
    messages, stream = await connected(address)
    envelope = pb.Envelope(id=2, run_plans=pb.RunPlans(step=1, handle=99))
    for _ in range(300_000):
        envelope.tensors.add(dtype="bool", shape=[0])
    begin()
    for frame in encode(77, envelope.SerializeToString(), []):
        await stream.write(frame)
    await messages.receive()
    await messages.close()


HARMS: dict[str, Harm] = {
    "200 streams without a handshake": say_nothing,
    f"{N_CONNECTIONS} connections that are idle": connect_only,
    "200 early values of 5 MB": bring_early_values,
    "200 replies of 5 MB that are not read": do_not_read,
    "7.8 kB of plans with many slots": declare_slots,
    "a plan of 300000 stages": name_stages,
    "a plan of 2000000 variables": name_variables,
    "a plan of 4000000 inputs": repeat_inputs,
    "64 MB of empty strings": bring_empty_strings,
    "300000 empty tensors": bring_empty_tensors,
}

# What it costs ------------------------------------------------------------------------------------


@contextmanager
def pinging(address: str) -> Iterator[Callable[[], float]]:
    """A process that asks the server all the time; the function ends it and gives the silence."""
    command = [sys.executable, "-m", "bench.cases.bounds", address]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it is connected
        yield lambda: float(process.communicate("end\n")[0])


async def ping(address: str) -> None:
    """Pings a server until standard input ends; prints how long the longest answer took."""
    messages, _ = await connected(address)
    print("connected", flush=True)
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    longest = 0.0
    while not ended.done():
        begun = time.perf_counter()
        await messages.send(pb.Envelope(id=2, ping=pb.Ping()))
        await messages.receive()
        longest = max(longest, time.perf_counter() - begun)
        await asyncio.sleep(PING_EVERY_S)
    await messages.close()
    print(longest, flush=True)


def cost(name: str) -> dict[str, float]:
    """What one of them costs a new server."""
    with ExitStack() as blocks:
        cluster = blocks.enter_context(tf.LocalCluster(ps=0, workers=1))
        pid = cluster.pid("worker", 0)
        address = Target.parse(cluster.target("worker", 0).removeprefix("grpc://")).address
        before: list[int] = []

        def begin() -> None:
            before.append(memory.resident(pid))
            memory.begin_peak(pid)

        silence = blocks.enter_context(pinging(address))
        time.sleep(REST_S)
        asyncio.run(HARMS[name](address, begin))
        time.sleep(REST_S)
        return {
            f"memory for {name}": memory.peak(pid) - before[0],
            f"silence for {name}": silence(),
        }


def main() -> None:
    for name in HARMS:
        tell(cost(name))


if __name__ == "__main__":
    if sys.argv[1:]:
        asyncio.run(ping(sys.argv[1]))
    else:
        main()

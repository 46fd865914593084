"""Mutated programs, plans and frames before servers, each a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import IO, Any

import grpc
import numpy as np

from jflow.base.cluster import Device, Task
from jflow.base.deadline import FOREVER, Deadline
from jflow.errors import DeadlineExceededError, InternalError, OpError
from jflow.net.protocol import MasterClient, MasterSession, WatchedCluster
from jflow.net.protocol.frame import encode
from jflow.net.protocol.plan_codec import plan_to_proto
from jflow.net.protocol.signatures import rpc_of
from jflow.net.protocol.transport import BrokenStreamError
from jflow.net.protocol.v1 import service_pb2 as pb
from jflow.net.wire import connect
from jflow.plan import Feed, Fetch, Plan, Program, Run
from jflow.plan.xla import digest_of
from jflow.state.core import ClusterState
from jflow.state.watch import StatusRequest
from jflow.testing import PATIENCE_S
from tests.fuzz.campaign import Campaign
from tests.fuzz.corpus import VECTOR, programs
from tests.fuzz.mutations import Mutator
from tests.fuzz.tally import Growth, Tally
from tests.net.protocol.hosts import TOKEN, RawClient, connected, on_loop
from tests.ports import free_ports

_TASK = Task("local", 0)
_DEVICE = Device(_TASK, "CPU", 0)
_FED = np.linspace(-1, 2, VECTOR.shape[0], dtype=np.float32)
_STEP_S = 3.0
_REGISTERED_S = 15.0
_ANSWERED_S = 60.0
_INTERNAL = int(InternalError.error_code)
_ENDLESS = ("ran too long", "took too long to register", "no answer")
_SESSION = 50
"""How many programs one session registers."""

Attempt = Callable[["FuzzedServer", Mutator], tuple[bytes, Callable[[], str]]]
"""Makes an input, and a function that gives it to a server and says what became of it."""


class FuzzedServer:
    """A server process; ends with `stop`."""

    def __init__(self) -> None:
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - `stop` closes it
        cluster = json.dumps({_TASK.job: [self.address]})
        self._process = subprocess.Popen(
            [sys.executable, "-m", "jflow", "server", "--cluster", cluster],
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=os.environ | {"JFLOW_TOKEN": TOKEN},
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()
        self.growth = Growth(self._process.pid)
        self._client: MasterClient | None = None
        self._n_registered = 0

    def client(self) -> MasterClient:
        """A session on it, which is another one now and then."""
        if self._client is None or self._n_registered >= _SESSION:
            self.close_client()
            self._client, self._n_registered = connect(self.address, PATIENCE_S), 0
        self._n_registered += 1
        return self._client

    def close_client(self) -> None:
        """Ends the session."""
        if self._client is not None:
            self._client.close()
        self._client = None

    @property
    def code(self) -> int | None:
        """The exit code of the process; waits a moment for one that just ends. None if it runs."""
        with suppress(OpError):
            self.client().call(MasterSession.list_devices, [_TASK], 1.0, False, FOREVER)
            return None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        return self._process.returncode

    def stop(self) -> str:
        """Ends it; returns what it has said on its standard error that servers must not say."""
        with suppress(OpError):
            self.close_client()
        self._process.kill()
        self._process.communicate()
        self._log.seek(0)
        said = self._log.read().decode(errors="replace")
        self._log.close()
        return said[said.index("Traceback") - 200 :][:2000] if "Traceback" in said else ""


def try_programs(campaign: Campaign, tally: Tally, thread: int, n_threads: int) -> None:
    """Has servers compile and run mutated programs."""
    _try(campaign, tally, thread, n_threads, _program)


def try_plans(campaign: Campaign, tally: Tally, thread: int, n_threads: int) -> None:
    """Has servers register mutated plans."""
    _try(campaign, tally, thread, n_threads, _plan)


def try_frames(campaign: Campaign, tally: Tally, thread: int, n_threads: int) -> None:
    """Sends servers mutated frames."""
    _try(campaign, tally, thread, n_threads, _frame)


def _try(campaign: Campaign, tally: Tally, thread: int, n_threads: int, attempt: Attempt) -> None:
    server = FuzzedServer()
    number, data = None, b""
    try:
        for number in campaign.numbers(thread, n_threads):
            data, give = attempt(server, campaign.mutator(number))
            outcome = give()
            code = server.code
            if code == 0:  # what stops servers is a message like others
                outcome = "stopped the server, as callers may"
            tally.add(outcome)
            if code:
                tally.violate(f"the server has ended with {code}", number, data)
            elif code is None and (grown := server.growth.check()):
                tally.violate(grown, number, data)
            elif outcome == "no answer":
                tally.violate("a call got no answer in time", number, data)
            elif "InternalError" in outcome or outcome.endswith(f"code {_INTERNAL}"):
                tally.violate(f"an error of jflow itself: {outcome}", number, data)
            # What does not end keeps a core busy, or others from being validated.
            if code is not None or outcome in _ENDLESS:
                _stopped(server, tally, number, data)
                server = FuzzedServer()
    finally:
        _stopped(server, tally, number, data)


def _stopped(server: FuzzedServer, tally: Tally, number: int | None, data: bytes) -> None:
    if said := server.stop():
        tally.violate(f"the server said:\n{said}", number, data)


def _plan_of(digest: str) -> Plan:
    run = Run(Program(digest), inputs=(0,), outputs=(1,))
    return Plan(_DEVICE, 2, (), ((Feed(0, 0), run, Fetch(1, 0)),))


def _program(server: FuzzedServer, mutator: Mutator) -> tuple[bytes, Callable[[], str]]:
    data = mutator.program(mutator.pick(programs()))
    code = np.frombuffer(data, np.uint8)

    def give() -> str:
        try:
            client, digest = server.client(), digest_of(code)
            deadline = Deadline(_REGISTERED_S)
            registered = client.register([_plan_of(digest)], 1, {digest: code}, 1.0, deadline)
        except DeadlineExceededError:
            return "took too long to register"
        except OpError as error:
            return _named("refused", error)
        try:
            client.run_step(registered.handle, [_FED], Deadline(_STEP_S))
        except DeadlineExceededError:
            return "ran too long"
        except OpError as error:
            return _named("ended", error)
        return "ran"

    return data, give


def _named(what: str, error: OpError) -> str:
    """What became of an input that is an error; all of it, if that is one of jflow itself."""
    named = f"{what} by {type(error).__name__}"
    return f"{named}: {error}" if isinstance(error, InternalError) else named


def _plan(server: FuzzedServer, mutator: Mutator) -> tuple[bytes, Callable[[], str]]:
    code = np.frombuffer(mutator.pick(programs()), np.uint8)
    digest = digest_of(code)
    request = pb.RegisterStep(
        plans=[plan_to_proto(_plan_of(digest))],
        n_fetches=1,
        artifacts=[pb.Artifact(digest=digest)],
    )
    mutator.message(request)
    envelope = pb.Envelope(id=1, register_step=request)

    async def give(client: RawClient) -> str:
        await client.stream.send(_within(envelope), [code])
        answer, _ = await client.receive()
        if answer.status.code:
            return f"refused with code {answer.status.code}"
        if answer.registered.missing:
            return "registered nothing"
        step = pb.RunStep(handle=answer.registered.handle)
        await client.stream.send(_within(pb.Envelope(id=2, run_step=step)), [_FED])
        answer, _ = await client.receive()
        return f"ended with code {answer.status.code}" if answer.status.code else "ran"

    return request.SerializeToString(), lambda: _given(server.address, give)


def _within(envelope: pb.Envelope) -> pb.Envelope:
    envelope.timeout_s = envelope.remaining_s = _STEP_S
    return envelope


def _frame(server: FuzzedServer, mutator: Mutator) -> tuple[bytes, Callable[[], str]]:
    envelope = mutator.pick(_ENVELOPES)()
    if mutator.pick((True, False)):
        mutator.message(envelope)
    if envelope.WhichOneof("body") in ("stop", "stop_tasks"):  # which is what callers may do
        envelope.ClearField("body")
    tensors = [memoryview(_FED).cast("B")] if envelope.tensors else []
    frames = [*encode(5, envelope.SerializeToString(), tensors)]
    data = mutator.mutated(mutator.pick(frames))

    async def give(client: RawClient) -> str:
        await client.call.write(data)
        await client.stream.send(pb.Envelope(id=77, ping=pb.Ping()))
        while (received := await client.receive()) is not None:
            if received[0].id == 77:
                return "taken"
        return "the stream ended"

    return data, lambda: _given(server.address, give)


def _call(method: Callable[..., Any], *arguments: Any) -> pb.Envelope:
    """A call of a remote method."""
    envelope, _ = rpc_of(method).envelope(*arguments)
    envelope.id = 3
    return envelope


_ENVELOPES: tuple[Callable[[], pb.Envelope], ...] = (
    lambda: pb.Envelope(id=3, ping=pb.Ping()),
    lambda: _call(MasterSession.list_devices, [_TASK], 1.0, True, FOREVER),
    lambda: _call(MasterSession.reset, ["box"], 1.0, FOREVER, [_TASK]),
    lambda: _call(ClusterState.claim, "name", 0, 1.0, FOREVER),
    lambda: _call(WatchedCluster.inspect, StatusRequest(("sessions",)), [_TASK], 1.0, FOREVER),
    lambda: pb.Envelope(
        id=3,
        run_step=pb.RunStep(handle=1),
        tensors=[{"dtype": "float32", "shape": VECTOR.shape}],
    ),
    lambda: pb.Envelope(id=3, cancel=pb.Cancel(id=4)),
    lambda: pb.Envelope(register_step=pb.RegisterStep(plans=[plan_to_proto(_plan_of("p"))])),
)


def _given(address: str, give: Callable[[RawClient], Awaitable[str]]) -> str:
    async def within() -> str:
        async with asyncio.timeout(_ANSWERED_S), connected(address) as client:
            return await give(client)

    try:
        return on_loop(within())
    except (BrokenStreamError, grpc.RpcError):
        return "the stream ended"
    except TimeoutError:
        return "no answer"

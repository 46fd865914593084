"""Clients of a simulated cluster: the protocol of sessions, as coroutines.

jflow's client waits in threads. This one sends the same messages over the same streams, and repeats
what is lost by the same rules (`client/runtime/remote_step.py`, `client/runtime/moving.py`).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from jflow.base.cluster import Device, Target, Task
from jflow.base.deadline import Deadline
from jflow.errors import (
    DeadlineExceededError,
    OpError,
    RestartedError,
    UnavailableError,
)
from jflow.net.protocol import settings
from jflow.net.protocol.admission import enter, new_nonce
from jflow.net.protocol.handshake import Caller, CallerHandshake
from jflow.net.protocol.peer_link import PeerLink
from jflow.net.protocol.rpc import CallRequest
from jflow.net.protocol.rpcs import MASTER, REGISTER_STEP, RUN_STEP
from jflow.net.protocol.signatures import rpc_of
from jflow.net.protocol.transport import BrokenStreamError, stream_error
from jflow.state.core.cluster_state import ClusterState
from jflow.state.core.membership import ClusterMembers
from jflow.state.effects import Effect
from jflow.state.moves import EVERYTHING, MovedError
from tests.simulation.cluster import CLUSTER, SECRET, WORKERS, Cluster
from tests.simulation.loop import Host
from tests.simulation.network import SimulatedTransport
from tests.simulation.steps import PLACES, USES, Placed, compiled, items, state_of

CONNECT_S = 3.0
CALL_S = 8.0
PAUSE_S = 0.05
_MAX_OFFERS = 3


class _Timed:
    """A request that says what is left of the time of its call."""

    def __init__(self, request: CallRequest, deadline: Deadline) -> None:
        self._request, self._deadline = request, deadline
        self.tensors = request.tensors

    def control(self, encoder: Any, call: int, incarnation: int) -> bytes:
        deadline = self._deadline
        times = deadline.timeout or 0.0, max(deadline.remaining() or 0.0, 0.001)
        return self._request.control(encoder, call, incarnation, *times)


class Session:
    """A session on one master, over one connection.

    Args:
      link: the connection.
      master: the task of the master.
    """

    def __init__(self, link: PeerLink, master: Task) -> None:
        self.master = master
        self._link = link
        self._handles: dict[Placed, int] = {}

    @property
    def is_open(self) -> bool:
        """Whether the connection has not ended."""
        return not self._link.is_broken

    async def call(self, rpc: Any, request: CallRequest, deadline: Deadline) -> Any:
        """Makes a call; as `MasterClient`, it prefers what the server says of its end."""
        limit = (deadline.remaining() or 0.0) + settings.GRACE_S
        try:
            async with asyncio.timeout(limit):
                reply = await self._link.call(_Timed(request, deadline))  # type: ignore[arg-type]
        except TimeoutError:
            raise deadline.error("a call of the simulation", str(self.master)) from None
        return rpc.read(*reply)

    async def run(
        self,
        placed: Placed,
        feeds: Sequence[float],
        deadline: Deadline,
        effect: Effect | None = None,
    ) -> list[float]:
        """Runs a step, which is registered first if it is not."""
        handle = await self._registered(placed, deadline)
        fed = [np.float32(feed) for feed in feeds]
        request = RUN_STEP.prepared(handle, fed, effect=effect)
        values = await self.call(RUN_STEP, request, deadline)
        return [float(value) for value in values]

    async def state(self, method: Callable[..., Any], *args: Any, deadline: Deadline) -> Any:
        """Calls a method of `ClusterState` or `ClusterMembers`."""
        rpc = rpc_of(method)
        return await self.call(rpc, rpc.prepared(*args, CONNECT_S, deadline), deadline)

    def forget_steps(self) -> None:
        """Makes steps register again."""
        self._handles.clear()

    async def close(self) -> None:
        """Ends the session."""
        await self._link.close()

    async def _registered(self, placed: Placed, deadline: Deadline) -> int:
        if placed in self._handles:
            return self._handles[placed]
        step, sent = compiled(placed), dict[str, Any]()
        for _ in range(_MAX_OFFERS):
            request = REGISTER_STEP.prepared(step.plans, step.n_fetches, sent, CONNECT_S, TASKS)
            registered = await self.call(REGISTER_STEP, request, deadline)
            if not registered.missing:
                self._handles[placed] = registered.handle
                return int(registered.handle)
            sent |= {digest: step.artifacts[digest] for digest in registered.missing}
        raise AssertionError(f"the cluster still requests {registered.missing}")


TASKS = tuple(CLUSTER.tasks())
"""Named as restarted in each registration: clients of a simulation go on with what restarts."""


class Client:
    """A client on a host of its own, which goes to another master when it loses one.

    Args:
      cluster: the cluster.
      name: of its host, and in ledgers.
      masters: the masters that it may use, the first one first.
      host: where it is; a new one if None.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        masters: Sequence[Task] = WORKERS,
        host: Host | None = None,
    ) -> None:
        self.cluster, self.name = cluster, name
        self.host = host or cluster.loop.host(name)
        self.places = dict(PLACES)
        self.claims: tuple[str, int] | None = None
        self._masters = itertools.cycle(masters)
        self._master = next(self._masters)
        self._session: Session | None = None
        self._connecting = asyncio.Lock()
        self._transport = SimulatedTransport(cluster.network)
        self._sequences = itertools.count()

    async def session(self, deadline: Deadline) -> Session:
        """Returns an open session; connects if there is none.

        Raises:
          UnavailableError, DeadlineExceededError: if no master answers in time.
        """
        async with self._connecting:
            if self._session is None or not self._session.is_open:
                if self._session is not None:
                    self._master = next(self._masters)
                    await self.leave()
                self._session = await self._connect(self._master, deadline)
        return self._session

    async def leave(self) -> None:
        """Ends the session."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _connect(self, master: Task, deadline: Deadline) -> Session:
        session = Session(await self._link(master, deadline), master)
        if self.claims is not None:
            try:
                await session.state(ClusterState.claim, *self.claims, deadline=deadline)
            except BaseException:
                await session.close()
                raise
        return session

    async def _link(self, master: Task, deadline: Deadline) -> PeerLink:
        address = CLUSTER.task_address(master.job, master.index)
        caller = Caller(SECRET, MASTER.name, Target(address, task=master))
        limit = deadline.while_connecting(CONNECT_S)
        async with limit.bounding(f"connecting to {master}", str(master)):
            try:
                stream = await self._transport.connect(MASTER.name, master, address)
            except UnavailableError:
                self._master = next(self._masters)
                raise
            try:
                messages, info = await enter(stream, CallerHandshake(caller, new_nonce()))
                return PeerLink(master, address, messages, info, 1)
            except BrokenStreamError as error:
                await stream.close()
                raise stream_error(error, str(master), self.name, str(master)) from None
            except BaseException:
                await stream.close()
                raise

    async def run(
        self,
        name: str,
        feeds: Sequence[float] = (),
        effect: Effect | None = None,
        timeout: float = CALL_S,
    ) -> list[float]:
        """Runs a step; again where its state is, if that has moved."""
        deadline = Deadline(timeout)
        while True:
            session = await self._session_or_next(deadline)
            places = tuple((one, self.places[one]) for one in USES[name])
            try:
                return await session.run(
                    Placed(name, session.master, places), feeds, deadline, effect
                )
            except MovedError as error:
                self.learn(error)
                await asyncio.sleep(PAUSE_S / 10)
                deadline.check("finding state that has moved")
            except RestartedError:
                session.forget_steps()
                raise

    async def _session_or_next(self, deadline: Deadline) -> Session:
        try:
            return await self.session(deadline)
        except OpError:
            self._master = next(self._masters)
            raise

    async def run_once(self, name: str, feeds: Sequence[float] = ()) -> list[float]:
        """Runs a step of a single write, which is repeated if its answer is lost.

        Raises:
          OpError: if it is not known whether it was applied.
        """
        sequence = next(self._sequences)
        effect = Effect(f"session {self.name}", 0, sequence, acknowledged=sequence, is_saved=False)
        for _ in range(20):
            try:
                return await self.run(name, feeds, effect)
            except UnavailableError as error:
                if self._session is not None and self._session.is_open:
                    raise
                lost = error
            except DeadlineExceededError:
                raise
            effect = effect.again()
            await asyncio.sleep(PAUSE_S)
        raise lost

    def learn(self, error: MovedError) -> None:
        """Learns where state is now."""
        for state, place in error.moved.items():
            if state.kind != EVERYTHING:
                self.places[state.name] = Device.parse(place).task
        for state, place in error.moved.items():
            if state.kind == EVERYTHING:
                at = self.places.items()
                self.places |= {name: Task.parse(place) for name, task in at if task == state.task}

    async def drain(self, task: Task, heir: Task) -> bool:
        """Drains a task; returns whether that is known to have succeeded."""
        deadline = Deadline(CALL_S)
        try:
            session = await self._session_or_next(deadline)
            arguments = (str(task), str(heir), 2.0)
            await session.state(ClusterMembers.drain, *arguments, deadline=deadline)
        except OpError:
            return False
        return True

    async def move(self, name: str, target: Task) -> bool:
        """Moves a variable; returns whether that is known to have succeeded."""
        deadline = Deadline(CALL_S)
        try:
            session = await self._session_or_next(deadline)
            states, device = [state_of(name, self.places[name])], str(Device(target, "CPU", 0))
            await session.state(ClusterState.move, states, device, 2.0, deadline=deadline)
        except MovedError as error:
            self.learn(error)
            return False
        except OpError:
            return False
        self.places[name] = target
        return True

    async def save(self, prefix: str) -> bool:
        """Saves all variables; returns whether that is known to have succeeded."""
        return await self._with_items(prefix, ClusterState.save, True, {})

    async def restore(self, prefix: str) -> bool:
        """Restores all variables; returns whether that is known to have succeeded."""
        return await self._with_items(prefix, ClusterState.restore)

    async def _with_items(self, prefix: str, method: Callable[..., Any], *more: Any) -> bool:
        deadline = Deadline(CALL_S)
        try:
            session = await self._session_or_next(deadline)
            packed = items(self.places).to_bytes()
            await session.state(method, prefix, packed, *more, deadline=deadline)
        except MovedError as error:
            self.learn(error)
            return False
        except OpError:
            return False
        return True

    async def claim(self, name: str) -> int:
        """Claims a name, under which all further sessions work; returns the epoch.

        Raises:
          OpError: if it does not succeed.
        """
        deadline = Deadline(CALL_S)
        session = await self._session_or_next(deadline)
        epoch = await session.state(ClusterState.claim, name, 0, deadline=deadline)
        self.claims = name, int(epoch)
        return int(epoch)

    async def until_done(self, call: Callable[[], Any]) -> Any:
        """Makes a call until it succeeds."""
        while True:
            with suppress(OpError):
                return await call()
            await asyncio.sleep(PAUSE_S)

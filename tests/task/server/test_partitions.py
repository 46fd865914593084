"""The way between two parties is cut: waits have an end, it heals, and fences hold."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import permutations

import numpy as np
import pytest

import jflow as tf
from jflow.compiler.graph import owners
from jflow.errors import FencedError
from jflow.net.protocol.identity import ServerIdentity
from jflow.testing import PATIENCE_S, FaultProxy, wait_until

TASKS = [("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1)]
CLIENT, MASTER = ("client", 0), ("worker", 0)
PAIRS = [
    *((CLIENT, MASTER), (MASTER, ("ps", 0)), (MASTER, ("worker", 1)), (("ps", 0), ("ps", 1))),
    *((("ps", 0), ("worker", 1)), (("worker", 1), ("ps", 1))),
]
"""The parties that send each other something in a step of `Counters`."""

SHORT = [PAIRS[3]]
"""Those that are tested each time: the others wait until a loss is noticed."""


class Network:
    """Servers in this process, each of which reaches each other one through a proxy of its own."""

    def __init__(self, stack: ExitStack) -> None:
        servers = {
            (job, index): stack.enter_context(
                tf.train.Server({job: {index: "127.0.0.1:0"}}, job, index)
            )
            for job, index in TASKS
        }
        addresses = {
            (job, index): server.cluster_spec.task_address(job, index)
            for (job, index), server in servers.items()
        }
        self._proxies = {
            (here, there): stack.enter_context(FaultProxy(addresses[there]))
            for here, there in [*permutations(TASKS, 2), (CLIENT, MASTER)]
        }
        for here, server in servers.items():
            view: dict[str, dict[int, str]] = {}
            for there in TASKS:
                known = addresses[there] if there == here else self._proxies[here, there].address
                view.setdefault(there[0], {})[there[1]] = known
            server.connect(view)
        self.target = self._proxies[CLIENT, MASTER].target
        self.direct = servers[MASTER].target

    def between(self, one: tuple[str, int], other: tuple[str, int]) -> list[FaultProxy]:
        """The ways in both directions."""
        pairs = [(one, other), (other, one)]
        return [self._proxies[pair] for pair in pairs if pair in self._proxies]

    def way(self, sender: tuple[str, int], receiver: tuple[str, int]) -> FaultProxy:
        """The way on which one party sends the other one values."""
        return self._proxies[sender, receiver]

    def heal(self) -> None:
        for proxy in self._proxies.values():
            proxy.heal()


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("JFLOW_TRANSPORT", "grpc")  # or tasks would reach each other without proxies
        patch.setenv("JFLOW_LIVENESS_S", "6")  # on a busy machine, too, tasks answer in time
        # Each way to a server has an address of its own here, by which it is not known to itself.
        patch.setattr(ServerIdentity, "_difference", lambda *_: ("", "", ""))
        yield Network(stack)


class Counters:
    """A graph whose step counts on both parameter servers, and passes by each pair of tasks."""

    def __init__(self) -> None:
        with tf.device("/job:ps/task:0"):
            self.first = tf.Variable(np.int32(0), name="first")
            counted = self.first.assign_add(1)
        with tf.device("/job:worker/task:1"):
            one = counted - counted + 1
        with tf.device("/job:ps/task:1"):
            self.second = tf.Variable(np.int32(0), name="second")
            self.step = self.second.assign_add(one + counted - counted)
        self.values = [self.first, self.second]


def ends(session: tf.Session, step: tf.Tensor, timeout_in_ms: int) -> bool:
    """Runs a step, which may fail because a party cannot be reached; whether it succeeded."""
    try:
        session.run(step, options=tf.RunOptions(timeout_in_ms=timeout_in_ms))
    except (tf.errors.DeadlineExceededError, tf.errors.UnavailableError):
        return False
    return True


@pytest.mark.parametrize(
    "pair",
    [*SHORT, *(pytest.param(pair, marks=pytest.mark.long) for pair in PAIRS if pair not in SHORT)],
    ids=lambda pair: "-".join(f"{job}{index}" for job, index in pair),
)
def test_a_step_over_a_way_that_is_cut_ends_and_goes_on_when_it_heals(
    network: Network, pair: tuple[tuple[str, int], tuple[str, int]]
) -> None:
    tf.Session.reset(network.direct)
    made = Counters()
    with tf.Session(network.target) as session:
        session.run(tf.global_variables_initializer())
        session.run(made.step)
        for proxy in network.between(*pair):
            proxy.blackhole()
        try:
            assert not ends(session, made.step, 300)
            if pair not in SHORT:  # without a deadline, too
                with ThreadPoolExecutor(1) as threads:
                    waiting = threads.submit(session.run, made.step)
                    with pytest.raises(tf.errors.UnavailableError):
                        waiting.result(PATIENCE_S)
        finally:
            network.heal()
    n_tried = 3
    # What was registered on a task that counted as lost is gone, but not what it keeps.
    with tf.Session(network.target) as session:
        while not ends(session, made.step, 5000):
            n_tried += 1
            assert n_tried < 10, "the way does not heal"
        before = session.run(made.values)
        assert all(2 <= value <= n_tried + 1 for value in before), "a step has counted twice"
        session.run(made.step)
        assert session.run(made.values) == [value + 1 for value in before]


def test_a_value_that_is_lost_between_two_tasks_ends_the_step_that_waits_for_it(
    network: Network,
) -> None:
    tf.Session.reset(network.direct)
    made = Counters()
    way = network.way(("ps", 0), ("worker", 1))
    with tf.Session(network.target) as session, ThreadPoolExecutor(1) as threads:
        session.run(tf.global_variables_initializer())
        session.run(made.step)
        way.to_server.drop()
        n_dropped = way.to_server.n_dropped
        waiting = threads.submit(session.run, made.step)
        # The sender has finished its part, and goes on.
        wait_until(lambda: session.run(made.first) == 2, "the first variable to be counted")
        wait_until(lambda: way.to_server.n_dropped > n_dropped, "the value to be lost")
        way.cut()
        with pytest.raises(tf.errors.UnavailableError) as raised:
            waiting.result(PATIENCE_S)
        network.heal()
        assert raised.value.task == "/job:ps/task:0"
        assert "from /job:ps/task:0 to /job:worker/task:1 ended" in raised.value.message
        assert session.run(made.second) == 1
        session.run(made.step)
        assert session.run(made.values) == [3, 2]


def test_what_a_replaced_program_sent_into_a_cut_way_is_refused_when_it_heals(
    network: Network,
) -> None:
    tf.Session.reset(network.direct)
    (way,) = network.between(CLIENT, MASTER)
    with (
        tf.Connection(network.target) as old,
        tf.Connection(network.direct) as new,
        ThreadPoolExecutor(2) as threads,
    ):
        old.claim("run")
        with owners.owned_by(old), tf.device("/job:ps/task:0"):
            theirs = tf.Variable(np.int32(1), name="fenced")
        theirs.assign_add(1)
        assert theirs.numpy() == 2
        new.claim("run")
        with owners.owned_by(new), tf.device("/job:ps/task:0"):
            ours = tf.Variable(np.int32(10), name="fenced")
        way.blackhole()
        late = [threads.submit(theirs.assign_add, 1), threads.submit(theirs.numpy)]
        ours.assign(20)
        way.heal()
        for call in late:
            with pytest.raises(FencedError):
                call.result(PATIENCE_S)
        assert ours.numpy() == 20

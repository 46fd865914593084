"""`Session.replace`: what it moves, what finds it again, and what it refuses."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import numpy as np
import pytest

import jflow as tf
from jflow.base.deadline import FOREVER
from jflow.launch.testing.backends import BackendUnderTest, local
from jflow.state.moves import StateId
from jflow.testing import start_servers, wait_until
from tests.state.moves.placing import all_on

WORKER_0, WORKER_1 = "/job:worker/task:0/device:CPU:0", "/job:worker/task:1/device:CPU:0"
PS = "/job:ps/task:0/device:CPU:0"


@pytest.fixture(scope="module")
def servers() -> Iterator[list[tf.train.Server]]:
    """A parameter server and two workers in this process."""
    with ExitStack() as stack:
        yield start_servers(stack.enter_context, {"ps": 1, "worker": 2})


@pytest.fixture
def cluster(servers: list[tf.train.Server]) -> Iterator[BackendUnderTest]:
    targets = [server.target for server in servers[1:]]
    backend = BackendUnderTest("in process", targets, [WORKER_0, PS], shared=True)
    yield backend
    backend.reset()


@pytest.fixture(params=["local", "in_process"])
def backend(request: pytest.FixtureRequest) -> Iterator[BackendUnderTest]:
    if request.param == "local":
        with local() as backend:
            yield backend
    else:
        yield request.getfixturevalue("cluster")


@pytest.fixture
def n_waiting(request: pytest.FixtureRequest) -> Callable[[tf.Session], int]:
    """How many attempts wait for queues, in the session's process or on the servers."""

    def count(session: tf.Session) -> int:
        found = [getattr(session._backend, "_containers", None)]
        if found == [None]:
            found = [s.worker.containers for s in request.getfixturevalue("servers")]
        cells = [cell for one in found for cell in one.resources.cells().values()]
        return sum(cell.query(lambda queue: sum(queue.n_waiting)) for cell in cells)

    return count


class Counter:
    """A graph of its own with a variable that steps count up."""

    def __init__(self, device: str | None = None) -> None:
        self.graph = tf.Graph()
        with self.graph.as_default(), tf.device(device):
            self.v = tf.Variable(0, name="v")
            self.add = self.v.assign_add(1)
            self.init = self.v.initializer


def device_of(session: tf.Session, counter: Counter) -> str:
    return str(session.placement(counter.add)[counter.add.op])


def test_state_moves_to_where_the_strategy_puts_it_with_its_value(
    backend: BackendUnderTest,
) -> None:
    counter = Counter()
    with backend.session(graph=counter.graph) as session:
        session.run(counter.init)
        assert session.run(counter.add) == 1
        before = device_of(session, counter)
        names = [d.name for d in session.list_devices() if "CPU" in d.name and d.name != before]
        for n, name in enumerate(names, 2):
            (moved,) = session.replace(all_on(name), min_gain=None).moved
            assert str(moved.target) == name
            assert [state.name for state in moved.states] == ["v"]
            assert session.run(counter.add) == n
            assert device_of(session, counter) == name
        session.replace("rules", min_gain=None)
        assert device_of(session, counter) == before
        assert session.run(counter.v) == len(names) + 1


def test_every_session_on_every_master_finds_what_has_moved(cluster: BackendUnderTest) -> None:
    first, second, late = Counter(), Counter(), Counter()
    with ExitStack() as stack:
        sessions = [
            stack.enter_context(cluster.session(which, graph=counter.graph))
            for which, counter in enumerate([first, second])
        ]
        sessions[0].run(first.init)
        assert sessions[1].run(second.add) == 1
        sessions[0].run(first.add)
        assert sessions[0].replace(all_on(WORKER_0), min_gain=None).moved
        assert sessions[1].run(second.add) == 3, "registered before the move"
        config = tf.ConfigProto(placement="heft")
        with cluster.session(1, graph=late.graph, config=config) as session:
            assert session.run(late.add) == 4, "registered after it, by another strategy"
            assert device_of(session, late) == WORKER_0
            assert session.replace(all_on(WORKER_1), min_gain=None).moved
        assert sessions[0].run(first.add) == 5
        assert sessions[1].run(second.v) == 5


def test_many_steps_of_one_call_find_what_moves_in_between(cluster: BackendUnderTest) -> None:
    counter, mover = Counter(), Counter()
    with ExitStack() as stack:
        session = stack.enter_context(cluster.session(graph=counter.graph))
        other = stack.enter_context(cluster.session(1, graph=mover.graph))
        session.run(counter.init)
        other.run(mover.add)
        n_moved = 0
        running = threading.Thread(target=lambda: session.run_many(counter.add.op, steps=20_000))
        running.start()
        while running.is_alive():
            place = all_on((WORKER_0, WORKER_1)[n_moved % 2])
            n_moved += len(other.replace(place, min_gain=None).moved)
        running.join()
        assert session.run(counter.v) == 20_001
        assert n_moved > 1


def test_a_session_that_pins_it_where_it_was_finds_it_too(cluster: BackendUnderTest) -> None:
    counter, pinned = Counter(), Counter(PS)
    with cluster.session(graph=counter.graph) as session:
        session.run(counter.init)
        session.run(counter.add)
        session.replace(all_on(WORKER_1), min_gain=None)
        with cluster.session(1, graph=pinned.graph) as other:
            assert other.run(pinned.add) == 2
        assert session.run(counter.v) == 2


def test_functions_and_eager_variables_find_what_has_moved(cluster: BackendUnderTest) -> None:
    counter = Counter()
    with closing(cluster.session(graph=counter.graph)) as session, tf.connect(cluster.target):
        eager = tf.Variable(0, name="v")

        @tf.function
        def add(n: Any) -> Any:
            eager.assign_add(n)
            return eager.value()

        assert add(np.int32(3)) == 3
        assert session.run(counter.add) == 4
        assert session.replace(all_on(WORKER_1), min_gain=None).moved
        assert add(np.int32(2)) == 6
        assert np.asarray(eager.value()) == 6
        assert session.run(counter.add) == 7


def test_an_eager_queue_goes_on_where_it_is(
    cluster: BackendUnderTest, n_waiting: Callable[[tf.Session], int]
) -> None:
    graph = tf.Graph()
    with graph.as_default():
        queue = tf.FIFOQueue(1, [tf.int32], shapes=[()], shared_name="q", name="q")
        take = queue.dequeue()
    with closing(cluster.session(graph=graph)) as session, tf.connect(cluster.target):
        eager = tf.FIFOQueue(1, [tf.int32], shapes=[()], shared_name="q", name="q")

        async def take_two() -> None:
            taking = asyncio.ensure_future(eager.get_async())
            cancelled = asyncio.ensure_future(eager.get_async())
            await asyncio.to_thread(wait_until, lambda: n_waiting(session) == 2)
            move = partial(session.replace, all_on(WORKER_1), fetches=take, min_gain=None)
            assert (await asyncio.to_thread(move)).moved
            # Both wait again, in any order; an element that is sent to the other one would be lost.
            await asyncio.to_thread(wait_until, lambda: n_waiting(session) == 2)
            cancelled.cancel()
            await asyncio.to_thread(wait_until, lambda: n_waiting(session) == 1)
            await eager.put_async(np.int32(7))
            assert await taking == 7
            await eager.put_async(np.int32(8))

        asyncio.run(take_two())
        assert session.run(take) == 8


def test_a_queue_moves_with_its_elements_in_order_and_stays_closed(
    backend: BackendUnderTest,
) -> None:
    queue = tf.FIFOQueue(8, [tf.int32, tf.string], shapes=[(2,), ()], shared_name="q", name="q")
    x = tf.placeholder(tf.int32, (2,))
    put, take, close = queue.enqueue([x, tf.constant("text")]), queue.dequeue(), queue.close()
    with backend.session() as session:
        for n in range(3):
            session.run(put, {x: [n, -n]})
        session.run(take)
        (moved,) = session.replace(all_on("CPU:1"), min_gain=None).moved
        assert moved.target.index == 1
        session.run(put, {x: [3, -3]})
        session.run(close)
        session.replace(all_on("CPU:0"), min_gain=None)
        rows = [session.run(take) for _ in range(3)]
        assert [row[0].tolist() for row in rows] == [[1, -1], [2, -2], [3, -3]]
        assert rows[0][1] == b"text"
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(take)


def test_a_shuffle_queue_goes_on_with_its_order(backend: BackendUnderTest) -> None:
    def taken(moves: bool) -> list[int]:
        with tf.Graph().as_default(), backend.session() as session:
            queue = tf.RandomShuffleQueue(
                20, 0, [tf.int32], shapes=[()], shared_name=f"s{moves}", seed=7
            )
            put, take = queue.enqueue_many([tf.constant(range(12))]), queue.dequeue()
            session.run(put)
            found = [int(session.run(take)) for _ in range(6)]
            if moves:
                assert session.replace(all_on("CPU:1"), min_gain=None).moved
            return found + [int(session.run(take)) for _ in range(6)]

    assert taken(True) == taken(False)


def test_colocated_state_moves_together(backend: BackendUnderTest) -> None:
    v = tf.Variable([1.0, 2.0], name="v")
    with tf.colocate_with(v):
        slot = tf.Variable([3.0, 4.0], name="slot")
    train = tf.group(v.assign_add(slot), slot.assign_add(v))
    with backend.session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        expected = session.run([v, slot])
        (moved,) = session.replace(all_on("CPU:1"), min_gain=None).moved
        assert {state.name for state in moved.states} == {"v", "slot"}
        np.testing.assert_array_equal(session.run([v, slot]), expected)


def test_keys_and_small_types_keep_their_values(backend: BackendUnderTest) -> None:
    with tf.Graph().as_default(), backend.session() as session:
        values = [
            tf.Variable(tf.random.key(3), name="key"),
            tf.Variable(tf.cast(tf.constant([1, 2]), tf.bfloat16), name="half"),
        ]
        session.run(tf.global_variables_initializer())
        read = [tf.random.uniform(values[0].value(), (3,)), values[1] + 1]
        expected = session.run(read)
        assert session.replace(all_on("CPU:1"), min_gain=None).moved
        for found, wanted in zip(session.run(read), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_nothing_moves_unless_the_predicted_gain_is_worth_it(cluster: BackendUnderTest) -> None:
    v = tf.Variable(np.ones((400, 400), np.float32), name="v")
    x = tf.placeholder(tf.float32, (400, 400))
    y = tf.numpy.sum(x @ v)
    with cluster.session() as session:
        session.run(v.initializer)
        for _ in range(3):
            session.run(y, {x: np.ones((400, 400), np.float32)})
        stays = session.replace(n_steps=1)
        assert not stays.moved
        assert stays.predicted_after < stays.predicted_before
        moves = session.replace(n_steps=100_000)
        assert [str(one.target) for one in moves.moved] == [WORKER_0]
        assert moves.predicted_after < moves.predicted_before
        assert not session.replace("heft", n_steps=100_000).moved
        assert session.run(y, {x: np.ones((400, 400), np.float32)}) == 400**3


def test_a_step_that_has_not_run_can_say_what_to_plan_for(backend: BackendUnderTest) -> None:
    counter = Counter()
    with backend.session(graph=counter.graph) as session:
        assert session.replace().moved == ()
        session.run(counter.init)
        assert session.replace(all_on("CPU:1"), fetches=counter.add, min_gain=None).moved
        assert session.run(counter.add) == 1


def test_a_variable_without_a_value_moves_as_a_name(backend: BackendUnderTest) -> None:
    counter = Counter()
    with backend.session(graph=counter.graph) as session:
        assert session.replace(all_on("CPU:1"), fetches=counter.add, min_gain=None).moved
        with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized value"):
            session.run(counter.add)
        session.run(counter.init)
        assert session.run(counter.add) == 1
        assert device_of(session, counter).endswith("CPU:1")


def test_a_reset_forgets_moves(cluster: BackendUnderTest) -> None:
    counter = Counter()
    with cluster.session(graph=counter.graph) as session:
        session.run(counter.init)
        session.run(counter.add)
        session.replace(all_on(WORKER_1), min_gain=None)
    cluster.reset()
    with cluster.session(graph=counter.graph) as session:
        with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized value"):
            session.run(counter.add)
        session.run(counter.init)
        assert session.run(counter.add) == 1
        assert device_of(session, counter) == PS


# Bad input ----------------------------------------------------------------------------------------


def test_what_is_pinned_stays(backend: BackendUnderTest) -> None:
    counter = Counter(backend.devices[0])
    with backend.session(graph=counter.graph) as session:
        session.run(counter.init)
        before = device_of(session, counter)
        assert session.replace(all_on("CPU:1"), min_gain=None).moved == ()
        assert device_of(session, counter) == before


def test_a_request_for_a_job_limits_the_choice_to_it(cluster: BackendUnderTest) -> None:
    counter = Counter("/job:worker")
    with cluster.session(graph=counter.graph) as session:
        session.run(counter.init)
        assert session.replace(all_on("/job:ps"), min_gain=None).moved == ()
        (moved,) = session.replace(all_on(WORKER_1), min_gain=None).moved
        assert str(moved) == f"variable 'v' from {WORKER_0} to {WORKER_1}"
        assert session.run(counter.add) == 1


@pytest.mark.parametrize(
    ("strategy", "error", "message"),
    [
        ("no_such", tf.errors.InvalidArgumentError, "no placement strategy 'no_such'"),
        (3, TypeError, "placement is the name of a strategy"),
        (lambda *_: {}, tf.errors.InvalidArgumentError, "v"),
    ],
)
def test_a_strategy_that_cannot_be_used_moves_nothing(
    backend: BackendUnderTest, strategy: Any, error: type[Exception], message: str
) -> None:
    counter = Counter()
    with backend.session(graph=counter.graph) as session:
        session.run(counter.init)
        before = device_of(session, counter)
        with pytest.raises(error, match=message):
            session.replace(strategy, min_gain=None)
        assert device_of(session, counter) == before
        assert session.run(counter.add) == 1


def test_an_unknown_device_or_foreign_state_is_refused(cluster: BackendUnderTest) -> None:
    counter = Counter()
    with cluster.session(graph=counter.graph) as session:
        session.run(counter.init)
        move = session._backend.move_state
        state = StateId(PS, "variable", "", "v")
        for states, target, message in [
            ([state], WORKER_0.replace("CPU:0", "CPU:9"), "has no device"),
            ([state], "/job:gone/task:0/device:CPU:0", "no task /job:gone/task:0"),
            ([state], "nonsense", "nonsense"),
            ([state], PS, "to move to another one"),
            ([], WORKER_0, "state of one device"),
            ([state._replace(owner="other")], WORKER_0, "belongs to one session"),
        ]:
            with pytest.raises(tf.errors.InvalidArgumentError, match=message):
                move(states, target, 1.0, FOREVER)
        with pytest.raises(tf.errors.UnimplementedError, match="variables and queues can"):
            move([StateId(PS, "reader", "", "r")], WORKER_0, 1.0, FOREVER)
        assert session.run(counter.add) == 1


def test_other_state_of_that_name_on_the_target_is_not_touched(cluster: BackendUnderTest) -> None:
    counter, other = Counter(), Counter(WORKER_1)
    with (
        cluster.session(graph=counter.graph) as session,
        cluster.session(graph=other.graph) as pinned,
    ):
        session.run(counter.init)
        pinned.run(other.init)
        pinned.run([other.add])
        with pytest.raises(tf.errors.AlreadyExistsError, match="there is already a variable 'v'"):
            session.replace(all_on(WORKER_1), fetches=counter.add, min_gain=None)
        assert session.run(counter.add) == 1
        assert pinned.run(other.add) == 2


def test_a_negative_gain_is_refused(backend: BackendUnderTest) -> None:
    with (
        backend.session(graph=Counter().graph) as session,
        pytest.raises(ValueError, match="min_gain must be at least 0, or None"),
    ):
        session.replace(min_gain=-1.0)


# Steps that run meanwhile -------------------------------------------------------------------------


def test_steps_wait_for_the_move_and_one_that_cannot_end_prevents_it(
    backend: BackendUnderTest,
    n_waiting: Callable[[tf.Session], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jflow.client.runtime.steps.HOLD_S", 0.2)
    counter = Counter()
    with counter.graph.as_default():
        queue = tf.FIFOQueue(2, [tf.int32], shapes=[()], shared_name="q", name="q")
        both = counter.v.assign_add(queue.dequeue())
        put = queue.enqueue([tf.constant(5)])
    with backend.session(graph=counter.graph) as session, ThreadPoolExecutor() as threads:
        session.run(counter.init)
        session.run(counter.add)
        thread = threads.submit(session.run, both)
        wait_until(lambda: n_waiting(session) == 1)
        with pytest.raises(tf.errors.DeadlineExceededError, match="nothing has moved"):
            session.replace(all_on("CPU:1"), fetches=counter.add, min_gain=None)
        assert session.run(counter.add) == 2, "nothing is held any more"
        session.run(put)
        assert thread.result() == 7


def test_steps_that_only_wait_for_a_queue_go_on_where_it_is(
    backend: BackendUnderTest, n_waiting: Callable[[tf.Session], int]
) -> None:
    queue = tf.FIFOQueue(1, [tf.int32], shapes=[()], shared_name="q", name="q")
    x = tf.placeholder(tf.int32, ())
    put, take = queue.enqueue([x]), queue.dequeue()
    with backend.session() as session, ThreadPoolExecutor() as threads:
        taking = threads.submit(session.run, take + 1)
        wait_until(lambda: n_waiting(session) == 1)
        assert session.replace(all_on("CPU:1"), fetches=take, min_gain=None).moved
        session.run(put, {x: 1})
        assert taking.result() == 2
        session.run(put, {x: 2})
        putting = threads.submit(session.run, put, {x: 3})
        wait_until(lambda: n_waiting(session) == 1)
        assert session.replace(all_on("CPU:0"), fetches=take, min_gain=None).moved
        assert [session.run(take), session.run(take)] == [2, 3]
        putting.result()

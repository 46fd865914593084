"""Steps of several operations on queues: none waits for what it does not need.

A tiny simulator takes the operations of a step one by one in every order in which they can go. If
each of these orders comes to its end, so must the step, with the outcome of one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

import jflow as tf
from tests.clusters import Backend, in_process, local
from tests.drawn import examples

TIMEOUT_S = 100
"""Of a step that could deadlock, with the time to register it on a busy machine."""
MAX_STATES = 5_000


@dataclass(frozen=True)
class Action:
    """An operation of a step.

    Attributes:
      kind: "enqueue", "dequeue" or "add".
      place: number of the queue, or of the device for "add".
      operands: numbers of earlier results, not of enqueues; the first result is 1.
      after: number of an earlier result whose operation runs before, or None.
    """

    kind: str
    place: int
    operands: tuple[int, ...] = ()
    after: int | None = None

    @property
    def needs(self) -> set[int]:
        return {*self.operands} | (set() if self.after is None else {self.after})


@dataclass(frozen=True)
class Program:
    """A step.

    Attributes:
      capacities, initial: of the queues; what is in one of `n` elements is 10, 20, ..., 10 * n.
      handles: numbers of the queues' devices.
      is_fed: whether the first result is fed, or else a constant.
    """

    capacities: tuple[int, ...]
    initial: tuple[int, ...]
    handles: tuple[int, ...]
    actions: tuple[Action, ...]
    is_fed: bool = False

    @property
    def contents(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(10 * i for i in range(1, n + 1)) for n in self.initial)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Steps whose queues have enough elements and room, if only the order is right."""
    n_queues = draw(st.integers(1, 3))
    actions: list[Action] = []
    values = [0]
    for n_results in range(1, 1 + draw(st.integers(2, 7))):
        kind = draw(st.sampled_from(["enqueue", "dequeue", "dequeue", "enqueue", "add"]))
        n_operands = {"enqueue": 1, "dequeue": 0, "add": 2}[kind]
        # Recent results make for deep graphs.
        earlier = st.integers(max(0, n_results - 3), n_results - 1)
        operands = tuple(draw(st.sampled_from(values[-3:])) for _ in range(n_operands))
        place = draw(st.integers(0, 2 if kind == "add" else n_queues - 1))
        actions.append(Action(kind, place, operands, draw(st.none() | st.none() | earlier)))
        if kind != "enqueue":
            values.append(n_results)
    capacities, initial = [], []
    for queue in range(n_queues):
        kinds = [action.kind for action in actions if action.place == queue]
        n_more = kinds.count("enqueue") - kinds.count("dequeue")
        initial.append(max(0, -n_more) + draw(st.integers(0, 1)))
        capacities.append(max(1, initial[-1], initial[-1] + n_more) + draw(st.integers(0, 1)))
    handles = draw(st.tuples(*[st.integers(0, 2)] * n_queues))
    return Program(tuple(capacities), tuple(initial), handles, tuple(actions), draw(st.booleans()))


_State = tuple[tuple[int | None, ...], tuple[tuple[int, ...], ...]]
"""The results, None for what has not run, and what is in the queues."""


def outcomes(program: Program) -> set[_State] | None:
    """How the step may end; None if it may get stuck, or may do too much to look at."""
    start = ((1, *[None] * len(program.actions)), program.contents)
    seen, ends, open_states = {start}, set(), [start]
    while open_states:
        state = open_states.pop()
        following = [*_following(program, state)]
        if not following:
            if None in state[0]:
                return None
            ends.add(state)
        new = {state for state in following if state not in seen}
        seen |= new
        open_states += new
        if len(seen) > MAX_STATES:
            return None
    return ends


def _following(program: Program, state: _State) -> Iterator[_State]:
    results, contents = state
    for number, action in enumerate(program.actions, 1):
        if results[number] is not None or any(results[i] is None for i in action.needs):
            continue
        after = [*contents]
        value = sum(results[i] or 0 for i in action.operands)
        if action.kind == "enqueue":
            if len(contents[action.place]) == program.capacities[action.place]:
                continue
            after[action.place] = (*contents[action.place], value)
        elif action.kind == "dequeue":
            if not contents[action.place]:
                continue
            value, *rest = contents[action.place]
            after[action.place] = tuple(rest)
        yield (*results[:number], value, *results[number + 1 :]), tuple(after)


def run(program: Program, backend: Backend) -> _State:
    """The outcome of the step itself."""
    devices = (backend.devices * 3)[:3]
    with tf.Graph().as_default() as graph:
        queues = []
        for i, (capacity, device_of_state) in enumerate(
            zip(program.capacities, program.handles, strict=True)
        ):
            with tf.device(devices[device_of_state]):
                queues.append(tf.FIFOQueue(capacity, [tf.int32], [()], name=f"queue_{i}"))
        filling = [
            queue.enqueue_many(np.array(content, np.int32))
            for queue, content in zip(queues, program.contents, strict=True)
        ]
        results, done = _built(program, queues, devices)
        emptying = [queue.dequeue_up_to(100) for queue in queues]
        closing = [queue.close() for queue in queues]
        config = tf.ConfigProto(operation_timeout_in_ms=TIMEOUT_S * 1000)
        with tf.Session(backend.targets[0], graph=graph, config=config) as session:
            session.run(filling)
            feeds = {results[0]: 1} if program.is_fed else {}
            found, _ = session.run([results, done], feeds)
            sizes = session.run([queue.size() for queue in queues])
            session.run(closing)
            left = [
                session.run(e).tolist() if n else [] for e, n in zip(emptying, sizes, strict=True)
            ]
    return tuple(map(int, found)), tuple(map(tuple, left))


def _built(program: Program, queues: list[Any], devices: list[str]) -> tuple[list[Any], list[Any]]:
    """Tensors of the results, and the operations that make them."""
    one = tf.placeholder(tf.int32, ()) if program.is_fed else tf.constant(1)
    results: list[Any] = [one]
    done = [results[0].op]
    for action in program.actions:
        operands = [results[i] for i in action.operands]
        with tf.control_dependencies([] if action.after is None else [done[action.after]]):
            if action.kind == "enqueue":
                done.append(queues[action.place].enqueue(operands[0]))
                results.append(operands[0])
            elif action.kind == "dequeue":
                results.append(queues[action.place].dequeue())
                done.append(results[-1].op)
            else:
                with tf.device(devices[action.place]):
                    results.append(operands[0] + operands[1])
                done.append(results[-1].op)
    return results, done


def check(program: Program, backend: Backend) -> None:
    expected = outcomes(program)
    assume(expected is not None)
    assert expected is not None
    assert run(program, backend) in expected


def action(kind: str, place: int, *operands: int, after: int | None = None) -> Action:
    return Action(kind, place, operands, after)


BEHIND = Program((1,), (0,), (0,), (action("dequeue", 0), action("enqueue", 0, 0)))
"""What takes comes before what puts."""

THERE_AND_BACK = Program(
    (1, 1),
    (0, 0),
    (0, 1),
    (
        action("dequeue", 0),
        action("add", 2, 1, 1),
        action("enqueue", 1, 2),
        action("dequeue", 1),
        action("enqueue", 0, 0),
    ),
)
"""One queue's element becomes the other one's, over three devices."""

FULL = Program(
    (1, 1),
    (1, 0),
    (1, 2),
    (action("enqueue", 0, 0), action("enqueue", 1, 0, after=1), action("dequeue", 0)),
)
"""What puts waits for room that a later operation makes."""


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.filter_too_much])
@example(BEHIND)
@example(THERE_AND_BACK)
@example(FULL)
@given(programs())
def test_a_step_ends_if_every_order_of_it_does(program: Program) -> None:
    with local() as backend:
        check(program, backend)


@pytest.fixture(scope="module")
def servers() -> Iterator[Backend]:
    with ExitStack() as stack:
        yield stack.enter_context(in_process({"ps": 1, "worker": 2}))


@settings(
    max_examples=examples(15),
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture],
)
@example(BEHIND)
@example(THERE_AND_BACK)
@example(FULL)
@given(programs())
def test_a_step_across_tasks_ends_if_every_order_of_it_does(
    servers: Backend, program: Program
) -> None:
    check(program, servers)


def test_the_simulator_tells_what_can_get_stuck() -> None:
    one_element = Program(
        (2,), (1,), (0,), (action("dequeue", 0), action("dequeue", 0), action("enqueue", 0, 1))
    )
    assert outcomes(one_element) is None  # if the other one takes the element
    assert outcomes(BEHIND) == {((1, 1, 1), ((),))}
    assert outcomes(Program((1,), (0,), (0,), (action("dequeue", 0),))) is None

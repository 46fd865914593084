"""Random programs of branches, loops and state do what Python does with the same program."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import jflow as tf
from jflow.testing import BackendUnderTest, in_process, local

FIRST = (3,)
"""The first values of the variables; there are as many queues. With few of them programs meet."""

MODULUS = 97
FILLED = 200
"""With how many elements each queue begins, so that no program waits."""


# Programs ----------------------------------------------------------------------------------------
#
# A block is a sequence of statements, each of which makes a value; those before it, in the block
# and around it, are its operands. The value of a block is their sum, so each of them shows.

position = st.integers(0, 20)
number = st.integers(0, len(FIRST) - 1)

SIMPLE = st.one_of(
    st.tuples(st.just("constant"), st.integers(0, 9)),
    st.tuples(st.just("add"), position, position),
    st.tuples(st.just("read"), number),
    st.tuples(st.just("assign"), number, position),
    st.tuples(st.just("assign_add"), number, position),
    st.tuples(st.just("enqueue"), number, position),
    st.tuples(st.just("dequeue"), number),
    st.tuples(st.just("hop"), position),
)


def statements(depth: int) -> Any:
    """Statements, with others inside of them up to a depth."""
    if not depth:
        return SIMPLE
    block = st.lists(statements(depth - 1), min_size=2, max_size=4).map(tuple)
    return st.one_of(
        SIMPLE,
        st.tuples(st.just("cond"), position, block, block),
        st.tuples(st.just("while"), st.integers(0, 3), position, block),
        st.tuples(st.just("scan"), st.lists(st.integers(0, 9), min_size=1, max_size=3), block),
    )


OPERANDS = {
    "constant": ("value",),
    "add": ("x", "x"),
    "read": ("number",),
    "assign": ("number", "x"),
    "assign_add": ("number", "x"),
    "enqueue": ("number", "x"),
    "dequeue": ("number",),
    "hop": ("x",),
    "cond": ("x", "block", "block"),
    "while": ("n", "x", "block"),
    "scan": ("rows", "block"),
}
"""The operands of each kind of statement; "x" is the value of one before it, by its position."""

PROGRAMS = st.lists(statements(2), min_size=2, max_size=4).map(tuple)


WRITES = ("while", 2, 0, (("assign_add", 0, 0), ("enqueue", 0, 0)))
"""A loop that writes what was read before, and whose value is used after it."""


class Run:
    """Runs programs; each kind of statement is a method, given its operands and what precedes it.

    Args:
      variables: the variables.
      queues: the queues.
    """

    def __init__(self, variables: list[Any], queues: list[Any]) -> None:
        self.variables, self.queues = variables, queues

    def statement(self, statement: Any, values: list[Any]) -> Any:
        """Runs a statement after those that made `values`; returns its value."""
        kind, *operands = statement
        given = [
            values[x % len(values)] if name == "x" else x
            for name, x in zip(OPERANDS[kind], operands, strict=True)
        ]
        taken = (values,) if kind in ("cond", "while", "scan") else ()
        return getattr(self, f"do_{kind}")(*given, *taken) % MODULUS


class InPython(Run):
    """Runs programs in Python; variables are in a list, queues in deques."""

    def block(self, block: Any, before: list[int]) -> int:
        values = [*before]
        for statement in block:
            values.append(self.statement(statement, values))
        return sum(values[len(before) :]) % MODULUS

    def do_constant(self, value: int) -> int:
        return value

    def do_add(self, x: int, y: int) -> int:
        return x + y

    def do_read(self, i: int) -> int:
        return self.variables[i]

    def do_assign(self, i: int, x: int) -> int:
        self.variables[i] = x
        return x

    def do_assign_add(self, i: int, x: int) -> int:
        self.variables[i] = (self.variables[i] + x) % MODULUS
        return self.variables[i]

    def do_enqueue(self, i: int, x: int) -> int:
        self.queues[i].append(x)
        return x

    def do_dequeue(self, i: int) -> int:
        return self.queues[i].popleft()

    def do_hop(self, x: int) -> int:
        return x

    def do_cond(self, x: int, yes: Any, no: Any, values: list[int]) -> int:
        return self.block(no if x % 2 else yes, values)

    def do_while(self, n: int, x: int, body: Any, values: list[int]) -> int:
        for number in range(n):
            x = self.block(body, [*values, number, x])
        return x

    def do_scan(self, rows: list[int], body: Any, values: list[int]) -> int:
        last = 0
        for row in rows:
            last = self.block(body, [*values, row, last])
        return last


class InGraph(Run):
    """Builds programs as graph code.

    Args:
      variables, queues: as for `Run`.
      devices: where a value goes to be late.
    """

    def __init__(self, variables: list[Any], queues: list[Any], devices: Sequence[str]) -> None:
        super().__init__(variables, queues)
        self.devices = devices

    def block(self, block: Any, before: list[Any]) -> Any:
        values = [*before]
        for statement in block:
            values.append(self.statement(statement, values))
        return tf.add_n(values[len(before) :]) % MODULUS

    def do_constant(self, value: int) -> Any:
        return tf.constant(value)

    def do_add(self, x: Any, y: Any) -> Any:
        return x + y

    def do_read(self, i: int) -> Any:
        return self.variables[i].read_value()

    def do_assign(self, i: int, x: Any) -> Any:
        return self.variables[i].assign(x)

    def do_assign_add(self, i: int, x: Any) -> Any:
        return self.variables[i].assign((self.variables[i].read_value() + x) % MODULUS)

    def do_enqueue(self, i: int, x: Any) -> Any:
        with tf.control_dependencies([self.queues[i].enqueue(x)]):
            return tf.identity(x)

    def do_dequeue(self, i: int) -> Any:
        return self.queues[i].dequeue()

    def do_hop(self, x: Any) -> Any:
        for device in (*self.devices, *self.devices):
            with tf.device(device):
                x = tf.maximum(x, 0)
        return x

    def do_cond(self, x: Any, yes: Any, no: Any, values: list[Any]) -> Any:
        branches = [lambda: self.block(yes, values), lambda: self.block(no, values)]
        return tf.cond(tf.equal(x % 2, 0), *branches)

    def do_while(self, n: int, x: Any, body: Any, values: list[Any]) -> Any:
        def step(number: Any, last: Any) -> Any:
            return number + 1, self.block(body, [*values, number, last])

        return tf.while_loop(lambda number, _: number < n, step, [0, x])[1]

    def do_scan(self, rows: list[int], body: Any, values: list[Any]) -> Any:
        def step(last: Any, row: Any) -> Any:
            return self.block(body, [*values, row, last])

        return tf.foldl(step, tf.constant(rows), tf.constant(0))


def in_graph(devices: Sequence[str]) -> InGraph:
    """Makes the variables and queues, on several devices."""
    variables, queues = [], []
    for i, first in enumerate(FIRST):
        with tf.device(devices[i % len(devices)]):
            variables.append(tf.Variable(first, name=f"v{i}"))
        with tf.device(devices[(i + 1) % len(devices)]):
            queues.append(tf.FIFOQueue(10_000, tf.int32, [()], name=f"q{i}"))
    return InGraph(variables, queues, devices)


def check(backend: BackendUnderTest, program: Any) -> None:
    filled = [list(range(i, FILLED + i)) for i in range(len(FIRST))]
    model = InPython([*FIRST], [deque(elements) for elements in filled])
    wanted = model.block(program, [7])
    with tf.Graph().as_default():
        run = in_graph(backend.devices)
        # In one body, statements happen one after another.
        result = tf.cond(
            tf.placeholder_with_default(True, []),
            lambda: run.block(program, [tf.constant(7)]),
            lambda: tf.constant(-1),
        )
        fill = [one.enqueue_many([x]) for one, x in zip(run.queues, filled, strict=True)]
        sizes = [one.size() for one in run.queues]
        n = tf.placeholder(tf.int32, [])
        taken = [one.dequeue_many(n) for one in run.queues]
        with backend.session() as session:
            session.run([v.initializer for v in run.variables])
            session.run(fill)
            assert int(session.run(result)) == wanted
            assert [int(x) for x in session.run(run.variables)] == model.variables
            for i, size in enumerate(session.run(sizes)):
                assert session.run(taken[i], {n: size}).tolist() == [*model.queues[i]]


@pytest.mark.parametrize("opened", [local, in_process], ids=["local", "in_process"])
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(program=PROGRAMS)
@example(program=(("read", 0), WRITES, ("dequeue", 0)))
@example(program=(("while", 2, 0, (("read", 0), WRITES)),))
@example(
    program=(("while", 3, 0, (("hop", 0), ("assign_add", 0, 0), ("enqueue", 0, 1), ("read", 0))),)
)
def test_random_programs(opened: Any, program: Any) -> None:
    with opened() as backend:
        check(backend, program)


@pytest.mark.long
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(program=PROGRAMS)
def test_many_random_programs(program: Any) -> None:
    for opened in (local, in_process):
        with opened() as backend:
            check(backend, program)

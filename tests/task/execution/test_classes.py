"""Classes of plans: which steps are one instruction, for both drivers."""

import jax
import numpy as np
import pytest

from jflow.base.values import TensorSpec
from jflow.plan import Call, Feed, Fetch, Plan, Program, Recv, ResourceSpec, Run, Send, VariableSpec
from jflow.plan import VariableKey as Key
from jflow.state.resources import Containers
from jflow.state.resources.queue import QueueSpec
from jflow.state.resources.reader import ReaderSpec
from jflow.task.execution import LocalExecutable, link
from jflow.task.execution.classes import (
    General,
    SeveralPrograms,
    SingleAccess,
    SingleOperation,
    SingleProgram,
    classify,
)
from tests.task.execution.test_drivers import DEVICES, HERE, TASK, THERE

X = VariableSpec(Key("", "x"), "float32", (3,))
QUEUE = ResourceSpec(
    *("queue", "", "q", ""),
    QueueSpec("FIFOQueue", 2, components=(TensorSpec((3,), "float32"),)).to_bytes(),
)
PROGRAMS = {
    "minus": jax.jit(lambda x, y: [x - y]),
    "both": jax.jit(lambda x, y: [x + y, x * y]),
    "plus": jax.jit(lambda x, c: [x + c]),
    "five": jax.jit(lambda c: [c + 5]),
    "update": jax.jit(lambda old: [old + 1], donate_argnums=0),
}
MINUS = Run(Program("minus"), inputs=(0, 1), outputs=(2,))
BOTH = Run(Program("both"), inputs=(0, 1), outputs=(2, 3))
FED = (Feed(0, 0), Feed(1, 1))


def plan(*instructions, device=HERE, variables=(), resources=()):
    return Plan(device, 9, variables, (instructions,), resources)


def linked(*plans):
    return [
        link(one, DEVICES[one.device], lambda code: PROGRAMS[code.digest], lambda _: np.float32(10))
        for one in plans
    ]


def class_of(*plans):
    return classify(linked(*plans))


@pytest.mark.parametrize(
    ("instructions", "taken", "given", "n_in_order", "results"),
    [
        pytest.param((*FED, MINUS, Fetch(2, 0)), (0, 1), None, 2, [4], id="in order"),
        pytest.param(
            (Feed(0, 1), Feed(1, 0), MINUS, Fetch(2, 0)), (1, 0), None, -1, [-4], id="turned"
        ),
        pytest.param(
            (*FED, BOTH, Fetch(3, 0), Fetch(2, 1)),
            (0, 1),
            (1, 0),
            -1,
            [21, 10],
            id="results turned",
        ),
        pytest.param((*FED, BOTH, Fetch(3, 0)), (0, 1), (1,), -1, [21], id="one of two results"),
        pytest.param(
            (*FED, BOTH, Fetch(2, 1), Fetch(3, 0)), (0, 1), (1, 0), -1, [21, 10], id="by index"
        ),
        pytest.param(
            (Feed(0, 0), Run(Program("minus"), inputs=(0, 0), outputs=(2,)), Fetch(2, 0)),
            *((0, 0), None, -1, [0]),
            id="twice",
        ),
        pytest.param(
            (Feed(1, 0), Run(Program("plus", ("c",)), inputs=(0,), outputs=(2,)), Fetch(2, 0)),
            *((1,), None, -1, [13]),
            id="constant argument",
        ),
        pytest.param(
            (Run(Program("five", ("c",)), outputs=(2,)), Fetch(2, 0)),
            (),
            None,
            0,
            [15],
            id="not fed",
        ),
    ],
)
def test_a_program_of_fed_values_is_called_with_them(
    instructions, taken, given, n_in_order, results
):
    found = class_of(plan(*instructions))
    assert isinstance(found, SingleProgram)
    assert (found.feed_indices, found.fetch_indices, found.n_in_order) == (taken, given, n_in_order)
    feeds = [np.float32(7), np.float32(3)][: n_in_order if n_in_order >= 0 else 2]
    assert found.results(feeds) == results
    step = LocalExecutable(linked(plan(*instructions)), len(results), Containers(TASK))
    assert step.run(feeds) == results
    direct = step.single_program(len(feeds))
    assert (direct is None) == (n_in_order < 0)
    assert direct is None or direct(*feeds) == results
    assert step.single_program(3) is None


def test_fed_values_that_no_argument_takes_are_left():
    step = LocalExecutable(linked(plan(*FED, MINUS, Fetch(2, 0))), 1, Containers(TASK))
    assert step.run([np.float32(7), np.float32(3), np.float32(9)]) == [4]


MORE = Run(Program("plus", ("c",)), inputs=(2,), outputs=(4,))
UPDATE = Run(Program("update", (), (0,)), reads=(0,), writes=(0,), after=((0, 0),))
ENQUEUE = Call("queue.enqueue", (0,), resources=(0,))
READER = ResourceSpec("reader", "", "r", "", ReaderSpec("TextLineReader").to_bytes())


@pytest.mark.parametrize(
    ("plans", "expected"),
    [
        pytest.param([plan(*FED, MINUS, MORE, Fetch(4, 0))], SeveralPrograms, id="two programs"),
        pytest.param([plan(Feed(0, 0))], SeveralPrograms, id="nothing"),
        pytest.param(
            [plan(Feed(0, 0), Call("identity", (), (1,), ("c",)), MINUS, Fetch(2, 0))],
            SeveralPrograms,
            id="a constant of the host as argument",
        ),
        pytest.param([plan(UPDATE, Fetch(0, 0), variables=(X,))], SingleAccess, id="update"),
        pytest.param(
            [plan(Run(None, before=((0, 0),)), Fetch(0, 0), variables=(X,))],
            SingleAccess,
            id="read",
        ),
        pytest.param(
            [plan(Feed(0, 0), ENQUEUE, resources=(QUEUE,))], SingleOperation, id="enqueue"
        ),
        pytest.param([plan(UPDATE, MINUS, variables=(X,))], General, id="update and program"),
        pytest.param(
            [plan(Feed(0, 0), ENQUEUE, ENQUEUE, resources=(QUEUE,))], General, id="two operations"
        ),
        pytest.param(
            [plan(Call("reader.read", (), (0, 1), resources=(0,)), resources=(READER,))],
            General,
            id="reads files",
        ),
        pytest.param([plan(*FED, MINUS, Fetch(2, 0), Fetch(0, 1))], General, id="fed and fetched"),
        pytest.param([plan(Feed(0, 0), Fetch(0, 0))], General, id="no program"),
        pytest.param(
            [plan(Feed(0, 0), Call("identity", (0,), (1,)), Fetch(1, 0))], General, id="call"
        ),
        pytest.param(
            [
                plan(*FED, MINUS, Send(0, THERE, 2), Fetch(2, 0)),
                plan(Recv(0, HERE, 0), Fetch(0, 1), device=THERE),
            ],
            General,
            id="sends",
        ),
        pytest.param(
            [
                plan(*FED, MINUS, Fetch(2, 0)),
                plan(Call("identity", (), (2,), ("c",)), Fetch(2, 1), device=THERE),
            ],
            General,
            id="a constant of another device",
        ),
    ],
)
def test_what_does_more_is_of_another_class(plans, expected):
    assert type(class_of(*plans)) is expected

"""The text form of plans: an instruction is a line, and the same plan is the same text."""

from dataclasses import replace

import pytest
from hypothesis import given

from jflow.base.packing import pack
from jflow.plan import VARYING, Call, Feed, Fetch, Program, Recv, Run, Send, VariableSpec
from tests.plan.plans import HERE, QUEUE, THERE, X, plan, well_formed

DIGEST = "0123456789abcdef" * 4
OTHER = "fedcba9876543210" * 4

LINES = {
    "%2 = feed 1": Feed(1, 2),
    "fetch 1 = %2": Fetch(2, 1),
    "%2 = receive from /job:w/task:1/device:CPU:0 as edge 7": Recv(7, THERE, 2),
    "receive signal from /job:w/task:1/device:CPU:0 as edge 7": Recv(7, THERE, None),
    "send %2 to /job:w/task:1/device:CPU:0 as edge 7": Send(7, THERE, 2),
    "send signal to /job:w/task:1/device:CPU:0 as edge 7": Send(7, THERE, None),
    "run nothing(); %2 = v0 before": Run(None, before=((0, 2),)),
    "run nothing(); %2 = v0 before, else %1": Run(None, defaults=((0, 2, 1),)),
    "%3 = call f(has v0, %1)": Call("f", (1,), (3,), variables=(0,)),
    "%3 = run 0123456789ab(%1, const fedcba987654)": Run(
        Program(DIGEST, (OTHER,)), inputs=(1,), outputs=(3,)
    ),
    "v0, %3 = run p(v0, v1, %1); donates v0; initializes v0; %4 = v0 after   [op 'add']": Run(
        Program("p", (), (0,)), (0, 1), (1,), (0,), (3,), (), ((0, 4),), (0,), "add"
    ),
    "%3 = call queue.dequeue(%1, const c); on r0, r1   [op 'take']": Call(
        "queue.dequeue", (1,), (3,), ("c",), (0, 1), op="take"
    ),
    'call f(); {"count": 3}': Call("f", attributes=pack({"count": 3})),
}


@pytest.mark.parametrize("text", LINES)
def test_an_instruction_is_one_line(text):
    assert str(LINES[text]) == text


def test_a_plan_has_its_tables_and_its_stages():
    made = plan(
        (Feed(0, 0), Run(Program(DIGEST), inputs=(0,), outputs=(1,))),
        (),
        (Fetch(1, 0),),
        variables=(X, VariableSpec(X.key, "int8", (VARYING, 3))),
        resources=(QUEUE, replace(QUEUE, container="box", owner="a session")),
        after=((), (), (0, 1)),
    )
    assert made.text({DIGEST: "(float32 ()) -> (float32 ())"}).splitlines() == [
        "plan for /job:w/task:0/device:CPU:0, 4 slots, in dataflow order",
        "  variables:",
        "    v0: variable 'x' (container ''): float32 ()",
        "    v1: variable 'x' (container ''): int8 (None, 3)",
        "  resources:",
        "    r0: queue 'q' (container '')",
        "    r1: queue 'q' (container 'box'), not shared",
        "  programs:",
        "    0123456789ab: (float32 ()) -> (float32 ())",
        "  stage 0:",
        "    %0 = feed 0",
        "    %1 = run 0123456789ab(%0)",
        "  stage 2 after 0, 1:",
        "    fetch 0 = %1",
    ]
    assert str(plan()) == f"plan for {HERE}, 4 slots\n" + "\n".join(
        [*str(made).splitlines()[1:3], "  resources:", "    r0: queue 'q' (container '')"]
    )


@given(well_formed())
def test_each_instruction_of_a_plan_is_in_its_text(made):
    lines = [line.strip() for line in str(made).split("\n")]
    text = str(made)
    assert lines[0].startswith(f"plan for {made.device}, {made.n_slots} slots")
    for instruction in made.instructions:
        assert str(instruction) in text


def test_long_attributes_are_abridged():
    text = str(Call("f", attributes=pack({"text": "x" * 1000})))
    assert len(text) < 120
    assert text.endswith("…")

"""The order of a replay: whatever steps begin first, each program reads what it has read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import jflow as tf
from jflow.client.replay.gate import Version, VersionGate, VersionUse
from jflow.state.resources import VariableId
from tests.drawn import examples

DEVICE = "/job:ps/task:0/device:CPU:0"
VARIABLES = [VariableId("", DEVICE, name) for name in "abc"]


@dataclass
class Program:
    """A program of a step: what it uses, and what it has computed in the run."""

    uses: list[VersionUse]
    step: int
    computed: int


def run(store: dict[VariableId, int], program: Program) -> int:
    """What a program computes from the variables that it uses; it writes that."""
    read = tuple(store.get(use.variable) for use in program.uses)
    result = hash((program.step, read))
    for use in program.uses:
        if use.is_written:
            store[use.variable] = result
    return result


@st.composite
def histories(draw: st.DrawFn) -> list[list[Program]]:
    """Steps of a few programs, as they ran interleaved; the first one gives all values."""
    n_steps = draw(st.integers(1, 6))
    shapes = [
        draw(st.lists(st.dictionaries(st.sampled_from(VARIABLES), st.booleans(), min_size=1)))
        for _ in range(n_steps)
    ]
    order = draw(st.permutations([i for i, shape in enumerate(shapes) for _ in shape]))
    store: dict[VariableId, int] = {}
    versions = dict.fromkeys(VARIABLES, -1)
    steps: list[list[Program]] = [[] for _ in shapes]
    for i in order:
        shape = shapes[i][len(steps[i])]
        uses = [
            VersionUse(key, 0, Version(0, versions[key]), is_written)
            for key, is_written in shape.items()
        ]
        program = Program(uses, i, 0)
        program.computed = run(store, program)
        for use in uses:
            versions[use.variable] += use.is_written
        steps[i].append(program)
    return steps


@given(histories(), st.randoms(use_true_random=False))
@settings(max_examples=examples(100))
def test_every_order_of_beginning_gives_what_the_run_gave(
    steps: list[list[Program]], random: object
) -> None:
    uses = [use for step in steps for program in step for use in program.uses]
    gate, store = VersionGate(uses, ()), dict[VariableId, int]()
    left = [[*step] for step in steps if step]
    while left:
        random.shuffle(left)  # type: ignore[attr-defined]
        ready = next((step for step in left if gate.may_run(step[0].uses)), None)
        assert ready is not None, "something can always run"
        program = ready.pop(0)
        for use in gate.changes(program.uses):
            store.pop(use.variable, None)
            gate.changed(use)
        assert run(store, program) == program.computed
        gate.has_run(program.uses)
        left = [step for step in left if step]


def use(n_updates: int, *, is_written: bool = False, life: int = 0) -> VersionUse:
    return VersionUse(VARIABLES[0], 0, Version(life, n_updates), is_written)


def test_a_write_waits_for_all_reads_of_the_version_before() -> None:
    made, read, written = use(-1, is_written=True), use(0), use(0, is_written=True)
    gate = VersionGate([made, read, read, written], ())
    assert not gate.may_run([read])
    gate.has_run([made])
    for _ in range(2):
        assert gate.may_run([read])
        assert not gate.may_run([written])
        gate.has_run([read])
    assert gate.may_run([written])


def test_a_former_version_waits_until_the_present_one_is_used_no_more() -> None:
    read, restored = use(3), use(0, life=1)
    former = {(VARIABLES[0], Version(0, 3)), (VARIABLES[0], Version(1, 0))}
    gate = VersionGate([read, restored], former)
    assert gate.may_run([read])
    (change,) = gate.changes([read])
    gate.changed(change)
    assert not gate.may_run([restored])
    gate.has_run([read])
    assert gate.may_run([restored])
    assert [*gate.changes([restored])] == [restored]


def test_a_version_that_was_made_twice_is_refused() -> None:
    twice: Sequence[VersionUse] = [use(4, is_written=True)] * 2
    with pytest.raises(tf.errors.DataLossError, match="two steps made its version 5"):
        VersionGate(twice, ())


def test_a_version_that_nothing_made_is_named() -> None:
    gate = VersionGate([use(4), use(5, is_written=True)], ())
    assert gate.unknown([use(6), use(4)]) == use(4)
    assert gate.unknown([use(6)]) is None


def test_a_former_version_that_a_program_made_is_waited_for() -> None:
    made, read, written = use(4, is_written=True), use(5), use(5, is_written=True)
    gate = VersionGate([made, read, written], {(VARIABLES[0], Version(0, n)) for n in (4, 5)})
    assert not gate.may_run([read])
    assert not gate.may_run([written])
    assert gate.may_run([made])


def test_nothing_goes_back() -> None:
    later, first, again = use(5), use(-1, is_written=True), use(0, life=1)
    former = {(VARIABLES[0], Version(0, 5)), (VARIABLES[0], Version(1, 0))}
    gate = VersionGate([later, first, again], former)
    for change in gate.changes([later]):
        gate.changed(change)
    gate.has_run([later])
    assert not gate.may_run([first])
    assert not gate.may_run([again]), "what the server had before comes first"


def test_a_restarted_server_begins_without_values() -> None:
    old, new = use(-1, is_written=True), use(-1, is_written=True, life=1)
    gate = VersionGate([old, new], ())
    assert not gate.may_run([new])
    gate.has_run([old])
    assert gate.may_run([new])
    (change,) = gate.changes([new])
    gate.changed(change)
    gate.has_run([new])

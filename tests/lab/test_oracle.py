"""JAX is the reference: every placement of every strategy computes what `jax.jit` computes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, seed, settings
from hypothesis import strategies as st

import jflow as tf
from jflow.client.runtime import local
from jflow.compiler.pipeline import pipeline
from jflow.compiler.schedule import Costs, PlaceFunction, Problem, Schedule, scheduled
from jflow.compiler.schedule.strategies import STRATEGIES
from tests.lab.compiled_once import compiled_once
from tests.programs_of_jax import Program, check_each, programs

DEVICES = ["/device:CPU:0", "/device:CPU:1", "/device:CPU:2"]


def with_cheap_transfers(problem: Problem, costs_seed: int) -> Problem:
    """The problem with devices and links for which strategies divide small programs.

    By their real costs all would leave a small program on one device.
    """
    n_operations, n_devices = len(problem.graph), len(problem.devices)
    seconds = np.random.default_rng(costs_seed).uniform(1, 10, (n_operations, n_devices))
    off = 1.0 - np.eye(n_devices)
    return problem._replace(costs=Costs(seconds, 0.1 * off, 1e-6 * off))


def schedules(problem: Problem, names: list[str], costs_seed: int) -> dict[Schedule, list[str]]:
    """The different schedules of strategies, by real and by other costs; and whose each is."""
    found: dict[Schedule, list[str]] = {}
    for kind, each in (("", problem), ("cheap ", with_cheap_transfers(problem, costs_seed))):
        for name in names:
            found.setdefault(scheduled(each, STRATEGIES[name]), []).append(kind + name)
    return found


def always(problem: Problem, schedule: Schedule) -> PlaceFunction:
    """A strategy that gives one schedule for a step, and one device for other steps."""

    def place(graph, *others):
        if graph.operations == problem.graph.operations:
            return schedule
        return STRATEGIES["single"](graph, *others)

    return place


def check_strategies(program: Program, names: list[str], costs_seed: int) -> int:
    """Asserts that all their placements compute the same as JAX; how many placements differ."""
    n_checked = 0

    def open_sessions(graph: tf.Graph, fetches, fed) -> Iterator[tf.Session]:
        nonlocal n_checked
        problem = problem_of(graph, fetches, fed)
        for schedule in schedules(problem, names, costs_seed):
            n_checked += 1
            yield open_with(graph, always(problem, schedule))

    with compiled_once():
        check_each(program, open_sessions)
    return n_checked


def problem_of(graph: tf.Graph, fetches, fed) -> Problem:
    """What a session asks a strategy for."""
    seen: list[Problem] = []

    def place(*parts) -> Schedule:
        seen.append(Problem(*parts))
        return scheduled(seen[-1], STRATEGIES["single"])

    with open_with(graph, place) as session:
        session.placement(fetches, fed)
    assume(seen)  # a strategy is not asked where all devices are requested
    return seen[-1]


def open_with(graph: tf.Graph, placement) -> tf.Session:
    return tf.Session(graph=graph, config=tf.ConfigProto(placement=placement))


def test_a_segment_is_compiled_once_for_each_device_that_placements_put_it_on(monkeypatch) -> None:
    compiled, compile_all = [], local.compile_all
    monkeypatch.setattr(
        local, "compile_all", lambda programs: compiled.extend(programs) or compile_all(programs)
    )
    with tf.Graph().as_default() as graph:
        y, other = tf.numpy.tanh(tf.constant(0.5)), tf.numpy.sin(tf.constant(0.5))
    with compiled_once():
        for device in (0, 0, 1):

            def place(graph, devices, *_, device=device):
                return dict.fromkeys(graph.operations, devices[device])

            with open_with(graph, place) as session:
                np.testing.assert_allclose(session.run(y), np.tanh(np.float32(0.5)), rtol=1e-6)
                np.testing.assert_allclose(session.run(other), np.sin(np.float32(0.5)), rtol=1e-6)
    (y_here, here, _), (other_here, _, _), (y_there, there, _), (other_there, _, _) = compiled
    assert y_here is y_there
    assert other_here is other_there
    assert y_here is not other_here
    assert here is not there


@settings(max_examples=2)
@given(programs(DEVICES, max_calls=5), st.sampled_from([*STRATEGIES]), st.integers(0, 1000))
def test_a_program_gives_what_jax_gives_where_a_strategy_divides_it(
    program, name, costs_seed
) -> None:
    check_strategies(program, [name], costs_seed)


@settings(max_examples=2)
@given(programs(DEVICES, max_calls=5), st.integers(0, 1000))
def test_a_program_gives_what_jax_gives_where_results_are_sent_first(program, costs_seed) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "SPLIT_S", 0.0)  # else programs so small are not divided
        check_strategies(program, ["round_robin"], costs_seed)


@pytest.mark.long
@pytest.mark.parametrize("part", range(25))
def test_programs_give_what_jax_gives_under_every_placement_of_every_strategy(part) -> None:
    # In parts, each with programs of its own: a part takes 40 seconds of a slow processor. They are
    # drawn as they are compiled, which is as slow as the machine is.
    @seed(part)
    @settings(max_examples=8, database=None, suppress_health_check=[HealthCheck.too_slow])
    @given(programs(DEVICES, max_calls=4), st.integers(0, 1000))
    def check_program(program, costs_seed) -> None:
        # With no request on most operations, so that strategies choose.
        calls = tuple(
            replace(call, device=call.device if i % 3 == 0 else None)
            for i, call in enumerate(program.calls)
        )
        assert check_strategies(replace(program, calls=calls), [*STRATEGIES], costs_seed) >= 1

    check_program()

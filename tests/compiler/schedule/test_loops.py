"""Loops over devices in predictions: pipelines take the slots that they have to."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jflow.compiler.schedule import (
    Constraints,
    Costs,
    Dependency,
    OperationGraph,
    Problem,
    Schedule,
    lower_bound,
    predicted_seconds,
)
from jflow.compiler.schedule.cut import MAX_ITERATIONS
from jflow.compiler.schedule.graph import RepeatedBody
from jflow.compiler.schedule.schedule import by_rank
from jflow.compiler.schedule.stage_run import StageRun, simulate_stages, trace_of_stages
from jflow.compiler.schedule.stages import StageTimes
from jflow.compiler.schedule.strategies import choose
from jflow.errors import InvalidArgumentError


def problem_of(
    loops: list[RepeatedBody],
    edges: list[tuple[int, int]],
    seconds: list[float],
    n_devices: int,
    latency: float = 0.0,
) -> Problem:
    """A problem whose operations take so many seconds in each iteration, anywhere."""
    graph = OperationGraph(
        tuple(range(len(seconds))),
        tuple(Dependency(a, (b,), 0.0) for a, b in edges),
        tuple(loops),
    )
    every = np.array(seconds)[:, None] * graph.trips[:, None] * np.ones(n_devices)
    links = latency * (1 - np.eye(n_devices))
    costs = Costs(every, links, np.zeros_like(links), in_stages=True)
    return Problem(graph, tuple(range(n_devices)), costs, Constraints()).checked()


def chain(first: int, n: int) -> list[tuple[int, int]]:
    return [(i, i + 1) for i in range(first, first + n - 1)]


def forward(p: int, m: int, window: int = 0) -> tuple[Problem, Schedule]:
    """A pipeline: an operation of a second for each of p stages, m microbatches."""
    loop = RepeatedBody(tuple(range(p)), m, window)
    problem = problem_of([loop], chain(0, p), [1.0] * p, p)
    return problem, by_rank(problem, [*range(p)])


def gradients_inside(p: int, m: int, window: int = 0) -> tuple[Problem, Schedule]:
    """A scan of gradients: p operations forward, p backward that take twice as long."""
    loop = RepeatedBody(tuple(range(2 * p)), m, window)
    problem = problem_of([loop], chain(0, 2 * p), [1.0] * p + [2.0] * p, p)
    return problem, by_rank(problem, [*range(p), *reversed(range(p))])


def gradient_outside(p: int, m: int) -> tuple[Problem, Schedule]:
    """The gradient of a scan: a loop forward, then one backward."""
    loops = [RepeatedBody(tuple(range(p)), m), RepeatedBody(tuple(range(p, 2 * p)), m)]
    # Each stage's residuals are where its backward part is.
    edges = [*chain(0, p), *chain(p, p), *((i, 2 * p - 1 - i) for i in range(p))]
    problem = problem_of(loops, edges, [1.0] * p + [2.0] * p, p)
    return problem, by_rank(problem, [*range(p), *reversed(range(p))])


def in_flight(run: StageRun, device: int) -> int:
    """The most iterations that are under way on a device at once."""
    begin: dict[int, float] = {}
    end: dict[int, float] = {}
    for stage, start, finish in zip(run.cut.stages, run.start, run.finish, strict=True):
        if stage.device == device:
            begin[stage.iteration] = min(begin.get(stage.iteration, start), start)
            end[stage.iteration] = max(end.get(stage.iteration, finish), finish)
    return max(sum(begin[j] <= begin[i] < end[j] for j in begin) for i in begin)


@pytest.mark.parametrize("p", [1, 2, 3, 4])
@pytest.mark.parametrize("m", [1, 2, 5, 16, 17, 100])
def test_a_forward_pipeline_takes_its_slots(p: int, m: int) -> None:
    problem, schedule = forward(p, m)
    assert predicted_seconds(problem, schedule) == pytest.approx(m + p - 1)
    assert lower_bound(problem) <= m + p - 1 + 1e-9
    (loop,) = simulate_stages(problem, schedule).loops
    assert loop.seconds == pytest.approx(m + p - 1)
    if m <= MAX_ITERATIONS:
        assert loop.bubble == pytest.approx((p - 1) / (m + p - 1))


@pytest.mark.parametrize("p", [2, 3, 4])
@pytest.mark.parametrize("m", [4, 8, 16])
def test_gpipe_and_1f1b_take_the_same_time(p: int, m: int) -> None:
    outside = predicted_seconds(*gradient_outside(p, m))
    assert outside == pytest.approx(3 * (m + p - 1))
    # Slots of a forward and a backward part, in which both fit.
    inside = predicted_seconds(*gradients_inside(p, m))
    assert 3 * m <= inside <= 3 * (m + p - 1) + 1e-9


@pytest.mark.parametrize("p", [2, 3, 4])
@pytest.mark.parametrize("window", [1, 2, 4, 5])
def test_the_window_bounds_what_is_under_way(p: int, window: int) -> None:
    run = simulate_stages(*gradients_inside(p, 12, window))
    assert [in_flight(run, device) <= window for device in range(p)] == [True] * p
    # A stage has no more iterations under way than 1F1B has.
    assert in_flight(run, p - 1) == 1
    if window == 1:
        assert run.makespan == pytest.approx(12 * 3 * p)


def test_a_carry_from_the_last_stage_to_the_first_keeps_iterations_apart() -> None:
    carry, first, second = range(3)
    loop = RepeatedBody((0, 1, 2), 6, carried=((second, carry),))
    edges = [(carry, first), (first, second)]
    problem = problem_of([loop], edges, [0.0, 1.0, 1.0], 2)
    # The carry is where its next value is made.
    assert predicted_seconds(problem, by_rank(problem, [1, 0, 1])) == pytest.approx(12)
    apart = RepeatedBody((0, 1, 2), 6, carried=((second, carry),))
    problem = problem_of([apart], [(carry, second), (first, second)], [0.0, 1.0, 1.0], 2)
    assert predicted_seconds(problem, by_rank(problem, [1, 0, 1])) == pytest.approx(7)


def test_operations_around_a_loop_run_before_and_after_all_of_it() -> None:
    loop = RepeatedBody((1, 2), 5)
    problem = problem_of([loop], [(0, 1), (1, 2), (2, 3)], [2.0, 1.0, 1.0, 3.0], 2)
    assert predicted_seconds(problem, by_rank(problem, [0, 0, 1, 1])) == pytest.approx(2 + 6 + 3)
    assert predicted_seconds(problem, by_rank(problem, [1, 0, 1, 0])) == pytest.approx(2 + 6 + 3)
    assert predicted_seconds(problem, by_rank(problem, [0, 0, 0, 0])) == pytest.approx(2 + 10 + 3)


def test_each_crossing_is_paid_once_by_a_pipeline_and_in_each_iteration_in_lockstep() -> None:
    loop = RepeatedBody((0, 1), 10)
    problem = problem_of([loop], [(0, 1)], [1.0, 1.0], 2, latency=0.5)
    assert predicted_seconds(problem, by_rank(problem, [0, 1])) == pytest.approx(11.5)
    lockstep = RepeatedBody((0, 1, 2), 10, carried=((2, 0),))
    problem = problem_of([lockstep], [(0, 1), (1, 2)], [0.0, 1.0, 1.0], 2, latency=0.5)
    # There and back in each iteration.
    assert predicted_seconds(problem, by_rank(problem, [1, 0, 1])) == pytest.approx(10 * 3)


@st.composite
def drawn(draw: st.DrawFn) -> tuple[Problem, Schedule]:
    """Two loops one after another, with operations around them, on up to three devices."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=5, max_size=5))
    starts = [sum(sizes[:i]) for i in range(6)]
    n = starts[-1]
    edges = [(a, b) for b in range(1, n) for a in draw(st.sets(st.integers(0, b - 1), max_size=2))]
    n_devices = draw(st.integers(1, 3))
    devices = draw(st.lists(st.integers(0, n_devices - 1), min_size=n, max_size=n))
    loops = []
    for number in (1, 3):
        body = tuple(range(starts[number], starts[number + 1]))
        carried = [
            (made, carry)
            for carry, made in draw(st.sets(st.tuples(*[st.sampled_from(body)] * 2), max_size=2))
            if carry < made and not any(b == carry for a, b in edges if a in body)
        ]
        for made, carry in carried:
            devices[carry] = devices[made]
        trips, window = draw(st.integers(1, 20)), draw(st.integers(0, 4))
        loops.append(RepeatedBody(body, trips, window, tuple(carried)))
    seconds = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=n, max_size=n))
    latency = draw(st.sampled_from([0.0, 0.1]))
    problem = problem_of(loops, edges, seconds, n_devices, latency)
    return problem, by_rank(problem, devices)


@given(drawn())
def test_every_loop_ends_with_all_of_its_work_done(case: tuple[Problem, Schedule]) -> None:
    problem, schedule = case
    run = simulate_stages(problem, schedule)
    work = [0.0] * len(problem.devices)
    for i, device in enumerate(schedule.devices):
        work[device] += float(problem.costs.seconds[i, device])
    if all(loop.trips <= MAX_ITERATIONS for loop in problem.graph.loops):
        assert run.makespan >= max(work) - 1e-9
        assert lower_bound(problem) <= run.makespan + 1e-9
    # Nothing overlaps less than not at all.
    latencies = float(problem.costs.latency.max()) * sum(
        problem.graph.trips[edge.producer] for edge in problem.graph.edges
    )
    assert run.makespan <= sum(work) + latencies + 1e-9
    assert all(0 <= loop.bubble <= 1 for loop in run.loops)
    assert StageTimes(problem).seconds(schedule.devices) == pytest.approx(run.makespan)
    assert len(trace_of_stages(problem, run, "simulated").spans) == len(run.cut.stages)


def test_what_feeds_a_loop_runs_before_it() -> None:
    # A long operation beside the first stage's, which only the last stage uses.
    loop = RepeatedBody((1, 2), 4)
    problem = problem_of([loop], [(0, 2), (1, 2), (1, 3)], [5.0, 1.0, 1.0, 0.1], 2)
    schedule = by_rank(problem, [1, 0, 1, 0])
    run = simulate_stages(problem, schedule)
    (before,) = run.cut.of[0]
    assert run.finish[before] <= min(run.start[stage] for stage in run.cut.of[2])
    assert run.makespan == pytest.approx(9.0)


def test_loops_that_do_not_wait_for_each_other_overlap() -> None:
    loops = [RepeatedBody((0, 1), 1000), RepeatedBody((2, 3), 1000)]
    problem = problem_of(loops, [(0, 1), (2, 3)], [1.0] * 4, 4)
    assert predicted_seconds(problem, by_rank(problem, [0, 1, 2, 3])) == pytest.approx(1001)
    after = problem_of(loops, [(0, 1), (1, 2), (2, 3)], [1.0] * 4, 4)
    assert predicted_seconds(after, by_rank(after, [0, 1, 2, 3])) == pytest.approx(2002)


@pytest.mark.parametrize("devices", [(0, 1, 0), (0, 1, 0, 1), (1, 0, 0, 1, 0)])
def test_many_iterations_are_predicted_as_if_all_were_simulated(
    devices: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    n = len(devices)
    seconds = [2.0, 1.0, 3.0, 1.0, 2.0][:n]
    problem = problem_of([RepeatedBody(tuple(range(n)), 100)], chain(0, n), seconds, 2)
    schedule = by_rank(problem, [*devices])
    predicted = predicted_seconds(problem, schedule)
    monkeypatch.setattr("jflow.compiler.schedule.cut.MAX_ITERATIONS", 100)
    assert predicted == pytest.approx(predicted_seconds(problem, schedule), rel=0.03)


def test_auto_claims_no_bound_that_a_pipeline_breaks() -> None:
    loop = RepeatedBody(tuple(range(6)), 16)
    problem = problem_of([loop], chain(0, 6), [5.0, 5.0, 1.0, 3.0, 5.0, 5.0], 2, latency=0.1)
    found = choose(problem)
    least = min(
        predicted_seconds(problem, by_rank(problem, [*devices]))
        for devices in itertools.product(range(2), repeat=6)
    )
    assert found.bound <= least + 1e-9
    assert found.predicted[found.strategy] <= 1.2 * least


def test_a_path_through_a_loop_in_a_loop_has_each_operation_once() -> None:
    graph = OperationGraph(
        (0, 1), (Dependency(0, (1,), 0.0),), (RepeatedBody((0, 1), 4),), (12, 12)
    )
    costs = Costs(np.full((2, 2), 12.0), np.zeros((2, 2)), np.zeros((2, 2)), in_stages=True)
    assert lower_bound(Problem(graph, (0, 1), costs, Constraints()).checked()) == 12.0


def test_a_loop_that_something_outside_is_in_the_middle_of_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="cycle"):
        problem_of([RepeatedBody((0, 2), 3)], [(0, 1), (1, 2)], [1.0] * 3, 1)


def test_a_loop_of_unknown_operations_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="expected a loop of operations 0 to 0"):
        problem_of([RepeatedBody((3,), 3)], [], [1.0], 1)
    with pytest.raises(InvalidArgumentError, match="that runs"):
        problem_of([RepeatedBody((0,), 0)], [], [1.0], 1)

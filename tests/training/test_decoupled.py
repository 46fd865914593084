"""Learners that train apart: what a merge computes, what a round waits for, joining and leaving."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jflow as tf
from jflow.compiler.graph import owners
from jflow.testing import PATIENCE_S, ProcessCluster, in_process, start_servers, wait_until
from jflow.train import Decoupled

PARAMS = {"a": np.float32([1, 2, 3]), "b": np.float32(4), "c": np.ones((2, 2), np.float32)}
GRACE = 0.5
HOURS = 7200.0
NEVER = 10**9
"""So many steps are never made, so only `contribute` exchanges."""

Make = Callable[..., Decoupled]


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    with in_process({"ps": 2, "worker": 1}) as backend:
        yield backend.target


@pytest.fixture
def make(target: str, request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes models under one prefix, each on a connection of its own, as programs do."""
    prefix = re.sub(r"\W", "_", request.node.name)
    connections: list[tf.Connection] = []

    def made(params: Any = PARAMS, **options: Any) -> Decoupled:
        connection = tf.connect(target)
        connections.append(connection)
        with owners.owned_by(connection):
            devices = ["/job:ps/task:0", "/job:ps/task:1"]
            given = {"fragments": 2, "every": NEVER, "grace": 0.0, **options}
            return Decoupled(params, prefix, devices, **given)

    yield made
    for connection in connections:
        connection.close()


def plus(params: Any, change: Any) -> Any:
    return jax.tree.map(lambda x: x + jnp.float32(change), params)


def assert_values(params: Any, expected: Any) -> None:
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, np.asarray(y), rtol=1e-5, atol=1e-6),
        params,
        expected,
    )


@pytest.mark.parametrize("outer", [None, optax.adam(0.1)], ids=["by default", "adam"])
def test_a_learner_by_itself_is_stepped_by_the_outer_optimizer(make: Make, outer: Any) -> None:
    model = make({**PARAMS}, outer=outer)
    rule = outer or optax.sgd(0.7, momentum=0.9, nesterov=True)
    expected: Any = jax.tree.map(jnp.asarray, PARAMS)
    state = rule.init(expected)
    with model.join() as learner:
        for change in (0.5, -1.0, 0.25):
            learner.step(plus(learner.params, change))
            learner.contribute()
            drift = jax.tree.map(lambda x, c=change: jnp.full_like(x, -c), expected)
            updates, state = rule.update(drift, state, expected)
            expected = optax.apply_updates(expected, updates)
            assert_values(learner.params, expected)
            assert_values(model.value(), expected)
    assert model.n_merges() == [3, 3]


def test_a_merge_is_the_mean_by_tokens_when_there_is_a_quorum(make: Make) -> None:
    models = [make(outer=optax.sgd(1.0), quorum=2) for _ in range(2)]
    first, second = (model.join() for model in models)
    first.step(plus(first.params, 1.0), tokens=30)
    first.contribute()
    assert models[0].n_merges() == [0, 0]
    assert_values(first.params, plus(PARAMS, 1.0))  # it trains on meanwhile
    first.step(plus(first.params, 0.5), tokens=20)
    second.step(plus(second.params, -3.0), tokens=10)
    second.contribute()
    merged = plus(PARAMS, (30 * 1.0 + 10 * -3.0) / 40)
    assert_values(models[0].value(), merged)
    assert_values(second.params, merged)
    # What the first one has trained since its contribution stays its own, and counts next.
    first.contribute()
    assert_values(first.params, plus(merged, 0.5))
    second.step(plus(second.params, 0.1), tokens=60)
    second.contribute()
    assert_values(models[0].value(), plus(merged, (20 * 0.5 + 60 * 0.1) / 80))
    for learner in (first, second):
        learner.close()


def test_a_second_contribution_to_a_round_replaces_the_first(make: Make) -> None:
    model = make(outer=optax.sgd(1.0), quorum=2)
    first, second = model.join(), model.join()
    for _ in range(3):
        first.step(plus(first.params, 1.0), tokens=10)
        first.contribute()
    assert model.n_merges() == [0, 0], "one learner is no quorum"
    second.step(second.params, tokens=30)
    second.contribute()
    assert_values(model.value(), plus(PARAMS, 3.0 / 2))
    for learner in (first, second):
        learner.close()


def test_a_late_learner_contributes_to_a_later_round(make: Make) -> None:
    model = make(outer=optax.sgd(1.0))
    late, quick = model.join(), model.join()
    late.step(plus(late.params, 1.0), tokens=5)
    for _ in range(3):
        quick.step(plus(quick.params, 2.0), tokens=5)
        quick.contribute()
    assert_values(model.value(), plus(PARAMS, 6.0))
    late.contribute()
    assert_values(model.value(), plus(PARAMS, 7.0))
    assert_values(late.params, plus(PARAMS, 7.0))
    for learner in (late, quick):
        learner.close()


def test_a_round_waits_for_learners_that_were_there_within_the_grace_window(make: Make) -> None:
    models = [make(outer=optax.sgd(1.0), grace=PATIENCE_S) for _ in range(2)]
    first, second = (model.join() for model in models)
    first.step(plus(first.params, 1.0))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(first.contribute)
        # It contributes to both fragments before it waits for the first round to end.
        wait_until(lambda: models[1].n_contributed() == [1, 1], "contributions")
        assert models[1].n_merges() == [0, 0]
        second.step(plus(second.params, 3.0))
        second.contribute()
        waiting.result(PATIENCE_S)
        assert_values(models[1].value(), plus(PARAMS, 2.0))
        # One that has left is not waited for.
        second.close()
        first.step(plus(first.params, 1.0))
        pool.submit(first.contribute).result(PATIENCE_S)
        assert_values(models[1].value(), plus(PARAMS, 3.0))
    first.close()


def test_a_learner_that_is_lost_delays_rounds_by_one_grace_window(make: Make) -> None:
    short, endless = (make(outer=optax.sgd(1.0), grace=grace) for grace in (GRACE, HOURS))
    lost = short.join()
    with short.join() as learner:
        began = time.monotonic()
        learner.step(plus(learner.params, 1.0))
        learner.contribute()
        assert time.monotonic() - began >= GRACE
    assert short.n_merges() == [1, 1]
    with ThreadPoolExecutor(1) as pool, endless.join() as learner:
        for n in (2, 3, 4):  # these do not wait for it any more
            learner.step(plus(learner.params, 1.0))
            pool.submit(learner.contribute).result(PATIENCE_S)
            assert short.n_merges() == [n, n]
    lost.close()


def test_what_a_learner_contributes_before_it_leaves_counts(make: Make) -> None:
    model = make(outer=optax.sgd(1.0), quorum=2, grace=PATIENCE_S)
    for change in (1.0, 3.0):
        with model.join() as learner:
            learner.step(plus(learner.params, change))
    assert model.n_merges() == [1, 1]
    assert_values(model.value(), plus(PARAMS, 2.0))


def test_a_learner_that_joins_begins_with_the_merged_values(make: Make) -> None:
    model = make(outer=optax.sgd(1.0))
    with model.join() as learner:
        learner.step(plus(learner.params, 1.0))
    other = make(plus(PARAMS, 100.0), outer=optax.sgd(1.0))  # its own values do not count
    later = other.join()
    assert_values(later.params, plus(PARAMS, 1.0))
    assert later.number != learner.number
    assert f"{other!r}" == "<jflow.train.Decoupled of 3 arrays in 2 fragments>"
    assert f"{later!r}" == f"<jflow.train.Learner {later.number} after 0 steps>"
    later.close()


def test_fragments_take_turns_and_exchanges_do_not_hold_steps_up(make: Make) -> None:
    model = make(outer=optax.sgd(1.0), every=4, grace=PATIENCE_S)
    learner, other = model.join(), model.join()
    params = learner.params
    for _ in range(40):  # the first exchange waits for the other learner all the time
        params = learner.step(plus(params, 1.0))
    wait_until(lambda: model.n_contributed() == [1, 0], "the first contribution")
    assert model.n_merges() == [0, 0]
    other.close()
    wait_until(lambda: model.n_merges()[0] == 1, "the exchange")

    def stepped() -> bool:
        nonlocal params
        params = learner.step(params)
        return min(model.n_merges()) >= 2

    wait_until(stepped, "both fragments to be merged")
    learner.contribute()
    assert_values(learner.params, plus(PARAMS, 40.0))
    assert_values(model.value(), plus(PARAMS, 40.0))
    assert abs(model.n_merges()[0] - model.n_merges()[1]) <= 1
    learner.close()


def test_a_step_may_donate_its_arguments(make: Make) -> None:
    model = make(outer=optax.sgd(1.0), every=2)
    inner = jax.jit(lambda params: plus(params, 1.0), donate_argnums=0)
    with model.join() as learner:
        params = learner.params
        for _ in range(20):
            params = learner.step(inner(params))
    assert_values(model.value(), plus(PARAMS, 20.0))


def test_no_contribution_of_learners_at_once_is_lost(make: Make) -> None:
    models = [make(outer=optax.sgd(1.0), quorum=9) for _ in range(8)]
    begun = Event()

    def contribute(model: Decoupled) -> None:
        learner = model.join()
        begun.wait(PATIENCE_S)
        for _ in range(5):
            learner.step(plus(learner.params, 1.0), tokens=2)
            learner.contribute()

    threads = [Thread(target=contribute, args=(model,)) for model in models]
    for thread in threads:
        thread.start()
    begun.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    last = make(outer=optax.sgd(1.0), quorum=9).join()
    last.step(last.params, tokens=80)
    last.contribute()
    assert_values(models[0].value(), plus(PARAMS, 5.0 * (8 * 10) / (8 * 10 + 80)))


def test_half_precision_is_merged_in_single_precision(make: Make) -> None:
    model = make({"w": jnp.ones(3, jnp.bfloat16)}, outer=optax.sgd(1.0))
    with model.join() as learner:
        params = learner.step({"w": learner.params["w"] + jnp.bfloat16(0.5)})
        assert params["w"].dtype == jnp.bfloat16
    assert_values(model.value(), {"w": jnp.full(3, 1.5, jnp.bfloat16)})


def test_a_model_is_saved_and_restored(make: Make, tmp_path: Path) -> None:
    model = make()
    with model.join() as learner:
        learner.step(plus(learner.params, 1.0))
    before = jax.tree.map(np.asarray, model.value())
    tf.checkpoint.save(tmp_path / "model", model)
    with model.join() as learner:
        learner.step(plus(learner.params, 1.0))
    tf.checkpoint.restore(tmp_path / "model", model)
    assert_values(model.value(), before)


def test_a_lost_cluster_is_an_error_of_a_step() -> None:
    with ExitStack() as stack:
        (server,) = start_servers(stack.enter_context, {"ps": 1})
        with tf.connect(server.target) as connection:
            model = Decoupled(PARAMS, "lost", every=1, grace=0.0)
            learner = model.join()
            params = learner.step(plus(learner.params, 1.0))
            server.stop()

            def fails() -> bool:
                try:
                    learner.step(params)
                except tf.errors.OpError:
                    return True
                return False

            wait_until(fails, "an error")
            connection.close()


def test_wrong_arguments_are_refused(make: Make) -> None:
    with pytest.raises(RuntimeError, match=r"inside `with jflow\.connect"):
        Decoupled(PARAMS, "nowhere")
    for name in ("fragments", "every", "quorum"):
        with pytest.raises(ValueError, match=f"positive number of {name}, got 0"):
            make(**{name: 0})
    with pytest.raises(TypeError, match="arrays of floats, got int32"):
        make({"n": np.int32(1)})
    model = make()
    learner = model.join()
    with pytest.raises(ValueError, match="expected the structure"):
        learner.step([1.0])
    with pytest.raises(ValueError, match=r"an array of shape \(3,\), got \(\)"):
        learner.step({**PARAMS, "a": np.float32(1)})
    learner.close()
    with pytest.raises(ValueError, match="with arrays, got none"):
        make({})
    with pytest.raises(tf.errors.InvalidArgumentError, match="another model"):
        make({"other": np.ones(7, np.float32)})


class Failing:
    """A fragment of a learner, one of whose calls fails once: before it is made, or after."""

    def __init__(self, learner: Any, method: str, *, is_made: bool) -> None:
        (self._part,) = learner._parts
        self._fragment, self._method, self._is_made = self._part.fragment, method, is_made
        self._part.fragment = self

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._fragment, name)
        if name != self._method:
            return method

        def failing(*args: Any) -> Any:
            self._part.fragment = self._fragment
            if self._is_made:
                method(*args)
            raise tf.errors.UnavailableError("lost")

        return failing


@pytest.mark.parametrize("is_made", [False, True], ids=["not made", "reply lost"])
@pytest.mark.parametrize("ends", [False, True], ids=["the round goes on", "the round ends"])
@pytest.mark.parametrize("method", ["contribute", "progress", "pull", "merge"])
def test_a_call_that_fails_is_neither_counted_twice_nor_lost(
    make: Make, method: str, ends: bool, is_made: bool
) -> None:
    """The sum of all drifts is in the model at the end, whatever call of a learner fails."""
    learner, other = (make(outer=optax.sgd(1.0), fragments=1).join() for _ in range(2))
    other.step(plus(other.params, 4.0), tokens=10)
    other.contribute()  # so that the learner has to catch up
    learner.step(plus(learner.params, 1.0), tokens=10)
    Failing(learner, method, is_made=is_made)
    with pytest.raises(tf.errors.UnavailableError):
        learner.contribute()
    if ends:
        other.step(plus(other.params, 0.0), tokens=1e-6)
        other.contribute()
    learner.step(plus(learner.params, 0.5), tokens=10)
    learner.contribute()
    assert_values(learner.params, plus(PARAMS, 5.5))
    other.contribute()
    assert_values(other.params, plus(PARAMS, 5.5))
    for one in (learner, other):
        one.close()


def test_programs_that_begin_at_once_have_one_model(make: Make) -> None:
    params = [[np.full(3, float(n), np.float32)] * 6 for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        models = [*pool.map(lambda one: make(one, fragments=6), params)]
    for model in models:
        values = {float(x) for leaf in model.value() for x in np.asarray(leaf)}
        assert len(values) == 1
    with pytest.raises(tf.errors.InvalidArgumentError, match="another model"):
        make({f"layer_{n}": params[0][0] for n in range(6)}, fragments=6)


def test_a_model_that_a_restarted_task_has_lost_in_part_is_restored(tmp_path: Path) -> None:
    devices = ["/job:ps/task:0", "/job:ps/task:1"]

    def opened() -> Decoupled:
        return Decoupled(PARAMS, "lost", devices, every=NEVER, outer=optax.sgd(1.0), grace=0.0)

    with ProcessCluster(ps=2, workers=0) as processes:
        target = processes.target("ps", 1)
        with tf.connect(target):
            model = opened()
            with model.join() as learner:
                learner.step(plus(learner.params, 5.0))
            tf.checkpoint.save(tmp_path / "model", model)
            processes.kill("ps", 0)
            processes.restart("ps", 0)
            with (
                ThreadPoolExecutor(1) as pool,
                pytest.raises(tf.errors.FailedPreconditionError, match="lost"),
            ):
                pool.submit(in_a_program_of_its_own, target, opened).result()
            tf.checkpoint.restore(tmp_path / "model", model)
        with tf.connect(target):
            again = opened()
            assert_values(again.value(), plus(PARAMS, 5.0))
            with again.join() as learner:
                learner.step(plus(learner.params, 1.0))
            assert_values(again.value(), plus(PARAMS, 6.0))


def in_a_program_of_its_own(target: str, opened: Callable[[], Decoupled]) -> Decoupled:
    with tf.connect(target):
        return opened()


def test_a_contribution_that_a_restore_has_undone_is_made_again(make: Make, tmp_path: Path) -> None:
    model = make(outer=optax.sgd(1.0), quorum=2)
    first, second = model.join(), model.join()
    tf.checkpoint.save(tmp_path / "model", model)
    first.step(plus(first.params, 1.0), tokens=100)
    first.contribute()
    tf.checkpoint.restore(tmp_path / "model", model)
    first.step(plus(first.params, 0.5), tokens=1)
    first.contribute()
    second.step(second.params, tokens=101)
    second.contribute()
    assert_values(model.value(), plus(PARAMS, 0.75))
    for learner in (first, second):
        learner.close()


def test_only_training_is_contributed(make: Make) -> None:
    model = make(outer=optax.sgd(1.0), quorum=2)
    with model.join() as idle, model.join() as learner:
        idle.contribute()
        learner.step(plus(learner.params, 1.0))
        learner.contribute()
        assert model.n_contributed() == [1, 1]
        diverged = model.join()
        diverged.step(plus(diverged.params, np.nan))
        with pytest.raises(tf.errors.InvalidArgumentError, match="not finite"):
            diverged.contribute()
        diverged.close()
    assert model.n_merges() == [0, 0]


def test_a_learner_that_was_held_up_does_not_exchange_more_often_afterwards(make: Make) -> None:
    model = make(outer=optax.sgd(1.0), every=10, grace=PATIENCE_S, fragments=1)
    learner, other = model.join(), model.join()
    for _ in range(500):
        learner.step(plus(learner.params, 1.0))
    other.close()
    wait_until(lambda: model.n_merges() == [1], "the exchange")
    for _ in range(5):
        learner.contribute()  # and these do not count as turns
    before = model.n_merges()[0]
    for _ in range(30):
        learner.step(plus(learner.params, 1.0))
        if learner._exchange is not None:
            wait_until(learner._exchange.done, "an exchange")
    assert model.n_merges()[0] <= before + 1 + 3
    learner.close()


def test_ends_of_learners(make: Make) -> None:
    model = make()
    with model.join() as learner:
        learner.close()
    with pytest.raises(RuntimeError, match="has left; join again"):
        learner.contribute()
    with pytest.raises(KeyError), model.join() as learner:
        raise KeyError
    assert learner._leaving.is_set()
    # One that is ended does not wait for others.
    model = make(grace=PATIENCE_S)
    learner, other = model.join(), model.join()
    learner.step(plus(learner.params, 1.0))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(learner.contribute)
        wait_until(lambda: model.n_contributed() == [1, 1], "contributions")
        learner.close()
        waiting.result(PATIENCE_S)
    other.close()

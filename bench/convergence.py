"""What models learn in each way to train them, beside one process: `python -m bench.convergence`.

Digits are classified by a small network, and the characters of a text predicted by the transformer
of `examples/pipelined_transformer.py`, for five seeds each. Two workers train synchronously (both
gradients of a step are averaged) or asynchronously (each updates the variables by itself), and one
of them is killed and started again; or three learners train apart and merge now and then, of which
one is slow and one is lost. Each makes as many updates as the one process, each learner as many
steps. Writes `bench/convergence.json` and `docs/pictures/convergence.svg`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np
import optax
from flax import nnx

import jflow as tf

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "examples"))

import digits  # noqa: E402 - it is an example
import pipelined_transformer as transformer  # noqa: E402
import train_optax as network  # noqa: E402

RESULTS, PLOT = ROOT / "bench" / "convergence.json", ROOT / "docs" / "pictures" / "convergence.svg"
N_SEEDS = 5
PS, WORKERS = "/job:ps/task:0", ("/job:worker/task:0", "/job:worker/task:1")
OUTER = optax.sgd(0.7, momentum=0.5, nesterov=True)


@dataclass(frozen=True)
class Task:
    """Something to learn.

    Attributes:
      name: for people.
      n_updates: how many updates are made.
      every: after how many steps a learner exchanges its model.
      optimizer: of the updates, and of each learner.
      params: makes the first parameters of a seed.
      loss: a function of parameters and a batch.
      batches: yields batches of a seed, without end.
      score: what is compared, of parameters.
    """

    name: str
    n_updates: int
    every: int
    optimizer: Any
    params: Callable[[int], Any]
    loss: Callable[[Any, Any], Any]
    batches: Callable[[int], Iterator[Any]]
    score: Callable[[Any], float]


def digits_task() -> Task:
    trained, tested = digits.load_images()

    def batches(seed: int) -> Iterator[Any]:
        rng = np.random.default_rng(seed)
        while True:
            rows = rng.choice(len(trained.digits), 64)
            yield digits.Images(trained.pixels[rows], trained.digits[rows])

    return Task(
        "accuracy on digits",
        600,
        20,
        optax.adam(2e-3),
        lambda seed: network.initial_params(jax.random.key(seed)),
        network.loss_of,
        batches,
        lambda params: network.accuracy(params, tested),
    )


def text_task() -> Task:
    width, n_tested = 32, 5000
    characters, numbers = np.unique([*transformer.DATA.read_text("utf-8")], return_inverse=True)
    layers = transformer.make_layers(len(characters), width)
    graphdefs, states = zip(*map(nnx.split, layers), strict=True)
    shapes = [nnx.to_pure_dict(state) for state in states]

    def params(seed: int) -> Any:
        """The first parameters of the layers, with the rows of each matrix in another order."""
        rng = np.random.default_rng(seed)
        return jax.tree.map(lambda x: rng.permutation(np.asarray(x)), shapes)

    def loss(params: Any, texts: Any) -> Any:
        x, wanted = texts[:, :-1], texts[:, 1:]
        for graphdef, of_layer in zip(graphdefs, params, strict=True):
            x = nnx.merge(graphdef, of_layer)(x)
        return optax.softmax_cross_entropy_with_integer_labels(x, wanted).mean()

    def texts_at(begins: Any) -> Any:
        return numbers[begins[:, None] + np.arange(transformer.LENGTH + 1)].astype(np.int32)

    def batches(seed: int) -> Iterator[Any]:
        rng = np.random.default_rng(seed)
        while True:
            yield texts_at(rng.integers(len(numbers) - n_tested - transformer.LENGTH, size=8))

    last = np.arange(len(numbers) - n_tested, len(numbers) - transformer.LENGTH, 64)
    score = jax.jit(loss)
    return Task(
        "loss on unseen text",
        500,
        20,
        optax.adam(2e-3),
        params,
        loss,
        batches,
        lambda params: float(score(params, texts_at(last))),
    )


# Ways to train --------------------------------------------------------------------------------


def inner_steps(task: Task) -> Callable[[Any, Any, Any], Any]:
    """Returns a step of one process: new parameters and optimizer state."""

    @jax.jit
    def step(params: Any, state: Any, batch: Any) -> Any:
        updates, state = task.optimizer.update(jax.grad(task.loss)(params, batch), state, params)
        return optax.apply_updates(params, updates), state

    return step


def alone(task: Task, seed: int) -> Any:
    step, params = inner_steps(task), task.params(seed)
    state = task.optimizer.init(params)
    for _, batch in zip(range(task.n_updates), task.batches(seed), strict=False):
        params, state = step(params, state, batch)
    return params


def synchronous(task: Task, seed: int) -> Any:
    with tf.LocalCluster(ps=1, workers=2) as cluster, tf.connect(cluster.target("ps", 0)):
        state = tf.bind(task.params(seed), "model", PS)
        optimizer = tf.train.Optimizer(task.optimizer)
        optimizer.build(state.trainable_variables)

        @tf.function
        def step(*batches: Any) -> None:
            slopes = []
            for worker, batch in zip(WORKERS, batches, strict=True):
                with tf.device(worker):
                    slopes.append(tf.grad(task.loss)(state, batch))
            mean = jax.tree.map(lambda a, b: (a + b) / 2, *slopes)
            optimizer.apply_gradients(state.pairs(mean))

        pairs = zip(task.batches(seed), task.batches(seed + 100), strict=True)
        for number, batch in zip(range(task.n_updates), pairs, strict=False):
            if number == task.n_updates // 2:
                cluster.kill("worker", 1)
                cluster.restart("worker", 1)
            until_it_succeeds(lambda batch=batch: step(*batch))
        return jax.tree.map(np.asarray, state.value())


def until_it_succeeds(step: Callable[[], Any]) -> None:
    """Repeats a step that a killed worker has ended before its update."""
    for _ in range(50):
        try:
            return step()
        except (tf.errors.UnavailableError, tf.errors.AbortedError):
            time.sleep(0.1)
    return step()


def asynchronous(task: Task, seed: int) -> Any:
    with tf.LocalCluster(ps=1, workers=2) as cluster:
        strategy = tf.distribute.ParameterServerStrategy(cluster.cluster_spec)
        with tf.ClusterCoordinator(strategy) as coordinator:
            with strategy.scope():
                state = tf.bind(task.params(seed), "model")
                optimizer = tf.train.Optimizer(task.optimizer)
                optimizer.build(state.trainable_variables)

            @tf.function
            def step(batch: Any) -> None:
                slopes = tf.grad(task.loss)(state, batch)
                optimizer.apply_gradients(state.pairs(slopes))

            steps = [
                coordinator.schedule(step, args=(batch,), effects="exactly_once")
                for _, batch in zip(range(task.n_updates), task.batches(seed), strict=False)
            ]
            steps[task.n_updates // 2].fetch()
            cluster.kill("worker", 1)
            cluster.restart("worker", 1)
            coordinator.join()
            assert int(optimizer.iterations.numpy()) == task.n_updates
            params = jax.tree.map(np.asarray, state.value())
        strategy.close()
    return params


def decoupled(task: Task, seed: int) -> Any:
    step = inner_steps(task)
    with tf.LocalCluster(ps=1, workers=0) as cluster, tf.connect(cluster.target("ps", 0)):
        model = tf.train.Decoupled(
            task.params(seed), "model", outer=OUTER, every=task.every, quorum=2, grace=0.5
        )

        def learn(learner: tf.train.Learner, number: int, n_steps: int, pause: float) -> None:
            params = learner.params
            state = task.optimizer.init(params)
            batches = task.batches(seed + 100 * number)
            for _, batch in zip(range(n_steps), batches, strict=False):
                params, state = step(params, state, batch)
                params = learner.step(params)
                time.sleep(pause)

        def whole(number: int, pause: float) -> None:
            with model.join() as learner:
                learn(learner, number, task.n_updates, pause)

        threads = [
            Thread(target=whole, args=(0, 0.005)),
            Thread(target=whole, args=(1, 0.02)),
            Thread(target=learn, args=(model.join(), 2, task.n_updates // 3, 0.005)),  # lost then
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return jax.tree.map(np.asarray, model.value())


WAYS = {
    "one process": alone,
    "synchronous": synchronous,
    "asynchronous": asynchronous,
    "decoupled": decoupled,
}


# The page ---------------------------------------------------------------------------------------


def plot(scores: dict[str, dict[str, list[float]]]) -> None:
    """Draws the score of each seed, and their means."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "jflow", "font.size": 9})
    from matplotlib import pyplot  # noqa: PLC0415

    figure, axes = pyplot.subplots(1, len(scores), figsize=(8, 2.6), layout="constrained")
    for axis, (name, ways) in zip(axes, scores.items(), strict=True):
        for place, values in enumerate(ways.values()):
            axis.plot([place] * len(values), values, "o", color="#8899aa", markersize=4)
            mean = float(np.mean(values))
            axis.plot([place - 0.2, place + 0.2], [mean] * 2, "-", color="#1f5fa8", lw=2)
            axis.annotate(f"{mean:.3f}", (place + 0.22, mean), color="#1f5fa8", va="center", size=8)
        axis.set_xticks(range(len(ways)), ways, rotation=15)
        axis.set_xlim(-0.5, len(ways) - 0.1)
        axis.set_title(name)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(PLOT, metadata={"Date": None})


def main() -> None:
    scores: dict[str, dict[str, list[float]]] = {}
    for make in (digits_task, text_task):
        task = make()
        of_task = scores[task.name] = {}
        for way, train in WAYS.items():
            of_task[way] = [float(task.score(train(task, seed))) for seed in range(N_SEEDS)]
            print(f"{task.name}, {way}: {np.mean(of_task[way]):.4f}", flush=True)
    RESULTS.write_text(json.dumps(scores, indent=1) + "\n")
    plot(scores)


if __name__ == "__main__":
    main()

"""A population learns digits: members copy better ones by name, and an evaluator looks on.

    python examples/population.py

Each member trains with a learning rate and weight decay of its own, on one of two workers.
Now and then a bad member takes the variables of a good one, on the parameter server and without
passing through this program, and changes its rates a little (Jaderberg et al., "Population Based
Training", 2017). The evaluator is a program of its own: it finds the members by name, and reads all
variables of one in one step, as they are between two updates, without a pause of its training.
"""

from __future__ import annotations

import argparse
from threading import Event, Thread
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from digits import Images, load_images
from train_optax import accuracy, initial_params, loss_of

import jflow as tf

BATCH, ROUND = 64, 25
"""The images of a step, and the steps between two comparisons."""


class Member:
    """A member of the population, on the connection of the block around.

    Args:
      number: which one it is; its variables are called after it.

    Attributes:
      state: the parameters, their momentum, the rates, and the mean loss of the last steps.
    """

    def __init__(self, number: int) -> None:
        rng = np.random.default_rng(number)
        params = initial_params(jax.random.key(number))
        first = {
            "params": params,
            "momentum": jax.tree.map(jnp.zeros_like, params),
            "rate": np.float32(10 ** rng.uniform(-3, 0)),
            "decay": np.float32(10 ** rng.uniform(-5, -2)),
            "loss": np.float32(2.3),
        }
        self.number = number
        self.state = tf.bind(first, f"member_{number}", "/job:ps/task:0")

    def train(self, images: Images) -> Any:
        """Makes a step; returns the loss. For use in a function."""
        own = self.state.value()
        loss, grads = jax.value_and_grad(loss_of)(own["params"], images)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, own["momentum"], grads)

        def moved(param: Any, step: Any) -> Any:
            return (1 - own["rate"] * own["decay"]) * param - own["rate"] * step

        new = {
            "params": jax.tree.map(moved, own["params"], momentum),
            "momentum": momentum,
            "loss": 0.95 * own["loss"] + 0.05 * loss,
        }
        self.state.assign({**own, **new})
        return loss

    def copy(self, other: Member, factor: Any) -> None:
        """Takes the values of another member, with other rates. For use in a function."""
        with tf.device("/job:ps/task:0"):
            theirs = other.state.value()
            rates = {"rate": theirs["rate"] * factor, "decay": theirs["decay"] / factor}
            self.state.assign({**theirs, **rates})


def evolve(
    coordinator: tf.ClusterCoordinator, images: Images, n_members: int, n_rounds: int
) -> list[tuple[int, int]]:
    """Trains members on the workers of a coordinator; returns the copies: (taker, giver)."""
    with coordinator.strategy.scope():
        members = [Member(number) for number in range(n_members)]
    steps = [tf.function(member.train) for member in members]
    copy = tf.function(Member.copy, static_argnums=(0, 1))
    rng, copies = np.random.default_rng(0), []
    for _ in range(n_rounds):
        for number, step in enumerate(steps):
            worker = number % len(coordinator.strategy.worker_tasks)  # steps of one do not overlap
            for _ in range(ROUND):
                rows = rng.choice(len(images.digits), BATCH)
                batch = Images(images.pixels[rows], images.digits[rows])
                coordinator.schedule(step, args=(batch,), worker=worker)
        coordinator.join()
        with coordinator.strategy.scope():
            losses = [float(member.state.variables["loss"].numpy()) for member in members]
            order = np.argsort(np.nan_to_num(losses, nan=np.inf))
            for taker, giver in zip(order[::-1][: n_members // 4 or 1], order, strict=False):
                copy(members[taker], members[giver], np.float32(rng.choice([0.8, 1.25])))
                copies.append((int(taker), int(giver)))
    return copies


def evaluate(target: str, images: Images, n_members: int, ended: Event) -> list[float]:
    """Follows the best member until the training has ended; returns its accuracies."""
    accuracies = []
    with tf.connect(target):
        members = [Member(number) for number in range(n_members)]  # finds those that are there
        while True:
            is_last = ended.is_set()
            states = [member.state.value() for member in members]
            best = min(states, key=lambda state: np.nan_to_num(state["loss"], nan=np.inf))
            accuracies.append(accuracy(best["params"], images))
            if is_last:
                return accuracies
            ended.wait(0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    trained, tested = load_images()
    with tf.LocalCluster(ps=1, workers=2) as cluster:
        strategy = tf.distribute.ParameterServerStrategy(cluster.cluster_spec)
        ended, seen = Event(), []

        def look() -> None:
            seen.extend(evaluate(cluster.target("ps", 0), tested, options.members, ended))

        with tf.ClusterCoordinator(strategy) as coordinator:
            evaluator = Thread(target=look)
            evaluator.start()
            copies = evolve(coordinator, trained, options.members, options.rounds)
            ended.set()
            evaluator.join()
        strategy.close()
    print(f"copies {copies}")
    print("accuracies of the best member " + " ".join(f"{each:.3f}" for each in seen))


if __name__ == "__main__":
    main()

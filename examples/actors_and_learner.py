"""Two actors play CartPole and a learner trains their policy: three processes around a queue.

    pip install 'jflow[examples]'
    python examples/actors_and_learner.py          # a minute or so: the mean return grows
    python examples/actors_and_learner.py --kill   # the same, and an actor and the learner die

Each actor plays with the newest weights and puts the steps of its episodes into a queue that
shuffles them; the learner takes batches from it, trains, and publishes the weights. They know
nothing of each other: the queue and the variables live on a cluster, under their names. So any of
them may die, and one that is started in its place goes on from there.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax

import jflow

N_ACTORS = 2
BATCH = 256
DISCOUNT = 0.98
OPTIMIZER = optax.adam(optax.exponential_decay(3e-3, 200, 0.5))


# What lives on the cluster ------------------------------------------------------------------------


def make_queue() -> jflow.RandomShuffleQueue:
    """Steps of episodes, mixed; a small queue, so that what is learnt from is not old.

    Episodes differ in length but their steps do not, so the elements are steps.
    """
    dtypes = [jflow.int32, jflow.float32, jflow.int32, jflow.float32]
    shapes, names = [(), (4,), (), ()], ["actor", "seen", "action", "to_come"]
    return jflow.RandomShuffleQueue(4 * BATCH, BATCH, dtypes, shapes, names, shared_name="steps")


def make_state() -> Any:
    """The weights, and all else that is to outlive processes, as variables.

    The process that makes a variable first gives it its value; later ones find it.
    """
    keys = jax.random.split(jax.random.key(0), 2)
    weights = {
        "hidden": jax.random.normal(keys[0], (4, 64)) / 2,
        "bias": jnp.zeros(64),
        "actions": jax.random.normal(keys[1], (64, 2)) / 100,
        "worth": jnp.zeros(64),
    }
    initial = {
        "weights": weights,
        "adam": OPTIMIZER.init(weights),
        "n_updates": jnp.int32(0),
        "n_learnt": jnp.zeros(N_ACTORS, jnp.int32),
        "n_put": jnp.zeros(N_ACTORS, jnp.int32),
        "mean_return": jnp.zeros(N_ACTORS),
    }

    def variable(path: Any, value: Any) -> jflow.Variable:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        return jflow.Variable(value, name=name)

    return jax.tree_util.tree_map_with_path(variable, initial)


def values(variables: Any) -> Any:
    return jax.tree.map(lambda variable: variable.value(), variables)


def assign(variables: Any, new: Any) -> None:
    jax.tree.map(lambda variable, value: variable.assign(value), variables, new)


# An actor -----------------------------------------------------------------------------------------


def act(target: str, actor: int) -> None:
    """Plays for ever."""
    with jflow.connect(target):
        state, queue = make_state(), make_queue()
        newest_weights = jflow.function(lambda: values(state["weights"]))

        @jflow.function
        def note(n_steps: Any, total: Any) -> None:
            is_mine = jnp.arange(N_ACTORS) == actor
            change = 0.05 * (total - state["mean_return"].value())
            state["n_put"].assign_add(jnp.where(is_mine, n_steps, 0))
            state["mean_return"].assign_add(jnp.where(is_mine, change, 0.0))

        env = gymnasium.make("CartPole-v1")
        rng = np.random.default_rng()
        while True:
            steps = play(env, newest_weights(), rng)
            n_steps = len(steps["action"])
            # When this returns the steps are in the queue, whatever happens to this process.
            queue.put_many({**steps, "actor": np.full(n_steps, actor, np.int32)})
            note(np.int32(n_steps), np.float32(n_steps))  # a point for each step


def play(env: Any, weights: Any, rng: np.random.Generator) -> dict[str, Any]:
    """An episode: what was seen, what was done, and what came of it (discounted, 0 to 1)."""
    seen, actions, rewards = [], [], []
    observation, _ = env.reset(seed=int(rng.integers(2**31)))
    is_over = False
    while not is_over:
        logits, _ = policy(weights, observation)
        action = int(rng.random() < jax.nn.sigmoid(logits[1] - logits[0]))
        seen.append(observation)
        actions.append(action)
        observation, reward, is_lost, is_long, _ = env.step(action)
        rewards.append(reward)
        is_over = is_lost or is_long
    to_come = np.zeros(len(rewards) + 1, np.float32)
    if not is_lost:  # it was stopped in the middle, at the game's limit
        to_come[-1] = policy(weights, observation)[1]
    for i in reversed(range(len(rewards))):
        to_come[i] = (1 - DISCOUNT) * rewards[i] + DISCOUNT * to_come[i + 1]
    return {"seen": np.stack(seen), "action": np.int32(actions), "to_come": to_come[:-1]}


@jax.jit
def policy(weights: Any, seen: Any) -> tuple[Any, Any]:
    """Logits of the actions, and how much is to come."""
    hidden = jnp.tanh(seen @ weights["hidden"] + weights["bias"])
    return hidden @ weights["actions"], hidden @ weights["worth"]


# The learner --------------------------------------------------------------------------------------


def learn(target: str) -> None:
    """Trains for ever: an actor-critic with the whole return of each step."""
    with jflow.connect(target):
        state, queue = make_state(), make_queue()

        @jflow.function
        def train(batch: Any) -> None:
            weights, adam = values(state["weights"]), values(state["adam"])
            updates, adam = OPTIMIZER.update(jax.grad(loss)(weights, batch), adam)
            assign(state["weights"], optax.apply_updates(weights, updates))
            assign(state["adam"], adam)
            state["n_updates"].assign_add(1)
            state["n_learnt"].assign_add(jnp.bincount(batch["actor"], length=N_ACTORS))

        while True:
            train(queue.get_many(BATCH))


def loss(weights: Any, batch: Any) -> Any:
    """Better actions become more probable, and what is to come is foreseen."""
    logits, worth = policy(weights, batch["seen"])
    chances = jax.nn.log_softmax(logits)
    chosen = jnp.take_along_axis(chances, batch["action"][:, None], axis=1)[:, 0]
    better = batch["to_come"] - worth
    gain = jax.lax.stop_gradient(better / (better.std() + 0.1))
    curiosity = -(jnp.exp(chances) * chances).sum(axis=1)
    return jnp.mean(-chosen * gain + 0.5 * better**2 - 0.01 * curiosity)


# The supervisor -----------------------------------------------------------------------------------


def supervise(n_updates: int, with_kills: bool) -> None:
    """Starts a cluster and the processes on it, and replaces those that are killed."""
    begun = time.monotonic()
    kills = {n_updates // 3: "actor 0", n_updates * 2 // 3: "learner"} if with_kills else {}
    with jflow.LocalCluster(ps=1, workers=N_ACTORS + 1) as cluster, ExitStack() as stack:
        roles = {f"actor {i}": cluster.target("worker", i) for i in range(N_ACTORS)}
        roles["learner"] = cluster.target("worker", N_ACTORS)
        processes = {role: start(role, target) for role, target in roles.items()}
        stack.callback(lambda: [process.kill() for process in processes.values()])
        stack.enter_context(jflow.connect(cluster.target("ps", 0)))
        state, shown = make_state(), 0
        while (n_done := int(state["n_updates"].value())) < n_updates:
            if kills and n_done >= min(kills):
                processes[kills.pop(min(kills))].kill()
            for role, process in processes.items():
                if process.poll() == -signal.SIGKILL:
                    print(f"{role} was killed; another one takes its place")
                    processes[role] = start(role, roles[role])
                elif process.poll() is not None:
                    raise RuntimeError(f"{role} has failed; its words are above")
            if n_done >= shown:
                report(time.monotonic() - begun, state)
                shown = n_done + n_updates // 15
            time.sleep(0.1)
        for process in processes.values():
            process.kill()
            process.wait()
        report(time.monotonic() - begun, state)
        account(state, cluster.target("ps", 0))


def start(role: str, target: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, "--role", role, "--target", target])


def report(seconds: float, state: Any) -> None:
    n_done, mean = int(state["n_updates"].value()), float(state["mean_return"].value().mean())
    print(f"{seconds:4.0f} s, {n_done:5} updates, mean return {mean:5.1f}", flush=True)


def account(state: Any, target: str) -> None:
    """What was put has been learnt from or is there, but for what a killed learner had taken."""
    with jflow.Graph().as_default(), jflow.Session(target) as session:
        n_waiting = session.run(make_queue().size())
    print("steps that the queue has acknowledged, of each actor:", state["n_put"].value())
    print("learnt from:", state["n_learnt"].value())
    print("in the queue:", n_waiting)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=800, help="how long to train")
    parser.add_argument("--kill", action="store_true", help="kill an actor and the learner")
    parser.add_argument("--role", help=argparse.SUPPRESS)
    parser.add_argument("--target", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role is None:
        supervise(options.updates, options.kill)
    elif options.role == "learner":
        learn(options.target)
    else:
        act(options.target, int(options.role.split()[1]))


if __name__ == "__main__":
    main()

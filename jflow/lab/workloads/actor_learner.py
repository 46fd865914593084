"""W7: actors play with the newest policy and put what they saw into a queue; a learner trains.

One step has all actors and the learner, which takes what all actors have put into the queue in the
same step, so its loss does not depend on their order. The graph has no edge between them: that the
learner waits for the queue, strategies are told by `jflow.compiler.placement.elements`.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

import jflow as tf
from jflow.lab.workloads.workload import Servers, Workload, apply, data, update


@dataclass(frozen=True)
class ActorLearnerScale:
    """The size of the workload.

    Attributes:
      actors: how many.
      games: that an actor plays at the same time.
      steps: of a game in one training step.
      observed: numbers that describe the state of a game.
      hidden: of the policy.
      actions: numbers that an action consists of.
      capacity: of the queue.
    """

    actors: int
    games: int
    steps: int
    observed: int
    hidden: int
    actions: int
    capacity: int = 64


def _policy(weights: jax.Array, last: jax.Array, seen: jax.Array) -> jax.Array:
    return jnp.tanh(seen @ weights) @ last


def _play(
    weights: jax.Array, last: jax.Array, state: jax.Array, push: jax.Array, n_steps: int
) -> tuple[jax.Array, jax.Array]:
    """Plays games whose state f32[games, observed] decays and is pushed by actions.

    Returns what was seen f32[steps, games, observed], and the state afterwards.
    """

    def step(state: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        action = _policy(weights, last, state)
        return 0.9 * state + 0.1 * jnp.tanh(action @ push), state

    state, seen = jax.lax.scan(step, state, None, n_steps)
    return seen, state


def _loss(weights: jax.Array, last: jax.Array, seen: jax.Array, push: jax.Array) -> jax.Array:
    """Returns how far one action more leaves the games from rest."""
    seen = seen.reshape(-1, seen.shape[-1])
    moved = 0.9 * seen + 0.1 * jnp.tanh(_policy(weights, last, seen) @ push)
    return jnp.mean(moved**2)


def _graph(scale: ActorLearnerScale, servers: Servers) -> tuple[tf.Tensor, tf.Operation]:
    weights = servers.weights(0.0, "weights", scale.observed, scale.hidden)
    last = servers.weights(0.0, "last", scale.hidden, scale.actions)
    push = data(0, scale.actions, scale.observed)
    shape = scale.steps, scale.games, scale.observed
    with servers.at(0.0):
        queue = tf.FIFOQueue(scale.capacity, tf.float32, [shape], shared_name="games")
    played = []
    for actor in range(scale.actors):
        with tf.name_scope(f"actor_{actor}"):
            at = actor / scale.actors
            state = servers.weights(at, "state", scale.games, scale.observed)
            seen, after = apply(_play, weights, last, state, push, scale.steps)
            played += [queue.enqueue(seen), state.assign(after).op]
    with tf.name_scope("learner"):
        loss = apply(_loss, weights, last, queue.dequeue_many(scale.actors), push)
        slopes = tf.gradients(loss, [weights, last])
    return loss, update([weights, last], slopes, 0.1, *played)


ACTOR_LEARNER = Workload(
    "actor_learner",
    "W7: actors and a learner around a queue; asynchronous and stateful, a cycle and no DAG",
    {
        "small": ActorLearnerScale(actors=2, games=2, steps=3, observed=4, hidden=8, actions=2),
        "cpu": ActorLearnerScale(
            actors=4, games=32, steps=16, observed=128, hidden=256, actions=32
        ),
        "large": ActorLearnerScale(
            actors=56, games=64, steps=32, observed=256, hidden=512, actions=64
        ),
    },
    _graph,
    is_one_program=False,
)
"""The workload."""

"""`SyncReplicasOptimizer`: workers that train in step, some of them as spares.

In each round every variable's accumulator collects gradients until there are enough; the chief
updates the variables by their means and gives out tokens, which carry the number of the next step.
A worker takes a token after each of its gradients, and labels the next one with its number. The
accumulators drop what is labelled with a step that is over: gradients that come too late.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jflow.graph import (
    Operation,
    Tensor,
    colocate_with,
    control_dependencies,
    get_default_graph,
    gradients,
    name_scope,
)
from jflow.ops import (
    LOCAL_VARIABLES,
    ConditionalAccumulator,
    FIFOQueue,
    Variable,
    group,
    no_op,
    trainable_variables,
)
from jflow.training.optimizer import GradientTransformation, apply_optimizer
from jflow.training.queue_runner import QueueRunner

GradsAndVars = Iterable[tuple[Tensor | None, Variable]]


class _Round(NamedTuple):
    """What a round of training is made of in one graph."""

    global_step: Variable
    tokens: FIFOQueue
    chief: QueueRunner
    local_step_init_op: Operation
    chief_init_op: Operation


class SyncReplicasOptimizer:
    """Has several workers train as one, by an Optax optimizer.

    Each worker builds the same graph and runs the operation that `apply_gradients` gives. One of
    them, the chief, also runs `chief_init_op` and the operation of `get_init_tokens_op` once, and
    the queue runner; the others run `local_step_init_op`. A worker's local step is a local variable
    of its own graph, so each worker needs a graph of its own.

    The first tokens carry the step that training starts with: the first round is applied, and the
    gradients of the second one, which are labelled like those of the first, are dropped.

    Args:
      optimizer: an `optax.GradientTransformation`.
      replicas_to_aggregate: how many gradients make up an update.
      total_num_replicas: how many workers there are; as many if None. Those above
        `replicas_to_aggregate` are spares: an update does not wait for the slowest.
      name: scope for the operations.

    Raises:
      ValueError: if a number is not positive.
    """

    def __init__(
        self,
        optimizer: GradientTransformation,
        replicas_to_aggregate: int,
        total_num_replicas: int | None = None,
        name: str = "sync_replicas",
    ) -> None:
        total = replicas_to_aggregate if total_num_replicas is None else total_num_replicas
        if replicas_to_aggregate < 1 or total < 1:
            raise ValueError(
                "expected at least one replica to aggregate, and in total, got "
                f"{replicas_to_aggregate} and {total}"
            )
        self._optimizer = optimizer
        self._n_aggregated = replicas_to_aggregate
        self._n_replicas = total
        self._name = name
        self._built: _Round | None = None

    def __repr__(self) -> str:
        replicas = f"{self._n_aggregated} of {self._n_replicas} replicas"
        return f"<jflow.train.SyncReplicasOptimizer {self._name!r} aggregates {replicas}>"

    def compute_gradients(
        self, loss: Tensor, var_list: Sequence[Variable] | None = None
    ) -> list[tuple[Tensor | None, Variable]]:
        """Gradients of a loss with respect to variables, for `apply_gradients`.

        Args:
          loss: what to make smaller.
          var_list: the variables; the trainable ones if None.

        Returns:
          (gradient, variable) pairs; the gradient of a variable that the loss does not depend on is
          None.
        """
        variables = trainable_variables() if var_list is None else list(var_list)
        return list(zip(gradients(loss, variables), variables, strict=True))

    def apply_gradients(
        self, grads_and_vars: GradsAndVars, global_step: Variable | None = None
    ) -> Operation:
        """What a worker runs in each step: it gives its gradients and waits for a token.

        Args:
          grads_and_vars: as `compute_gradients` gives them; variables without a gradient stay as
            they are.
          global_step: a scalar variable of integers that counts the updates.

        Returns:
          The operation.

        Raises:
          ValueError: if there is no gradient or no global step.
        """
        pairs = [(grad, variable) for grad, variable in grads_and_vars if grad is not None]
        if not pairs:
            raise ValueError("expected the gradient of at least one variable, got none")
        if global_step is None:
            raise ValueError("a global step is required to tell which gradients come too late")
        local_step = _local_step(global_step)
        with name_scope(self._name), control_dependencies(None):
            accumulators = [_accumulator(grad, variable) for grad, variable in pairs]
            with colocate_with(global_step, ignore_existing=True):
                shared_name = f"{global_step.op.name}/sync_token_q"
                tokens = FIFOQueue(
                    -1, [global_step.dtype], [()], shared_name=shared_name, name="sync_token_q"
                )
            given = [
                accumulator.apply_grad(grad, local_step)
                for accumulator, (grad, _) in zip(accumulators, pairs, strict=True)
            ]
            with control_dependencies(given):
                token = tokens.dequeue()
            variables = [variable for _, variable in pairs]
            local_step_init_op = local_step.assign(global_step.read_value()).op
            self._built = _Round(
                global_step,
                tokens,
                self._chief(accumulators, variables, global_step, tokens),
                local_step_init_op,
                _chief_init_op(local_step_init_op, accumulators, global_step),
            )
            train_op: Operation = local_step.assign(token).op
        return train_op

    @property
    def local_step_init_op(self) -> Operation:
        """What each worker but the chief runs once, when the global step is initialized."""
        return self._round.local_step_init_op

    @property
    def chief_init_op(self) -> Operation:
        """What the chief runs once, when the global step is initialized."""
        return self._round.chief_init_op

    def get_chief_queue_runner(self) -> QueueRunner:
        """The chief's queue runner, whose thread does the updates.

        The thread waits for gradients until its session is closed.

        Raises:
          ValueError: before `apply_gradients`.
        """
        return self._round.chief

    def get_init_tokens_op(self, num_tokens: int = -1) -> Operation:
        """What the chief runs once, so that the first round can begin.

        Args:
          num_tokens: how many tokens to put in; -1 for `replicas_to_aggregate`.

        Raises:
          ValueError: before `apply_gradients`, or if the first round could not end with so few.
        """
        built = self._round
        n_needed = self._n_aggregated - self._n_replicas
        n_tokens = self._n_aggregated if num_tokens == -1 else num_tokens
        if n_tokens < max(0, n_needed):
            raise ValueError(
                f"too few tokens to finish the first round: {n_tokens} given, "
                f"{max(0, n_needed)} needed"
            )
        if n_tokens == 0:
            return no_op("no_init_tokens")
        return _enqueue_tokens(built.tokens, n_tokens, built.global_step.read_value())

    @property
    def _round(self) -> _Round:
        if self._built is None:
            raise ValueError("call apply_gradients first: it makes what this is about")
        return self._built

    def _chief(
        self,
        accumulators: Sequence[ConditionalAccumulator],
        variables: Sequence[Variable],
        global_step: Variable,
        tokens: FIFOQueue,
    ) -> QueueRunner:
        """Updates the variables and gives out tokens, again and again."""
        means = [accumulator.take_grad(self._n_aggregated) for accumulator in accumulators]
        update = apply_optimizer(self._optimizer, means, variables, "update")
        with control_dependencies([update]):
            step = global_step.assign_add(1)
        n_tokens = max(self._n_aggregated, self._n_replicas)
        round_op = _enqueue_tokens(tokens, n_tokens, step)
        # Not the queue of the tokens: a queue runner closes its queue, and all replicas use it.
        return QueueRunner(FIFOQueue(1, ["int32"], [()], name="dummy_queue"), [round_op])


def _local_step(global_step: Variable) -> Variable:
    """The step that this worker labels its gradients with, next to what has no state."""
    with colocate_with(no_op("local_anchor"), ignore_existing=True):
        return Variable(
            np.zeros((), global_step.dtype),
            trainable=False,
            # Workers whose variables are in one place must not share it.
            name=f"sync_rep_local_step_{secrets.token_hex(4)}",
            collections=[LOCAL_VARIABLES],
        )


def _accumulator(grad: Tensor, variable: Variable) -> ConditionalAccumulator:
    with colocate_with(variable, ignore_existing=True):
        return ConditionalAccumulator(
            grad.dtype, variable.shape, f"{variable.op.name}/grad_accum", name="grad_accum"
        )


def _enqueue_tokens(tokens: FIFOQueue, n: int, step: Tensor) -> Operation:
    with colocate_with(tokens.op, ignore_existing=True):
        steps = get_default_graph().apply(jnp.full, ((n,), step))
        op: Operation = tokens.enqueue_many([steps])
        return op


def _chief_init_op(
    local_step_init_op: Operation,
    accumulators: Sequence[ConditionalAccumulator],
    global_step: Variable,
) -> Operation:
    step = global_step.read_value()
    return group(local_step_init_op, *(each.set_global_step(step) for each in accumulators))

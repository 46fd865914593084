"""`SyncReplicasOptimizer`: synchronous training of replicas, optionally with backup workers.

In each round the accumulator of each variable collects gradients until it has enough. The chief
updates the variables by the means and enqueues tokens, which carry the number of the next step. A
worker dequeues a token after each of its gradients, and labels the next gradient with its number.
The accumulators drop gradients with the label of an earlier step, which are stale.

The algorithm is that of Chen et al., "Revisiting Distributed Synchronous SGD" (2016), as in
TensorFlow 1.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import jax.numpy as jnp
import numpy as np

from jflow.client.ops import (
    ConditionalAccumulator,
    FIFOQueue,
    IndexedSlices,
    SparseConditionalAccumulator,
    Variable,
    group,
    no_op,
)
from jflow.client.ops.in_place import check_flag
from jflow.client.session import CancellableSteps, Session
from jflow.compiler.graph import (
    GraphKeys,
    Operation,
    Tensor,
    colocate_with,
    control_dependencies,
    get_default_graph,
    name_scope,
)
from jflow.compiler.graph.stack import DefaultSession
from jflow.training.input_queues.queue_runner import QueueRunner
from jflow.training.monitored.run_hook import SessionRunHook
from jflow.training.moving_averages import ExponentialMovingAverage
from jflow.training.optimizers.optimizer import (
    Gradient,
    GradsAndVars,
    Optimizer,
    as_optimizer,
)
from jflow.training.optimizers.rule import GradientTransformation
from jflow.training.threads import Coordinator

_Accumulator = ConditionalAccumulator | SparseConditionalAccumulator

ROUND_S = 1.0
"""How long the chief's last round may take to end, in seconds, before it is cancelled. A round that
has its gradients needs less."""


class _Round(NamedTuple):
    """The operations and resources of a round of training in one graph."""

    global_step: Variable
    tokens: FIFOQueue
    chief: QueueRunner
    local_step_init_op: Operation
    chief_init_op: Operation


class SyncReplicasOptimizer:
    """Aggregates the gradients of several workers into one update of an optimizer.

    Each worker builds the same graph, and runs the operation that `apply_gradients` returns. One of
    them, the chief, also runs `chief_init_op` and `get_init_tokens_op()` once, and starts the queue
    runner `get_chief_queue_runner()`. The others run `local_step_init_op` once. A worker's local
    step is a local variable of its graph, so each worker needs a graph of its own. In a monitored
    session the hook of `make_session_run_hook` does all of that.

    The first tokens carry the step at which training starts. So the gradients of the first round
    are applied, and those of the second round, which have the same label, are dropped.

    A gradient that is rows (`IndexedSlices`) is collected as rows. The mean of a row is over the
    gradients that have it, and rows that none of them has are not updated.

    Args:
      opt: a `jflow.train.Optimizer` or an `optax.GradientTransformation`.
      replicas_to_aggregate: number of gradients that are averaged for an update.
      total_num_replicas: number of workers; None for `replicas_to_aggregate`. Additional workers
        are backups: an update does not wait for the slowest ones.
      variable_averages: the averages that move after each update; None for none.
      variables_to_average: the variables that they are of; None for the trainable ones.
      use_locking: whether updates are atomic, which they always are.
      name: scope of the operations.

    Raises:
      ValueError: if a number is not positive.
    """

    def __init__(
        self,
        opt: Optimizer | GradientTransformation,
        replicas_to_aggregate: int,
        total_num_replicas: int | None = None,
        variable_averages: ExponentialMovingAverage | None = None,
        variables_to_average: Sequence[Variable] | None = None,
        use_locking: bool = False,
        name: str = "sync_replicas",
    ) -> None:
        check_flag("use_locking", use_locking)
        total = replicas_to_aggregate if total_num_replicas is None else total_num_replicas
        if replicas_to_aggregate < 1 or total < 1:
            raise ValueError(
                "expected at least one replica to aggregate, and in total, got "
                f"{replicas_to_aggregate} and {total}"
            )
        self._optimizer = as_optimizer(opt)
        self._n_aggregated = replicas_to_aggregate
        self._n_replicas = total
        self._averages = variable_averages
        self._averaged = variables_to_average
        self._name = name
        self._built: _Round | None = None

    def __repr__(self) -> str:
        replicas = f"{self._n_aggregated} of {self._n_replicas} replicas"
        return f"<jflow.train.SyncReplicasOptimizer {self._name!r} aggregates {replicas}>"

    def compute_gradients(
        self, loss: Tensor, var_list: Sequence[Variable] | None = None
    ) -> list[tuple[Gradient | None, Variable]]:
        """Returns the gradients of a loss with respect to variables, for `apply_gradients`.

        Args:
          loss: the tensor to minimize, a float scalar.
          var_list: the variables; None for the trainable ones.

        Returns:
          (gradient, variable) pairs; the gradient is None if the loss does not depend on the
          variable.
        """
        return self._optimizer.compute_gradients(loss, var_list)

    def apply_gradients(
        self, grads_and_vars: GradsAndVars, global_step: Variable | None = None
    ) -> Operation:
        """Returns the operation of a training step: it applies gradients and waits for a token.

        Args:
          grads_and_vars: (gradient, variable) pairs, as `compute_gradients` returns; variables
            whose gradient is None are not changed.
          global_step: an integer scalar variable that counts the updates.

        Raises:
          ValueError: if there is no gradient or no global step.
        """
        pairs = [(_gradient(grad), v) for grad, v in grads_and_vars if grad is not None]
        if not pairs:
            raise ValueError("expected the gradient of at least one variable, got none")
        if global_step is None:
            raise ValueError(
                "a global step is required to recognize stale gradients; pass global_step="
            )
        local_step = _local_step(global_step)
        with name_scope(self._name), control_dependencies(None):
            accumulators = [_accumulator(grad, variable) for grad, variable in pairs]
            with colocate_with(global_step, ignore_existing=True):
                shared_name = f"{global_step.op.name}/sync_token_q"
                tokens = FIFOQueue(
                    -1, [global_step.dtype], [()], shared_name=shared_name, name="sync_token_q"
                )
            gradients = [
                _applied(accumulator, grad, local_step)
                for accumulator, (grad, _) in zip(accumulators, pairs, strict=True)
            ]
            with control_dependencies(gradients):
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

    def minimize(
        self,
        loss: Tensor,
        global_step: Variable | None = None,
        var_list: Sequence[Variable] | None = None,
    ) -> Operation:
        """Returns the operation of a training step: `compute_gradients`, then `apply_gradients`.

        Args:
          loss, var_list: as for `compute_gradients`.
          global_step: as for `apply_gradients`.

        Raises:
          ValueError: as `apply_gradients`.
        """
        return self.apply_gradients(self.compute_gradients(loss, var_list), global_step)

    def make_session_run_hook(self, is_chief: bool, num_tokens: int = -1) -> SessionRunHook:
        """Returns a hook that starts the rounds in a monitored session of a worker.

        It runs the operations that a worker runs once, and the chief's queue runner.

        Args:
          is_chief: whether the worker is the chief.
          num_tokens: as for `get_init_tokens_op`.

        Raises:
          ValueError: when the session begins: if `apply_gradients` was not called before, or as
            `get_init_tokens_op`.
        """
        return _SyncReplicasHook(self, is_chief, num_tokens)

    @property
    def local_step_init_op(self) -> Operation:
        """The operation that other workers run once, after the global step is initialized."""
        return self._round.local_step_init_op

    @property
    def chief_init_op(self) -> Operation:
        """The operation that the chief runs once, after the global step is initialized."""
        return self._round.chief_init_op

    def get_chief_queue_runner(self) -> QueueRunner:
        """Returns the queue runner of the chief, whose thread applies the updates.

        At a stop of its coordinator, its thread ends a round that has its gradients, and cancels
        one that waits for them. Without a coordinator it runs until the session is closed.

        Raises:
          ValueError: if `apply_gradients` was not called before.
        """
        return self._round.chief

    def get_init_tokens_op(self, num_tokens: int = -1) -> Operation:
        """Returns the operation that the chief runs once to start the first round.

        Args:
          num_tokens: number of tokens to enqueue; -1 for `replicas_to_aggregate`.

        Raises:
          ValueError: if `apply_gradients` was not called before, or the first round could not end
            with so few tokens.
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
            raise ValueError("call apply_gradients first, which creates the operations of a round")
        return self._built

    def _chief(
        self,
        accumulators: Sequence[_Accumulator],
        variables: Sequence[Variable],
        global_step: Variable,
        tokens: FIFOQueue,
    ) -> QueueRunner:
        """Makes the queue runner that repeatedly updates the variables and enqueues tokens."""
        means = [_taken(accumulator, self._n_aggregated) for accumulator in accumulators]
        pairs = zip(means, variables, strict=True)
        update = self._optimizer.apply_gradients(pairs, name="update")
        with control_dependencies([update]):
            step = global_step.assign_add(1)
            moved = [] if self._averages is None else [self._averages.apply(self._averaged)]
        n_tokens = max(self._n_aggregated, self._n_replicas)
        with control_dependencies(moved):
            round_op = _enqueue_tokens(tokens, n_tokens, step)
        return _Chief(round_op)


class _Chief(QueueRunner):
    """Runs rounds until its coordinator stops; then cancels the one that waits for gradients.

    Args:
      round_op: the operation of a round.
    """

    def __init__(self, round_op: Operation) -> None:
        # A queue runner closes its queue at the end, and the workers share the queue of tokens.
        super().__init__(FIFOQueue(1, ["int32"], [()], name="dummy_queue"), [round_op])
        self._steps: WeakKeyDictionary[DefaultSession, CancellableSteps] = WeakKeyDictionary()

    def create_threads(
        self,
        sess: DefaultSession,
        coord: Coordinator | None = None,
        daemon: bool = False,
        start: bool = False,
    ) -> list[threading.Thread]:
        threads = super().create_threads(sess, coord, daemon)
        if threads:
            self._steps[sess] = CancellableSteps()
        if start:
            for thread in threads:
                thread.start()
        return threads

    def _run_step(self, sess: DefaultSession, op: Operation) -> None:
        if isinstance(sess, Session):
            self._steps[sess].run(sess, op)
        else:
            super()._run_step(sess, op)

    def _cancel(self, sess: DefaultSession) -> None:
        self._steps[sess].cancel(ROUND_S)
        super()._cancel(sess)


class _SyncReplicasHook(SessionRunHook):
    """Starts the rounds of an optimizer in each session that is created; see its maker."""

    def __init__(self, optimizer: SyncReplicasOptimizer, is_chief: bool, num_tokens: int) -> None:
        self._optimizer = optimizer
        self._is_chief = is_chief
        self._num_tokens = num_tokens

    def begin(self) -> None:
        optimizer = self._optimizer
        self._first = [optimizer.chief_init_op if self._is_chief else optimizer.local_step_init_op]
        self._runner = optimizer.get_chief_queue_runner() if self._is_chief else None
        if self._is_chief:
            self._first.append(optimizer.get_init_tokens_op(self._num_tokens))

    def after_create_session(self, session: Session, coord: Coordinator) -> None:
        for op in self._first:  # tokens only once accumulators know the step
            session.run(op)
        if self._runner is not None:
            self._runner.create_threads(session, coord, daemon=True, start=True)


def _local_step(global_step: Variable) -> Variable:
    """Returns the step with which this worker labels its gradients, on the worker's own device."""
    with colocate_with(no_op("local_anchor"), ignore_existing=True):
        return Variable(
            np.zeros((), global_step.dtype),
            trainable=False,
            # Workers whose variables are on one device must not share it.
            name=f"sync_rep_local_step_{secrets.token_hex(4)}",
            collections=[GraphKeys.LOCAL_VARIABLES],
        )


def _gradient(grad: Gradient) -> Gradient:
    return grad if isinstance(grad, IndexedSlices) else grad.to_tensor()


def _accumulator(grad: Gradient, variable: Variable) -> _Accumulator:
    is_rows = isinstance(grad, IndexedSlices)
    kind = SparseConditionalAccumulator if is_rows else ConditionalAccumulator
    with colocate_with(variable, ignore_existing=True):
        return kind(grad.dtype, variable.shape, f"{variable.op.name}/grad_accum", "grad_accum")


def _applied(accumulator: _Accumulator, grad: Gradient, local_step: Variable) -> Operation:
    if isinstance(accumulator, ConditionalAccumulator):
        return accumulator.apply_grad(grad, local_step)
    assert isinstance(grad, IndexedSlices)
    return accumulator.apply_indexed_slices_grad(grad, local_step)


def _taken(accumulator: _Accumulator, n: int) -> Gradient:
    if isinstance(accumulator, ConditionalAccumulator):
        return accumulator.take_grad(n)
    return accumulator.take_indexed_slices_grad(n, is_padded=True)


def _enqueue_tokens(tokens: FIFOQueue, n: int, step: Tensor) -> Operation:
    with colocate_with(tokens.op, ignore_existing=True):
        steps = get_default_graph().apply(jnp.full, ((n,), step))
        op: Operation = tokens.enqueue_many([steps])
        return op


def _chief_init_op(
    local_step_init_op: Operation,
    accumulators: Sequence[_Accumulator],
    global_step: Variable,
) -> Operation:
    step = global_step.read_value()
    return group(local_step_init_op, *(each.set_global_step(step) for each in accumulators))

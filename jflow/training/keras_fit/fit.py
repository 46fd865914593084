"""`distribute_fit`: the training of a Keras model by a coordinator.

Keras gives the function that it trains with (`model.train_function`) all values of a model, and
takes new ones back, which it puts into the model when something wants to see them. Here the values
that it gets back stand for variables on parameter servers, and are read when they are wanted.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any

import numpy as np

from jflow.client.binding import bind
from jflow.client.functions import Function
from jflow.client.ops import Variable
from jflow.client.ops.variable import VariableLike
from jflow.compiler.graph import owners
from jflow.errors import FailedPreconditionError
from jflow.training.coordinator import ClusterCoordinator
from jflow.training.keras_fit.metrics import are_sums, total
from jflow.training.keras_fit.optimizer import KerasRule
from jflow.training.optimizers.eager_update import update_eager


def distribute_fit(model: Any, coordinator: ClusterCoordinator, name: str) -> DistributedFit:
    """Makes `fit` of a Keras model train on the workers of a cluster.

    The variables of the model and of its optimizer are on the parameter servers, as `jflow.bind`
    makes or finds them; what the cluster has, the model gets. `fit` and `train_on_batch` of the
    model then send each batch to a worker, which computes gradients by the model's `train_step`;
    each variable is updated where it is, in one program with exclusive access to it and its slots.
    The model has the new values at the end of each epoch, and whenever a callback uses it.

    The batches of one execution (`compile(steps_per_execution=…)`) are processed at once, by
    workers that do not wait for each other; with one batch an execution, only one worker works. An
    error of a batch ends `fit`. A batch whose worker is lost is processed by another one. Metrics
    are summed over the batches. `evaluate` and `predict` run in this process.

    Args:
      model: a model of Keras 3 on JAX that is built and compiled. Its `train_step` updates the
        trainable variables by the `stateless_apply` of its optimizer only. After `compile`, this is
        called again.
      coordinator: schedules the batches. Its strategy chooses the parameter server of each
        variable, and does not divide variables.
      name: prefix of the names of the variables.

    Returns:
      The variables.

    Raises:
      FailedPreconditionError: if Keras does not run on JAX, or as `jflow.bind`.
      InvalidArgumentError: as `jflow.bind`.
      TypeError: if it is no model of Keras.
      ValueError: if the model is not built or not compiled, or the strategy divides variables.
    """
    return DistributedFit(model, coordinator, name)


class DistributedFit:
    """The variables with which a Keras model is trained; `distribute_fit` makes it.

    Both can be saved: `jflow.checkpoint.save(path, {"model": fit.state, "optimizer":
    fit.optimizer_state})`.

    Attributes:
      state: the variables of the model.
      optimizer_state: those of its optimizer, each beside the variable that it belongs to.
    """

    def __init__(self, model: Any, coordinator: ClusterCoordinator, name: str) -> None:
        self._model = model
        self._coordinator = coordinator
        self._owner = coordinator.strategy.connection
        self._keras_variables = _keras_variables(model)
        trainable = model.trainable_variables
        self._ends = (len(trainable), len(trainable) + len(model.non_trainable_variables))
        with coordinator.strategy.scope():
            self.state = bind(model, name)
        variables = _whole([*self.state.variables.values()])
        self._rule = KerasRule(model.optimizer, trainable, [*self.state.variables])
        slots = self._bind_optimizer(f"{name}_optimizer", variables)
        self._variables = [*variables, *slots]
        self._trained = self._rule.trained(variables[: len(trainable)], slots)
        self._step = Function(self._train)
        self._read = Function(lambda: [v.value() for v in self._variables])
        self._write = Function(self._assign, static_argnums=0)
        self._are_sums = False
        for variable, value in zip(self._keras_variables, self._values(), strict=True):
            variable.assign(value)
        model.train_function = self._run

    def _bind_optimizer(self, prefix: str, variables: Sequence[Variable]) -> list[Variable]:
        """Makes or finds the variables of the optimizer; returns them in its order."""
        paths = self._rule.paths
        values = (variable.value for variable in self._model.optimizer.variables)
        places = (variables[owner or 0].device for owner in self._rule.owners)
        devices = dict(zip(paths, places, strict=True))
        with owners.owned_by(self._owner):
            self.optimizer_state = bind(
                dict(zip(paths, values, strict=True)), prefix, lambda path, _: devices[path]
            )
        return _whole([self.optimizer_state.variables[path] for path in paths])

    def __repr__(self) -> str:
        return f"<jflow.distribute.DistributedFit of {self._model.name!r} as {self.state!r}>"

    # In the program that calls `fit` ----------------------------------------------------------

    def _run(self, state: Any, batches: Iterator[Any]) -> Any:
        """Trains with the batches of an execution, as `model.train_function` does.

        Args:
          state: values of trainable, other, optimizer and metrics variables of the model.
          batches: the next batches.

        Returns:
          (logs, state): what `train_step` says of the batches, and the new values.

        Raises:
          StopIteration: if there are no more batches.
        """
        metrics = [np.asarray(x) for x in state[-1]]
        if not isinstance(state[0], _Values):
            self._put([value for group in state[:-1] for value in group])
        chosen = [next(batches), *islice(batches, self._model.steps_per_execution - 1)]
        if len(chosen) == 1:
            ((logs, metrics),) = self._train_with(metrics, chosen)
        else:
            self._check_metrics(metrics, chosen[0])
            results = self._train_with([np.zeros_like(x) for x in metrics], chosen)
            metrics = total(metrics, [part for _, part in results])
            logs = self._logs(results[-1][0], metrics)
        read = cache(self._values)
        numbers = self._grouped(range(len(self._variables)))
        return logs, (*(_Values(read, group) for group in numbers), metrics)

    def _train_with(self, metrics: Sequence[Any], batches: Sequence[Any]) -> list[Any]:
        schedule = self._coordinator.schedule
        results = [schedule(self._step, args=(metrics, batch)) for batch in batches]
        self._coordinator.join()
        return [result.fetch() for result in results]

    def _check_metrics(self, metrics: Sequence[Any], batch: Any) -> None:
        """Refuses metrics that are not sums, of batches that are processed at once."""
        if self._are_sums:
            return

        def update(metrics: Sequence[Any]) -> Any:
            with self._rule.collecting():
                _, new = self._model.train_step((*self._grouped(self._known), metrics), batch)
            return new[-1]

        for variable, is_sum in zip(
            self._model.metrics_variables, are_sums(update, metrics), strict=True
        ):
            if not is_sum:
                raise ValueError(
                    f"the metric variable {variable.path!r} of {self._model.name!r} is no sum over "
                    "batches, so workers cannot compute it for several batches at once; compile "
                    "the model with steps_per_execution=1, or without this metric"
                )
        self._are_sums = True

    def _logs(self, last: Any, metrics: Sequence[Any]) -> Any:
        """Returns the results of metrics, unless the model's `train_step` gives something else."""
        mapping = zip(self._model.metrics_variables, metrics, strict=True)
        with sys.modules["keras"].StatelessScope([*mapping]):
            logs = self._model.get_metrics_result()
        return logs if {*logs} == {*last} else last

    # Values of the model and on the cluster ---------------------------------------------------

    def _values(self) -> Sequence[Any]:
        """Reads all variables; `_known` is what the model has then."""
        with owners.owned_by(self._owner):
            self._known = list(self._read())
        return self._known

    def _put(self, values: Sequence[Any]) -> None:
        """Writes values of the model that are others than were read, as after `set_weights`."""
        changed = {
            number: value
            for number, (value, known) in enumerate(zip(values, self._known, strict=True))
            if value is not known and not np.array_equal(value, known)
        }
        if changed:
            with owners.owned_by(self._owner):
                self._write(tuple(changed), [*changed.values()])

    def _assign(self, numbers: Sequence[int], values: Sequence[Any]) -> None:
        for number, value in zip(numbers, values, strict=True):
            self._variables[number].assign(value)

    def _grouped(self, every: Sequence[Any]) -> tuple[Sequence[Any], ...]:
        """Returns what belongs to trainable, to other and to optimizer variables."""
        first, second = self._ends
        return every[:first], every[first:second], every[second:]

    # On a worker ------------------------------------------------------------------------------

    def _train(self, metrics: Sequence[Any], batch: Any) -> Any:
        old = self._grouped([v.value() for v in self._variables])
        with self._rule.collecting() as gradients:
            logs, new = self._model.train_step((*old, metrics), batch)
        if len(gradients) != 1 or not _are_same([*old[0], *old[2]], [*new[0], *new[2]]):
            raise ValueError(
                f"the train_step of {self._model.name!r} has to update the trainable variables by "
                "one call of stateless_apply of model.optimizer, and not otherwise, because "
                "parameter servers update them"
            )
        others = self._grouped(self._variables)[1]
        for variable, before, after in zip(others, old[1], new[1], strict=True):
            if after is not before:
                variable.assign(after)
        update_eager(self._rule, self._trained, gradients[0])
        return logs, new[-1]


class _Values(Sequence[Any]):
    """Values of some variables, which are read all together when one is wanted."""

    def __init__(self, read: Callable[[], Sequence[Any]], numbers: Sequence[int]) -> None:
        self._read = read
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: Any) -> Any:
        return self._read()[self._numbers[index]]


def _whole(variables: Sequence[VariableLike]) -> list[Variable]:
    """Returns variables none of which is in shards."""
    whole = [variable for variable in variables if isinstance(variable, Variable)]
    if len(whole) != len(variables):
        raise ValueError(
            "expected a strategy that does not divide variables, got one with a "
            "variable_partitioner; optimizers of Keras update whole variables"
        )
    return whole


def _are_same(before: Sequence[Any], after: Sequence[Any]) -> bool:
    return len(before) == len(after) and all(map(operator.is_, before, after))


def _keras_variables(model: Any) -> list[Any]:
    """Returns the trainable, other and optimizer variables of a model that can be trained.

    Raises:
      FailedPreconditionError: if Keras does not run on JAX.
      TypeError: if it is no model of Keras.
      ValueError: if it is not built or not compiled.
    """
    keras = sys.modules.get("keras")
    if keras is None or not isinstance(model, keras.Model):
        raise TypeError(f"expected a model of Keras 3, got {model!r:.80}")
    if keras.backend.backend() != "jax":
        raise FailedPreconditionError(
            f"Keras runs on {keras.backend.backend()!r}; set KERAS_BACKEND=jax before importing it"
        )
    if not model.built or not model.compiled or model.optimizer is None:
        raise ValueError(
            f"{model.name!r} has to be built, by an Input or a first call, and compiled with an "
            "optimizer before it is distributed"
        )
    model.optimizer.build(model.trainable_variables)
    return [
        *model.trainable_variables,
        *model.non_trainable_variables,
        *model.optimizer.variables,
    ]

"""`distribute_fit`: the training of a Keras model by a coordinator.

Keras gives the function that it trains with (`model.train_function`) all values of a model, and
takes new ones back, which it puts into the model when something wants to see them. Here the values
that it gets back stand for variables on parameter servers, and are read when they are wanted.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any, Literal

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

Effects = Literal["at_least_once", "exactly_once"]

_FIT = "_jflow_fit"
"""The attribute of a model with the latest `DistributedFit`, which `compile` leaves there."""


def distribute_fit(
    model: Any,
    coordinator: ClusterCoordinator,
    name: str,
    effects: Effects = "at_least_once",
) -> DistributedFit:
    """Makes `fit` of a Keras model train on the workers of a cluster.

    The variables of the model and of its optimizer are on the parameter servers, as `jflow.bind`
    makes or finds them; what the cluster has, the model gets, but for the learning rate, which is
    the model's own. `fit` and `train_on_batch` of the model then send each batch to a worker, which
    computes gradients by the model's `train_step`; each variable is updated where it is, in one
    program with exclusive access to it and its slots. The model has the new values at the end of
    each epoch, and whenever a callback uses it. What changes them later, such as
    `EarlyStopping(restore_best_weights=True)` at the end of `fit`, is written when `fit` begins
    again, when the state is saved, or by `DistributedFit.write`.

    The batches of one execution (`compile(steps_per_execution=…)`) are processed at once, by
    workers that do not wait for each other; with one batch an execution, only one worker works. A
    batch whose worker is lost is processed by another one. An error of a batch ends `fit`. Metrics
    are summed over the batches; other logs of `train_step` are those of the last batch. Of
    variables that are not trained, such as the statistics of a BatchNormalization, the latest write
    counts: batches that are processed at once make one step of a moving average. `evaluate` and
    `predict` run in this process.

    After `compile`, this is called again, under another name if the optimizer is of another class
    or trains other variables; until then `fit` trains in this process.

    Args:
      model: a model of Keras 3 on JAX that is built and compiled. Its `train_step` updates the
        trainable variables by the `stateless_apply` of its optimizer only.
      coordinator: schedules the batches. Its strategy chooses the parameter server of each
        variable, and does not divide variables. Of programs that train one model, each needs a
        coordinator of another name.
      name: prefix of the names of the variables.
      effects: "at_least_once": a batch whose worker is lost may have been applied before it is
        processed again; "exactly_once": it is applied once, and a step takes up to twice as long.

    Returns:
      The variables.

    Raises:
      FailedPreconditionError: if Keras does not run on JAX, or as `jflow.bind`.
      InvalidArgumentError: as `jflow.bind`.
      TypeError: if it is no model of Keras.
      ValueError: if the model is not built or not compiled, or runs eagerly, or the strategy
        divides variables.
    """
    _check_model(model)
    model.optimizer.build(model.trainable_variables)
    former = getattr(model, _FIT, None)
    if former is not None and former.state.prefix == name and former.is_open:
        former.write()
    fit = DistributedFit(model, coordinator, name, effects)
    setattr(model, _FIT, fit)
    return fit


class DistributedFit:
    """The variables with which a Keras model is trained; `distribute_fit` makes it.

    `jflow.checkpoint.save(path, fit)` saves all of them.

    Attributes:
      state: the variables of the model.
      optimizer_state: those of its optimizer, each beside the variable that it belongs to.
    """

    def __init__(
        self, model: Any, coordinator: ClusterCoordinator, name: str, effects: Effects
    ) -> None:
        self._effects: Effects = effects
        self._model = model
        self._coordinator = coordinator
        self._owner = coordinator.strategy.connection
        self._keras_variables = [each for group in _variables_of(model) for each in group]
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
        self._known: list[Any] = []
        self._are_sums = False
        rate = model.optimizer.learning_rate
        self._set({i: v.value for i, v in enumerate(self._keras_variables) if v is rate})
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

    @property
    def is_open(self) -> bool:
        """Whether the connection of its strategy is open."""
        return self._owner.is_open

    def saved_state(self) -> Any:
        """Returns what `jflow.checkpoint` saves: the variables of the model and the optimizer."""
        self.write()
        return {"model": self.state, "optimizer": self.optimizer_state}

    def write(self) -> None:
        """Writes the values of the model that have changed since they were read, if it has any."""
        values = [getattr(variable, "_value", None) for variable in self._keras_variables]
        self._put(values)

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
        chosen = [next(batches), *islice(batches, self._model.steps_per_execution - 1)]
        *groups, metrics = state
        try:
            self._check_variables()
            if not isinstance(groups[0], _Values):
                self._put([value for group in groups for value in group])
            logs, metrics = self._process(chosen, [np.asarray(x) for x in metrics])
        except BaseException:
            # Keras has taken the values away from the model, and would not put them back.
            if not isinstance(groups[0], _Values):
                whose = (*_variables_of(self._model), self._model.metrics_variables)
                for variables, values in zip(whose, state, strict=True):
                    for variable, value in zip(variables, values, strict=True):
                        variable.assign(value)
            raise
        read = cache(self._values)
        numbers = self._grouped(range(len(self._variables)))
        return logs, (*(_Values(read, group) for group in numbers), metrics)

    def _check_variables(self) -> None:
        now = [each for group in _variables_of(self._model) for each in group]
        if not _are_same(now, self._keras_variables):
            raise ValueError(
                f"{self._model.name!r} or its optimizer has other variables, or other trainable "
                "ones, than when it was distributed; compile it, and call distribute_fit again "
                "under another name"
            )

    def _process(self, batches: Sequence[Any], metrics: Sequence[Any]) -> Any:
        """Processes batches at once; returns the logs and the new values of metrics."""
        if len(batches) == 1:
            return self._train_with(metrics, batches)[0]
        self._check_metrics(metrics, batches[0])
        results = self._train_with([np.zeros_like(x) for x in metrics], batches)
        metrics = total(metrics, [part for _, part in results])
        return self._logs(results[-1][0], metrics), metrics

    def _train_with(self, metrics: Sequence[Any], batches: Sequence[Any]) -> list[Any]:
        results = [
            self._coordinator.schedule(self._step, args=(metrics, batch), effects=self._effects)
            for batch in batches
        ]
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
        """Returns the logs of the last batch, with the results of metrics for those of a batch."""
        mapping = zip(self._model.metrics_variables, metrics, strict=True)
        with sys.modules["keras"].StatelessScope([*mapping]):
            results = self._model.get_metrics_result()
        return {name: results.get(name, value) for name, value in last.items()}

    # Values of the model and on the cluster ---------------------------------------------------

    def _values(self) -> Sequence[Any]:
        """Reads all variables; `_known` is what the model has then."""
        with owners.owned_by(self._owner):
            values: Sequence[Any] = self._read()
        # Copies, because Keras donates the arrays of a model that it evaluates.
        self._known = [np.array(value) for value in values]
        return values

    def _put(self, values: Sequence[Any]) -> None:
        """Writes values of the model that are others than were read, as after `set_weights`."""
        changed = {
            number: value
            for number, (value, known) in enumerate(zip(values, self._known, strict=True))
            if value is not None and not _have_same_bits(np.asarray(value), known)
        }
        self._set(changed)
        for number, value in changed.items():
            self._known[number] = np.array(value)

    def _set(self, values: Mapping[int, Any]) -> None:
        if values:
            with owners.owned_by(self._owner):
                self._write(tuple(values), [*values.values()])

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


def _have_same_bits(one: Any, other: Any) -> bool:
    first, second = (np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (one, other))
    return np.array_equal(first, second)


def _check_model(model: Any) -> None:
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
    if model.run_eagerly:
        raise ValueError(
            f"{model.name!r} is compiled with run_eagerly=True, but workers run programs; compile "
            "it without"
        )


def _variables_of(model: Any) -> tuple[list[Any], ...]:
    """Returns the trainable, the other and the optimizer variables of a model."""
    return model.trainable_variables, model.non_trainable_variables, model.optimizer.variables

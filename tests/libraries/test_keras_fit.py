"""`fit` of Keras models on workers: as plain Keras, with its metrics, callbacks and files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jflow as tf
from jflow.base.cluster import ClusterSpec
from jflow.client.session import Session
from jflow.launch.testing.backends import start_servers
from jflow.testing import PATIENCE_S, ProcessCluster, wait_until
from jflow.training.coordinator import ClusterCoordinator
from jflow.training.parameter_servers import ParameterServerStrategy

RNG = np.random.default_rng(0)
X = RNG.normal(size=(72, 6)).astype(np.float32)
Y = (X[:, :1] * X[:, 1:2] + X[:, 2:3] > 0).astype(np.float32)
BATCH = 8

# Keras 3 has no `copy` argument for the conversion of its variables to NumPy arrays.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

Made = Callable[..., Any]


@pytest.fixture(autouse=True)
def keras(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    return pytest.importorskip("keras")


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterSpec]:
    with ExitStack() as stack:
        servers = start_servers(stack.enter_context, {"ps": 2, "worker": 2})
        yield servers[0].cluster_spec


@pytest.fixture
def coordinator(cluster: ClusterSpec) -> Iterator[ClusterCoordinator]:
    strategy = ParameterServerStrategy(cluster)
    with ClusterCoordinator(strategy) as coordinator:
        yield coordinator
    strategy.close()
    for task in range(2):
        Session.reset(f"grpc://{cluster.task_address('ps', task)}", [])


@pytest.fixture
def made(keras: Any) -> Made:
    """Makes equal models: of one seed, compiled with an optimizer of their own."""

    def make(optimizer: Any = "adam", seed: int = 0, **options: Any) -> Any:
        keras.utils.set_random_seed(seed)
        layers = keras.layers
        model = keras.Sequential(
            [
                layers.Input((6,)),
                layers.Dense(8, activation="relu", kernel_constraint=keras.constraints.MaxNorm(1)),
                layers.BatchNormalization(),
                layers.Dropout(0.3, seed=1),
                layers.Dense(1, activation="sigmoid", kernel_regularizer="l2"),
            ]
        )
        metrics = ["accuracy", keras.metrics.AUC(name="auc"), keras.metrics.F1Score(threshold=0.5)]
        chosen = optimizer() if callable(optimizer) else optimizer
        model.compile(chosen, "binary_crossentropy", **{"metrics": metrics, **options})
        return model

    return make


def fitted(model: Any, epochs: int = 2, **options: Any) -> dict[str, list[float]]:
    given = {"batch_size": BATCH, "shuffle": False, "verbose": 0, **options}
    history: dict[str, list[float]] = model.fit(X, Y, epochs=epochs, **given).history
    return history


def assert_same(found: Any, wanted: Any) -> None:
    """Compares the values of all variables of two models and their optimizers."""
    for part in ("variables", "optimizer"):
        pairs = [getattr(model, part) for model in (found, wanted)]
        if part == "optimizer":
            pairs = [optimizer.variables for optimizer in pairs]
        for a, b in zip(*pairs, strict=True):
            np.testing.assert_allclose(a.value, b.value, rtol=1e-4, atol=1e-6, err_msg=b.path)


OPTIMIZERS = {
    "adam": lambda o, _: o.Adam(0.01),
    "momentum": lambda o, _: o.SGD(0.1, momentum=0.9, nesterov=True, global_clipnorm=0.1),
    "plain": lambda o, _: o.SGD(0.1, clipnorm=0.1),
    "decay": lambda o, _: o.AdamW(0.01, weight_decay=0.1),
    "schedule": lambda o, s: o.RMSprop(s.CosineDecay(0.01, 20)),
    "average": lambda o, _: o.Adam(0.01, use_ema=True, ema_overwrite_frequency=5),
    "accumulation": lambda o, _: o.Adam(0.01, gradient_accumulation_steps=3),
    "factored": lambda o, _: o.Adafactor(0.01),
    "scale": lambda o, _: o.LossScaleOptimizer(o.Adam(0.01), initial_scale=4.0),
    "muon": lambda o, _: o.Muon(0.01),
    "ftrl": lambda o, _: o.Ftrl(0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_one_batch_at_a_time_gives_what_plain_keras_gives(
    keras: Any, made: Made, coordinator: ClusterCoordinator, name: str
) -> None:
    def optimizer() -> Any:
        return OPTIMIZERS[name](keras.optimizers, keras.optimizers.schedules)

    plain, model = made(optimizer), made(optimizer)
    tf.distribute.distribute_fit(model, coordinator, name)
    options = {"validation_data": (X[:20], Y[:20])}
    wanted, found = fitted(plain, **options), fitted(model, **options)
    assert {*wanted} == {*found} >= {"loss", "auc", "f1_score", "val_accuracy"}
    for key, values in wanted.items():
        np.testing.assert_allclose(found[key], values, rtol=1e-3, atol=1e-5, err_msg=key)
    assert_same(model, plain)
    assert np.any(model.predict(X, verbose=0) != made(optimizer).predict(X, verbose=0))


def test_slots_are_beside_the_variables_that_they_belong_to(
    made: Made, coordinator: ClusterCoordinator
) -> None:
    fit = tf.distribute.distribute_fit(made(), coordinator, "beside")
    slots = fit.optimizer_state.variables
    for path, variable in fit.state.variables.items():
        own = [slot for at, slot in slots.items() if at.startswith(f"{path}/")]
        assert len(own) == (2 if variable in fit.state.trainable_variables else 0)
        assert {slot.device for slot in own} <= {variable.device}
    assert {v.device for v in slots.values()} == {f"/job:ps/task:{i}/device:CPU:0" for i in (0, 1)}
    assert slots["iteration"].numpy() == 0
    assert f"{fit!r}".startswith("<jflow.distribute.DistributedFit of 'sequential")


def test_metrics_of_batches_that_are_processed_at_once_are_sums(
    keras: Any, made: Made, coordinator: ClusterCoordinator
) -> None:
    """With a learning rate of 0 they do not depend on the order of the batches."""
    plain, model = (
        made(lambda: keras.optimizers.SGD(0.0), steps_per_execution=4, seed=seed) for seed in (0, 0)
    )
    for each in (plain, model):
        each.layers[0].kernel.constraint = None
        each.layers[2].rate = 0.0
        each.layers[1].trainable = False
    tf.distribute.distribute_fit(model, coordinator, "sums")
    ends: list[int] = []
    callback = keras.callbacks.LambdaCallback(on_train_batch_end=lambda end, logs: ends.append(end))
    wanted, found = fitted(plain), fitted(model, callbacks=[callback])
    for key, values in wanted.items():
        np.testing.assert_allclose(found[key], values, rtol=1e-5, err_msg=key)
    assert ends == [3, 7, 11] * 2  # as Keras counts, although the last execution has one batch


def test_a_metric_that_is_no_sum_is_refused_if_batches_are_processed_at_once(
    keras: Any, made: Made, coordinator: ClusterCoordinator
) -> None:
    class Largest(keras.metrics.Metric):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(name="largest")
            self.largest = self.add_variable((), "zeros", name="largest")

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            del y_true, sample_weight
            self.largest.assign(keras.ops.maximum(self.largest, keras.ops.max(y_pred)))

        def result(self) -> Any:
            return self.largest.value

    several = made(metrics=[Largest()], steps_per_execution=2)
    tf.distribute.distribute_fit(several, coordinator, "several")
    with pytest.raises(ValueError, match=r"'largest\w*/largest' of .* no sum.*steps_per_execution"):
        fitted(several)
    plain, model = (made(metrics=[Largest()]) for _ in range(2))
    tf.distribute.distribute_fit(model, coordinator, "one")
    np.testing.assert_allclose(fitted(model)["largest"], fitted(plain)["largest"], rtol=1e-4)


def test_callbacks_of_keras_see_the_model_and_change_it(
    keras: Any, made: Made, coordinator: ClusterCoordinator, tmp_path: Path
) -> None:
    def callbacks(seen: list[Any]) -> list[Any]:
        class Weights(keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                if batch == 2:
                    seen.append(np.array(self.model.layers[0].kernel))
                    self.model.layers[0].bias.assign(self.model.layers[0].bias + 0.5)

        return [
            keras.callbacks.LearningRateScheduler(lambda epoch, _: 0.1 / (1 + epoch)),
            keras.callbacks.ReduceLROnPlateau(monitor="loss", patience=0),
            keras.callbacks.EarlyStopping("val_loss", patience=2, restore_best_weights=True),
            keras.callbacks.ModelCheckpoint(tmp_path / f"{len(seen)}.keras", save_best_only=True),
            Weights(),
        ]

    plain, model = made("sgd"), made("sgd")
    tf.distribute.distribute_fit(model, coordinator, "callbacks")
    all_seen: list[list[Any]] = [[], []]
    for _ in range(2):  # the second fit begins with what the first has restored
        histories = [
            fitted(each, 4, callbacks=callbacks(seen), validation_data=(X[::-1], Y))
            for each, seen in zip((plain, model), all_seen, strict=True)
        ]
        for key, values in histories[0].items():
            np.testing.assert_allclose(histories[1][key], values, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(all_seen[1], all_seen[0], rtol=1e-4)
    assert_same(model, plain)


def test_a_program_that_was_started_again_goes_on(
    made: Made, coordinator: ClusterCoordinator
) -> None:
    plain, model = made(), made()
    tf.distribute.distribute_fit(model, coordinator, "again")
    fitted(model)
    again = made(seed=1)
    tf.distribute.distribute_fit(again, coordinator, "again")
    assert_same(again, model)
    fitted(again)
    fitted(plain)
    fitted(plain)
    assert again.optimizer.iterations == plain.optimizer.iterations == 36
    assert_same(again, plain)


def test_what_is_restored_on_the_cluster_is_trained(
    made: Made, coordinator: ClusterCoordinator, tmp_path: Path
) -> None:
    plain, model = made(), made()
    fit = tf.distribute.distribute_fit(model, coordinator, "restored")
    with tf.connect(coordinator.strategy.connection.target):
        tf.checkpoint.save(tmp_path / "model", fit)
        fitted(model)
        tf.checkpoint.restore(tmp_path / "model", fit)
    np.testing.assert_allclose(fitted(model)["loss"], fitted(plain)["loss"], rtol=1e-4)
    assert_same(model, plain)


def test_a_model_that_was_evaluated_trains_what_is_restored(
    made: Made, coordinator: ClusterCoordinator, tmp_path: Path
) -> None:
    """Keras donates the arrays of a model that it evaluates, which are not changes of it."""
    model = made()
    fit = tf.distribute.distribute_fit(model, coordinator, "evaluated")
    with tf.connect(coordinator.strategy.connection.target):
        tf.checkpoint.save(tmp_path / "model", fit)
        first = fitted(model)
        model.evaluate(X, Y, verbose=0)
        tf.checkpoint.restore(tmp_path / "model", fit)
    wanted = first["loss"][0]
    # Dropout draws further numbers.
    np.testing.assert_allclose(fitted(model)["loss"][0], wanted, rtol=0.1)


def test_a_model_that_is_compiled_again_keeps_its_values_and_its_new_rate(
    keras: Any, made: Made, coordinator: ClusterCoordinator
) -> None:
    model = made(keras.optimizers.SGD(0.1))
    tf.distribute.distribute_fit(model, coordinator, "compiled")
    fitted(model)
    model.set_weights([0.5 * each for each in model.get_weights()])
    weights = model.get_weights()
    model.compile(keras.optimizers.SGD(0.001), model.loss)
    fit = tf.distribute.distribute_fit(model, coordinator, "compiled")
    for found, wanted in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert float(model.optimizer.learning_rate.value) == pytest.approx(0.001)
    assert float(fit.optimizer_state.value()["learning_rate"]) == pytest.approx(0.001)
    # Layers that are trained from now on keep the names of their variables.
    model.layers[0].trainable = False
    with pytest.raises(ValueError, match=r"other variables, or other trainable ones.*compile it"):
        fitted(model)
    assert all(np.isfinite(each).all() for each in model.get_weights())
    names = {*fit.state.variables}
    model.compile("adam", model.loss)
    again = tf.distribute.distribute_fit(model, coordinator, "fine_tuned")
    assert {*again.state.variables} == names
    before = np.array(model.layers[0].kernel)
    fitted(model)
    np.testing.assert_array_equal(model.layers[0].kernel, before)


def test_a_model_is_distributed_again_after_its_strategy_was_closed(
    made: Made, cluster: ClusterSpec
) -> None:
    model, losses = made(), []
    for _ in range(2):
        strategy = ParameterServerStrategy(cluster)
        with ClusterCoordinator(strategy) as coordinator:
            fit = tf.distribute.distribute_fit(model, coordinator, "closed")
            losses += fitted(model)["loss"]
        strategy.close()
        assert not fit.is_open
        model.set_weights([0.9 * each for each in model.get_weights()])
        model.compile("adam", model.loss)
    assert losses[2] < losses[0]


def test_what_changes_after_fit_is_written_when_the_state_is_saved(
    made: Made, coordinator: ClusterCoordinator, tmp_path: Path
) -> None:
    model = made()
    fit = tf.distribute.distribute_fit(model, coordinator, "written")
    fitted(model)
    model.set_weights([0.5 * each for each in model.get_weights()])
    with tf.connect(coordinator.strategy.connection.target):
        tf.checkpoint.save(tmp_path / "model", fit)
    np.testing.assert_array_equal(fit.state.value()[0][0], model.layers[0].kernel)


def test_a_saved_model_is_opened_by_plain_keras(
    keras: Any, made: Made, coordinator: ClusterCoordinator, tmp_path: Path
) -> None:
    plain, model = made(), made()
    tf.distribute.distribute_fit(model, coordinator, "saved")
    fitted(model)
    fitted(plain)
    opened = []
    for name, each in {"model": model, "plain": plain}.items():
        each.save(tmp_path / f"{name}.keras")
        opened.append(keras.models.load_model(tmp_path / f"{name}.keras"))
    loaded, plain = opened
    np.testing.assert_array_equal(loaded.predict(X, verbose=0), model.predict(X, verbose=0))
    np.testing.assert_allclose(fitted(loaded)["loss"], fitted(plain)["loss"], rtol=1e-3)
    # And what plain Keras has trained goes on here, with the state of its optimizer.
    tf.distribute.distribute_fit(loaded, coordinator, "loaded")
    np.testing.assert_allclose(fitted(loaded)["loss"], fitted(plain)["loss"], rtol=1e-3)


def test_structures_of_inputs_and_weights_of_samples(
    keras: Any, coordinator: ClusterCoordinator
) -> None:
    def compiled() -> Any:
        keras.utils.set_random_seed(0)
        inputs = {"a": keras.Input((3,), name="a"), "b": keras.Input((3,), name="b")}
        joined = keras.layers.Concatenate()([*inputs.values()])
        outputs = [keras.layers.Dense(1, name=name)(joined) for name in ("c", "d")]
        model = keras.Model(inputs, outputs)
        model.compile("sgd", ["mse", "mae"], weighted_metrics=[["mse"], ["mae"]])
        return model

    plain, model = compiled(), compiled()
    tf.distribute.distribute_fit(model, coordinator, "inputs")
    data = {"a": X[:, :3], "b": X[:, 3:]}, [Y, 1 - Y]
    weights = [np.linspace(0, 1, len(X)), np.ones(len(X))]
    histories = [
        m.fit(*data, sample_weight=weights, epochs=2, shuffle=False, verbose=0).history
        for m in (plain, model)
    ]
    for key, values in histories[0].items():
        np.testing.assert_allclose(histories[1][key], values, rtol=1e-4)
    found, wanted = (m.train_on_batch(*data, return_dict=True) for m in (model, plain))
    for key, value in wanted.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-4)
    assert_same(model, plain)


def with_a_constant_slope(keras: Any, steps_per_execution: int) -> Any:
    """A model whose loss is the sum of its weights, so that updates in any order have one sum."""
    model = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(3)])
    model.compile(
        keras.optimizers.SGD(1.0),
        lambda _, y: keras.ops.sum(y, axis=1),
        steps_per_execution=steps_per_execution,
    )
    return model


def test_no_update_of_workers_at_once_is_lost(keras: Any, coordinator: ClusterCoordinator) -> None:
    model = with_a_constant_slope(keras, 36)
    before = np.array(model.layers[0].kernel)
    tf.distribute.distribute_fit(model, coordinator, "no_loss")
    fitted(model, epochs=8, batch_size=2)
    change = 8 * X.reshape(36, 2, 6).mean(1).sum(0)
    np.testing.assert_allclose(
        model.layers[0].kernel, before - change[:, None], rtol=1e-3, atol=1e-3
    )
    assert model.optimizer.iterations == 8 * 36


SUMS = {
    "momentum": lambda o: o.SGD(1.0, momentum=0.0, global_clipnorm=1e6),
    "scale": lambda o: o.LossScaleOptimizer(o.SGD(1.0), initial_scale=4.0),
    "accumulation": lambda o: o.SGD(2.0, gradient_accumulation_steps=2),
    "average": lambda o: o.SGD(1.0, use_ema=True),
}


@pytest.mark.parametrize("name", SUMS)
def test_no_update_is_lost_whatever_the_optimizer_computes_of_all_variables(
    keras: Any, coordinator: ClusterCoordinator, name: str
) -> None:
    model = with_a_constant_slope(keras, 36)
    model.compile(SUMS[name](keras.optimizers), model.loss, steps_per_execution=36)
    before = np.array(model.layers[0].kernel)
    fit = tf.distribute.distribute_fit(model, coordinator, f"sum_{name}")
    fitted(model, epochs=8, batch_size=2)
    change = 8 * X.reshape(36, 2, 6).mean(1).sum(0)
    kernel = fit.state.value()[0][0]  # the model has averages, as Keras ends with them
    np.testing.assert_allclose(kernel, before - change[:, None], rtol=1e-3, atol=1e-3)


def test_two_programs_that_evaluate_lose_no_update_of_each_other(
    keras: Any, cluster: ClusterSpec
) -> None:
    def train(number: int) -> None:
        strategy = ParameterServerStrategy(cluster)
        with ClusterCoordinator(strategy, name=f"program {number}") as coordinator:
            tf.distribute.distribute_fit(models[number], coordinator, "two_programs")
            fitted(models[number], epochs=6, validation_data=(X, Y))
        strategy.close()

    keras.utils.set_random_seed(0)
    models = [with_a_constant_slope(keras, 3) for _ in range(2)]
    for model in models:
        model.compile(model.optimizer, model.loss, jit_compile=True, steps_per_execution=3)
    strategy = ParameterServerStrategy(cluster)
    with ClusterCoordinator(strategy, name="first") as coordinator:
        fit = tf.distribute.distribute_fit(models[0], coordinator, "two_programs")
        before = fit.state.value()[0][0]
    strategy.close()
    threads = [threading.Thread(target=train, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    strategy = ParameterServerStrategy(cluster)
    with ClusterCoordinator(strategy, name="last") as coordinator:
        fit = tf.distribute.distribute_fit(models[0], coordinator, "two_programs")
        found = fit.state.value()[0][0]
    strategy.close()
    change = 2 * 6 * X.reshape(9, 8, 6).mean(1).sum(0)
    np.testing.assert_allclose(found, before - change[:, None], rtol=1e-3, atol=1e-3)


def test_a_killed_worker_does_not_end_fit(keras: Any, made: Made) -> None:
    with ProcessCluster(ps=1, workers=2) as processes:
        strategy = ParameterServerStrategy(processes.cluster_spec)
        with ClusterCoordinator(strategy) as coordinator:
            model = made(steps_per_execution=6)
            tf.distribute.distribute_fit(model, coordinator, "killed")

            def kill() -> None:
                wait_until(lambda: coordinator.metrics().succeeded >= 12, "some batches")
                processes.kill("worker", 0)
                processes.restart("worker", 0)

            killer = threading.Thread(target=kill)
            killer.start()
            history = fitted(model, epochs=30)
            killer.join(PATIENCE_S)
            assert coordinator.metrics().worker_failures == 1
            assert history["loss"][-1] < history["loss"][0]
            assert model.optimizer.iterations >= 30 * 9
        strategy.close()


def test_an_error_of_a_batch_ends_fit_with_its_message(
    keras: Any, coordinator: ClusterCoordinator
) -> None:
    class Refusing(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def build(self, shape: Any) -> None:
            self.dense.build(shape)

        def call(self, x: Any) -> Any:
            if x.shape[0] != BATCH:
                raise ValueError(f"no batch of {x.shape[0]}")
            return self.dense(x)

    model = Refusing()
    model.build((BATCH, 6))
    model.compile("sgd", "mse")
    tf.distribute.distribute_fit(model, coordinator, "refusing")
    with pytest.raises(ValueError, match="no batch of 3"):
        model.fit(X[:11], Y[:11], batch_size=BATCH, verbose=0, shuffle=False)
    with pytest.raises(ValueError, match="no batch of 3"):
        model.fit(X[:3], Y[:3], batch_size=BATCH, verbose=0, shuffle=False)
    before = model.get_weights()  # which Keras had taken away, and the error has put back
    assert all(np.isfinite(each).all() for each in before)
    model.fit(X[:8], Y[:8], batch_size=BATCH, verbose=0)
    assert not np.array_equal(model.get_weights()[0], before[0])


def test_what_cannot_be_distributed_is_refused_with_what_to_do(
    keras: Any, made: Made, coordinator: ClusterCoordinator, cluster: ClusterSpec
) -> None:
    distribute = tf.distribute.distribute_fit
    with pytest.raises(TypeError, match="model of Keras 3"):
        distribute(keras.layers.Dense(1), coordinator, "none")
    unbuilt = keras.Sequential([keras.layers.Dense(1)])
    unbuilt.compile("sgd", "mse")
    uncompiled = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    for model in (unbuilt, uncompiled):
        with pytest.raises(ValueError, match=r"has to be built.*compiled"):
            distribute(model, coordinator, "none")
    eager = made(run_eagerly=True)
    with pytest.raises(ValueError, match="run_eagerly=True"):
        distribute(eager, coordinator, "none")
    one_shard = tf.distribute.experimental.partitioners.FixedShardsPartitioner(2)
    strategy = ParameterServerStrategy(cluster, variable_partitioner=one_shard)
    with (
        ClusterCoordinator(strategy, name="other") as other,
        pytest.raises(ValueError, match="variable_partitioner"),
    ):
        distribute(made(), other, "shards")
    strategy.close()


def test_a_train_step_of_the_user_runs_on_workers(
    keras: Any, coordinator: ClusterCoordinator
) -> None:
    class Own(keras.Model):  # type: ignore[misc]
        clips = False

        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def build(self, shape: Any) -> None:
            self.dense.build(shape)

        def call(self, x: Any) -> Any:
            return self.dense(x)

        def train_step(self, state: Any, data: Any) -> Any:
            logs, new = super().train_step(state, data)
            logs["twice"] = 2 * logs["loss"]
            if self.clips:
                new = ([0.5 * x for x in new[0]], *new[1:])
            return logs, new

    def compiled() -> Any:
        keras.utils.set_random_seed(0)
        model = Own()
        model.build((None, 6))
        model.compile("adam", "mse")
        return model

    plain, model = compiled(), compiled()
    tf.distribute.distribute_fit(model, coordinator, "own")
    wanted, found = fitted(plain), fitted(model)
    np.testing.assert_allclose(found["twice"], wanted["twice"], rtol=1e-4)
    several = compiled()
    several.compile(keras.optimizers.SGD(0.0), "mse", steps_per_execution=3)
    still = compiled()
    still.compile(keras.optimizers.SGD(0.0), "mse")
    tf.distribute.distribute_fit(several, coordinator, "own_several")
    np.testing.assert_allclose(fitted(several)["loss"], fitted(still)["loss"], rtol=1e-4)
    clipping = compiled()
    clipping.clips = True
    tf.distribute.distribute_fit(clipping, coordinator, "clipping")
    with pytest.raises(ValueError, match="one call of stateless_apply"):
        fitted(clipping)

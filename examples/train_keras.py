"""`fit` of a Keras model on two workers, whose variables are on two parameter servers.

    python examples/train_keras.py

It needs Keras 3: `pip install keras`. Metrics, validation, callbacks and files are those of Keras.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import keras
from digits import Images, load_images

import jflow as tf


def make_model() -> keras.Model:
    """A compiled model that has not been trained."""
    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((64,)),
            layers.Reshape((8, 8, 1)),
            layers.Conv2D(16, 3, padding="same"),
            layers.BatchNormalization(momentum=0.9),
            layers.ReLU(),
            layers.AveragePooling2D(2),
            layers.Flatten(),
            layers.Dropout(0.2),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(
        keras.optimizers.Adam(3e-3),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
        steps_per_execution=8,  # this many batches are processed at once
    )
    return model


def train(
    coordinator: tf.ClusterCoordinator, trained: Images, tested: Images, path: Path, n_epochs: int
) -> dict[str, Any]:
    """Trains on the workers of a coordinator, writes the best model, and returns the history."""
    model = make_model()
    tf.distribute.distribute_fit(model, coordinator, "digits")
    history = model.fit(
        *trained,
        batch_size=32,
        epochs=n_epochs,
        validation_data=tuple(tested),
        verbose=2,
        callbacks=[
            keras.callbacks.ReduceLROnPlateau(patience=3),
            keras.callbacks.EarlyStopping(patience=6, restore_best_weights=True),
            keras.callbacks.ModelCheckpoint(path, save_best_only=True),
        ],
    )
    return history.history


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--path", type=Path, default=None, help="file to write the model to")
    options = parser.parse_args()
    path = options.path or Path(tempfile.mkdtemp()) / "digits.keras"
    trained, tested = load_images()
    with tf.LocalCluster(ps=2, workers=2) as cluster:
        strategy = tf.distribute.ParameterServerStrategy(cluster.cluster_spec)
        with tf.ClusterCoordinator(strategy) as coordinator:
            train(coordinator, trained, tested, path, options.epochs)
        strategy.close()
    model = keras.models.load_model(path)  # plain Keras
    print(f"accuracy {model.evaluate(*tested, return_dict=True, verbose=0)['accuracy']:.3f}")


if __name__ == "__main__":
    main()

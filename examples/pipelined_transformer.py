"""A transformer in four stages on two tasks learns to write, and survives the loss of a task.

    pip install jflow flax
    python examples/pipelined_transformer.py             # trains, loses a task, continues
    python examples/pipelined_transformer.py --compare   # also measures other ways to make a step

The model is an ordinary Flax NNX model whose layers are called in device blocks, and a training
step is an ordinary `lax.scan` over microbatches. Because the blocks name several devices, the
stages work on different microbatches at the same time. There is no schedule: the loop runs as its
data allows. Each iteration computes the gradient of one microbatch, so the result is the schedule
that is known as 1F1B. Parameters, their gradients and the state of Adam stay on the device of their
stage; only activations and the gradients of activations are sent.

The device of a stage is a mesh: two devices of a task share each weight of a layer, as do those of
Adam. After the loss the checkpoint is restored in two stages, each on a mesh of four.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax import lax
from jax.sharding import PartitionSpec as P

import jflow as tf

DATA = Path(__file__).parent / "data" / "moby_dick.txt"
LENGTH, N_HEADS, N_BLOCKS, BATCH = 64, 4, 4, 8
"""The characters of a text, the heads of a block, the blocks, the texts of a microbatch."""
OPTIMIZER = optax.adam(2e-3)

TASKS = [f"/job:worker/task:{task}" for task in range(2)]
FOUR_STAGES = [f"{task}/device:MESH:{i}[model=2]" for task in TASKS for i in range(2)]
TWO_STAGES = [f"{task}/device:MESH:0[model=4]" for task in TASKS]
TWO_DEVICES = [f"{task}/device:CPU:0" for task in TASKS]
ONE_DEVICE = TWO_DEVICES[:1]

SHARDINGS = {
    "query": P(None, "model"),
    "key": P(None, "model"),
    "value": P(None, "model"),
    "hidden": P(None, "model"),
    "out": P("model"),
}
"""How the weights of layers are divided: by heads and hidden units, as Megatron does."""

NAMES = ["embedding", *(f"block_{i}" for i in range(N_BLOCKS)), "head"]
"""The layers, as pictures call them."""

Layers = Sequence[nnx.Module]


# The model ----------------------------------------------------------------------------------------


class Embedding(nnx.Module):
    """Vectors of characters and of their positions."""

    def __init__(self, n_characters: int, width: int, rngs: nnx.Rngs) -> None:
        self.character = nnx.Embed(n_characters, width, rngs=rngs)
        self.position = nnx.Embed(LENGTH, width, rngs=rngs)

    def __call__(self, text: Any) -> Any:
        return self.character(text) + self.position(jnp.arange(LENGTH))


class Block(nnx.Module):
    """Attention to earlier positions, then two dense layers."""

    def __init__(self, width: int, rngs: nnx.Rngs) -> None:
        self.norms = nnx.List([nnx.RMSNorm(width, rngs=rngs) for _ in range(2)])
        self.attention = nnx.MultiHeadAttention(
            N_HEADS, width, use_bias=False, decode=False, rngs=rngs
        )
        self.hidden = nnx.Linear(width, 4 * width, use_bias=False, rngs=rngs)
        self.out = nnx.Linear(4 * width, width, use_bias=False, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = x + self.attention(self.norms[0](x), mask=nnx.make_causal_mask(x[..., 0]))
        return x + self.out(nnx.relu(self.hidden(self.norms[1](x))))


class Head(nnx.Module):
    """Logits of the next character."""

    def __init__(self, n_characters: int, width: int, rngs: nnx.Rngs) -> None:
        self.norm = nnx.RMSNorm(width, rngs=rngs)
        self.out = nnx.Linear(width, n_characters, use_bias=False, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.out(self.norm(x))


def make_layers(n_characters: int, width: int) -> Layers:
    rngs = nnx.Rngs(0)
    blocks = [Block(width, rngs) for _ in range(N_BLOCKS)]
    return [Embedding(n_characters, width, rngs), *blocks, Head(n_characters, width, rngs)]


# The model on devices -----------------------------------------------------------------------------


class Pipeline:
    """The layers and their optimizer, each layer on the device of its stage.

    Args:
      layers: the layers, with their initial values.
      devices: the device of each stage. The blocks are divided among the stages; the embedding is
        in the first stage and the head in the last one.
      scan: what a step repeats the microbatches with.

    Attributes:
      state: the parameters of each layer and its state of Adam, as variables on its device. A
        checkpoint takes its keys from this tree, so they do not depend on the devices.
    """

    def __init__(
        self, layers: Layers, devices: Sequence[str], scan: Callable[..., Any] = lax.scan
    ) -> None:
        self._scan = scan
        stages = [i * len(devices) // N_BLOCKS for i in range(N_BLOCKS)]
        self._devices = [devices[stage] for stage in (0, *stages, -1)]
        self._graphdefs, self.state = [], []
        for device, layer in zip(self._devices, layers, strict=True):
            graphdef, state = nnx.split(layer)
            params = nnx.to_pure_dict(state)
            initial = {"params": params, "adam": OPTIMIZER.init(params)}
            with tf.device(device):
                self.state.append(jax.tree_util.tree_map_with_path(variable_on(device), initial))
            self._graphdefs.append(graphdef)
        self.step = tf.function(self._step)

    def _step(self, microbatches: Any) -> Any:
        """Trains with int32[n, batch, length + 1]; returns the loss before the update."""
        params = values([layer["params"] for layer in self.state])

        def add(total: Any, texts: Any) -> Any:
            found = jax.value_and_grad(self._loss_of)(params, texts)
            return jax.tree.map(jnp.add, total, found), None

        total = jax.tree.map(jnp.zeros_like, (jnp.float32(0), params))
        total, _ = self._scan(add, total, microbatches)
        loss, grads = jax.tree.map(lambda x: x / len(microbatches), total)
        for i, device in enumerate(self._devices):
            with tf.device(device):
                updates, adam = OPTIMIZER.update(grads[i], values(self.state[i]["adam"]))
                new = {"params": optax.apply_updates(params[i], updates), "adam": adam}
                jax.tree.map(lambda variable, value: variable.assign(value), self.state[i], new)
        return loss

    def _loss_of(self, params: Any, texts: Any) -> Any:
        x, wanted = texts[:, :-1], texts[:, 1:]
        layers = zip(NAMES, self._devices, self._graphdefs, params, strict=True)
        for name, device, graphdef, of_layer in layers:
            with tf.device(device), jax.named_scope(name):
                x = nnx.merge(graphdef, of_layer)(x)
        with tf.device(self._devices[-1]):
            return optax.softmax_cross_entropy_with_integer_labels(x, wanted).mean()


def variable_on(device: str) -> Callable[[Any, Any], tf.Variable]:
    """Returns a function that makes the variable of a weight, divided if the device is a mesh."""

    def make(path: Any, value: Any) -> tf.Variable:
        layer = next((key.key for key in path if getattr(key, "key", "") in SHARDINGS), None)
        sharding = SHARDINGS[layer] if layer is not None and "MESH" in device else None
        return tf.Variable(value, sharding=sharding)

    return make


def values(variables: Any) -> Any:
    return jax.tree.map(lambda variable: variable.value(), variables)


# Training -----------------------------------------------------------------------------------------


class Texts:
    """Microbatches of texts from the file, int32[n, batch, length + 1], drawn anew for a step."""

    def __init__(self, n_microbatches: int) -> None:
        characters, self._numbers = np.unique([*DATA.read_text("utf-8")], return_inverse=True)
        self.n_characters = len(characters)
        self._shape = (n_microbatches, BATCH, 1)

    def __call__(self, step: int) -> Any:
        begins = np.random.default_rng(step).integers(len(self._numbers) - LENGTH, size=self._shape)
        return self._numbers[begins + np.arange(LENGTH + 1)].astype(np.int32)


def train(model: Pipeline, texts: Texts, steps: range) -> None:
    """Makes steps, and prints the losses of some of them."""
    for step in steps:
        loss = model.step(texts(step))
        if step % 5 == 0 or step in (steps[0], steps[-1]):
            print(f"step {step}: loss {loss:.4f}", flush=True)


def train_with_a_kill(
    cluster: tf.LocalCluster, layers: Layers, texts: Texts, n_steps: int, path: Path
) -> None:
    """Trains in four stages until a task is lost, then from the checkpoint in two."""
    half = n_steps // 2
    with tf.connect(cluster.target()):
        model = Pipeline(layers, FOUR_STAGES)
        train(model, texts, range(half))
        tf.checkpoint.save(path, model.state)
        print(f"saved before step {half}")
        train(model, texts, range(half, half + 1))
        cluster.kill("worker", 1)
        try:
            train(model, texts, range(half + 1, n_steps))
        except tf.errors.UnavailableError as error:
            print(f"{error.task} is lost, and with it half of the model")
    cluster.restart("worker", 1)
    with tf.connect(cluster.target()):
        model = Pipeline(layers, TWO_STAGES)
        tf.checkpoint.restore(path, model.state)
        print(f"restored before step {half}, now in two stages on larger meshes")
        train(model, texts, range(half, n_steps))


def compare(layers: Layers, texts: Texts, path: Path, n_steps: int = 6) -> None:
    """Makes the same steps from the same checkpoint in four ways.

    The Python loop takes half a minute to compile, because its program contains each microbatch.
    """
    for name, devices, scan in (
        ("scan over two stages, each on two devices", FOUR_STAGES[::2], lax.scan),
        ("scan over two stages", TWO_DEVICES, lax.scan),
        ("scan on one device", ONE_DEVICE, lax.scan),
        ("Python loop over two stages", TWO_DEVICES, unrolled),
    ):
        model = Pipeline(layers, devices, scan)
        tf.checkpoint.restore(path, model.state)
        losses, ends = [], [time.perf_counter()]
        for step in range(n_steps):
            losses.append(float(model.step(texts(step))))
            ends.append(time.perf_counter())
        seconds = min(np.diff(ends)[1:])  # the first step compiles
        print(f"{name}: loss {losses[-1]:.4f}, {1e3 * seconds:.0f} ms a step", flush=True)


def unrolled(body: Callable[..., Any], carry: Any, elements: Any) -> Any:
    """A `lax.scan` without stacked results as a loop in Python."""
    for element in elements:
        carry, _ = body(carry, element)
    return carry, None


def start_cluster() -> tf.LocalCluster:
    """Two tasks as if on two machines: each has four devices, and a core of its own."""
    cores = sorted(os.sched_getaffinity(0))
    resources = tf.TaskResources(cpu_devices=4)
    return tf.LocalCluster(ps=0, workers=2, cores=(cores[0], cores[-1]), resources=resources)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40, help="how long to train")
    parser.add_argument("--microbatches", type=int, default=8, help="of a step")
    parser.add_argument("--width", type=int, default=128, help="of the model")
    parser.add_argument("--compare", action="store_true", help="measure other ways to make a step")
    options = parser.parse_args()
    texts = Texts(options.microbatches)
    layers = make_layers(texts.n_characters, options.width)
    with start_cluster() as cluster, tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model")
        train_with_a_kill(cluster, layers, texts, options.steps, path)
        if options.compare:
            with tf.connect(cluster.target()):
                compare(layers, texts, path)


if __name__ == "__main__":
    main()

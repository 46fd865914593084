"""The transformer of `examples/pipelined_transformer.py`, as GPipe by `shard_map` in one process.

What a user of JAX writes by hand: two devices with half of the blocks each, activations that go
round by `ppermute`, and a schedule of as many rounds as there are microbatches and stages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from examples import pipelined_transformer as example

N_STAGES = 2


class ByHand:
    """The model, trained in two stages on the first two devices of this process.

    Args:
      layers: the layers, with their initial values.
    """

    def __init__(self, layers: example.Layers) -> None:
        embedding, *blocks, head = (nnx.split(layer) for layer in layers)
        self._embedding, self._block, self._head = embedding[0], blocks[0][0], head[0]
        of_blocks = jax.tree.map(
            lambda *each: jnp.stack(each).reshape(N_STAGES, -1, *each[0].shape),
            *(nnx.to_pure_dict(state) for _, state in blocks),
        )
        params = (nnx.to_pure_dict(embedding[1]), of_blocks, nnx.to_pure_dict(head[1]))
        devices = np.array(jax.local_devices(backend="cpu")[:N_STAGES])
        self._mesh = Mesh(devices, ("stage",), (AxisType.Auto,))
        whole, divided = (NamedSharding(self._mesh, spec) for spec in (P(), P("stage")))
        self._params = tuple(
            jax.device_put(part, sharding)
            for part, sharding in zip(params, (whole, divided, whole), strict=True)
        )
        self._adam = jax.tree.map(
            lambda x: x if x.ndim else jax.device_put(x, whole),
            example.OPTIMIZER.init(self._params),
        )
        self._loss = jax.shard_map(
            self._loss_of_stage,
            mesh=self._mesh,
            in_specs=((P(), P("stage"), P()), P()),
            out_specs=P(),
            check_vma=False,
        )
        kept = jax.tree.map(lambda x: x.sharding, (self._params, self._adam))
        self._update: Callable[..., Any] = jax.jit(
            self._updated, donate_argnums=(0, 1), out_shardings=(*kept, whole)
        )

    def step(self, microbatches: Any) -> float:
        """Trains with int32[n, batch, length + 1]; returns the loss before the update."""
        self._params, self._adam, loss = self._update(self._params, self._adam, microbatches)
        return float(loss)

    def _updated(self, params: Any, adam: Any, microbatches: Any) -> tuple[Any, Any, Any]:
        loss, grads = jax.value_and_grad(self._loss)(params, microbatches)
        updates, adam = example.OPTIMIZER.update(grads, adam)
        return optax.apply_updates(params, updates), adam, loss

    def _loss_of_stage(self, params: Any, microbatches: Any) -> Any:
        """The mean loss, from the point of view of one stage."""
        embedding, blocks, head = params
        own = jax.tree.map(lambda stacked: stacked[0], blocks)
        stage, n = lax.axis_index("stage"), len(microbatches)

        def through(x: Any, block: Any) -> tuple[Any, None]:
            return nnx.merge(self._block, block)(x), None

        def loss_of(y: Any, texts: Any) -> Any:
            logits = nnx.merge(self._head, head)(y)
            return optax.softmax_cross_entropy_with_integer_labels(logits, texts[:, 1:]).mean()

        def tick(received: Any, t: Any) -> tuple[Any, Any]:
            first, last = (microbatches[jnp.clip(t - i, 0, n - 1)] for i in (0, N_STAGES - 1))
            x = lax.cond(
                stage == 0,
                lambda: nnx.merge(self._embedding, embedding)(first[:, :-1]),
                lambda: received,
            )
            y, _ = lax.scan(through, x, own)
            is_result = (stage == N_STAGES - 1) & (t >= N_STAGES - 1)
            loss = lax.cond(is_result, lambda: loss_of(y, last), lambda: jnp.float32(0))
            return lax.ppermute(y, "stage", [(0, 1)]), loss

        width = jax.tree.leaves(embedding)[0].shape[-1]
        empty = jnp.zeros((*microbatches[0][:, 1:].shape, width))
        _, losses = lax.scan(tick, empty, jnp.arange(n + N_STAGES - 1))
        return lax.psum(losses.sum(), "stage") / n

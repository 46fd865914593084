"""Losses of classifiers under TensorFlow's names, for `jflow.nn`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp

from jflow.client.ops.lift import operation


def softmax_cross_entropy_with_logits(
    labels: Any = None,
    logits: Any = None,
    dim: int = -1,
    name: str | None = None,
    axis: int | None = None,
) -> Any:
    """Returns the cross entropy of a softmax with probabilities, of which no gradient is taken.

    Args:
      labels: T[*n, classes], probabilities.
      logits: T[*n, classes].
      dim, axis: the axis of the classes.
      name: name of the operation.

    Returns:
      T[*n].
    """
    given = {"axis": dim if axis is None else axis, "stops": True}
    return _softmax_loss(logits, labels, **given, name=name)


def softmax_cross_entropy_with_logits_v2(
    labels: Any,
    logits: Any,
    axis: int | None = None,
    name: str | None = None,
    dim: int | None = None,
) -> Any:
    """Likewise, with gradients to the labels; see `softmax_cross_entropy_with_logits`."""
    chosen = axis if axis is not None else dim
    given = {"axis": -1 if chosen is None else chosen, "stops": False}
    return _softmax_loss(logits, labels, **given, name=name)


def sparse_softmax_cross_entropy_with_logits(
    labels: Any = None, logits: Any = None, name: str | None = None
) -> Any:
    """Returns the cross entropy of a softmax with classes.

    Args:
      labels: i[*n], the classes; one that is out of range gives NaN.
      logits: T[*n, classes].
      name: name of the operation.

    Returns:
      T[*n].
    """
    return _sparse_softmax_loss(logits, labels, name=name)


def sigmoid_cross_entropy_with_logits(
    labels: Any = None, logits: Any = None, name: str | None = None
) -> Any:
    """Returns the cross entropies of sigmoids with probabilities, elementwise."""
    return _sigmoid_loss(logits, labels, name=name)


def weighted_cross_entropy_with_logits(
    labels: Any = None,
    logits: Any = None,
    pos_weight: Any = None,
    name: str | None = None,
    targets: Any = None,
) -> Any:
    """Returns cross entropies of sigmoids, in which what is true counts `pos_weight` times."""
    truth = labels if labels is not None else targets
    return _weighted_loss(logits, truth, pos_weight, name=name)


def _optax() -> Any:
    # Imported at the first loss: other programs do not need it.
    return import_module("optax")


def _binary_cross_entropy(logits: Any, labels: Any) -> Any:
    return _optax().sigmoid_binary_cross_entropy(logits, labels)


def _cross_entropy(logits: Any, labels: Any, axis: int, stops: bool) -> Any:
    labels = jax.lax.stop_gradient(labels) if stops else labels
    return _optax().softmax_cross_entropy(logits, labels, axis)


def _class_cross_entropy(logits: Any, labels: Any) -> Any:
    n = logits.shape[-1]
    # Not by index: there may be no rows.
    is_label = jnp.arange(n) == jnp.expand_dims(labels, -1)
    losses = -jnp.sum(jnp.where(is_label, jax.nn.log_softmax(logits), 0), axis=-1)
    return jnp.where((labels >= 0) & (labels < n), losses, jnp.nan)


def _weighted(logits: Any, labels: Any, weight: Any) -> Any:
    factor = 1 + (weight - 1) * labels
    return (1 - labels) * logits + factor * jax.nn.softplus(-logits)


_softmax_loss = operation(_cross_entropy, "softmax_cross_entropy_with_logits")
_sparse_softmax_loss = operation(_class_cross_entropy, "SparseSoftmaxCrossEntropyWithLogits")
_sigmoid_loss = operation(_binary_cross_entropy, "logistic_loss")
_weighted_loss = operation(_weighted, "logistic_loss")

"""Operations that draw other random numbers in each step, under TensorFlow's names.

Each has a random state of its own, a resource of the session on the task of the operation. With a
seed, each session draws the same sequence of values.
"""

# Arguments have TensorFlow's names, also where Python has them.

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jflow.base.values import abstract, as_dtype
from jflow.client.ops.math.sizes import size_of, sizes_of
from jflow.client.ops.seeds import graph_seed, next_seed
from jflow.client.stateful import Handle
from jflow.compiler.graph import Tensor, name_scope, owners
from jflow.compiler.graph import get_default_graph as _default_graph
from jflow.errors import UnimplementedError
from jflow.plan.xla.internals import is_tracing
from jflow.state.resources.random_state import RandomStateSpec

_WORD = 1 << 32


class _RandomKeys(Handle):
    """The random state of an operation, which draws a key in each step.

    Args:
      seed: the operation's own seed; None for one that follows from the graph's seed, or for
        others in each session if the graph has none.
    """

    _instead_of_value = "it draws keys for the operation that it belongs to"

    def __init__(self, seed: int | None) -> None:
        super().__init__("random_state", RandomStateSpec(_words(seed)), None, "random_state")

    def draw(self) -> Tensor:
        """Returns the next key, u32[2]."""
        aval = abstract((2,), np.dtype(np.uint32))
        key: Tensor = self._calls.call("random_state.draw", [], [aval], "key").outputs[0]
        return key


def random_normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = jnp.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Returns normally distributed numbers, others in each step.

    Args:
      shape: the shape, as `zeros` takes it.
      mean, stddev: the mean and the standard deviation, what broadcasts against the shape.
      dtype: dtype of the numbers.
      seed: a seed; None for one that follows from the graph's.
      name: scope of the operations.

    Raises:
      UnimplementedError: in a function that JAX traces, and inside `jflow.connect`.
    """
    given = {"shape": sizes_of(shape), "dtype": as_dtype(dtype)}
    return _drawn(_normal, (mean, stddev), given, seed, name or "random_normal")


def truncated_normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = jnp.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Returns normally distributed numbers within two standard deviations of the mean.

    Arguments and errors as for `random_normal`.
    """
    given = {"shape": sizes_of(shape), "dtype": as_dtype(dtype)}
    return _drawn(_truncated, (mean, stddev), given, seed, name or "truncated_normal")


def random_uniform(
    shape: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = jnp.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Returns numbers that are evenly distributed from `minval` up to `maxval`, without it.

    Args:
      shape, dtype, seed, name: as for `random_normal`; the dtype can be one of integers.
      minval: the least number.
      maxval: the end; None for 1, which only floats can have.

    Raises:
      ValueError: if integers have no `maxval`.
      UnimplementedError: as `random_normal`.
    """
    kind = as_dtype(dtype)
    if maxval is None and jnp.issubdtype(kind, jnp.integer):
        raise ValueError("Must specify maxval for integer dtypes")
    given = {"shape": sizes_of(shape), "dtype": kind}
    end = 1 if maxval is None else maxval
    return _drawn(_uniform, (minval, end), given, seed, name or "random_uniform")


def random_shuffle(value: Any, seed: int | None = None, name: str | None = None) -> Tensor:
    """Returns the rows of a tensor in a random order, another one in each step."""
    return _drawn(_shuffled, (value,), {}, seed, name or "random_shuffle")


def random_crop(value: Any, size: Any, seed: int | None = None, name: str | None = None) -> Tensor:
    """Returns a slice of some sizes at a random position, another one in each step.

    Args:
      value: T[*shape].
      size: the sizes, none larger than those of the tensor; as for `zeros`.
      seed: a seed; None for one that follows from the graph's.
      name: scope of the operations.
    """
    return _drawn(_cropped, (value,), {"sizes": sizes_of(size)}, seed, name or "random_crop")


def multinomial(
    logits: Any,
    num_samples: Any,
    seed: int | None = None,
    name: str | None = None,
    output_dtype: Any = jnp.int32,
) -> Tensor:
    """Returns classes that are drawn with the probabilities of a softmax.

    Args:
      logits: T[n, classes].
      num_samples: how many to draw for each row.
      seed: a seed; None for one that follows from the graph's.
      name: scope of the operations.
      output_dtype: dtype of the classes.

    Returns:
      output_dtype[n, num_samples].
    """
    given = {"n": size_of(num_samples), "dtype": as_dtype(output_dtype)}
    return _drawn(_classes, (logits,), given, seed, name or "multinomial")


def dropout(
    x: Any,
    keep_prob: Any = None,
    noise_shape: Any = None,
    seed: int | None = None,
    name: str | None = None,
    rate: Any = None,
) -> Tensor:
    """Returns a tensor in which random elements are zero, and the others are scaled up.

    Args:
      x: T[*shape], floats.
      keep_prob: the probability that an element stays; or `1 - rate`.
      noise_shape: the shape of the choices, which broadcast; None for that of x.
      seed: a seed; None for one that follows from the graph's.
      name: scope of the operations.
      rate: the probability that an element becomes zero.

    Raises:
      ValueError: if none or both of `keep_prob` and `rate` are given, or out of range, or x has no
        floats.
    """
    if (keep_prob is None) == (rate is None):
        raise ValueError("give one of keep_prob and rate")
    given = keep_prob if rate is None else rate
    if isinstance(given, int | float) and not 0 <= given <= 1:
        raise ValueError(f"expected a probability from 0 to 1, got {given}")
    kept = keep_prob if rate is None else 1 - rate
    sizes = None if noise_shape is None else sizes_of(noise_shape)
    return _drawn(_dropped, (x, kept), {"shape": sizes}, seed, name or "dropout")


def _drawn(
    fun: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any], seed: Any, name: str
) -> Tensor:
    if is_tracing() or owners.current() is not None:
        raise UnimplementedError(
            f"{name} keeps a state for sessions; in functions and inside of jflow.connect draw "
            "with jax.random and a key, which a variable can keep"
        )
    graph = _default_graph()
    operands = [graph.as_tensor(arg) for arg in args]
    with name_scope(name):
        key = _RandomKeys(seed).draw()
        values: Tensor = graph.apply(fun, (key, *operands), given, name=fun.__name__.strip("_"))
        return values


def _words(seed: int | None) -> tuple[int, ...] | None:
    """Returns the words that the keys follow from; None if there is no seed at all."""
    if seed is None:
        drawn = next_seed()
        return None if drawn is None else tuple(word for one in drawn for word in _halves(one))
    return (*_halves(graph_seed() or 0), *_halves(seed), 1)


def _halves(number: int) -> tuple[int, int]:
    return number % _WORD, number // _WORD % _WORD


def _normal(key: Any, mean: Any, stddev: Any, shape: Any, dtype: Any) -> Any:
    values = jax.random.normal(jax.random.wrap_key_data(key), shape, dtype)
    return values * stddev.astype(dtype) + mean.astype(dtype)


def _truncated(key: Any, mean: Any, stddev: Any, shape: Any, dtype: Any) -> Any:
    values = jax.random.truncated_normal(jax.random.wrap_key_data(key), -2, 2, shape, dtype)
    return values * stddev.astype(dtype) + mean.astype(dtype)


def _uniform(key: Any, least: Any, end: Any, shape: Any, dtype: Any) -> Any:
    wrapped, bounds = jax.random.wrap_key_data(key), (least.astype(dtype), end.astype(dtype))
    if jnp.issubdtype(dtype, jnp.integer):
        return jax.random.randint(wrapped, shape, *bounds, dtype)
    return jax.random.uniform(wrapped, shape, dtype, *bounds)


def _shuffled(key: Any, value: Any) -> Any:
    return jax.random.permutation(jax.random.wrap_key_data(key), value)


def _cropped(key: Any, value: Any, sizes: Any) -> Any:
    wrapped, ends = jax.random.wrap_key_data(key), zip(value.shape, sizes, strict=True)
    most = jnp.asarray([total - size + 1 for total, size in ends], jnp.int32)
    starts = jax.random.randint(wrapped, most.shape, 0, most)
    return jax.lax.dynamic_slice(value, list(starts), sizes)


def _classes(key: Any, logits: Any, n: Any, dtype: Any) -> Any:
    shape = (n, logits.shape[0])
    drawn = jax.random.categorical(jax.random.wrap_key_data(key), logits, axis=-1, shape=shape)
    return drawn.T.astype(dtype)


def _dropped(key: Any, x: Any, kept: Any, shape: Any) -> Any:
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(f"dropout scales floats, got {x.dtype}")
    sizes = x.shape if shape is None else shape
    stays = jax.random.bernoulli(jax.random.wrap_key_data(key), kept, sizes)
    return jnp.where(stays, x / kept.astype(x.dtype), 0)

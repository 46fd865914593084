"""Programs of JAX functions as data, so that one program runs as JAX and as a graph on devices.

The law that every backend and every placement must keep: a graph gives what `jax.jit` gives, and
its gradients are those of `jax.grad`, to rounding. A backend is tested with

    @given(programs(devices))
    def test_...(program):
        check(program, lambda graph: tf.Session(target, graph=graph))

The functions are chosen so that rounding stays small: they are smooth and keep values of moderate
size, and what branches on values looks at inputs of the program only, which are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

import jflow as tf

ARRAYS = SimpleNamespace(numpy=jnp, nn=jax.nn, lax=jax.lax, random=jax.random)
"""Where functions are looked up to compute with JAX itself."""

TENSORS = SimpleNamespace(numpy=tf.numpy, nn=tf.nn, lax=tf.lax, random=tf.random)
"""Where functions are looked up to build a graph."""

SHAPES = {"s": (), "v": (4,), "m": (4, 4)}
"""The kinds of values: scalar, vector, matrix."""

Value = Any  # a jax.Array or a tensor


@dataclass(frozen=True)
class Function:
    """Something to compute.

    Attributes:
      compute: takes one of the two namespaces and the arguments.
      takes: kinds of the arguments; "*" for any kind (arguments broadcast), an upper case letter
        for an input of the program.
      gives: kind of the result; "*" for the largest kind among the arguments, "last" for the
        last argument's.
    """

    compute: Callable[..., Value]
    takes: str
    gives: str = "*"


SOURCES = ("placeholder", "constant", "variable")
"""Where inputs of a known shape come from."""

ANY_RANK = "placeholder of any rank"


@dataclass(frozen=True)
class Input:
    """An input of a program: `source` is one of `SOURCES` or `ANY_RANK`."""

    kind: str
    values: tuple[float, ...]
    source: str
    device: str | None

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The value."""
        return np.array(self.values, np.float32).reshape(SHAPES[self.kind])


@dataclass(frozen=True)
class Call:
    """One function of values made before, by their numbers, on a device."""

    function: str
    arguments: tuple[int, ...]
    device: str | None


@dataclass(frozen=True)
class Program:
    """Inputs, then calls; the results are the values with the numbers `outputs`."""

    inputs: tuple[Input, ...]
    calls: tuple[Call, ...]
    outputs: tuple[int, ...]


def _halves(ns: Any, v: Value) -> Value:
    first, second = ns.numpy.split(v, 2)
    return ns.numpy.concatenate([second, first * 0.5])


def _scan(part: int) -> Callable[..., Value]:
    def body(carry: Value, row: Value) -> tuple[Value, Value]:
        carry = jnp.tanh(carry + row)
        return carry, carry * 0.5

    return lambda ns, v, m: ns.lax.scan(body, v, m)[part]


def _iteration(i: Value, x: Value) -> Value:
    return jnp.sin(x) + i


def _cond(ns: Any, given: Value, a: Value) -> Value:
    return ns.lax.cond(
        ns.numpy.ravel(given)[0] > 0.25, lambda x: jnp.sin(x) * 2, lambda x: x - 1, a
    )


def _noise(ns: Any, v: Value) -> Value:
    return v + ns.random.uniform(ns.random.PRNGKey(7), (4,))


def _sharded(dimension: int) -> Callable[..., Value]:
    """A function that says on a mesh how its result is sharded, and elsewhere nothing."""

    def compute(ns: Any, a: Value) -> Value:
        axes = jax.sharding.get_abstract_mesh().axis_names
        spec = [None] * dimension + [axes[:1]]
        return ns.lax.with_sharding_constraint(a * 0.5, P(*spec)) if axes else a * 0.5

    return compute


def _summed_by_shards(ns: Any, m: Value) -> Value:
    """The sums of columns: on a mesh of the shards on each device, and then over all of them."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return ns.numpy.sum(m, axis=0) * 0.25
    name = mesh.axis_names[0]
    summed = jax.shard_map(
        lambda part: jax.lax.psum(jnp.sum(part, axis=0) * 0.25, name),
        in_specs=P(name),
        out_specs=P(),
    )
    if ns is ARRAYS:
        return summed(m)
    return tf.function(summed)(m.value() if isinstance(m, tf.Variable) else m)


FUNCTIONS = {
    "add": Function(lambda ns, a, b: (a + b) * 0.5, "**"),
    "subtract": Function(lambda ns, a, b: a - b, "**"),
    "multiply": Function(lambda ns, a, b: ns.numpy.tanh(a * b), "**"),
    "divide": Function(lambda ns, a, b: a / (1 + b * b), "**"),
    "hypot": Function(lambda ns, a, b: ns.numpy.sqrt(1 + a**2 + b**2), "**"),
    "negate": Function(lambda ns, a: -a, "*"),
    "sin": Function(lambda ns, a: ns.numpy.sin(a), "*"),
    "cos": Function(lambda ns, a: ns.lax.cos(a), "*"),
    "tanh": Function(lambda ns, a: ns.numpy.tanh(a), "*"),
    "bell": Function(lambda ns, a: ns.numpy.exp(-ns.numpy.square(a)), "*"),
    "log1p": Function(lambda ns, a: ns.numpy.log1p(a * a), "*"),
    "arctan": Function(lambda ns, a: ns.numpy.arctan(a), "*"),
    "sigmoid": Function(lambda ns, a: ns.nn.sigmoid(a), "*"),
    "softplus": Function(lambda ns, a: ns.nn.softplus(a), "*"),
    "gelu": Function(lambda ns, a: ns.nn.gelu(a), "*"),
    "silu": Function(lambda ns, a: ns.nn.silu(a), "*"),
    "identity": Function(lambda ns, a: ns.numpy.copy(a), "*"),
    "stop": Function(lambda ns, a, b: a + ns.lax.stop_gradient(b), "**"),
    "relu of an input": Function(lambda ns, a, b: ns.nn.relu(a) - b, "V*"),
    "abs of an input": Function(lambda ns, a, b: abs(a) * 0.5 + b, "M*"),
    "sort of an input": Function(lambda ns, a, b: ns.numpy.sort(a) + b, "V*"),
    "where": Function(lambda ns, x, a, b: ns.numpy.where(x > 0.25, a, b), "M**", "m"),
    "cond": Function(_cond, "V*", "last"),
    "clip of an input": Function(lambda ns, a, b: ns.numpy.clip(a, -0.3, 0.3) * b, "M*"),
    "matmul": Function(lambda ns, a, b: (a @ b) * 0.25, "mm", "m"),
    "matrix vector": Function(lambda ns, m, v: ns.numpy.matmul(m, v) * 0.25, "mv", "v"),
    "dot": Function(lambda ns, a, b: ns.numpy.dot(a, b) * 0.25, "vv", "s"),
    "outer": Function(lambda ns, a, b: ns.numpy.tanh(ns.numpy.outer(a, b)), "vv", "m"),
    "einsum": Function(lambda ns, a, b: ns.numpy.einsum("ij,jk->ki", a, b) * 0.25, "mm", "m"),
    "multi_dot": Function(
        lambda ns, a, b, v: ns.numpy.linalg.multi_dot([a, b, v]) * 0.1, "mmv", "v"
    ),
    "transpose": Function(lambda ns, m: ns.numpy.transpose(m), "m", "m"),
    "trace": Function(lambda ns, m: ns.numpy.trace(m), "m", "s"),
    "diagonal": Function(lambda ns, m: ns.numpy.diagonal(m), "m", "v"),
    "sum": Function(lambda ns, a: ns.numpy.sum(a) * 0.1, "m", "s"),
    "sum of columns": Function(lambda ns, m: ns.numpy.sum(m, axis=0) * 0.25, "m", "v"),
    "mean": Function(lambda ns, a: ns.numpy.mean(a), "v", "s"),
    "mean of rows": Function(lambda ns, m: ns.numpy.mean(m, axis=-1, keepdims=True) - m, "m", "m"),
    "var": Function(lambda ns, a: ns.numpy.var(a), "v", "s"),
    "cumsum": Function(lambda ns, a: ns.numpy.cumsum(a) * 0.5, "v", "v"),
    "logsumexp": Function(lambda ns, v: ns.nn.logsumexp(v), "v", "s"),
    "softmax": Function(lambda ns, a: ns.nn.softmax(a), "v", "v"),
    "softmax of columns": Function(lambda ns, m: ns.nn.softmax(m, axis=0), "m", "m"),
    "log_softmax": Function(lambda ns, a: ns.nn.log_softmax(a), "m", "m"),
    "row": Function(lambda ns, m: m[1], "m", "v"),
    "column": Function(lambda ns, m: m[:, -1], "m", "v"),
    "item": Function(lambda ns, v: v[2], "v", "s"),
    "items": Function(lambda ns, m: ns.numpy.sum(m[np.array([0, 2, 2]), 1:]) * 0.2, "m", "s"),
    "reverse": Function(lambda ns, v: v[::-1], "v", "v"),
    "gather": Function(lambda ns, m: m[np.array([3, 0, 0, 2])], "m", "m"),
    "take": Function(lambda ns, v: ns.numpy.take(v, np.array([1, 1, 3, 0])), "v", "v"),
    "roll": Function(lambda ns, a: ns.numpy.roll(a, 1), "v", "v"),
    "halves": Function(_halves, "v", "v"),
    "stack": Function(lambda ns, a, b: ns.numpy.stack([a, b, a, b]), "vv", "m"),
    "reshape": Function(lambda ns, m: ns.numpy.reshape(m, (2, 8))[0, 2:6], "m", "v"),
    "pad": Function(lambda ns, v: ns.lax.pad(v, 0.0, [(1, -1, 0)]), "v", "v"),
    "slice": Function(lambda ns, m: ns.lax.dynamic_slice(m, (1, 0), (1, 4))[0], "m", "v"),
    "scale rows": Function(lambda ns, m, v: m * v[:, None], "mv", "m"),
    "scan, carried": Function(_scan(0), "vm", "v"),
    "scan, collected": Function(_scan(1), "vm", "m"),
    "loop": Function(lambda ns, v: ns.lax.fori_loop(0, 3, _iteration, v), "v", "v"),
    "noise": Function(_noise, "v", "v"),
    "sharded by rows": Function(_sharded(0), "m", "m"),
    "sharded by columns": Function(_sharded(1), "m", "m"),
    "sharded vector": Function(_sharded(0), "v", "v"),
    "sum by shards": Function(_summed_by_shards, "m", "v"),
}


@st.composite
def programs(
    draw: st.DrawFn,
    devices: Sequence[str],
    max_calls: int = 8,
    functions: Sequence[str] = (),
    sources: Sequence[str] = SOURCES,
) -> Program:
    """Programs whose inputs and calls ask for one of the devices, or for none.

    Args:
      draw: given by Hypothesis.
      devices: names as `jflow.device` takes them.
      max_calls: the largest number of calls.
      functions: names in FUNCTIONS to choose from; all if there is none.
      sources: where inputs come from.
    """
    device = st.none() | st.sampled_from(list(devices))
    inputs = tuple(
        Input(
            kind,
            tuple(draw(_numbers(int(np.prod(SHAPES[kind]))))),
            draw(st.sampled_from(sources)),
            draw(device),
        )
        # A matrix and a vector always, so that every argument has a value that fits.
        for kind in (*"mv", *draw(st.lists(st.sampled_from("svm"), max_size=2)))
    )
    kinds = [given.kind for given in inputs]
    calls = []
    for _ in range(draw(st.integers(1, max_calls))):
        name = draw(st.sampled_from(list(functions) or list(FUNCTIONS)))
        function = FUNCTIONS[name]
        arguments = tuple(
            draw(st.sampled_from(_fitting(kinds, taken, len(inputs)))) for taken in function.takes
        )
        calls.append(Call(name, arguments, draw(device)))
        kinds.append(_kind(function, [kinds[i] for i in arguments]))
    used = {i for call in calls for i in call.arguments}
    last = [i for i in range(len(inputs), len(kinds)) if i not in used]
    also = draw(st.lists(st.integers(0, len(kinds) - 1), max_size=2))
    return Program(inputs, tuple(calls), tuple(dict.fromkeys([*last, *also])))


def evaluate(
    program: Program,
    ns: Any,
    inputs: Sequence[Value],
    scope: Callable[[str | None], AbstractContextManager[Any]] = lambda _: nullcontext(),
) -> list[Value]:
    """The results of a program, computed or built according to the namespace."""
    values = list(inputs)
    for call in program.calls:
        with scope(call.device):
            arguments = [values[i] for i in call.arguments]
            values.append(FUNCTIONS[call.function].compute(ns, *arguments))
    return [values[i] for i in program.outputs]


def build(program: Program) -> tuple[list[Value], list[Value], dict[Value, Any]]:
    """Adds a program to the default graph: its inputs, its results, and what to feed."""
    inputs, feeds = [], {}
    for number, given in enumerate(program.inputs):
        with tf.device(given.device):
            if given.source in ("placeholder", ANY_RANK):
                shape = None if given.source == ANY_RANK else SHAPES[given.kind]
                inputs.append(tf.placeholder("float32", shape))
                feeds[inputs[-1]] = given.array
            elif given.source == "constant":
                inputs.append(tf.constant(given.array))
            else:
                # On a cluster the name identifies the variable, so it must say the shape.
                inputs.append(tf.Variable(given.array, name=f"oracle_{given.kind}_{number}"))
    return inputs, evaluate(program, TENSORS, inputs, tf.device), feeds


def check(program: Program, open_session: Callable[[tf.Graph], tf.Session]) -> None:
    """Asserts that a session gives the results and the gradients that JAX gives."""
    check_each(program, lambda graph, _, __: [open_session(graph)])


def check_each(
    program: Program,
    open_sessions: Callable[[tf.Graph, Any, list[Value]], Iterable[tf.Session]],
) -> None:
    """Asserts that each of some sessions gives the results and the gradients that JAX gives.

    Args:
      program: the program.
      open_sessions: given the graph, what is fetched and what is fed, opens the sessions.
    """
    arrays = [jnp.asarray(given.array) for given in program.inputs]
    results = jax.jit(lambda *xs: evaluate(program, ARRAYS, xs))(*arrays)
    slopes = jax.jit(jax.grad(_total(program), argnums=tuple(range(len(arrays)))))(*arrays)
    graph = tf.Graph()
    with graph.as_default():
        inputs, outputs, feeds = build(program)
        gradients = tf.gradients(outputs, inputs)
        initializer = tf.global_variables_initializer()
    connected = [gradient for gradient in gradients if gradient is not None]
    for opened in open_sessions(graph, [outputs, connected], [*feeds]):
        with opened as session:
            session.run(initializer)
            found, found_slopes = session.run([outputs, connected], feeds)
        for value, wanted in zip(found, results, strict=True):
            _assert_close(value, wanted)
        filled = iter(found_slopes)
        for gradient, wanted in zip(gradients, slopes, strict=True):
            _assert_close(np.zeros_like(wanted) if gradient is None else next(filled), wanted)


def _total(program: Program) -> Callable[..., Value]:
    def total(*inputs: Value) -> Value:
        return sum(jnp.sum(value) for value in evaluate(program, ARRAYS, inputs))

    return total


def _assert_close(found: Any, wanted: Any) -> None:
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def _numbers(n: int) -> st.SearchStrategy[list[float]]:
    eighths = st.integers(-16, 16).map(lambda n: n / 8)
    return st.lists(eighths, min_size=n, max_size=n)


def _fitting(kinds: Sequence[str], taken: str, n_inputs: int) -> list[int]:
    """Numbers of the values that an argument can be."""
    available = kinds[:n_inputs] if taken.isupper() else kinds
    return [i for i, kind in enumerate(available) if taken.lower() in ("*", kind)]


def _kind(function: Function, arguments: Sequence[str]) -> str:
    if function.gives == "last":
        return arguments[-1]
    return max(arguments, key="svm".index) if function.gives == "*" else function.gives

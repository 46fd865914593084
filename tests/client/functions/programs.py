"""Programs of everything that JAX nests: as data, so that one program runs plain and on devices.

The law of `jflow.function`: it gives what `jax.jit` gives, wherever its lines run. A program is a
list of nodes that add values to a pool. A node calls a function, reads a live variable, or hands a
body, nodes again, to one of JAX's transformations. Each node may ask for a device.

As in `tests/programs_of_jax.py`, functions are smooth and keep values moderate, and what branches
looks at integers, which are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

KINDS = {
    "s": ((), "float32"),
    "v": ((4,), "float32"),
    "m": ((4, 4), "float32"),
    "h": ((4,), "float16"),
    "c": ((4,), "complex64"),
    "i": ((4,), "int32"),
    "b": ((4,), "bool"),
    "k": ((2,), "uint32"),
}
"""The kinds of values: shape and dtype."""

INPUTS = "vmik"
"""Kinds of a program's arguments."""

VARIABLES = "vvmi"
"""Kinds of the live variables that programs may read."""

FUNCTIONS: dict[str, tuple[str, str, Callable[..., Any]]] = {
    "add": ("vv", "v", lambda a, b: (a + b) * 0.5),
    "multiply": ("vv", "v", lambda a, b: jnp.tanh(a * b)),
    "sin": ("v", "v", jnp.sin),
    "gelu": ("v", "v", jax.nn.gelu),
    "softplus": ("v", "v", jax.nn.softplus),
    "softmax": ("v", "v", jax.nn.softmax),
    "logsumexp": ("v", "s", jax.nn.logsumexp),
    "mean": ("m", "s", jnp.mean),
    "scale": ("sv", "v", lambda s, v: jnp.tanh(s) * v),
    "stop": ("vv", "v", lambda a, b: a - lax.stop_gradient(b) * 0.5),
    "product": ("mv", "v", lambda m, v: jnp.tanh(m @ v * 0.25)),
    "outer": ("vv", "m", lambda a, b: jnp.tanh(jnp.outer(a, b))),
    "diagonal": ("m", "v", jnp.diagonal),
    "einsum": ("mm", "m", lambda a, b: jnp.einsum("ij,kj->ki", a, b) * 0.25),
    "roll": ("v", "v", lambda v: jnp.roll(v, 1)),
    "set": ("vs", "v", lambda v, s: v.at[2].set(s)),
    "take": ("vi", "v", lambda v, i: v[i % 4]),
    "float": ("i", "v", lambda i: (i % 8).astype(jnp.float32) * 0.125),
    "integers": ("ii", "i", lambda a, b: (a * 5 - b) % 11),
    "argsort": ("i", "i", jnp.argsort),
    "compare": ("ii", "b", lambda a, b: a > b),
    "where": ("bvv", "v", jnp.where),
    "half": ("v", "h", lambda v: v.astype(jnp.float16)),
    "halves": ("hh", "h", lambda a, b: a * b * 0.25),
    "whole": ("h", "v", lambda h: h.astype(jnp.float32)),
    "complex": ("vv", "c", lax.complex),
    "turn": ("cc", "c", lambda a, b: (a * jnp.conj(b)) * 0.25),
    "real": ("c", "v", lambda c: jnp.real(c) + jnp.imag(c)),
    "split": ("k", "k", lambda k: jax.random.split(k)[1]),
    "fold": ("ki", "k", lambda k, i: jax.random.fold_in(k, i[0])),
    "noise": ("kv", "v", lambda k, v: v + jax.random.uniform(k, (4,))),
    "drop": ("kv", "v", lambda k, v: jnp.where(jax.random.bernoulli(k, 0.5, (4,)), v, 0.0)),
    "typed": ("v", "v", lambda v: v * jax.random.normal(jax.random.key(3), (4,)) * 0.1),
}
"""Kinds that a function takes, the kind it gives, and the function."""

Body = Callable[[Any], Any]


@dataclass(frozen=True)
class Transformation:
    """What JAX makes of a body, a function from vector to vector.

    Attributes:
      apply: takes the body and the arguments.
      takes, gives: kinds.
      one_device: whether all of the body runs on one device.
      closes_over: whether the body may use values from outside.
      reverse, forward: whether derivatives in that mode are taken of the body.
      only_forward, only_reverse: whether the whole has derivatives in one mode only.
    """

    apply: Callable[..., Any]
    takes: str = "v"
    gives: str = "v"
    one_device: bool = False
    closes_over: bool = True
    reverse: bool = False
    forward: bool = False
    only_forward: bool = False
    only_reverse: bool = False


def _twice(body: Body, a: Any, b: Any) -> Any:
    compiled = jax.jit(body)
    return compiled(a) + compiled(compiled(b)) * 0.5


def _total(body: Body) -> Body:
    return lambda x: jnp.sum(body(x))


def _value_and_grad(body: Body, x: Any) -> Any:
    value, slope = jax.value_and_grad(_total(body))(x)
    return jnp.tanh(value) + slope


def _vjp(body: Body, x: Any, y: Any) -> Any:
    value, pull = jax.vjp(body, x)
    return value + pull(y)[0]


def _jvp(body: Body, x: Any, y: Any) -> Any:
    value, slope = jax.jvp(body, (x,), (y,))
    return jnp.tanh(value + slope)


def _scan(part: int) -> Callable[..., Any]:
    def apply(body: Body, x: Any, rows: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            carry = body(carry + row)
            return carry, carry * 0.5

        return lax.scan(step, x, rows)[part]

    return apply


def _cond(body: Body, i: Any, x: Any) -> Any:
    return lax.cond(i[0] > i[1], body, lambda y: y * 0.5, x)


def _switch(body: Body, i: Any, x: Any) -> Any:
    return lax.switch(i[0] % 3, [body, jnp.sin, lambda y: body(y * 0.5)], x)


def _while(body: Body, i: Any, x: Any) -> Any:
    return lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, body(c[1])), (i[0] % 2, x))[1]


def _remat_grad(body: Body, x: Any) -> Any:
    return jax.grad(_total(jax.checkpoint(body)))(x)


def _custom_vjp(body: Body, x: Any) -> Any:
    ruled = jax.custom_vjp(body)
    ruled.defvjp(lambda a: (body(a), a), lambda a, slope: (slope * jnp.cos(a) + body(a) * 0.25,))
    return ruled(x)


def _custom_jvp(body: Body, x: Any) -> Any:
    ruled = jax.custom_jvp(body)
    ruled.defjvp(lambda primals, tangents: (body(*primals), tangents[0] * jnp.sin(*primals)))
    return ruled(x)


def _grad_of(transformation: Callable[..., Any]) -> Callable[..., Any]:
    return lambda body, x: jax.grad(_total(lambda a: transformation(body, a)))(x)


TRANSFORMATIONS = {
    "jit": Transformation(lambda body, x: jax.jit(body)(x)),
    "jit twice": Transformation(_twice, "vv"),
    "grad": Transformation(lambda body, x: jax.grad(_total(body))(x), reverse=True),
    "value_and_grad": Transformation(_value_and_grad, reverse=True),
    "vjp": Transformation(_vjp, "vv", reverse=True),
    "jvp": Transformation(_jvp, "vv", forward=True),
    "linearize": Transformation(
        lambda body, x, y: jax.linearize(body, x)[1](y), "vv", forward=True
    ),
    "hessian": Transformation(
        lambda body, x: jnp.tanh(jax.hessian(_total(body))(x)), "v", "m", reverse=True, forward=True
    ),
    "vmap": Transformation(lambda body, m: jax.vmap(body)(m), "m", "m"),
    "scan, carried": Transformation(_scan(0), "vm"),
    "scan, collected": Transformation(_scan(1), "vm", "m"),
    "map": Transformation(lax.map, "m", "m"),
    "loop": Transformation(lambda body, x: lax.fori_loop(0, 2, lambda i, y: body(y) + i, x)),
    "cond": Transformation(_cond, "iv"),
    "switch": Transformation(_switch, "iv"),
    "while": Transformation(_while, "iv", only_forward=True),
    "remat": Transformation(lambda body, x: jax.checkpoint(body)(x)),
    "grad of remat": Transformation(_remat_grad, reverse=True),
    "custom_vjp": Transformation(_custom_vjp, closes_over=False, only_reverse=True),
    "custom_jvp": Transformation(_custom_jvp, closes_over=False),
    "grad of custom_vjp": Transformation(_grad_of(_custom_vjp), closes_over=False, reverse=True),
    "grad of custom_jvp": Transformation(_grad_of(_custom_jvp), closes_over=False, reverse=True),
}


@dataclass(frozen=True)
class Node:
    """Something that adds a value to the pool.

    Attributes:
      what: a key of FUNCTIONS or TRANSFORMATIONS, or "read".
      arguments: numbers in the pool; of "read" the number of a variable.
      device: what it asks for.
      body: what a transformation is given.
    """

    what: str
    arguments: tuple[int, ...]
    device: str | None
    body: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Program:
    """Values of the arguments, nodes, and the numbers of the results in the pool."""

    arguments: tuple[Any, ...]
    nodes: tuple[Node, ...]
    results: tuple[int, ...]

    @property
    def pytree(self) -> Any:
        """The arguments as a function takes them."""
        v, m, i, k = self.arguments
        return {"params": {"v": v, "m": m}, "rest": (i, [k])}

    @property
    def is_rough(self) -> bool:
        """Whether it rounds to half precision, so that equal is not so equal."""
        return any(node.what in ("half", "halves") for node in _all(self.nodes))

    @property
    def devices(self) -> set[str | None]:
        """What its nodes ask for."""
        return {node.device for node in _all(self.nodes)}


def run(
    program: Program,
    tree: Any,
    read: Callable[[int], Any],
    scope: Callable[[str | None], AbstractContextManager[Any]] = lambda _: nullcontext(),
) -> dict[str, Any]:
    """The results of a program, in a structure.

    Args:
      program: what to run.
      tree: its arguments.
      read: gives the value of a variable by its number.
      scope: opens a device scope.
    """
    pool = [tree["params"]["v"], tree["params"]["m"], tree["rest"][0], tree["rest"][1][0]]
    pool, kinds = _evaluate(program.nodes, pool, list(INPUTS), read, scope)
    results = [pool[i] for i in program.results]
    return {"first": results[0], "rest": (None, results[1:]), "kinds": kinds.count("v")}


def _evaluate(
    nodes: Sequence[Node], pool: list[Any], kinds: list[str], read: Any, scope: Any
) -> tuple[list[Any], list[str]]:
    pool, kinds = list(pool), list(kinds)
    for node in nodes:
        with scope(node.device):
            if node.what == "read":
                pool.append(read(node.arguments[0]))
                kinds.append(VARIABLES[node.arguments[0]])
                continue
            arguments = [pool[i] for i in node.arguments]
            if node.what in FUNCTIONS:
                _, gives, fun = FUNCTIONS[node.what]
                pool.append(fun(*arguments))
                kinds.append(gives)
            else:
                transformation = TRANSFORMATIONS[node.what]
                inside = (pool, kinds) if transformation.closes_over else ([], [])
                pool.append(transformation.apply(_body(node, *inside, read, scope), *arguments))
                kinds.append(transformation.gives)
    return pool, kinds


def _body(node: Node, pool: list[Any], kinds: list[str], read: Any, scope: Any) -> Body:
    def body(x: Any) -> Any:
        after, kinds_after = _evaluate(node.body, [*pool, x], [*kinds, "v"], read, scope)
        made = zip(after[len(pool) :], kinds_after[len(pool) :], strict=True)
        return jnp.tanh(sum(value for value, kind in made if kind == "v"))

    return body


def _all(nodes: Sequence[Node]) -> list[Node]:
    return [inner for node in nodes for inner in (node, *_all(node.body))]


# Drawing programs ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Scope:
    """Where nodes are drawn: which devices they may ask for, and what is done to them.

    Attributes:
      devices: what they may ask for.
      depth: how deep transformations may nest here.
      requested: whether a block around them asks for a device.
      reverse, forward: whether derivatives are taken in that mode.
    """

    devices: tuple[str, ...]
    depth: int
    requested: str | None = None
    reverse: bool = False
    forward: bool = False

    def allows(self, transformation: Transformation) -> bool:
        """Whether JAX can do it here."""
        return not (
            (self.reverse and transformation.only_forward)
            or (self.forward and transformation.only_reverse)
        )

    def inside(self, transformation: Transformation, devices: tuple[str, ...]) -> _Scope:
        return replace(
            self,
            devices=devices,
            depth=self.depth - 1,
            reverse=self.reverse or transformation.reverse,
            forward=self.forward or transformation.forward,
        )


@st.composite
def programs(
    draw: st.DrawFn, devices: Sequence[str], *, max_nodes: int = 5, differentiable: bool = False
) -> Program:
    """Programs whose nodes ask for one of the devices, or for none."""
    arguments = tuple(draw(_arrays(kind)) for kind in INPUTS)
    scope = _Scope(tuple(devices), depth=2, reverse=differentiable)
    kinds = list(INPUTS)
    nodes = draw(_nodes(scope, kinds, max_nodes))
    results = draw(
        st.lists(
            st.integers(0, len(kinds) - 1).map(lambda i: len(kinds) - 1 - i), min_size=1, max_size=5
        )
    )
    return Program(arguments, nodes, tuple(results))


def _arrays(kind: str) -> st.SearchStrategy[np.ndarray[Any, Any]]:
    shape, dtype = KINDS[kind]
    size = int(np.prod(shape))
    numbers = st.integers(-8, 8) if kind in "vm" else st.integers(0, 9)
    scale = 0.25 if kind in "vm" else 1
    lists = st.lists(numbers, min_size=size, max_size=size)
    return lists.map(lambda n: (np.array(n) * scale).astype(dtype).reshape(shape))


@st.composite
def _nodes(draw: st.DrawFn, scope: _Scope, kinds: list[str], most: int) -> tuple[Node, ...]:
    """Nodes for a pool of such kinds, to which it adds theirs."""
    nodes = []
    for _ in range(draw(st.integers(1, most))):
        node, kind = draw(_node(scope, list(kinds)))
        nodes.append(node)
        kinds.append(kind)
    return tuple(nodes)


@st.composite
def _node(draw: st.DrawFn, scope: _Scope, kinds: list[str]) -> tuple[Node, str]:
    device = draw(st.none() | st.sampled_from(scope.devices)) if scope.devices else None
    possible = [name for name, (takes, *_) in FUNCTIONS.items() if set(takes) <= set(kinds)]
    nested = [
        name
        for name, transformation in TRANSFORMATIONS.items()
        if scope.depth and scope.allows(transformation) and set(transformation.takes) <= set(kinds)
    ]
    what = draw(st.sampled_from([*possible, *nested, *nested, *["read"] * 4]))
    if what == "read":
        number = draw(st.integers(0, len(VARIABLES) - 1))
        return Node(what, (number,), device), VARIABLES[number]
    takes, gives = FUNCTIONS[what][:2] if what in FUNCTIONS else _signature(what)
    arguments = tuple(
        draw(st.sampled_from([i for i, kind in enumerate(kinds) if kind == taken]))
        for taken in takes
    )
    if what in FUNCTIONS:
        return Node(what, arguments, device), gives
    transformation = TRANSFORMATIONS[what]
    requested = device or scope.requested
    devices = scope.devices
    if transformation.one_device and devices:
        devices = (requested or draw(st.sampled_from(devices)),)
    inside = replace(scope.inside(transformation, devices), requested=requested)
    pool = [*kinds, "v"] if transformation.closes_over else ["v"]
    return Node(what, arguments, device, draw(_nodes(inside, pool, 3))), gives


def _signature(name: str) -> tuple[str, str]:
    return TRANSFORMATIONS[name].takes, TRANSFORMATIONS[name].gives

"""State and devices come to the top level of a traced function: each read once, each write once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jflow as tf
from jflow.base.cluster import DeviceSpec
from jflow.compiler.graph import request
from jflow.compiler.graph.hoisting import hoist_state, spans_devices
from jflow.compiler.graph.primitives import ACCESSES, VariableRef, assign_p, read_p


class State:
    """Keeps the values of variables in a dict."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {"x": jnp.float32(1.5), "y": jnp.float32(-0.5)}

    def access(self, primitive: Any, args: tuple[Any, ...], params: Any) -> Any:
        name = params["variable"].name
        if primitive is assign_p:
            (self.values[name],) = args
        return self.values[name]


STATE = State()
X, Y = (VariableRef(name, "", (), np.dtype("float32"), owner=STATE) for name in "xy")


def _read(ref: VariableRef) -> Any:
    return read_p.bind(variable=ref)


def _write(value: Any, ref: VariableRef = X) -> Any:
    return assign_p.bind(value, variable=ref, line="a line")


def _reading(x: Any) -> Any:
    return jnp.sin(x * _read(X)) + _read(Y) * _read(X)


def _reference(x: Any) -> Any:
    return jnp.sin(x * 1.5) - 0.75


def _flat(fun: Callable[..., Any], *args: Any, **options: Any) -> jex.ClosedJaxpr:
    return hoist_state(jax.make_jaxpr(fun)(*args), **options)


def _names(jaxpr: jex.ClosedJaxpr) -> Counter[str]:
    return Counter(eqn.primitive.name for eqn in jaxpr.eqns)


def _inside(eqn: jex.JaxprEqn) -> list[jex.JaxprEqn]:
    found = [inner for body in jex.jaxprs_in_params(eqn.params) for inner in body.eqns]
    return [inner for eqn in found for inner in (eqn, *_inside(eqn))]


def _vjp_rule(f: Callable[..., Any]) -> Callable[..., Any]:
    ruled = jax.custom_vjp(f)
    ruled.defvjp(lambda x: (f(x), x), lambda x, slope: (slope * f(x),))
    return ruled


def _jvp_rule(f: Callable[..., Any]) -> Callable[..., Any]:
    ruled = jax.custom_jvp(f)
    ruled.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * f(*primals)))
    return ruled


def _sum(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: jnp.sum(f(x))


LOOPS: dict[str, Callable[[Callable[..., Any], Any], Any]] = {
    "scan": lambda f, x: lax.scan(lambda c, row: (f(c) + row, f(row)), 0.5, x),
    "scan in scan": lambda f, x: lax.map(lambda row: lax.map(f, row), x[:, None]),
    "while": lambda f, x: lax.while_loop(
        lambda c: c[0] + 0 * jnp.sum(f(c)) < 2, lambda c: c + 1 + f(c) * 0.1, x
    ),
    "cond": lambda f, x: lax.cond(x[0] > 0, lambda y: y, f, x),
    "switch": lambda f, x: lax.switch(1, [jnp.cos, f, lambda y: f(y) * 2], x),
    "checkpoint": lambda f, x: jax.checkpoint(f)(x),
    "jit in cond in scan": lambda f, x: lax.map(
        lambda row: lax.cond(row > 0, jax.jit(f), jnp.cos, row), x
    ),
    "rule in scan": lambda f, x: lax.map(_vjp_rule(f), x),
    "gradient of scan": lambda f, x: jax.grad(_sum(lambda y: lax.map(f, y)))(x),
    "gradient of checkpoint": lambda f, x: jax.grad(_sum(jax.checkpoint(f)))(x),
    "checkpoint in scan": lambda f, x: jax.grad(_sum(lambda y: lax.map(jax.checkpoint(f), y)))(x),
}
CALLS: dict[str, Callable[[Callable[..., Any], Any], Any]] = {
    "jit": lambda f, x: jax.jit(f)(x),
    "jit in jit": lambda f, x: jax.jit(lambda y: jax.jit(f)(y) * 2)(x),
    "jit with a constant": lambda f, x: jax.jit(lambda y: f(y) + np.arange(3.0, dtype="f4"))(x),
    "custom_vjp": lambda f, x: _vjp_rule(f)(x),
    "custom_jvp": lambda f, x: _jvp_rule(f)(x),
    "gradient of jit": lambda f, x: jax.grad(_sum(jax.jit(f)))(x),
}
ARGUMENT = jnp.float32([0.5, -1.0, 2.0])


@pytest.mark.parametrize("name", [*LOOPS, *CALLS])
def test_every_access_comes_to_the_top_and_gives_the_same(name: str) -> None:
    around = (LOOPS | CALLS)[name]
    flat = _flat(lambda x: around(_reading, x), ARGUMENT)
    for eqn in flat.eqns:
        assert not any(inner.primitive in ACCESSES for inner in _inside(eqn))
    found = jex.jaxpr_as_fun(flat)(ARGUMENT)
    wanted = jax.tree.leaves(around(_reference, ARGUMENT))
    for value, reference in zip(found, wanted, strict=True):
        np.testing.assert_allclose(value, reference, rtol=1e-5)


@pytest.mark.parametrize("name", ["scan", "while", "cond", "switch", "checkpoint", "scan in scan"])
def test_what_is_read_in_a_loop_or_branch_is_read_once_before_it(name: str) -> None:
    flat = _flat(lambda x: LOOPS[name](_reading, x), ARGUMENT)
    reads = [eqn.params["variable"] for eqn in flat.eqns if eqn.primitive is read_p]
    assert sorted(ref.name for ref in reads) == ["x", "y"]


def test_a_program_without_state_inside_stays_the_same_object() -> None:
    closed = jax.make_jaxpr(lambda x: lax.map(jnp.sin, _write(jax.jit(jnp.cos)(x[0])) + x))(
        ARGUMENT
    )
    assert hoist_state(closed) is closed


def test_writes_keep_their_number_and_order() -> None:
    def fun(x: Any) -> Any:
        step = jax.jit(lambda y: _write(_read(X) * 2 + y))
        _write(_read(Y), Y)
        return step(x) + step(x) + jax.grad(lambda y: y * step(x))(1.0)

    flat = _flat(fun, 1.0)
    accesses = [
        (eqn.primitive.name, eqn.params["variable"].name)
        for eqn in flat.eqns
        if eqn.primitive in ACCESSES
    ]
    assert accesses == [("read", "y"), ("assign", "y"), *[("read", "x"), ("assign", "x")] * 3]


def test_a_call_that_asks_for_no_other_device_stays_a_call() -> None:
    assert _names(_flat(lambda x: jax.jit(jnp.sin)(x) + _read(X), 1.0))["jit"] == 1
    with tf.device("/cpu:1"):
        assert _names(_flat(lambda x: jax.jit(jnp.sin)(x) + _read(X), 1.0))["jit"] == 1


def _on(device: str, fun: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        with tf.device(device):
            return fun(*args)

    return call


def _devices(flat: jex.ClosedJaxpr) -> dict[str, DeviceSpec]:
    return {eqn.primitive.name: request.requested_device(eqn) for eqn in flat.eqns}


def test_a_call_that_asks_for_another_device_is_opened() -> None:
    devices = _devices(_flat(jax.jit(lambda x: _on("/cpu:2", jnp.sin)(x) + 1), 1.0))
    assert devices == {"sin": DeviceSpec(type="CPU", index=2), "add": DeviceSpec()}


@pytest.mark.parametrize("name", ["scan", "while", "cond", "switch", "jit in cond in scan"])
def test_a_loop_or_branch_goes_where_its_body_asks_for(name: str) -> None:
    flat = _flat(lambda x: LOOPS[name](_on("/job:ps/cpu:1", _reading), x), ARGUMENT)
    (loop,) = [eqn for eqn in flat.eqns if _inside(eqn)]
    assert request.requested_device(loop) == DeviceSpec(job="ps", type="CPU", index=1)


@pytest.mark.parametrize("name", ["scan", "while", "cond", "switch", "jit in cond in scan"])
def test_a_loop_with_two_devices_stays_and_each_equation_asks_for_one(name: str) -> None:
    body = _on("/cpu:1", lambda y: jax.jit(_on("/cpu:2", jnp.sin))(y) + _read(X))
    flat = _flat(lambda x: LOOPS[name](body, x), ARGUMENT)
    (loop,) = [eqn for eqn in flat.eqns if _inside(eqn)]
    assert request.requested_device(loop) == DeviceSpec()
    devices = {
        request.requested_device(eqn).index
        for eqn in _all_inside(loop)
        if eqn.primitive.name == "sin"
    }
    assert devices == {2}
    assert not any(eqn.primitive.name in ("jit", "pjit") for eqn in _requesting(loop))


def _requesting(eqn: jex.JaxprEqn) -> list[jex.JaxprEqn]:
    """The equations inside of another one that request several devices, except loops."""
    return [
        inner
        for inner in _all_inside(eqn)
        if len(request.requests_in_bodies(inner)) > 1 and not spans_devices(inner)
    ]


def _all_inside(eqn: jex.JaxprEqn) -> Iterator[jex.JaxprEqn]:
    """The equations of the bodies of an equation, and those of theirs."""
    for body in jex.jaxprs_in_params(eqn.params):
        for inner in body.eqns:
            yield inner
            yield from _all_inside(inner)


def test_a_checkpoint_with_two_devices_is_opened() -> None:
    body = jax.checkpoint(_on("/cpu:1", lambda y: jnp.exp(_on("/cpu:2", jnp.sin)(y)) * _read(X)))
    flat = _flat(jax.grad(_sum(body)), ARGUMENT)
    assert not any(name.startswith(("checkpoint", "remat")) for name in _names(flat))
    devices = _devices(flat)
    assert devices["cos"] == DeviceSpec(type="CPU", index=2)


def test_a_rule_that_still_counts_must_not_use_a_variable() -> None:
    ruled = _vjp_rule(_reading)
    with pytest.raises(NotImplementedError, match="custom derivative rule"):
        _flat(ruled, ARGUMENT, keep_rules=True)
    assert "custom_vjp_call" in _names(_flat(_vjp_rule(jnp.sin), ARGUMENT, keep_rules=True))


def test_a_read_where_it_cannot_be_passed_in_is_refused() -> None:
    def fun(x: Any) -> Any:
        return lax.custom_linear_solve(
            lambda y: y * _read(X), x, lambda f, b: b / 2, symmetric=True
        )

    with pytest.raises(NotImplementedError, match=r"reading variable 'x'.*test_hoisting\.py"):
        _flat(fun, ARGUMENT)


def test_a_checkpoint_that_reads_again_after_a_write_is_refused() -> None:
    def fun(x: Any, *, again: Callable[[], Any]) -> Any:
        y, pull = jax.vjp(jax.checkpoint(_reading), x)
        again()
        return pull(y)

    with pytest.raises(NotImplementedError, match=r"variable 'x'.*jax\.checkpoint"):
        _flat(lambda x: fun(x, again=lambda: _write(2.0)), ARGUMENT)
    flat = _flat(
        lambda x: fun(x, again=lambda: _write(2.0, VariableRef("z", "", (), X.dtype))), ARGUMENT
    )
    assert _names(flat)["assign"] == 1

"""Variables as JAX sees them: primitives with effects, in traces and outside."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.compiler.graph.primitives import (
    ACCESSES,
    EFFECTS,
    VariableRef,
    WriteEffect,
    assign_p,
    initialize_p,
    read_p,
    update_p,
)


class Owner:
    """Notes what is asked of it at once."""

    def __init__(self) -> None:
        self.requested: list[tuple[Any, ...]] = []

    def access(self, primitive: Any, args: tuple[Any, ...], params: Any) -> Any:
        self.requested.append((primitive, args, params))
        return jnp.float32(7)


@pytest.fixture
def owner() -> Owner:
    return Owner()


@pytest.fixture
def ref(owner: Owner) -> VariableRef:
    return VariableRef("x", "shelf", (), np.dtype("float32"), owner=owner)


def _effects(fun: Any) -> list[Any]:
    return list(jax.make_jaxpr(fun)(1.0).effects)


def test_outside_of_a_trace_the_owner_is_asked_at_once(owner: Owner, ref: VariableRef) -> None:
    assert read_p.bind(variable=ref) == 7
    assert assign_p.bind(2.0, variable=ref, line="here") == 7
    assert owner.requested == [
        (read_p, (), {"variable": ref}),
        (assign_p, (2.0,), {"variable": ref}),
    ]


def test_in_a_trace_no_owner_is_called(owner: Owner, ref: VariableRef) -> None:
    jaxpr = jax.make_jaxpr(lambda x: assign_p.bind(x, variable=ref) + read_p.bind(variable=ref))(
        1.0
    )
    assert [eqn.primitive for eqn in jaxpr.eqns][:2] == [assign_p, read_p]
    assert not owner.requested


def test_a_read_has_no_effect_and_a_write_has_one(ref: VariableRef) -> None:
    assert not _effects(lambda x: read_p.bind(variable=ref))
    (effect,) = _effects(lambda x: assign_p.bind(x, variable=ref, line="a.py:1 in f"))
    assert effect == WriteEffect(ref, "a.py:1 in f")
    assert str(effect) == "a write to variable 'x' (container 'shelf') at a.py:1 in f"


@pytest.mark.parametrize("primitive", [assign_p, initialize_p])
def test_each_write_keeps_its_own_line(ref: VariableRef, primitive: Any) -> None:
    def fun(x: Any) -> None:
        primitive.bind(x, variable=ref, line="first")
        primitive.bind(x, variable=ref, line="second")

    assert {effect.line for effect in _effects(fun)} == {"first", "second"}


def test_jax_does_not_drop_a_write_whose_result_is_not_used(ref: VariableRef) -> None:
    def fun(x: Any) -> Any:
        jax.jit(lambda y: (assign_p.bind(y, variable=ref), y)[1])(x)
        return x

    jaxpr = jax.make_jaxpr(fun)(1.0)
    (call,) = jaxpr.eqns
    assert [eqn.primitive for eqn in call.params["jaxpr"].eqns] == [assign_p]


@pytest.mark.parametrize("primitive", sorted(ACCESSES, key=str))
def test_a_jit_of_its_own_refuses_a_variable(ref: VariableRef, primitive: Any) -> None:
    params: dict[str, Any] = {"variable": ref}
    if primitive is update_p:
        params["body"] = jax.make_jaxpr(jnp.add)(1.0, 1.0)
    args = [1.0] if primitive in EFFECTS else []
    # A write is refused by JAX itself, before it asks.
    error, words = (ValueError, "") if primitive in EFFECTS else (TypeError, r".*jflow\.function")
    with pytest.raises(error, match=f"variable 'x'{words}"):
        jax.jit(lambda: primitive.bind(*args, **params))()


def test_a_write_of_mapped_values_is_refused_with_its_line(ref: VariableRef) -> None:
    with pytest.raises(TypeError, match=r"variable 'x'.*jax\.vmap.*a\.py:3 in f"):
        jax.make_jaxpr(jax.vmap(lambda x: assign_p.bind(x, variable=ref, line="a.py:3 in f")))(
            jnp.ones(2)
        )


def test_a_read_and_a_write_of_one_value_pass_a_vmap(ref: VariableRef) -> None:
    def fun(xs: Any) -> Any:
        return jax.vmap(lambda x: x + assign_p.bind(read_p.bind(variable=ref) + 1, variable=ref))(
            xs
        )

    names = [eqn.primitive for eqn in jax.make_jaxpr(fun)(jnp.ones(2)).eqns]
    assert names.count(read_p) == names.count(assign_p) == 1


def test_the_lines_of_writes_are_those_of_the_user() -> None:
    with tf.connect():
        x = tf.Variable(1.0, name="x")

        def fun(y: Any) -> Any:
            x.assign(y)
            return x.assign_add(y)

        lines = {effect.line for effect in _effects(fun)}
    first = fun.__code__.co_firstlineno
    assert {line.split(" ")[0] for line in lines} == {
        f"{__file__}:{first + 1}",
        f"{__file__}:{first + 2}",
    }

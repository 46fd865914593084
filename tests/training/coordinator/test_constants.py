"""Constants of closures: those that only variables of one device use request that device."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jflow.base.cluster import DeviceSpec
from jflow.compiler.graph.primitives import VariableRef, assign_p, read_p
from jflow.compiler.graph.request import requested_device
from jflow.training.coordinator.closures import with_local_constants

PS = DeviceSpec.parse("/job:ps/task:0/device:CPU:0")
OTHER = DeviceSpec.parse("/job:ps/task:1/device:CPU:0")


def variable(spec: DeviceSpec) -> VariableRef:
    return VariableRef("v", "", (), jnp.dtype("float32"), spec)


def devices(jaxpr: Any) -> list[DeviceSpec]:
    """The devices that equations request which access no variable."""
    moved = with_local_constants(jaxpr).jaxpr.eqns
    return [requested_device(eqn) for eqn in moved if eqn.primitive not in (assign_p, read_p)]


def assign(value: Any, spec: DeviceSpec) -> None:
    assign_p.bind(value, variable=variable(spec), line="here")


def constant() -> Any:
    return jax.lax.iota(jnp.float32, 1).sum()


def test_a_constant_that_one_variable_takes_is_computed_beside_it() -> None:
    assert set(devices(jax.make_jaxpr(lambda: assign(constant(), PS))())) == {PS}


@pytest.mark.parametrize("case", ["result", "two devices", "depends", "large", "no task"])
def test_what_others_need_or_is_large_or_depends_on_arguments_stays(case: str) -> None:
    def fun(x: Any) -> Any:
        if case == "large":
            return assign(jax.lax.iota(jnp.float32, 5000).sum(), PS)
        value = x + 1 if case == "depends" else constant()
        assign(value, DeviceSpec(job="worker") if case == "no task" else PS)
        if case == "two devices":
            assign(value, OTHER)
        return value if case == "result" else None

    found = devices(jax.make_jaxpr(fun)(1.0))
    if case == "large":
        assert found[0] == DeviceSpec()
    else:
        assert set(found) == {DeviceSpec()}

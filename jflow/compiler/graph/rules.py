"""Custom derivative rules of JAX functions, without the device requests of their first trace.

JAX traces the rule of a call when it is first differentiated and keeps it, with the metadata of
that moment, in the equation of the call. Operations of several graphs share such equations in the
bodies of their functions, so each derivative would have the request of the first one.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import jax.extend.core as jex
from jax.extend import linear_util

from jflow.compiler.graph import request
from jflow.plan.xla import jaxprs

_RULES = {"custom_jvp_call": "jvp_jaxpr_fun", "custom_vjp_call": "fwd_jaxpr_thunk"}
"""By primitive, the parameter that traces the rule; it gives a jaxpr and what belongs to it."""

_HAS_RULE: WeakKeyDictionary[jex.Jaxpr, bool] = WeakKeyDictionary()
_KEPT: WeakKeyDictionary[jex.ClosedJaxpr, jex.ClosedJaxpr] = WeakKeyDictionary()
"""Programs with their rules freed: JAX differentiates each program object once."""


def with_free_rules(eqn: jex.JaxprEqn) -> jex.JaxprEqn:
    """Returns the equation with derivative rules that take the request current at their use."""
    if not any(map(_has_rule, jex.jaxprs_in_params(eqn.params))):
        return eqn
    return _FREEING.eqn(eqn)


class _Freeing(jaxprs.Rewriting):
    """Removes device requests from the derivative rules in the bodies of equations."""

    def jaxpr(self, jaxpr: jex.Jaxpr) -> jex.Jaxpr:
        return self._rebuilt(jaxpr) if _has_rule(jaxpr) else jaxpr

    def _param(self, value: Any) -> Any:
        if not isinstance(value, jex.ClosedJaxpr):
            return super()._param(value)
        if not _has_rule(value.jaxpr):
            return value
        if value not in _KEPT:
            _KEPT[value] = super()._param(value)
        return _KEPT[value]


def _has_rule(jaxpr: jex.Jaxpr) -> bool:
    has_rule = _HAS_RULE.get(jaxpr)
    if has_rule is None:
        has_rule = _HAS_RULE[jaxpr] = any(
            eqn.primitive.name in _RULES or any(map(_has_rule, jex.jaxprs_in_params(eqn.params)))
            for eqn in jaxpr.eqns
        )
    return has_rule


def _free(eqn: jex.JaxprEqn) -> jex.JaxprEqn:
    name = _RULES.get(eqn.primitive.name)
    if name is None:
        return eqn
    rule = eqn.params[name]

    def traced(*zeros: bool) -> Any:
        with request.empty_request_scope():
            jaxpr, *rest = rule.call_wrapped(*zeros)
        return _FREEING.jaxpr(jaxpr), *rest

    params = eqn.params | {name: linear_util.wrap_init(traced, debug_info=rule.debug_info)}
    freed: jex.JaxprEqn = eqn.replace(params=params)
    return freed


_FREEING = _Freeing(_free)

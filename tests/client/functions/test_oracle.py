"""JAX is the reference: any function, under any placement, gives what `jax.jit` gives."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

import jflow as tf
from jflow.compiler.pipeline import pipeline
from jflow.launch.testing.backends import BackendPool
from tests.client.functions.programs import (
    FUNCTIONS,
    INPUTS,
    KINDS,
    TRANSFORMATIONS,
    VARIABLES,
    Node,
    Program,
    programs,
    run,
)
from tests.clusters import BACKENDS, Backend, opened_in
from tests.drawn import examples

_LIMITS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


class Surrounding(NamedTuple):
    """Where programs run, with variables for them that are spread over the devices."""

    backend: Backend
    variables: list[tf.Variable]


@pytest.fixture(scope="module", params=list(BACKENDS))
def surrounding(request: pytest.FixtureRequest, backend_pool: BackendPool) -> Iterator[Surrounding]:
    with opened_in(backend_pool, request.param) as backend, tf.connect(backend.targets[0]):
        backend.reset()
        variables = []
        for number, kind in enumerate(VARIABLES):
            shape, dtype = KINDS[kind]
            value = (np.arange(np.prod(shape)) % 5 - 2 + number) * (0.25 if kind in "vm" else 1)
            initial = jnp.asarray(value.reshape(shape), dtype)
            with tf.device(backend.devices[number % len(backend.devices)]):
                variables.append(tf.Variable(initial, name=f"x{number}"))
        yield Surrounding(backend, variables)


def _close(program: Program, found: Any, wanted: Any) -> None:
    tolerance = 3e-2 if program.is_rough else 2e-4
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for value, reference in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert isinstance(value, jax.Array)
        assert value.dtype == reference.dtype
        np.testing.assert_allclose(value, reference, rtol=tolerance, atol=tolerance)


_FUSES_OTHERWISE = jax.__version_info__ >= (0, 12)


def _alike(_: Program, found: Any, wanted: Any) -> None:
    """Equal bit for bit, or but for the last bits where XLA fuses what was opened otherwise."""
    for value, reference in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        if _FUSES_OTHERWISE and jnp.issubdtype(reference.dtype, jnp.inexact):
            near = 4 * float(jnp.finfo(reference.dtype).eps)
            np.testing.assert_allclose(value, reference, rtol=near, atol=near)
        else:
            np.testing.assert_array_equal(value, reference)


def _check(
    program: Program,
    surrounding: Surrounding,
    same: Callable[[Program, Any, Any], None] = _close,
    decorate: Callable[..., Any] = lambda fun: fun,
) -> None:
    """Asserts that a program, or what JAX makes of it, is the same on devices as without."""
    values = [variable.numpy() for variable in surrounding.variables]

    def plain(tree: Any, values: Any) -> Any:
        return run(program, tree, lambda number: values[number])

    @tf.function
    @decorate
    def placed(tree: Any) -> Any:
        return run(program, tree, lambda n: surrounding.variables[n].value(), tf.device)

    try:
        wanted = jax.jit(decorate(plain))(program.pytree, values)
    except TypeError as error:
        # JAX 0.10 and 0.12 lose a tracer in some custom rules inside of a loop's derivative.
        if "No constant handler" not in str(error):
            raise
        reject()
    for _ in range(2):
        same(program, placed(program.pytree), wanted)


@given(st.data())
@settings(max_examples=examples(5), suppress_health_check=_LIMITS)
def test_a_function_gives_what_jax_gives_under_any_placement(
    surrounding: Surrounding, data: st.DataObject
) -> None:
    _check(data.draw(programs(surrounding.backend.devices)), surrounding)


def _slopes(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient of a program's floating point results by its parameters."""

    def total(params: Any, rest: Any, *values: Any) -> Any:
        results = jax.tree.leaves(fun({"params": params, "rest": rest}, *values))
        return sum(
            jnp.sum(jnp.real(x).astype(jnp.float32))
            for x in results
            if jnp.issubdtype(jnp.result_type(x), jnp.inexact)
        ) * jnp.float32(1)

    return lambda tree, *values: jax.value_and_grad(total)(tree["params"], tree["rest"], *values)


@pytest.mark.parametrize("surrounding", ["local", "processes"], indirect=True)
@given(st.data())
@settings(max_examples=examples(5), suppress_health_check=_LIMITS)
def test_the_gradient_of_a_function_is_that_of_jax(
    surrounding: Surrounding, data: st.DataObject
) -> None:
    program = data.draw(programs(surrounding.backend.devices, differentiable=True))
    _check(program, surrounding, decorate=_slopes)


@pytest.mark.parametrize("surrounding", ["local"], indirect=True)
@given(st.data())
@settings(max_examples=examples(4), suppress_health_check=_LIMITS)
def test_cuts_do_not_change_what_a_function_gives(
    surrounding: Surrounding, data: st.DataObject
) -> None:
    program = data.draw(programs(surrounding.backend.devices))
    cut = functools.partial(pipeline.partition, max_segment_ops=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "partition", cut)
        _check(program, surrounding)


@pytest.mark.parametrize("surrounding", ["local", "processes"], indirect=True)
@given(st.data())
@settings(max_examples=examples(4), suppress_health_check=_LIMITS)
def test_one_segment_gives_the_same_but_for_the_last_bits(
    surrounding: Surrounding, data: st.DataObject
) -> None:
    _check(data.draw(programs([])), surrounding, _alike)


_MATRIX = np.arange(16, dtype=np.float32).reshape(4, 4) * 0.125 - 1
_ARGUMENTS = (_MATRIX[0], _MATRIX, np.int32([3, 1, 2, 0]), np.uint32([0, 7]))


def _each_transformation(name: str, devices: list[str]) -> Program:
    """A body on other devices than its arguments, or on one where it must, that reads variables."""
    transformation = TRANSFORMATIONS[name]
    first, second, third = [devices[1]] * 3 if transformation.one_device else devices[:3]
    x = len(INPUTS) if transformation.closes_over else 0
    body = (
        Node("sin", (x,), first),
        Node("read", (1,), second),
        Node("multiply", (x + 1, x + 2), second),
        Node("gelu", (x + 3,), third),
        *([Node("product", (1, x + 4), first)] if transformation.closes_over else []),
    )
    arguments = tuple(INPUTS.index(kind) for kind in transformation.takes)
    return Program(_ARGUMENTS, (Node(name, arguments, None, body),), (len(INPUTS),))


@pytest.mark.parametrize("surrounding", ["local"], indirect=True)
@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_each_transformation_of_a_body_on_several_devices(
    surrounding: Surrounding, name: str
) -> None:
    _check(_each_transformation(name, surrounding.backend.devices), surrounding)


def test_each_function_on_another_device_than_its_arguments(surrounding: Surrounding) -> None:
    first, *_, last = surrounding.backend.devices
    numbers = {kind: number for number, kind in enumerate(INPUTS)}
    nodes: list[Node] = []
    waiting = list(FUNCTIONS)
    while waiting:
        name = next(n for n in waiting if set(FUNCTIONS[n][0]) <= set(numbers))
        waiting.remove(name)
        takes, gives, _ = FUNCTIONS[name]
        nodes.append(
            Node(name, tuple(numbers[kind] for kind in takes), (first, last)[len(nodes) % 2])
        )
        numbers.setdefault(gives, len(INPUTS) + len(nodes) - 1)
    _check(Program(_ARGUMENTS, tuple(nodes), tuple(range(len(INPUTS) + len(nodes)))), surrounding)

"""JAX is the reference: any program, under any placement, gives what `jax.jit` gives."""

import pytest
from hypothesis import given, settings

import jflow as tf
from tests.drawn import examples
from tests.programs_of_jax import (
    ANY_RANK,
    FUNCTIONS,
    SOURCES,
    Call,
    Input,
    Program,
    check,
    programs,
)

DEVICES = ["/device:CPU:0", "/device:CPU:1", "/device:CPU:2"]


def _open(graph):
    return tf.Session(graph=graph)


@given(programs(DEVICES))
@settings(max_examples=examples(10))
def test_a_program_gives_what_jax_gives_under_any_placement(program):
    check(program, _open)


@pytest.mark.parametrize("first", range(0, len(FUNCTIONS), 8))
def test_each_function_gives_what_jax_gives_on_another_device_than_its_arguments(first):
    matrix = tuple((i * 7 % 11 - 5) / 4 for i in range(16))
    inputs = (
        Input("m", matrix, "placeholder", DEVICES[0]),
        Input("v", (0.5, -1.0, 2.0, 0.125), "variable", DEVICES[1]),
    )
    numbers = {"m": 0, "v": 1, "*": 1}
    calls = tuple(
        Call(name, tuple(numbers[kind.lower()] for kind in FUNCTIONS[name].takes), DEVICES[2])
        for name in list(FUNCTIONS)[first : first + 8]
    )
    check(Program(inputs, calls, tuple(range(2, 2 + len(calls)))), _open)


@given(programs(DEVICES, sources=(*SOURCES, ANY_RANK, ANY_RANK)))
@settings(max_examples=examples(10))
def test_a_program_of_tensors_of_unknown_rank_gives_what_jax_gives(program):
    check(program, _open)

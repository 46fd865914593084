"""The law of the local oracle, where values cross tasks: servers here, servers in processes."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jflow as tf
from tests.clusters import Backend
from tests.drawn import examples
from tests.programs_of_jax import check, programs


@pytest.mark.parametrize(
    "opened", [pytest.param("in_process", marks=pytest.mark.product), "processes"], indirect=True
)
@given(st.data())
@settings(max_examples=examples(5), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_program_gives_what_jax_gives_across_tasks(backend: Backend, data: st.DataObject) -> None:
    program = data.draw(programs(backend.devices))
    backend.reset()
    check(program, lambda graph: tf.Session(backend.targets[0], graph=graph))

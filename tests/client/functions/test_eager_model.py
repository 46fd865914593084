"""Live variables against a plain dict of what a cluster keeps under names."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    rule,
    run_state_machine_as_test,
)

import jflow as tf
from jflow.compiler.graph import owners
from jflow.testing import PATIENCE_S
from tests.clusters import Backend
from tests.drawn import examples

NAMES = st.sampled_from(["x", "y", "scope/z"])
CONTAINERS = st.sampled_from(["", "other"])
NUMBERS = st.integers(-5, 5).map(float)


class LiveVariables(RuleBasedStateMachine):
    """Variables and functions under the current connection; the model is `self.values`."""

    backend: Backend

    variables = Bundle("variables")

    def __init__(self) -> None:
        super().__init__()
        self.backend.reset("", "other")
        self.values: dict[tuple[str, int, str], np.ndarray[Any, Any]] = {}
        self.connection = tf.connect(self.backend.targets[0])
        self.generation = 0

        @tf.function
        def move(source: tf.Variable, target: tf.Variable, x: Any) -> Any:
            taken = source.value() * 0.5
            source.assign_sub(taken)
            return target.assign_add(taken + x), source.value(), target.value()

        self.move = move

    def teardown(self) -> None:
        self.connection.close()

    @rule(
        target=variables,
        name=NAMES,
        container=CONTAINERS,
        device=st.sampled_from([0, -1]),
        value=NUMBERS,
        lazily=st.booleans(),
    )
    def create(self, name: str, container: str, device: int, value: float, lazily: bool) -> Any:
        """Creates a variable, or attaches to the one there is and leaves it as it is."""
        array = jnp.full(3, value, jnp.float32)
        with tf.device(self.backend.devices[device]), tf.container(container):
            made = tf.Variable((lambda: array) if lazily else array, name=name)
        key = (container, device, name)
        self.values.setdefault(key, np.asarray(array))
        return self.generation, key, made

    @rule(
        variable=variables,
        other=st.sampled_from([("int32", 3), ("float16", 3), ("float32", 2), ("float32", (3, 1))]),
    )
    def attach_with_another_type_or_shape(self, variable: Any, other: Any) -> None:
        _, key, _ = variable
        dtype, shape = other
        container, device, name = key
        if key not in self.values:
            return
        refused = pytest.raises(tf.errors.InvalidArgumentError, match=name)
        with tf.device(self.backend.devices[device]), tf.container(container), refused:
            tf.Variable(jnp.zeros(shape, dtype), name=name)

    @rule(variable=variables, value=NUMBERS)
    def assign(self, variable: Any, value: float) -> None:
        if self._is_here(variable):
            variable[2].assign(np.full(3, value, np.float32))
            self.values[variable[1]] = np.full(3, value, np.float32)

    @rule(variable=variables, value=NUMBERS, sign=st.sampled_from([1, -1]))
    def add(self, variable: Any, value: float, sign: int) -> None:
        if self._is_here(variable):
            made = variable[2]
            (made.assign_add if sign > 0 else made.assign_sub)(value)
            self.values[variable[1]] = self.values[variable[1]] + np.float32(sign * value)

    @rule(source=variables, destination=variables, value=NUMBERS)
    def move_in_a_function(self, source: Any, destination: Any, value: float) -> None:
        if not (self._is_here(source) and self._is_here(destination)):
            return
        found = self.move(source[2], destination[2], value)
        taken = self.values[source[1]] * np.float32(0.5)
        self.values[source[1]] = self.values[source[1]] - taken
        self.values[destination[1]] = self.values[destination[1]] + (taken + np.float32(value))
        wanted = [self.values[key] for key in (destination[1], source[1], destination[1])]
        np.testing.assert_array_equal(np.stack(found), wanted)

    @rule(variable=variables)
    def read(self, variable: Any) -> None:
        if self._is_here(variable):
            made, wanted = variable[2], self.values[variable[1]]
            for found in (made.numpy(), made.value(), jnp.asarray(made), (made + 0)):
                np.testing.assert_array_equal(found, wanted)

    @rule()
    def reconnect(self) -> None:
        """State outlives a connection to a cluster; in this process it ends with it."""
        self.connection.close()
        self.connection = tf.connect(self.backend.targets[-1])
        self.generation += 1
        if not self.backend.shared:
            self.values.clear()

    @rule(variable=variables)
    def use_after_the_connection_has_ended(self, variable: Any) -> None:
        if variable[0] != self.generation and not self.backend.shared:
            with pytest.raises((ValueError, tf.errors.OpError)):
                self.move(variable[2], variable[2], 0.0)

    def _is_here(self, variable: Any) -> bool:
        return bool(variable[0] == self.generation)


def test_live_variables_are_as_a_dict(backend: Backend) -> None:
    run_state_machine_as_test(
        type("Machine", (LiveVariables,), {"backend": backend}),
        settings=settings(
            max_examples=examples(6),
            stateful_step_count=15,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("n_connections", [1, 2])
def test_of_many_that_create_one_name_one_gives_the_value(
    backend: Backend, n_connections: int
) -> None:
    if n_connections > 1 and not backend.shared:
        pytest.skip("connections to this process share nothing")
    n_threads, n_rounds = 8, 5
    backend.reset()
    connections = [tf.connect(backend.targets[-i]) for i in range(n_connections)]
    gate = threading.Barrier(n_threads)

    def create(number: int, name: str) -> float:
        owner = connections[number % n_connections]
        gate.wait(PATIENCE_S)
        with owners.owned_by(owner), tf.device(backend.devices[-1]):
            return float(tf.Variable(float(number), name=name).numpy())

    try:
        with ThreadPoolExecutor(n_threads) as threads:
            for round_number in range(n_rounds):
                name = f"raced_{round_number}"
                seen = list(threads.map(create, range(n_threads), [name] * n_threads))
                assert len(set(seen)) == 1
                assert seen[0] in range(n_threads)
    finally:
        for connection in connections:
            connection.close()

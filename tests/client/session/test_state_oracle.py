"""Steps with state against a plain interpreter.

The operations of a step are put in one order by control dependencies, so each of them has exactly
one right result, wherever it runs and however the step is cut.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import jflow as tf
from tests.drawn import examples

DEVICES = ["/device:CPU:0", "/device:CPU:1", "/device:CPU:2"]
SIZE = 3


@dataclass(frozen=True)
class Action:
    """Something that is done to a variable with an earlier value, on a device or anywhere.

    Attributes:
      kind: "read", "assign", "add", "subtract", "scale" (read, double and assign) or "compute".
      variable: its number.
      operand: number of the value that is taken.
    """

    kind: str
    variable: int
    operand: int
    device: str | None


@st.composite
def steps(draw, devices=tuple(DEVICES)):
    """(homes of the variables, actions, numbers of the results to fetch)"""
    device = st.none() | st.sampled_from(list(devices))
    handles = draw(st.lists(device, min_size=1, max_size=3))
    kinds = st.sampled_from(["read", "assign", "add", "subtract", "scale", "compute"])
    actions = [
        Action(
            draw(kinds),
            draw(st.integers(0, len(handles) - 1)),
            draw(st.integers(0, i)),
            draw(device),
        )
        for i in range(draw(st.integers(1, 7)))
    ]
    fetched = draw(st.lists(st.integers(0, len(actions)), max_size=4))
    return handles, actions, fetched


def interpret(n_variables, actions, fed):
    """Results of the actions, and what the variables are after them."""
    state = [np.full(SIZE, i, np.float32) for i in range(n_variables)]
    results = [fed]
    for action in actions:
        value, i = results[action.operand], action.variable
        if action.kind == "assign":
            state[i] = value
        elif action.kind == "add":
            state[i] = state[i] + value
        elif action.kind == "subtract":
            state[i] = state[i] - value
        elif action.kind == "scale":
            state[i] = state[i] * 2
        results.append(value / 2 + 1 if action.kind == "compute" else state[i])
    return results, state


def build(handles, actions, fed):
    """Tensors of the results, and the variables, in the default graph."""
    variables = []
    for i, device_of_state in enumerate(handles):
        with tf.device(device_of_state):
            variables.append(tf.Variable(np.full(SIZE, i, np.float32), name=f"oracle_{i}"))
    results = [fed]
    for action in actions:
        value, variable = results[action.operand], variables[action.variable]
        with tf.device(action.device), tf.control_dependencies(results[1:]):
            if action.kind == "read":
                made = variable.read_value()
            elif action.kind == "assign":
                made = variable.assign(value)
            elif action.kind == "add":
                made = variable.assign_add(value)
            elif action.kind == "subtract":
                made = variable.assign_sub(value)
            elif action.kind == "scale":
                made = variable.assign(variable.read_value() * 2)
            else:
                made = value / 2 + 1
        results.append(made)
    return results, variables


def check(step, open_session):
    """Asserts that a session gives, step after step, what the interpreter gives."""
    handles, actions, fetched = step
    given_value = np.arange(SIZE, dtype=np.float32)
    graph = tf.Graph()
    with graph.as_default():
        fed = tf.placeholder("float32", (SIZE,))
        results, variables = build(handles, actions, fed)
        initializer = tf.global_variables_initializer()
        everything = [tensor.op for tensor in results[1:]]
    wanted, state = interpret(len(handles), actions, given_value)
    with open_session(graph) as session:
        for _ in range(2):
            session.run(initializer)
            found, _ = session.run([[results[i] for i in fetched], everything], {fed: given_value})
            np.testing.assert_array_equal(found, [wanted[i] for i in fetched])
            np.testing.assert_array_equal(session.run(variables), state)


@given(steps())
@settings(max_examples=examples(25))
def test_a_step_in_one_order_has_one_result_wherever_it_runs(step):
    check(step, lambda graph: tf.Session(graph=graph))

"""Accesses to variables: what a step reads, what it holds, and what an update writes into."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jflow import errors
from jflow.base.cluster import Device, Task
from jflow.plan import Call, Plan, Program, Run, VariableKey, VariableSpec
from jflow.state.resources import Containers
from jflow.task.execution import LinkedCall, LinkedRun, StepState, link
from jflow.task.execution.link import NO_FUNCTIONS
from tests.variables import get_variable, set_variable

TASK = Task("ps", 0)
CPU = Device(TASK, "CPU", 0)
HERE = jax.local_devices(backend="cpu")[0]
X, Y = (VariableSpec(VariableKey("", name), "float32", (3,)) for name in "xy")

ADD_ONE = jax.jit(lambda old: [old + 1], donate_argnums=0)
"""As a program: takes the old value of a variable, gives the new one."""


def _state(containers, *runs, n_slots=5, programs=None, functions=NO_FUNCTIONS):
    """The state of a plan, and the plan's instructions linked with their programs."""
    plan = Plan(CPU, n_slots, (X, Y), (tuple(runs),))
    found = programs or {"add one": ADD_ONE}
    linked = link(plan, HERE, lambda program: found[program.digest], {}.__getitem__, functions)
    runs = [run for run in linked.stages[0] if isinstance(run, LinkedRun | LinkedCall)]
    return StepState(linked, containers), runs


def _run(state, run):
    if run.uses_variables:
        state.finish(state.begin_access(run))
    else:
        state.compute(run)


def _containers(**values):
    containers = Containers(TASK)
    for name, value in values.items():
        spec = {"x": X, "y": Y}[name]
        set_variable(containers, CPU, spec, jnp.full(3, value, jnp.float32))
    return containers


def _update(**more):
    return Run(Program("add one", (), (0,)), reads=(0,), writes=(0,), **more)


def _address(containers):
    return get_variable(containers, CPU, X).buffer.array.unsafe_buffer_pointer()


def test_an_update_writes_into_the_variables_own_memory():
    containers = _containers(x=1.0)
    before = _address(containers)
    state, (run,) = _state(containers, _update())
    for _ in range(3):
        _run(state, run)
    state.close()
    assert _address(containers) == before
    assert get_variable(containers, CPU, X).buffer.array.tolist() == [4.0] * 3


def test_strings_on_the_host_are_copied_for_a_receiver_that_may_change_them():
    state, _ = _state(_containers())
    words = np.array([b"a"], object)
    state[0] = words
    assert state.host_value(0, copy=False) is words
    copied = state.host_value(0, copy=True)
    copied[0] = b"changed"
    assert words.tolist() == [b"a"]


def test_what_was_read_before_an_update_stays_as_it_was():
    containers = _containers(x=1.0)
    state, (run,) = _state(containers, _update(before=((0, 0),), after=((0, 1),)))
    _run(state, run)
    assert [state[slot].tolist() for slot in (0, 1)] == [[1.0] * 3, [2.0] * 3]
    assert state.is_leased(0)
    assert state.is_leased(1)
    other, (update,) = _state(containers, _update())
    _run(other, update)
    assert [state[slot].tolist() for slot in (0, 1)] == [[1.0] * 3, [2.0] * 3]


def test_after_a_step_is_closed_updates_are_in_place_again():
    containers = _containers(x=1.0)
    state, (run,) = _state(containers, Run(None, before=((0, 0),)))
    _run(state, run)
    state.close()
    before = _address(containers)
    other, (update,) = _state(containers, _update())
    _run(other, update)
    assert _address(containers) == before


def test_an_access_that_ends_after_its_step_was_closed_holds_nothing():
    containers = _containers(x=1.0)
    state, (run,) = _state(containers, Run(None, before=((0, 0),)))
    state.close()
    _run(state, run)
    before = _address(containers)
    other, (update,) = _state(containers, _update())
    _run(other, update)
    assert _address(containers) == before


def test_a_default_is_used_only_for_a_variable_without_a_value():
    containers = _containers(x=1.0)
    run = Run(None, before=((0, 0),), defaults=((0, 2, 1), (1, 3, 1), (1, 4, 0)))
    state, (linked,) = _state(containers, run)
    state[1] = np.float32([7, 7, 7])
    _run(state, linked)
    assert [state[slot].tolist() for slot in (2, 3, 4)] == [[1.0] * 3, [7.0] * 3, [1.0] * 3]
    assert [state.is_leased(slot) for slot in (2, 3, 4)] == [True, False, True]
    other, (update,) = _state(containers, _update())
    _run(other, update)
    assert [state[slot].tolist() for slot in (2, 4)] == [[1.0] * 3] * 2
    state.close()
    before = _address(containers)
    _run(other, update)
    assert _address(containers) == before


def test_a_default_waits_for_a_program_that_writes_the_variable():
    containers = _containers(x=1.0)
    state, (update, read) = _state(containers, _update(), Run(None, defaults=((0, 2, 1),)))
    state[1] = np.float32([7, 7, 7])
    writer = state.begin_access(update)
    assert state.begin_access(read) is None
    state.finish(writer)
    _run(state, read)
    assert state[2].tolist() == [2.0] * 3


def test_a_function_is_told_which_variables_have_values():
    calls = []
    containers = _containers(x=1.0)
    state, (call,) = _state(
        containers,
        Call("seen", (0,), variables=(0, 1)),
        functions={"seen": lambda *values: calls.append([*map(np.asarray, values)]) or ()},
    )
    state[0] = np.float32([3])
    state.call(call)
    assert [value.tolist() for value in calls[0]] == [True, False, [3.0]]


def test_a_program_without_variables_waits_for_nothing():
    double = {"double": lambda value: [value * 2]}
    containers = _containers()
    state, (run,) = _state(
        containers, Run(Program("double"), inputs=(0,), outputs=(2,)), programs=double
    )
    state[0] = np.float32([1, 2, 3])
    with containers.lock:
        _run(state, run)
    assert state[2].tolist() == [2.0, 4.0, 6.0]


def test_a_variable_that_another_step_writes_cannot_be_had():
    containers = _containers(x=1.0, y=5.0)
    state, (run, read, other) = _state(
        containers,
        _update(),
        Run(None, before=((0, 0),)),
        Run(None, before=((1, 1),)),
    )
    writer = state.begin_access(run)
    assert state.begin_access(run) is None
    assert state.begin_access(read) is None
    _run(state, other)
    assert state[1].tolist() == [5.0] * 3, "others go on"
    state.finish(writer)
    _run(state, run)
    assert get_variable(containers, CPU, X).buffer.array.tolist() == [3.0] * 3


def test_an_update_beside_a_program_that_reads_works_on_a_copy_until_that_has_ended():
    containers = _containers(x=1.0, y=0.0)
    seen = []
    programs = {"add one": ADD_ONE, "sum": lambda value: [seen.append(value + 0) or seen[0]]}
    state, (read, update) = _state(
        containers, Run(Program("sum"), (0,), outputs=(1,)), _update(), programs=programs
    )
    before = _address(containers)
    reader = state.begin_access(read)
    _run(state, update)
    assert get_variable(containers, CPU, X).buffer.array.tolist() == [2.0] * 3
    copied = _address(containers)
    assert copied != before
    state.finish(reader)
    assert seen[0].tolist() == [1.0] * 3, "what it reads is not changed under it"
    state.close()
    _run(state, update)
    assert _address(containers) == copied


def test_what_a_step_reads_comes_from_one_moment():
    containers = _containers(x=1.0, y=1.0)
    state, (read, update) = _state(
        containers,
        Run(Program("both"), (0, 1), outputs=(0,)),
        Run(Program("two"), (0, 1), (), (0, 1)),
        programs={
            "both": lambda x, y: [x - y],
            "two": lambda x, y: [x + 1, y + 1],
        },
    )
    access = state.begin_access(read)
    _run(state, update)
    state.finish(access)
    assert state[0].tolist() == [0.0] * 3


def test_a_wait_for_a_variable_names_the_operation_that_writes_it():
    containers = _containers(x=1.0)
    state, (run, read) = _state(containers, _update(op="x/add"), Run(None, before=((0, 0),)))
    state.begin_access(run)
    cell, access = next(state.wait(read))
    assert not cell.submit(access, print)
    reason = cell.reason(access)
    assert re.fullmatch(
        r"waited for variable 'x' \(container ''\) on /job:ps/task:0/device:CPU:0, which "
        r"operation 'x/add' of another step has been writing for [\d.]+ (µs|ms|s)",
        reason,
    )


def test_a_reset_takes_the_variable_from_its_writer_and_the_value_does_not_come_back():
    containers = _containers(x=1.0)
    set_to = {"add one": ADD_ONE, "nine": lambda: [jnp.full(3, 9.0)]}
    state, (run, initialize) = _state(
        containers,
        _update(after=((0, 1),)),
        Run(Program("nine"), (), (), (0,), initializes=(0,)),
        programs=set_to,
    )
    writer = state.begin_access(run)
    containers.clear([""])
    assert containers.variables() == {}
    _run(state, initialize)
    state.finish(writer)
    assert state[1].tolist() == [2.0] * 3, "the step itself goes on with its own value"
    assert get_variable(containers, CPU, X).buffer.array.tolist() == [9.0] * 3
    assert get_variable(containers, CPU, X).buffer.leases == set()
    _run(state, run)
    assert get_variable(containers, CPU, X).buffer.array.tolist() == [10.0] * 3


def test_a_variable_is_initialized_once_by_all_that_initialize_it():
    containers = _containers()
    programs = {"nine": lambda: [jnp.full(3, 9.0)], "eight": lambda: [jnp.full(3, 8.0)]}
    state, (nine, eight) = _state(
        containers,
        Run(Program("nine"), (), (), (0,), initializes=(0,)),
        Run(Program("eight"), (), (), (0,), initializes=(0,)),
        programs=programs,
    )
    first = state.begin_access(nine)
    assert state.begin_access(eight) is None
    state.finish(first)
    _run(state, eight)
    assert get_variable(containers, CPU, X).buffer.array.tolist() == [9.0] * 3


def test_old_values_inputs_and_constants_come_in_that_order():
    seen = []

    def program(*args):
        seen.append([float(np.sum(arg)) for arg in args])
        return [args[0] + 1, args[1]]

    plan = Plan(CPU, 2, (X, Y), ((Run(Program("p", ("c",)), (1, 0), (0,), (1,), (1,)),),))
    containers = _containers(x=1.0, y=2.0)
    linked = link(plan, HERE, lambda _: program, {"c": np.float32(50)}.__getitem__)
    state = StepState(linked, containers)
    state[0] = np.float32(7)
    _run(state, linked.stages[0][0])
    assert seen == [[6.0, 3.0, 7.0, 50.0]]
    assert get_variable(containers, CPU, Y).buffer.array.tolist() == [3.0] * 3
    assert get_variable(containers, CPU, X).buffer.array.tolist() == [1.0] * 3
    assert state[1].tolist() == [1.0] * 3


def test_an_access_to_an_uninitialized_variable_changes_nothing():
    containers = _containers(y=1.0)
    both = Run(Program("add one"), reads=(0,), writes=(1,))
    state, (run,) = _state(containers, both)
    with pytest.raises(errors.FailedPreconditionError, match="'x'"):
        _run(state, run)
    assert get_variable(containers, CPU, Y).buffer.array.tolist() == [1.0] * 3
    assert not containers.lock.locked()


def test_a_variable_of_another_shape_is_refused_before_the_program_runs():
    containers = Containers(TASK)
    set_variable(containers, CPU, VariableSpec(X.key, "float32", (5,)), jnp.zeros(5))
    calls = []
    state, (run,) = _state(
        containers, Run(Program("p"), writes=(0,)), programs={"p": lambda: calls.append(1)}
    )
    with pytest.raises(errors.InvalidArgumentError, match="expects"):
        _run(state, run)
    assert calls == []


def test_the_access_ends_when_a_program_fails():
    containers = _containers(x=1.0)
    state, (run,) = _state(
        containers, _update(before=((0, 0),)), programs={"add one": lambda _: 1 / 0}
    )
    with pytest.raises(ZeroDivisionError):
        _run(state, run)
    state.close()
    before = _address(containers)
    other, (update,) = _state(containers, _update())
    _run(other, update)
    assert _address(containers) == before
    assert get_variable(containers, CPU, X).buffer.array.tolist() == [2.0] * 3


@pytest.mark.parametrize("copy", [True, False])
def test_looking_at_a_variable_does_not_make_its_later_updates_copy(copy):
    containers = _containers(x=1.0)
    before = _address(containers)
    reader, (read,) = _state(containers, Run(None, before=((0, 0),)))
    _run(reader, read)
    assert reader.host_value(0, copy=copy).tolist() == [1.0] * 3
    reader.close()
    state, (run,) = _state(containers, _update())
    _run(state, run)
    assert _address(containers) == before


def test_a_copy_of_a_variable_is_the_callers_own():
    containers = _containers(x=1.0)
    state, (read,) = _state(containers, Run(None, before=((0, 0),)))
    _run(state, read)
    copy = state.host_value(0, copy=True)
    copy[:] = 5
    assert get_variable(containers, CPU, X).buffer.array.tolist() == [1.0] * 3


def test_a_value_that_came_from_the_host_is_given_back_as_it_is():
    state, () = _state(_containers())
    state[0] = np.float32(3)
    assert state.host_value(0, copy=True) == 3


LARGE = VariableSpec(VariableKey("", "large"), "float32", (5000,))


def test_a_large_variable_is_viewed_and_not_copied_while_any_of_it_is_referred_to():
    containers = Containers(TASK)
    set_variable(containers, CPU, LARGE, jnp.ones(5000, jnp.float32))

    def variable():
        return get_variable(containers, CPU, LARGE)

    def update():
        set_variable(containers, CPU, LARGE, ADD_ONE(variable().donate())[0])
        return variable().buffer.array.unsafe_buffer_pointer()

    plan = Plan(CPU, 1, (LARGE,), ((Run(None, before=((0, 0),)),),))
    linked = link(plan, HERE, {}.__getitem__, {}.__getitem__)
    state = StepState(linked, containers)
    before = variable().buffer.array.unsafe_buffer_pointer()
    _run(state, linked.stages[0][0])
    view = state.fetch(0)
    state.close()
    assert (view.dtype, view.shape, view.ctypes.data) == (np.float32, (5000,), before)
    piece = memoryview(view.view(np.uint8))[16:20]
    del view
    copied_to = update()
    assert copied_to != before
    assert np.frombuffer(piece, np.float32) == 1.0, "what is being sent stays as it was"
    del piece
    assert update() == copied_to, "and later updates work in place again"


def test_a_small_variable_is_copied_and_keeps_no_update_waiting():
    containers = _containers(x=1.0)
    state, (read,) = _state(containers, Run(None, before=((0, 0),)))
    _run(state, read)
    value = state.fetch(0)
    state.close()
    assert not get_variable(containers, CPU, X).buffer.leases
    assert value.tolist() == [1.0] * 3

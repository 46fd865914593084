import jax.numpy as jnp
import numpy as np
import pytest

from jflow import errors
from jflow.base.cluster import Device, Task
from jflow.plan import VariableKey, VariableSpec
from jflow.state.resources import Containers, VariableId
from tests.variables import get_variable, set_variable

TASK = Task("ps", 1)
CPU, GPU = Device(TASK, "CPU", 0), Device(TASK, "GPU", 0)


def _spec(name="x", container="", dtype="float32", shape=(2,)):
    return VariableSpec(VariableKey(container, name), dtype, shape)


def _store(*specs):
    """Containers in which the variable number i has the value i."""
    store = Containers(TASK)
    for i, spec in enumerate(specs):
        set_variable(store, CPU, spec, jnp.full(spec.shape, i, spec.dtype))
    return store


def _value(store, spec, device=CPU):
    return get_variable(store, device, spec).buffer.array.tolist()


def test_setting_a_variable_initializes_it():
    store = _store(_spec())
    assert _value(store, _spec()) == [0, 0]
    assert get_variable(store, CPU, _spec()) is set_variable(store, CPU, _spec(), jnp.ones(2))
    assert _value(store, _spec()) == [1, 1]


def test_a_variable_that_is_not_there_is_an_error_that_says_which_and_where():
    with pytest.raises(errors.FailedPreconditionError) as raised:
        get_variable(_store(), CPU, _spec("w", "problem"))
    message = str(raised.value)
    for part in ("uninitialized", "'w'", "'problem'", str(CPU), "global_variables_initializer"):
        assert part in message
    assert (raised.value.op, raised.value.task) == ("w", "/job:ps/task:1")


def test_containers_names_and_devices_keep_variables_apart():
    specs = [_spec("x", ""), _spec("x", "a"), _spec("x", "b"), _spec("y", "a")]
    store = _store(*specs)
    assert [_value(store, spec)[0] for spec in specs] == [0, 1, 2, 3]
    with pytest.raises(errors.FailedPreconditionError, match="GPU:0"):
        get_variable(store, GPU, specs[0])
    set_variable(store, GPU, specs[0], jnp.ones(2) * 9)
    assert (_value(store, specs[0]), _value(store, specs[0], GPU)) == ([0, 0], [9, 9])


def test_the_default_container_is_also_called_by_the_name_of_the_job():
    store = _store(_spec("x", "ps"))
    assert _value(store, _spec("x", "")) == [0, 0]
    store.clear([""])
    assert store.variables() == {}
    store = _store(_spec("x", ""))
    store.clear(["ps"])
    assert store.variables() == {}


@pytest.mark.parametrize("other", [{"dtype": "int32"}, {"shape": (3,)}, {"shape": ()}])
def test_a_variable_of_another_type_is_refused_and_stays_as_it_was(other):
    store = _store(_spec())
    place = VariableId.of(CPU, _spec().key)
    for read in (store.get, store.find):
        with pytest.raises(errors.InvalidArgumentError, match="expects") as raised:
            read(place, _spec(**other))
        assert raised.value.op == "x"
        assert raised.value.task == "/job:ps/task:1"
    assert _value(store, _spec()) == [0, 0]


def test_what_is_not_there_may_have_any_type():
    assert _store().find(VariableId.of(CPU, _spec().key), _spec()) is None


def test_clearing_frees_the_named_containers_only():
    specs = [_spec("x", name) for name in ("", "a", "b", "c")]
    store = _store(*specs)
    store.clear(["a", "c", "unknown"])
    assert {one.container for one in store.variables()} == {"", "b"}
    for spec in (specs[1], specs[3]):
        with pytest.raises(errors.FailedPreconditionError):
            get_variable(store, CPU, spec)
    assert _value(store, specs[2]) == [2, 2]


def test_a_freed_variable_may_come_back_with_another_type():
    store = _store(_spec())
    store.clear([""])
    set_variable(store, CPU, _spec(dtype="int32", shape=()), jnp.int32(7))
    assert _value(store, _spec(dtype="int32", shape=())) == 7


def test_clearing_does_not_change_a_leased_value():
    store = _store(_spec())
    lease = get_variable(store, CPU, _spec()).lease()
    store.clear([""])
    np.testing.assert_array_equal(lease.buffer.array, [0, 0])

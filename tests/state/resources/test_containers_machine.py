"""Containers against a dict: any order of updates, leases and clearings."""

from collections import Counter
from functools import partial

import jax
import jax.numpy as jnp
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jflow.base.cluster import Device, Task
from jflow.errors import FailedPreconditionError, InvalidArgumentError
from jflow.plan import VariableKey, VariableSpec
from jflow.state.resources import Containers, VariableId
from tests.drawn import examples
from tests.variables import get_variable, set_variable

TASK = Task("ps", 0)
SIZES = st.sampled_from([2, 3])
PLACES = st.tuples(
    st.builds(Device, st.just(TASK), st.just("CPU"), st.integers(0, 1)),
    st.sampled_from(["", "ps", "box"]),
    st.sampled_from(["x", "y"]),
)


@partial(jax.jit, donate_argnums=0)
def _add_one(array):
    return array + 1


def _key(place):
    """What a place is called in the model: the default container has one name there."""
    device, container, name = place
    return device, "" if container == "ps" else container, name


def _spec(place, size):
    return VariableSpec(VariableKey(*place[1:]), "float32", (size,))


class ContainersMachine(RuleBasedStateMachine):
    """A lease keeps the value that it began with; everything else sees the last update."""

    def __init__(self):
        super().__init__()
        self.containers = Containers(TASK)
        self.model = {}
        self.leases = []

    def _array(self, place):
        value, size = self.model[_key(place)]
        return get_variable(self.containers, place[0], _spec(place, size)).buffer.array, value, size

    @rule(place=PLACES, size=SIZES, value=st.integers(0, 9))
    def initialize(self, place, size, value):
        known = self.model.get(_key(place))
        if known is not None and known[1] != size:
            return  # the worker checks before it sets
        set_variable(
            self.containers, place[0], _spec(place, size), jnp.full(size, value, jnp.float32)
        )
        self.model[_key(place)] = value, size

    @rule(place=PLACES, size=SIZES)
    def look(self, place, size):
        known = self.model.get(_key(place))
        spec = _spec(place, size)
        found = VariableId.of(place[0], spec.key)
        if known is None:
            with pytest.raises(FailedPreconditionError) as raised:
                self.containers.get(found, spec)
            assert raised.value.op == place[2]
            assert self.containers.find(found, spec) is None
        elif known[1] != size:
            for method in (self.containers.get, self.containers.find):
                with pytest.raises(InvalidArgumentError, match="expects"):
                    method(found, spec)
        else:
            variable = self.containers.get(found, spec)
            assert self.containers.find(found, spec) is variable
            assert variable.buffer.array.tolist() == [known[0]] * size

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def update(self, data):
        place = data.draw(st.sampled_from(sorted(self.model)))
        array, value, size = self._array(place)
        before = array.unsafe_buffer_pointer()
        variable = get_variable(self.containers, place[0], _spec(place, size))
        is_leased = any(lease.buffer is variable.buffer for lease, _ in self.leases)
        new = _add_one(variable.donate())
        set_variable(self.containers, place[0], _spec(place, size), new)
        self.model[place] = value + 1, size
        assert (new.unsafe_buffer_pointer() == before) is not is_leased
        assert array.is_deleted() is not is_leased

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def begin_lease(self, data):
        place = data.draw(st.sampled_from(sorted(self.model)))
        array, *_ = self._array(place)
        variable = get_variable(self.containers, place[0], _spec(place, array.size))
        self.leases.append((variable.lease(), array.tolist()))

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def end_lease(self, data):
        lease, _ = self.leases.pop(data.draw(st.integers(0, len(self.leases) - 1)))
        lease.release()

    @rule(containers=st.lists(st.sampled_from(["", "ps", "box", "unknown"]), max_size=2))
    def clear(self, containers):
        self.containers.clear(containers)
        freed = {"" if name == "ps" else name for name in containers}
        self.model = {key: value for key, value in self.model.items() if key[1] not in freed}

    @invariant()
    def what_it_has_is_charged(self):
        charged = {account.container: n for account, n in self.containers.usage.accounts().items()}
        expected = Counter()
        for (_, container, _), (_, size) in self.model.items():
            expected[container] += 4 * size
        assert charged == dict(expected)

    @invariant()
    def leased_values_are_as_they_were(self):
        for lease, value in self.leases:
            assert lease.buffer.array.tolist() == value

    @invariant()
    def names_are_those_of_the_model(self):
        expected = {(container, str(device), name) for device, container, name in self.model}
        assert {*self.containers.variables()} == expected


TestContainersMachine = ContainersMachine.TestCase
TestContainersMachine.settings = settings(max_examples=examples(25), stateful_step_count=30)

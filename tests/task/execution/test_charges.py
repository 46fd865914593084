"""What programs are charged for the variables that they make, however they end."""

import jax
import jax.numpy as jnp
import pytest

from jflow import errors
from jflow.base.cluster import Device, Task
from jflow.plan import VARYING, Plan, Program, Run, VariableKey, VariableSpec
from jflow.state.effects import Effect
from jflow.state.quotas import Account, Quotas
from jflow.state.resources import Containers, SingleWrite, Transaction
from jflow.task.execution import StepState, link
from tests.variables import get_variable, set_variable

TASK = Task("ps", 0)
CPU = Device(TASK, "CPU", 0)
HERE = jax.local_devices(backend="cpu")[0]
X, Y = (VariableSpec(VariableKey("", name), "float32", (3,)) for name in "xy")
VARIES = VariableSpec(VariableKey("", "z"), "float32", (VARYING,))
N_BYTES = 12

PROGRAMS = {
    "make": jax.jit(lambda: [jnp.zeros(3)]),
    "grow": jax.jit(lambda old: [jnp.concatenate([old, old])]),
}
MAKE_X, MAKE_Y = (Run(Program("make", (), ()), reads=(), writes=(i,)) for i in range(2))
GROW = Run(Program("grow", (), ()), reads=(2,), writes=(2,))


def linked(*runs):
    plan = Plan(CPU, 5, (X, Y, VARIES), (tuple(runs),))
    return link(plan, HERE, lambda program: PROGRAMS[program.digest], {}.__getitem__)


def charged(containers):
    return sum(containers.usage.accounts().values())


def transaction(containers, plan):
    keys = [key for run in plan.stages[0] for key in run.written]
    return Transaction(containers, Effect("client", 0, 0), keys, is_wide=False)


def run_all(state, plan):
    for run in plan.stages[0]:
        state.finish(state.begin_access(run))


def test_a_write_that_is_refused_as_it_was_applied_before_frees_what_it_reserved():
    containers, plan = Containers(TASK), linked(MAKE_X)
    state = StepState(plan, containers, effect=SingleWrite(containers, Effect("client", 0, 0)))
    with pytest.raises(errors.AbortedError):
        state.begin_access(plan.stages[0][0])
    assert containers.usage.accounts() == {}


def test_an_update_of_what_was_freed_meanwhile_is_not_charged():
    containers, plan = Containers(TASK), linked(GROW)
    set_variable(containers, CPU, VARIES, jnp.zeros(3))
    state = StepState(plan, containers)
    access = state.begin_access(plan.stages[0][0])
    containers.clear([""])
    assert containers.usage.accounts() == {}
    state.finish(access)
    state.close()
    assert containers.usage.accounts() == {}


def test_a_variable_that_is_made_is_never_charged_twice(monkeypatch):
    containers, plan = Containers(TASK), linked(MAKE_X)
    seen, add = [], containers.usage.add

    def noted(account, amount):
        add(account, amount)
        seen.append(charged(containers))

    monkeypatch.setattr(containers.usage, "add", noted)
    run_all(StepState(plan, containers), plan)
    assert charged(containers) == N_BYTES
    assert max(seen, default=0) <= N_BYTES


@pytest.mark.parametrize("end", ["commit", "abort", "reset"])
def test_programs_of_a_step_that_is_applied_once_do_not_pass_a_quota_together(end):
    containers, plan = Containers(TASK), linked(MAKE_X, MAKE_Y)
    containers.usage.quotas = Quotas(container=20)
    step = transaction(containers, plan)
    state = StepState(plan, containers, effect=step)
    first, second = plan.stages[0]
    state.finish(state.begin_access(first))
    with pytest.raises(errors.ResourceExhaustedError, match="has 12 B of 20 B"):
        state.begin_access(second)
    assert containers.usage.accounts() == {Account(""): N_BYTES}
    state.finish(state.begin_access(first))  # staged again
    if end == "reset":
        containers.clear([""])
    (step.abort if end == "abort" else step.commit)()
    state.close()
    assert charged(containers) == (N_BYTES if end == "commit" else 0)
    containers.clear([""])
    assert containers.usage.accounts() == {}


def test_a_program_that_ends_after_its_transaction_is_not_charged():
    containers, plan = Containers(TASK), linked(MAKE_X)
    step = transaction(containers, plan)
    state = StepState(plan, containers, effect=step)
    access = state.begin_access(plan.stages[0][0])
    assert charged(containers) == N_BYTES
    step.abort()
    state.finish(access)
    state.close()
    assert containers.usage.accounts() == {}


def test_a_transaction_charges_what_it_has_replaced_by_its_new_size():
    containers, plan = Containers(TASK), linked(GROW)
    set_variable(containers, CPU, VARIES, jnp.zeros(3))
    step = transaction(containers, plan)
    state = StepState(plan, containers, effect=step)
    run_all(state, plan)
    assert charged(containers) == N_BYTES
    step.commit()
    state.close()
    assert charged(containers) == 2 * N_BYTES
    assert get_variable(containers, CPU, VARIES).charged == 2 * N_BYTES


@pytest.mark.parametrize(("axes", "charged_bytes"), [((), 64), (("d",), 16)])
def test_each_replica_of_a_variable_on_several_devices_is_charged(axes, charged_bytes):
    containers = Containers(TASK)
    mesh = jax.sharding.Mesh(jax.local_devices(backend="cpu")[:4], ("d",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))
    spec = VariableSpec(VariableKey("", "x"), "float32", (4,))
    set_variable(containers, CPU, spec, jax.device_put(jnp.zeros(4), sharding))
    assert charged(containers) == charged_bytes
    containers.clear([""])
    assert containers.usage.accounts() == {}

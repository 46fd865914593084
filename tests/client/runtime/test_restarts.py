"""Which calls of a connection go on after restarts, and what they say."""

from __future__ import annotations

from typing import Any

import pytest

from jflow.base.cluster import Task
from jflow.client.runtime import restarts as module
from jflow.client.runtime.restarts import Restarts
from jflow.errors import RestartedError
from jflow.state.moves import StateId

PS, WORKER, SERVER = Task("ps", 0), Task("worker", 1), Task("worker", 0)


def error(task: Task = WORKER) -> RestartedError:
    return RestartedError(f"{task} has restarted; open a new session", op="x", task=str(task))


@pytest.fixture
def restarts(monkeypatch: pytest.MonkeyPatch) -> Restarts:
    """Those of a connection, to which "plans" are lists of states."""
    monkeypatch.setattr(module, "states_of", lambda plans: [one for plan in plans for one in plan])
    found = Restarts()
    found.are_outlived = True
    return found


def state(name: str, task: Task, owner: str = "") -> StateId:
    return StateId(f"{task}/device:CPU:0", "variable", "", name, owner)


def uses(restarts: Restarts, *states: StateId) -> None:
    plans: Any = [states]
    restarts.uses(plans, SERVER)


def test_a_session_ends_with_the_first_restart() -> None:
    for _ in range(2):
        with pytest.raises(RestartedError, match="open a new session"):
            Restarts().go_on(error(), is_rolled_back=True)


def test_a_call_that_lost_nothing_is_made_again_and_the_server_is_told_once(
    restarts: Restarts,
) -> None:
    uses(restarts, state("elsewhere", PS))
    restarts.go_on(error(), is_rolled_back=True)
    assert restarts.known([PS]) == []
    assert restarts.known([PS, WORKER]) == [WORKER]
    assert restarts.known([PS, WORKER]) == []


def test_what_is_lost_is_named_once_for_each_restart(restarts: Restarts) -> None:
    for n in (1, 7):
        uses(restarts, *(state(f"v{i}", WORKER) for i in range(n)), state("kept", PS))
        with pytest.raises(RestartedError) as caught:
            restarts.go_on(error(), is_rolled_back=True)
        said = str(caught.value)
        assert "has restarted; this connection used 'v0'" in said
        assert (" and 2 more there" in said) == (n == 7)
        assert "session" not in said
        assert "kept" not in said
        assert (caught.value.task, caught.value.op) == (str(WORKER), "x")
        restarts.go_on(error(), is_rolled_back=True)


def test_a_call_that_may_have_done_something_is_not_made_again(restarts: Restarts) -> None:
    with pytest.raises(RestartedError, match="a part of the call may have been done"):
        restarts.go_on(error(), is_rolled_back=False)
    assert restarts.known([WORKER]) == [WORKER]


def test_state_of_the_connection_alone_is_lost_with_its_server_too(restarts: Restarts) -> None:
    uses(restarts, state("own", PS, owner="connection"))
    with pytest.raises(RestartedError, match="'own'"):
        restarts.go_on(error(SERVER), is_rolled_back=True)


def test_an_error_that_names_no_task_is_raised_as_it_is(restarts: Restarts) -> None:
    unknown = RestartedError("something restarted")
    with pytest.raises(RestartedError) as caught:
        restarts.go_on(unknown, is_rolled_back=True)
    assert caught.value is unknown

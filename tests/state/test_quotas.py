"""What is charged to sessions, users and containers, and what exceeds their quotas."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jflow.base.cluster import Task
from jflow.errors import ResourceExhaustedError
from jflow.state.quotas import UNLIMITED, Account, Allowance, ChargedSession, Quotas, Usage

TASK = Task("ps", 0)
ANN = ChargedSession("/job:worker/task:0", 1, "ann")
ANN_AGAIN = ChargedSession("/job:worker/task:0", 2, "ann")
BOB = ChargedSession("/job:worker/task:1", 1, "bob")
NO_USER = ChargedSession("/job:worker/task:0", 3)
BLOCK = 1 << 16


def usage_of(**quotas: int) -> Usage:
    return Usage(TASK, quotas=Quotas(**quotas))


@pytest.mark.parametrize(
    ("quota", "fits", "exceeds"),
    [
        ("task", [(Account("a", ANN), 60)], (Account("b", BOB), 41)),
        ("container", [(Account("a", ANN), 60), (Account("b", ANN), 90)], (Account("a", BOB), 41)),
        ("session", [(Account("a", ANN), 60), (Account("a", BOB), 90)], (Account("b", ANN), 41)),
        ("user", [(Account("a", ANN), 60), (Account("a", BOB), 90)], (Account("b", ANN_AGAIN), 41)),
    ],
)
def test_a_quota_bounds_what_it_is_for_and_nothing_else(
    quota: str, fits: list[tuple[Account, int]], exceeds: tuple[Account, int]
) -> None:
    usage = usage_of(**{quota: 100})
    for account, amount in fits:
        usage.charge({account: amount})
    account, amount = exceeds
    before = usage.accounts()
    with pytest.raises(ResourceExhaustedError, match="exceed the quota of"):
        usage.charge({account: amount})
    assert usage.accounts() == before
    usage.charge({account: amount - 1})


def test_sessions_without_a_user_and_state_that_no_step_made_have_no_quota_of_their_own() -> None:
    usage = usage_of(user=10, session=20)
    usage.charge({Account("", NO_USER): 20})
    usage.charge({Account(""): 1000})
    with pytest.raises(ResourceExhaustedError):
        usage.charge({Account("", NO_USER): 1})


def test_the_error_says_what_exceeds_which_quota_and_what_has_most() -> None:
    usage = usage_of(task=100 << 20)
    usage.charge({Account("models", ANN): 60 << 20, Account("", BOB): 30 << 20})
    usage.charge({Account("x", NO_USER): 1 << 20, Account("y", NO_USER): 2 << 20})
    with pytest.raises(ResourceExhaustedError) as raised:
        usage.charge({Account("", BOB): 8 << 20})
    message = raised.value.message
    assert "8 MiB more of state on /job:ps/task:0 exceed the quota of /job:ps/task:0" in message
    assert (
        "has 93 MiB of 100 MiB (most: 60 MiB of session 1 of user ann of /job:worker/task:0 in"
        in message
    )
    assert "container 'models'; 30 MiB of session 1 of user bob of /job:worker/task:1; " in message
    assert "'y'" in message
    assert "'x'" not in message
    assert message.endswith("free some, or have the servers started with a larger quota (task)")
    assert raised.value.task == str(TASK)


def test_several_accounts_are_charged_together_or_not_at_all() -> None:
    usage = usage_of(container=50)
    with pytest.raises(ResourceExhaustedError):
        usage.charge({Account("a", ANN): 40, Account("b", ANN): 60})
    assert usage.accounts() == {}
    with pytest.raises(ResourceExhaustedError):
        usage.charge({Account("a", ANN): 30, Account("a", BOB): 30})
    assert usage.accounts() == {}


def test_what_is_over_a_quota_may_shrink() -> None:
    usage = usage_of(session=50)
    usage.add(Account("a", ANN), 80)
    usage.charge({Account("a", ANN): -20})
    assert usage.accounts() == {Account("a", ANN): 60}


def test_threads_that_charge_at_once_do_not_pass_the_quota_together() -> None:
    usage, taken = usage_of(task=1000), []

    def work() -> None:
        for _ in range(200):
            try:
                usage.charge({Account("a", ANN): 3})
            except ResourceExhaustedError:
                continue
            taken.append(3)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(taken) == 999
    assert usage.accounts() == {Account("a", ANN): 999}


def test_an_allowance_without_an_account_is_unlimited() -> None:
    allowance = Allowance()
    allowance.cover(UNLIMITED - 1)
    allowance.trim(0)
    assert (allowance.most, allowance.least) == (UNLIMITED, -1)


def test_an_allowance_takes_what_is_left_where_a_block_is_too_much() -> None:
    usage, account = usage_of(session=100_000), Account("q", ANN)
    allowance = Allowance()
    allowance.charge_to(usage, account, 0)
    allowance.cover(99_999)
    assert usage.accounts() == {account: 99_999}
    with pytest.raises(ResourceExhaustedError):
        allowance.cover(100_001)
    assert usage.accounts() == {account: 99_999}
    allowance.trim(0)
    assert usage.accounts() == {}


sizes = st.integers(0, 4 * BLOCK)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), sizes)), st.integers(0, 12 * BLOCK))
def test_allowances_keep_within_quotas_and_near_what_resources_have(
    changes: list[tuple[int, int]], quota: int
) -> None:
    usage = usage_of(task=quota)
    allowances: list[Any] = [Allowance(), Allowance()]
    accounts = [Account("a", ANN), Account("b", BOB)]
    has = [0, 0]
    for allowance, account in zip(allowances, accounts, strict=True):
        allowance.charge_to(usage, account, 0)
    for i, wanted in changes:
        one = allowances[i]
        try:
            if wanted > one.most:
                one.cover(wanted)
        except ResourceExhaustedError:
            assert wanted + allowances[1 - i].most > quota
            continue
        has[i] = wanted
        if wanted < one.least:
            one.trim(wanted)
        charged = usage.accounts()
        for allowance, account, n_bytes in zip(allowances, accounts, has, strict=True):
            assert charged.get(account, 0) == allowance.most >= n_bytes
            assert allowance.most <= max(2 * (n_bytes + BLOCK), n_bytes + 2 * BLOCK)
        assert sum(charged.values()) <= quota
    for allowance in allowances:
        allowance.trim(0)
    assert not usage.accounts()


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([ANN, ANN_AGAIN, BOB]), sizes)))
def test_what_was_charged_and_freed_leaves_nothing(
    charges: list[tuple[str, ChargedSession, int]],
) -> None:
    usage = usage_of(user=10 * BLOCK, container=15 * BLOCK, session=8 * BLOCK, task=20 * BLOCK)
    made = []
    for container, session, amount in charges:
        account = Account(container, session)
        try:
            usage.charge({account: amount})
        except ResourceExhaustedError:
            continue
        made.append((account, amount))
        for quota, key in itertools.product(["a", "b"], [ANN, ANN_AGAIN, BOB]):
            assert usage.accounts().get(Account(quota, key), 0) <= 8 * BLOCK
    for account, amount in made:
        usage.add(account, -amount)
    assert usage.accounts() == {}
    usage.charge({Account("a", ANN): 8 * BLOCK})


def test_a_session_of_a_restarted_master_does_not_share_the_quota_of_another_user() -> None:
    usage = usage_of(session=100)
    usage.charge({Account("", ANN): 90})
    usage.charge({Account("", ChargedSession(ANN.master, ANN.session, "bob")): 90})

"""Quotas: how much of a task a container, a session and a user can take, and have taken.

What a task keeps is charged to *accounts*: a container, and the session and user whose step made
it. A quota bounds their sum over the task, a container, a session or a user. `Usage` adds up and
refuses. Only what makes, frees or outgrows an allowance calls it, so that a step that updates
variables or passes elements through a queue does not come here.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from jflow.base.cluster import Task
from jflow.base.text import bytes_text
from jflow.errors import ResourceExhaustedError

UNLIMITED = 1 << 62
"""A quota that nothing reaches."""

_BLOCK_BYTES = 1 << 16
"""An allowance grows by a multiple of this, and keeps so much more than it needs."""

_N_SHOWN = 3
"""How many accounts an error names: those that have most."""


class ChargedSession(NamedTuple):
    """The session that something is charged to: that whose step made it.

    Attributes:
      master: the task of its master; "" if nothing is known of it.
      session: its number there.
      user: whose token its client has; "" if that of the cluster.
    """

    master: str = ""
    session: int = 0
    user: str = ""

    def __str__(self) -> str:
        if not self.master:
            return "no session"
        session = f"session {self.session}" if self.session else "a client"
        return f"{session}{f' of user {self.user}' if self.user else ''} of {self.master}"


UNKNOWN = ChargedSession()
"""Of what no step has made: restored and moved state, and that of this process's own sessions."""


class Account(NamedTuple):
    """What is charged for something.

    Attributes:
      container: where it is; "" if that is the default one, or it is in no container.
      creator: the session whose step made it.
    """

    container: str
    creator: ChargedSession = UNKNOWN


DEFAULT = Account("")
"""The account of state in the default container that no step has made."""


@dataclass(frozen=True)
class Quotas:
    """The most that a task keeps: in all, and of one container, session and user each."""

    task: int = UNLIMITED
    container: int = UNLIMITED
    session: int = UNLIMITED
    user: int = UNLIMITED


NO_QUOTAS = Quotas()

Key = TypeVar("Key")
_Group = tuple[str, object]


def _groups(account: Account) -> Iterator[_Group]:
    """Yields what the quotas of an account are for: the name of each, and what it bounds."""
    yield "task", None
    yield "container", account.container
    if account.creator.master:
        yield "session", account.creator  # with the user: a master that restarts counts from 1
    if account.creator.user:
        yield "user", account.creator.user


class Usage:
    """How much a task keeps, by account. Thread-safe.

    Args:
      task: the task, for messages.
      what: what is counted, for messages, such as "bytes of state".
      text: formats an amount.
      quotas: the bounds.

    Attributes:
      quotas: as given; may be replaced before the first use.
    """

    def __init__(
        self,
        task: Task,
        what: str = "state",
        text: Callable[[int], str] = bytes_text,
        quotas: Quotas = NO_QUOTAS,
    ) -> None:
        self.quotas = quotas
        self._task = task
        self._what = what
        self._text = text
        self._lock = threading.Lock()
        self._by_account: Counter[Account] = Counter()
        self._by_group: Counter[_Group] = Counter()

    def charge(self, amounts: Mapping[Account, int]) -> None:
        """Charges accounts, all of them or none.

        Raises:
          ResourceExhaustedError: if that would exceed a quota.
        """
        with self._lock:
            wanted: Counter[_Group] = Counter()
            for account, amount in amounts.items():
                for group in _groups(account):
                    wanted[group] += amount
            for (quota, name), amount in wanted.items():
                limit: int = getattr(self.quotas, quota)
                if amount > 0 and self._by_group[quota, name] + amount > limit:
                    raise self._exceeded(amounts, (quota, name), amount, limit)
            for account, amount in amounts.items():
                self._add(account, amount)

    def add(self, account: Account, amount: int) -> None:
        """Charges an account, or frees a negative amount, whatever the quotas are."""
        with self._lock:
            self._add(account, amount)

    def accounts(self) -> dict[Account, int]:
        """Returns what each account has."""
        with self._lock:
            return dict(self._by_account)

    def _add(self, account: Account, amount: int) -> None:
        _count(self._by_account, account, amount)
        for group in _groups(account):
            _count(self._by_group, group, amount)

    def _exceeded(
        self, amounts: Mapping[Account, int], group: _Group, amount: int, limit: int
    ) -> ResourceExhaustedError:
        """Returns the error for an amount that exceeds a quota, with what has most of it."""
        (quota, name), text = group, self._text
        of = {
            "task": str(self._task),
            "container": f"container {name!r}",
            "session": str(next(iter(amounts)).creator),
            "user": f"user {name}",
        }[quota]
        there = [
            (account, n) for account, n in self._by_account.items() if group in _groups(account)
        ]
        there.sort(key=lambda one: -one[1])
        most = "; ".join(
            f"{text(n)} of {account.creator}"
            + (f" in container {account.container!r}" if account.container else "")
            for account, n in there[:_N_SHOWN]
        )
        has = f"has {text(self._by_group[group])} of {text(limit)}"
        has += f" (most: {most})" if most else ""
        return ResourceExhaustedError(
            f"{text(amount)} more of {self._what} on {self._task} exceed the quota of {of}, which "
            f"{has}; free some, or have the servers started with a larger quota ({quota})",
            task=str(self._task),
        )


def _count(counter: Counter[Key], key: Key, amount: int) -> None:
    counter[key] += amount
    if not counter[key]:
        del counter[key]


class Allowance:
    """The bytes that one resource may keep, taken from `Usage` in blocks; its cell guards it.

    So that most changes of the resource are a comparison: it calls `cover` before it outgrows
    `most`, and `trim` when it has less than `least`.

    Attributes:
      most: what it may keep without asking; unlimited until `charge_to` gives it an account.
      least: below this it gives some back.
    """

    __slots__ = ("_account", "_usage", "least", "most")

    def __init__(self) -> None:
        self._usage: Usage | None = None
        self._account = DEFAULT
        self.most = UNLIMITED
        self.least = -1

    def charge_to(self, usage: Usage, account: Account, n_bytes: int) -> None:
        """Charges what the resource has to an account from now on, whatever the quotas are."""
        self._usage, self._account = usage, account
        self._set(n_bytes)
        usage.add(account, n_bytes)

    def cover(self, n_bytes: int) -> None:
        """Makes the allowance at least so large. Raises ResourceExhaustedError by the quotas."""
        usage = self._usage
        if usage is None or n_bytes <= self.most:
            return
        rounded = (n_bytes // _BLOCK_BYTES + 2) * _BLOCK_BYTES
        try:
            usage.charge({self._account: rounded - self.most})
        except ResourceExhaustedError:
            usage.charge({self._account: n_bytes - self.most})
            rounded = n_bytes
        self._set(rounded)

    def cover_returned(self, n_bytes: int) -> None:
        """Makes the allowance at least so large, whatever the quotas are."""
        if self._usage is not None and n_bytes > self.most:
            self._usage.add(self._account, n_bytes - self.most)
            self._set(n_bytes)

    def trim(self, n_bytes: int) -> None:
        """Gives back what a resource that has so many bytes does not need."""
        if self._usage is None:
            return
        kept = min(self.most, n_bytes and (n_bytes // _BLOCK_BYTES + 2) * _BLOCK_BYTES)
        self._usage.add(self._account, kept - self.most)
        self._set(kept)

    def _set(self, n_bytes: int) -> None:
        self.most = n_bytes
        self.least = n_bytes // 2 - _BLOCK_BYTES

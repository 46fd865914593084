"""Fences: keep a program that another one has replaced from changing anything.

A program claims a name, such as that of a training run, and gets an *epoch*; a program that claims
the name later gets a higher one. Every task refuses what is done under a lower epoch than the
highest that it has heard of, for ever; `Fences` says what it may forget. A task hears of a claim
when it is made, or, if it was down, with the first call that is made under it.

Source of the idea: the fencing tokens of locks, as in M. Kleppmann, "How to do distributed locking"
(2016), and the epochs of Kafka's producers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from jflow.errors import DataLossError, FencedError, InvalidArgumentError, ResourceExhaustedError

CLAIMS = "jflow.claims"
"""The key in `Checkpoint.about` of the claims that were known when it was saved."""

MAX_NAMES = 1024
MAX_NAME_LENGTH = 256
_RANDOM_BITS = 32
_FIRST_SECOND = 1_704_067_200
_LAST_SECOND = 2**31 - 2**20
"""As far as clocks count: in 2092; a later claim is one above the highest known one."""
_FORGOTTEN = ""
"""The name of the epoch of all forgotten names in a checkpoint; no other name is empty."""
_MAX_EPOCH = 2**63 - 1


@dataclass(frozen=True)
class Claim:
    """A name that a program has claimed, and the epoch of the claim.

    Attributes:
      name: what it has claimed.
      epoch: from 1 to 2**63 - 1; later claims of the name have higher ones.

    Raises:
      InvalidArgumentError: if one of them is out of range.
    """

    name: str
    epoch: int

    def __post_init__(self) -> None:
        if not 0 < len(self.name) <= MAX_NAME_LENGTH:
            raise InvalidArgumentError(
                f"expected a name of 1 to {MAX_NAME_LENGTH} characters to claim, got {self.name!r}"
            )
        if not 0 < self.epoch <= _MAX_EPOCH:
            raise InvalidArgumentError(
                f"expected an epoch of {self.name!r} from 1 to {_MAX_EPOCH}, got {self.epoch}"
            )

    def __str__(self) -> str:
        return f"{self.name!r} in epoch {self.epoch:x}"


def next_epoch(highest: int, wall_time: float, random_bits: int) -> int:
    """Returns an epoch above the highest known one, and above all of the past.

    The upper half counts seconds since 2024, or claims where there is more than one a second. So a
    program that is started again passes the claims of a checkpoint that an earlier cluster wrote,
    whose tasks are gone.

    Args:
      highest: the highest known epoch; 0 if none is known.
      wall_time: the present time in seconds since 1970.
      random_bits: a random number below 2**32; programs that claim at once get different epochs.
    """
    seconds = min(int(wall_time) - _FIRST_SECOND, _LAST_SECOND)
    count = max((highest >> _RANDOM_BITS) + 1, seconds)
    return (count << _RANDOM_BITS) | random_bits


class Fences:
    """The highest epoch of each name that one task has heard of.

    A task remembers so many names. For one more it forgets the one that it has heard of longest
    ago among those that nothing uses here. Forgotten names have the highest epoch of all of them:
    so no epoch ever goes back, whatever was forgotten, and a program that claims one of them anew
    gets a higher one. What was done under a claim of a forgotten name is refused like that of one
    that was claimed again, because the task cannot know that it was not.

    Args:
      limit: how many names are remembered.
    """

    def __init__(self, limit: int = MAX_NAMES) -> None:
        self._limit = limit
        self._epochs: dict[str, int] = {}  # the name heard of last is the last one
        self._forgotten = 0
        self._users: list[Callable[[], Iterable[Claim]]] = []

    def add_user(self, claims: Callable[[], Iterable[Claim]]) -> None:
        """Adds a function that returns the claims in use here; their names are never forgotten."""
        self._users.append(claims)

    def epoch(self, name: str) -> int:
        """Returns the highest epoch that a name may have been claimed in; 0 if it never was."""
        return self._epochs.get(name, self._forgotten)

    def learn(self, claim: Claim) -> bool:
        """Records a claim; returns whether it is higher than all earlier ones of its name.

        Raises:
          ResourceExhaustedError: if there are too many names, and all are in use.
        """
        known_epoch = self._epochs.pop(claim.name, None)
        if known_epoch is not None:
            self._epochs[claim.name] = max(known_epoch, claim.epoch)
            return claim.epoch > known_epoch
        if claim.epoch <= self._forgotten:
            return False
        if len(self._epochs) >= self._limit:
            self._forget(claim.name)
        self._epochs[claim.name] = claim.epoch
        return True

    def check(self, claim: Claim) -> None:
        """Raises FencedError if there was a later claim of the name, or there may have been one."""
        known_epoch = self.epoch(claim.name)
        if claim.epoch >= known_epoch:
            return
        if claim.name in self._epochs:
            why = (
                "is over, because another program has claimed the name since then "
                f"(epoch {known_epoch:x}); nothing was changed. Let this program end"
            )
        else:
            why = (
                f"was forgotten: more than {self._limit} names were claimed while it was not in "
                "use, so another program may have claimed it; nothing was changed. Let this "
                "program end, or claim the name again"
            )
        raise FencedError(f"this program's claim of {claim} {why}")

    def _forget(self, wanted: str) -> None:
        """Forgets the least recently heard, unused name to make room for another one."""
        used = {claim.name for claims in self._users for claim in claims()}
        idle = next((name for name in self._epochs if name not in used), None)
        if idle is None:
            raise ResourceExhaustedError(
                f"{self._limit} names are claimed and in use already; {wanted!r} would be one more"
            )
        self._forgotten = max(self._forgotten, self._epochs.pop(idle))

    def to_text(self) -> str:
        """Encodes the claims as text for a checkpoint; "" if nothing was ever claimed."""
        epochs = self._epochs | ({_FORGOTTEN: self._forgotten} if self._forgotten else {})
        return json.dumps(epochs, sort_keys=True) if epochs else ""

    def learn_text(self, text: str) -> None:
        """Records the claims in a checkpoint.

        Raises:
          DataLossError: if the text is malformed.
        """
        try:
            epochs = json.loads(text) if text else {}
        except ValueError:
            epochs = None
        if not isinstance(epochs, dict) or not all(type(n) is int for n in epochs.values()):
            raise DataLossError(f"the claims in a checkpoint are malformed: {text!r:.80}")
        self._forgotten = max(self._forgotten, epochs.pop(_FORGOTTEN, 0))
        for name, epoch in epochs.items():
            self.learn(Claim(name, epoch))

    def __repr__(self) -> str:
        return f"<Fences of {len(self._epochs)} names>"

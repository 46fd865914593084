"""Fences: keep a program that was replaced by another one from changing anything.

A program claims a name, such as that of a training run, and gets an *epoch*; a program that claims
the name later gets a higher one. Every task refuses what is done under a lower epoch than the highest
that it has heard of, for ever. A task hears of a claim when it is made, and else, because it was
down, with the first call that is made under it.

Source of the idea: the fencing tokens of locks, as in M. Kleppmann, "How to do distributed locking"
(2016), and the epochs of Kafka's producers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from jflow.errors import DataLossError, FencedError, InvalidArgumentError, ResourceExhaustedError

CLAIMS = "jflow.claims"
"""Under what a checkpoint keeps the claims that were known when it was saved."""

MAX_NAMES = 1024
MAX_NAME_LENGTH = 256
_RANDOM_BITS = 32
_MAX_EPOCH = 2**63 - 1


@dataclass(frozen=True)
class Claim:
    """What a program does its calls under.

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


def next_epoch(highest: int, random_bits: int) -> int:
    """An epoch after the highest that is known, 0 if none is.

    Args:
      highest: that epoch.
      random_bits: a random number below 2**32, by which programs that claim at once get different ones.
    """
    return (((highest >> _RANDOM_BITS) + 1) << _RANDOM_BITS) | random_bits


class Fences:
    """The highest epoch of each name that one task has heard of."""

    def __init__(self) -> None:
        self._epochs: dict[str, int] = {}

    def epoch(self, name: str) -> int:
        """The highest epoch of a name, 0 if it was never claimed."""
        return self._epochs.get(name, 0)

    def learn(self, claim: Claim) -> bool:
        """Takes note of a claim; returns whether it is higher than those before.

        Raises:
          ResourceExhaustedError: if there are too many names.
        """
        known = self._epochs.get(claim.name)
        if known is None and len(self._epochs) >= MAX_NAMES:
            raise ResourceExhaustedError(
                f"{MAX_NAMES} names are claimed already; {claim.name!r} would be one more"
            )
        if claim.epoch <= (known or 0):
            return False
        self._epochs[claim.name] = claim.epoch
        return True

    def check(self, claim: Claim) -> None:
        """Raises FencedError if there was a later claim of the name."""
        known = self._epochs.get(claim.name, 0)
        if claim.epoch < known:
            raise FencedError(
                f"this program's claim of {claim} is over, because another program has claimed the "
                f"name since then (epoch {known:x}); nothing was changed. Let this program end"
            )

    def to_text(self) -> str:
        """What a checkpoint keeps of it; "" if nothing was ever claimed."""
        return json.dumps(self._epochs, sort_keys=True) if self._epochs else ""

    def learn_text(self, text: str) -> None:
        """Takes note of the claims in a checkpoint.

        Raises:
          DataLossError: if the text is malformed.
        """
        try:
            found = json.loads(text) if text else {}
        except ValueError:
            found = None
        if not isinstance(found, Mapping) or not all(type(n) is int for n in found.values()):
            raise DataLossError(f"the claims in a checkpoint are malformed: {text!r:.80}")
        for name, epoch in found.items():
            self.learn(Claim(name, epoch))

    def __repr__(self) -> str:
        return f"<Fences of {len(self._epochs)} names>"

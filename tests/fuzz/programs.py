"""Mutated programs before the process that validates them."""

from __future__ import annotations

from collections.abc import Iterator

from jflow.plan.validator.process import ValidationLimits
from tests.fuzz.campaign import Campaign
from tests.fuzz.corpus import programs
from tests.fuzz.tally import Growth, Tally
from tests.plan.validator.outcomes import outcomes

_LIMITS = ValidationLimits(seconds=2, n_bytes=1 << 30)


def try_programs(campaign: Campaign, tally: Tally, thread: int, n_threads: int) -> None:
    """Validates programs; it may end by one of them, and this process must not."""
    numbers, sent = campaign.numbers(thread, n_threads), []
    growth = Growth(limit=200 << 20, n_warm=500)

    def inputs() -> Iterator[bytes]:
        for number in numbers:
            mutator = campaign.mutator(number)
            data = mutator.program(mutator.pick(programs()))
            sent[:] = [(number, data)]
            yield data

    try:
        for outcome in outcomes(inputs(), _LIMITS):
            if outcome.valid is not None:
                tally.add("valid")
            elif outcome.how_it_ended is None:
                tally.add("refused")
            else:
                tally.add(f"ended the process by {outcome.how_it_ended}")
            if grown := growth.check():
                tally.violate(grown)
    except Exception as error:  # only InvalidArgumentError is an outcome
        for number, data in sent:
            tally.violate(f"{type(error).__name__}: {error}", number, data)

"""The known name that an unknown one is probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

_N_COMPARED = 5000
"""With how many known names one is compared, which takes 30 ms."""


def nearest(name: str, known: Iterable[str], cutoff: float = 0.75) -> str | None:
    """Returns the known name that is most like a name, whatever their case; None if none is.

    Of names with scopes, such as "layer/weights", the last part alone is like the whole.

    Args:
      name: the unknown name.
      known: the known ones.
      cutoff: how like they must be, from 0 to 1.
    """
    folded = {each.casefold(): each for each in islice(known, _N_COMPARED)}
    close = get_close_matches(name.casefold(), folded, n=1, cutoff=cutoff)
    ending = f"/{name}"
    in_scopes = (each for each in folded.values() if each.endswith(ending))
    return folded[close[0]] if close else next(in_scopes, None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns what a message ends with: "; did you mean 'loss'?", or "" if no name is like it."""
    found = nearest(name, known)
    return "" if found is None else f"; did you mean {found!r}?"

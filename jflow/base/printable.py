"""`printable`: text of other processes, as it may be shown on a terminal or in a log."""

from __future__ import annotations


def printable(text: str, kept: str = "") -> str:
    r"""The text with escapes, such as `\x1b`, for all that is not printable, except those kept.

    Terminals obey control characters: they could hide, replace or forge what else is shown.
    """
    return "".join(one if one.isprintable() or one in kept else _escaped(one) for one in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()

"""Colours that are distinct for any kind of colour vision (Okabe and Ito, 2008)."""

from __future__ import annotations

SEND = "#D55E00"
"""The colour of transfers; no device has it."""

INK = "#1F2933"
MUTED = "#52606D"
FAINT = "#9AA5B1"
PAPER = "#FFFFFF"

_DEVICES = ("#0072B2", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#B8A900")
_SHADES = ((PAPER, 0.0), ("#000000", 0.4), (PAPER, 0.45))


def device_colour(number: int) -> str:
    """The colour of a device by its number from 0; eighteen are distinct."""
    towards, part = _SHADES[number // len(_DEVICES) % len(_SHADES)]
    return mixed(_DEVICES[number % len(_DEVICES)], towards, part)


def mixed(colour: str, other: str, part: float) -> str:
    """Interpolates from a colour to another, both "#RRGGBB"; `part` is from 0 to 1."""
    pairs = zip(_channels(colour), _channels(other), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * part):02X}" for a, b in pairs)


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)

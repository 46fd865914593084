"""How names, shapes and sizes are written where there is little room."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable

from jflow.graph import Tensor, VariableRef
from jflow.values import declared

_KINDS = {"bfloat": "bf", "float": "f", "uint": "u", "int": "i", "complex": "c"}
_DTYPE = re.compile(r"(bfloat|float|uint|int|complex)(\d.*)")
_UNPRINTABLE = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def shape_text(value: Tensor | VariableRef) -> str:
    """Type and shape in JAX's short notation, such as "f32[32,?]"; "?" is a size not known."""
    match = _DTYPE.fullmatch(value.dtype.name)
    kind = _KINDS[match[1]] + match[2] if match else value.dtype.name
    sizes = declared(value.shape)
    shown = "..." if sizes is None else ",".join("?" if n is None else str(n) for n in sizes)
    return f"{kind}[{shown}]"


def size_bytes(values: Collection[Tensor | VariableRef]) -> int:
    """Memory that the values take together, in bytes; sizes that are not known count as 1."""
    sizes = (declared(value.shape) or () for value in values)
    return sum(
        math.prod(n or 1 for n in shape) * value.dtype.itemsize
        for shape, value in zip(sizes, values, strict=True)
    )


def byte_text(n_bytes: int) -> str:
    """A number of bytes with three digits or so: "392 KiB", "1.53 MiB"."""
    amount, unit = float(n_bytes), 0
    while amount >= 1000 and unit < len(_BYTE_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    digits = f"{amount:.3g}" if amount < 1000 else f"{amount:.0f}"
    return f"{digits} {_BYTE_UNITS[unit]}"


def counted(count: int, noun: str) -> str:
    """A number and its noun: "1 send", "2 sends"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def short_name(name: str, limit: int) -> str:
    """The end of a name says most about it: scopes go first, then the middle of the last part."""
    if len(name) <= limit:
        return name
    parts = name.split("/")
    for start in range(1, len(parts)):
        candidate = "…/" + "/".join(parts[start:])
        if len(candidate) <= limit:
            return candidate
    return cut(parts[-1], limit)


def cut(text: str, limit: int) -> str:
    """The text with "…" for its middle where it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    head = limit // 2
    return text[:head] + "…" + text[len(text) - (limit - 1 - head) :]


def printable(text: str) -> str:
    """The text with "�" for characters that no XML document may have."""
    return _UNPRINTABLE.sub("\ufffd", text)


def listed(words: Iterable[str], limit: int) -> str:
    """The words with commas between them, "…" for those that do not fit in `limit` characters."""
    line = ""
    for word in words:
        longer = f"{line}, {word}" if line else word
        if line and len(longer) > limit:
            return f"{line}, …"
        line = longer
    return line


def text_width(text: str, font_size: float, *, bold: bool = False) -> float:
    """Width in pixels, estimated for the widest of the usual sans-serif fonts."""
    width = font_size * sum(_advance(char) for char in text)
    return width * 1.1 if bold else width


def _advance(char: str) -> float:
    if char in "ijl.,:;|!'/ ":
        return 0.31
    if char in "frt()[]-":
        return 0.4
    if char in "mwMW@%…":
        return 0.95
    return 0.7 if char.isupper() else 1.0 if ord(char) > 0x2FF else 0.61

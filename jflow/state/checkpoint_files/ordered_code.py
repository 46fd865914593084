"""Encodes keys of several parts so that their bytes sort as the parts do, as TensorFlow does."""

from __future__ import annotations

import re


def text(value: bytes) -> bytes:
    """Returns the code of a text: with an end, and with escapes of the bytes 0 and 255."""
    return (
        re.sub(b"[\0\xff]", lambda found: found[0] + bytes((255 - found[0][0],)), value) + b"\0\1"
    )


def unsigned_number(value: int) -> bytes:
    """Returns the code of a number of at least 0: how many bytes it has, and the bytes."""
    n_bytes = -(-value.bit_length() // 8)
    return bytes((n_bytes,)) + value.to_bytes(n_bytes, "big")


def signed_number(value: int) -> bytes:
    """Returns the code of a number of 64 bits, of one to ten bytes.

    It begins with one bit of 1 for each byte and a 0; all bits of a negative number are inverted.
    Seven bits of a byte are left for the number, of which the first is its sign.
    """
    magnitude = ~value if value < 0 else value
    n_bytes = magnitude.bit_length() // 7 + 1
    n_bits = 8 * n_bytes
    lengths = ((1 << n_bytes) - 1) << (n_bits - n_bytes)
    code = lengths ^ magnitude
    return ((1 << n_bits) - 1 ^ code if value < 0 else code).to_bytes(n_bytes, "big")

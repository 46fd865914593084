"""CRC-32C (Castagnoli), and its masking in TFRecord files.

The package google-crc32c computes it in hardware, at 10 GB/s. Where there is no build of it NumPy
does: a CRC is linear, so the CRC of a block is the XOR of the contributions of its bytes, which a
table has for each byte value and distance from the end of the block.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from jflow.base.values import Array

_POLYNOMIAL = 0x82F63B78
_BLOCK = 1024
_ONES = 0xFFFFFFFF
_MASK = 0xA282EAD8


@cache
def _table() -> np.ndarray[tuple[int, int], np.dtype[np.uint32]]:
    """Returns u32[block, 256]: a byte value's contribution to the CRC if `i` bytes follow it."""
    table = np.empty((_BLOCK, 256), np.uint32)
    table[0] = np.arange(256)
    for _ in range(8):
        table[0] = (table[0] >> 1) ^ (table[0] & 1) * np.uint32(_POLYNOMIAL)
    for i in range(1, _BLOCK):
        table[i] = (table[i - 1] >> 8) ^ table[0][table[i - 1] & 0xFF]
    return table


def extended_by_numpy(crc: int, data: bytes | Array) -> int:
    """Returns the CRC-32C of bytes of the CRC `crc` followed by bytes or u8[n], with NumPy."""
    table, crc = _table(), crc ^ _ONES
    array = np.frombuffer(data, np.uint8)
    for start in range(0, len(data), _BLOCK):
        # The CRC so far acts as four bytes that are XORed to the next four.
        block = array[start : start + _BLOCK].copy()
        head = np.frombuffer(crc.to_bytes(4, "little"), np.uint8)[: len(block)]
        block[: len(head)] ^= head
        added = table[np.arange(len(block) - 1, -1, -1), block]
        crc = (crc >> (8 * len(head))) ^ int(np.bitwise_xor.reduce(added))
    return crc ^ _ONES


def checksum_by_numpy(data: bytes | Array) -> int:
    """Returns the CRC-32C of bytes or of u8[n], computed with NumPy."""
    return extended_by_numpy(0, data)


try:
    from google_crc32c.cext import extend as _extended  # type: ignore[attr-defined]
    from google_crc32c.cext import value as _checksum  # type: ignore[attr-defined]
except ImportError:
    _checksum, _extended = checksum_by_numpy, extended_by_numpy

checksum: Callable[[bytes | Array], int] = _checksum
"""Returns the CRC-32C of bytes, or of the memory of a u8[n]."""

extended: Callable[[int, bytes | Array], int] = _extended
"""Returns the CRC-32C of bytes whose CRC is the first argument, followed by those of the second."""


def masked(crc: int) -> int:
    """Returns the masked CRC, as TFRecord stores it."""
    return (((crc >> 15) | (crc << 17)) + _MASK) & _ONES


def masked_array(crcs: Array) -> Array:
    """Returns the masked CRCs u32[n] of CRCs u32[n]."""
    result: Array = ((crcs >> 15) | (crcs << 17)) + np.uint32(_MASK)
    return result

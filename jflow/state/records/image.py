"""Decoders and encoders of image files, with the package Pillow."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np

from jflow.base.values import Array
from jflow.errors import InvalidArgumentError
from jflow.state.records.extras import needed

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_CHANNELS = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "WEBP")

# What Pillow's readers raise for malformed data.
_DAMAGES = (
    *(OSError, ValueError, SyntaxError, TypeError, LookupError, EOFError, OverflowError),
    *(AttributeError, MemoryError, struct.error, zlib.error),
)


def decode_image(contents: Array, *, channels: int = 0) -> tuple[Array]:
    """Decodes a BMP, GIF, JPEG, PNG or WebP file.

    Of several frames the first one is returned. Samples of 16 bits lose their lower 8 bits.

    Args:
      contents: string[], the bytes of the file.
      channels: 1 for grayscale, 3 for RGB, 4 for RGBA, 0 for the number that the file has.

    Returns:
      u8[height, width, channels].

    Raises:
      InvalidArgumentError: if it is not such a file, is damaged or truncated, or has more pixels
        than `PIL.Image.MAX_IMAGE_PIXELS`; it is not decompressed then.
      UnimplementedError: if Pillow is not installed.
    """
    return (_decode(contents, channels, _FORMATS),)


def decode_jpeg(contents: Array, *, channels: int = 0) -> tuple[Array]:
    """Decodes a JPEG file; takes, returns and raises as `decode_image`."""
    return (_decode(contents, channels, ("JPEG",)),)


def decode_png(contents: Array, *, channels: int = 0) -> tuple[Array]:
    """Decodes a PNG file; takes, returns and raises as `decode_image`."""
    return (_decode(contents, channels, ("PNG",)),)


def encode_png(image: Array) -> tuple[Array]:
    """Encodes u8[height, width, 1 to 4] as a PNG file, string[].

    Raises:
      InvalidArgumentError: if it is not such an array.
      UnimplementedError: if Pillow is not installed.
    """
    return (_encode(image, "PNG", (1, 2, 3, 4)),)


def encode_jpeg(image: Array, *, quality: int = 95) -> tuple[Array]:
    """Encodes an image as a JPEG file, string[].

    Args:
      image: u8[height, width, 1 or 3].
      quality: 1 to 100; a higher one gives a larger file.

    Raises:
      InvalidArgumentError: if it is not such an array or quality.
      UnimplementedError: if Pillow is not installed.
    """
    if not 1 <= quality <= 100:
        raise InvalidArgumentError(f"expected a quality from 1 to 100, got {quality}")
    return (_encode(image, "JPEG", (1, 3), quality=quality),)


def _decode(contents: Array, channels: int, formats: tuple[str, ...]) -> Array:
    if contents.ndim:
        raise InvalidArgumentError(f"expected string[], got strings of shape {contents.shape}")
    if channels not in (0, *_MODES):
        raise InvalidArgumentError(f"channels must be 0, 1, 3 or 4, got {channels}")
    pillow = needed("PIL.Image", "image", "decoding images")
    data = contents.item()
    damages = (*_DAMAGES, pillow.DecompressionBombError, pillow.DecompressionBombWarning)
    try:
        with pillow.open(io.BytesIO(data), formats=formats) as image:
            _check_size(image, pillow.MAX_IMAGE_PIXELS)
            pixels = np.asarray(_convert_mode(image, channels))
    except damages as error:
        raise InvalidArgumentError(
            f"{len(data)} bytes are not a {' or '.join(formats)} file, or it is damaged: {error}; "
            f"they start with {data[:12]!r}"
        ) from error
    return pixels.reshape(*pixels.shape[:2], -1)


def _check_size(image: Any, limit: int | None) -> None:
    if limit is not None and image.width * image.height > limit:
        raise InvalidArgumentError(
            f"an image of {image.width} x {image.height} pixels has more than the {limit} that "
            "PIL.Image.MAX_IMAGE_PIXELS allows"
        )


def _convert_mode(image: Any, channels: int) -> Any:
    """Converts an image to a mode with 8 bits per sample."""
    if image.mode.startswith("I"):
        samples = np.asarray(image).astype(np.int64) >> 8
        image = needed("PIL.Image", "image", "decoding images").fromarray(samples.astype(np.uint8))
    if channels:
        mode = _MODES[channels]
    elif image.mode in _CHANNELS.values():
        mode = image.mode
    elif image.mode == "1":
        mode = "L"
    else:
        mode = "RGBA" if image.has_transparency_data else "RGB"
    return image.convert(mode)


def _encode(image: Array, kind: str, channels: tuple[int, ...], **options: Any) -> Array:
    if image.ndim != 3 or image.dtype != np.uint8 or image.shape[2] not in channels:
        raise InvalidArgumentError(
            f"expected uint8[height, width, channels] with channels in {channels} for {kind}, got "
            f"{image.dtype}{image.shape}"
        )
    if not image.size:
        raise InvalidArgumentError(f"an image of shape {image.shape} has no pixels")
    pillow = needed("PIL.Image", "image", "encoding images")
    pixels = image[:, :, 0] if image.shape[2] == 1 else image
    out = io.BytesIO()
    pillow.fromarray(np.ascontiguousarray(pixels)).save(out, kind, **options)
    return np.array(out.getvalue(), object)

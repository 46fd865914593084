"""Images as arrays of bytes, by the package Pillow."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np

from jflow.errors import InvalidArgumentError
from jflow.records.extras import needed
from jflow.values import Array

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_CHANNELS = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "WEBP")

# What Pillow's readers raise for data that is not what it says.
_DAMAGES = (
    *(OSError, ValueError, SyntaxError, TypeError, LookupError, EOFError, OverflowError),
    *(AttributeError, MemoryError, struct.error, zlib.error),
)


def decode_image(contents: Array, *, channels: int = 0) -> tuple[Array]:
    """u8[height, width, channels], the image that is in a BMP, GIF, JPEG, PNG or WebP file.

    Of several frames it is the first one. Samples of 16 bits lose the lower half.

    Args:
      contents: string[], all bytes of the file.
      channels: 1 for grey, 3 for colours, 4 for colours and opacity, 0 for what the file has.

    Raises:
      InvalidArgumentError: if it is no such file, is damaged or cut off, or has more pixels than
        `PIL.Image.MAX_IMAGE_PIXELS`; nothing was decompressed then.
      UnimplementedError: if Pillow is not installed.
    """
    return (_decode(contents, channels, _FORMATS),)


def decode_jpeg(contents: Array, *, channels: int = 0) -> tuple[Array]:
    """u8[height, width, channels], the image in a JPEG file; otherwise as `decode_image`."""
    return (_decode(contents, channels, ("JPEG",)),)


def decode_png(contents: Array, *, channels: int = 0) -> tuple[Array]:
    """u8[height, width, channels], the image in a PNG file; otherwise as `decode_image`."""
    return (_decode(contents, channels, ("PNG",)),)


def encode_png(image: Array) -> tuple[Array]:
    """string[], a PNG file of u8[height, width, channels], whose channels are 1 to 4.

    Raises:
      InvalidArgumentError: if it is no such array.
      UnimplementedError: if Pillow is not installed.
    """
    return (_encode(image, "PNG", (1, 2, 3, 4)),)


def encode_jpeg(image: Array, *, quality: int = 95) -> tuple[Array]:
    """string[], a JPEG file of u8[height, width, channels], whose channels are 1 or 3.

    Args:
      image: the image.
      quality: from 1 to 100, higher for larger files that look better.

    Raises:
      InvalidArgumentError: if it is no such array or quality.
      UnimplementedError: if Pillow is not installed.
    """
    if not 1 <= quality <= 100:
        raise InvalidArgumentError(f"expected a quality from 1 to 100, got {quality}")
    return (_encode(image, "JPEG", (1, 3), quality=quality),)


def _decode(contents: Array, channels: int, formats: tuple[str, ...]) -> Array:
    if contents.ndim:
        raise InvalidArgumentError(f"expected string[], got string{list(contents.shape)}")
    if channels not in (0, *_MODES):
        raise InvalidArgumentError(f"channels must be 0, 1, 3 or 4 but got {channels}")
    pillow = needed("PIL.Image", "image", "decoding images")
    data = contents.item()
    damages = (*_DAMAGES, pillow.DecompressionBombError, pillow.DecompressionBombWarning)
    try:
        with pillow.open(io.BytesIO(data), formats=formats) as image:
            _check_size(image, pillow.MAX_IMAGE_PIXELS)
            pixels = np.asarray(_converted(image, channels))
    except damages as error:
        raise InvalidArgumentError(
            f"{len(data)} bytes are no {' or '.join(formats)} file, or it is damaged: {error}; "
            f"they start with {data[:12]!r}"
        ) from error
    return pixels.reshape(*pixels.shape[:2], -1)


def _check_size(image: Any, limit: int | None) -> None:
    if limit is not None and image.width * image.height > limit:
        raise InvalidArgumentError(
            f"an image of {image.width} x {image.height} pixels has more than the {limit} that "
            "PIL.Image.MAX_IMAGE_PIXELS allows"
        )


def _converted(image: Any, channels: int) -> Any:
    """The image in a mode of 8 bits a sample."""
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
            f"{image.dtype}{list(image.shape)}"
        )
    if not image.size:
        raise InvalidArgumentError(f"an image of shape {list(image.shape)} has no pixels")
    pillow = needed("PIL.Image", "image", "encoding images")
    pixels = image[:, :, 0] if image.shape[2] == 1 else image
    out = io.BytesIO()
    pillow.fromarray(np.ascontiguousarray(pixels)).save(out, kind, **options)
    result = np.empty((), object)
    result[()] = out.getvalue()
    return result

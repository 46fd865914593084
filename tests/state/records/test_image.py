import io
import sys
import warnings
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from jflow.base.values import as_strings
from jflow.errors import InvalidArgumentError, UnimplementedError
from jflow.state.records import DECODERS


def _pixels(channels, height=5, width=7):
    return np.random.default_rng(0).integers(0, 256, (height, width, channels), np.uint8)


def _call(name, *arrays, **attributes):
    (result,) = DECODERS[name](*arrays, **attributes)
    return result


def _saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return as_strings(out.getvalue())


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_png_gives_every_pixel_back(channels):
    pixels = _pixels(channels)
    data = _call("encode_png", pixels)
    for name in ("decode_png", "decode_image"):
        got = _call(name, data)
        assert (got.dtype, got.shape) == (np.uint8, pixels.shape)
        assert (got == pixels).all()


@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg_is_close(channels):
    pixels = np.full((16, 24, channels), 130, np.uint8)
    got = _call("decode_jpeg", _call("encode_jpeg", pixels, quality=100))
    assert got.shape == pixels.shape
    assert abs(got.astype(int) - 130).max() <= 2


@pytest.mark.parametrize("wanted", [1, 3, 4])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_channels_are_those_asked_for(channels, wanted):
    got = _call("decode_png", _call("encode_png", _pixels(channels)), channels=wanted)
    assert got.shape == (5, 7, wanted)


def test_opacity_is_dropped_or_added():
    pixels = _pixels(4)
    assert (_call("decode_png", _call("encode_png", pixels), channels=3) == pixels[..., :3]).all()
    got = _call("decode_png", _call("encode_png", pixels[..., :3]), channels=4)
    assert (got[..., 3] == 255).all()


def test_other_modes_become_eight_bits():
    grey = np.arange(0, 65536, 4096, np.uint16).reshape(4, 4)
    got = _call("decode_png", _saved(Image.fromarray(grey), "PNG"))
    assert got[..., 0].tolist() == (grey >> 8).tolist()
    bits = Image.fromarray(np.eye(4, dtype=bool))
    assert _call("decode_png", _saved(bits, "PNG"))[..., 0].tolist() == (np.eye(4) * 255).tolist()
    palette = Image.fromarray(_pixels(3)).quantize(4)
    assert _call("decode_image", _saved(palette, "GIF")).shape == (5, 7, 3)
    cmyk = Image.fromarray(_pixels(3)).convert("CMYK")
    assert _call("decode_jpeg", _saved(cmyk, "JPEG")).shape == (5, 7, 3)
    for kind in ("BMP", "WEBP"):
        assert _call("decode_image", _saved(Image.fromarray(_pixels(3)), kind)).shape == (5, 7, 3)


def test_only_the_declared_formats_are_read():
    png, tiff = _call("encode_png", _pixels(3)), _saved(Image.fromarray(_pixels(3)), "TIFF")
    with pytest.raises(InvalidArgumentError, match="not a JPEG file"):
        _call("decode_jpeg", png)
    for data in (tiff, as_strings("nope"), as_strings("")):
        with pytest.raises(InvalidArgumentError, match="BMP or GIF or JPEG or PNG or WEBP"):
            _call("decode_image", data)


@pytest.mark.parametrize("kind", ["png", "jpeg"])
def test_an_image_cut_off_anywhere_is_refused(kind):
    data = _call(f"encode_{kind}", _pixels(3, 40, 40)).item()
    for length in range(0, len(data) - 20, 37):
        with pytest.raises(InvalidArgumentError, match=r"not a .* file, or it is damaged"):
            _call("decode_image", as_strings(data[:length]))


def test_a_bomb_is_refused_before_it_is_decompressed(monkeypatch):
    data = _saved(Image.new("1", (4000, 4000)), "PNG")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 4000 * 4000 - 1)
    # Pillow itself only warns of an image that is less than twice too large.
    with (
        warnings.catch_warnings(action="ignore"),
        pytest.raises(InvalidArgumentError, match="4000 x 4000 pixels"),
    ):
        _call("decode_image", data)
    with pytest.raises(InvalidArgumentError, match="16000000 pixels"):
        _call("decode_image", data)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(InvalidArgumentError, match="16000000"):
        _call("decode_image", data)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 4000 * 4000)
    assert _call("decode_image", data).shape == (4000, 4000, 1)


SAMPLES = [
    _saved(Image.fromarray(_pixels(3)), kind).item()
    for kind in ("PNG", "JPEG", "GIF", "BMP", "WEBP")
]


@given(st.sampled_from(SAMPLES), st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255))))
def test_any_damage_is_refused_or_gives_an_image(data, changes):
    damaged = bytearray(data)
    for place, value in changes:
        damaged[place % len(damaged)] = value
    with suppress(InvalidArgumentError):
        assert _call("decode_image", as_strings(bytes(damaged))).ndim == 3


@pytest.mark.parametrize(
    ("name", "array", "attributes"),
    [
        ("decode_png", as_strings(["a", "b"]), {}),
        ("decode_png", as_strings("a"), {"channels": 2}),
        ("encode_png", np.zeros((2, 2), np.uint8), {}),
        ("encode_png", np.zeros((2, 2, 5), np.uint8), {}),
        ("encode_png", np.zeros((2, 0, 3), np.uint8), {}),
        ("encode_png", np.zeros((2, 2, 3), np.float32), {}),
        ("encode_jpeg", np.zeros((2, 2, 4), np.uint8), {}),
        ("encode_jpeg", np.zeros((2, 2, 3), np.uint8), {"quality": 0}),
    ],
)
def test_what_cannot_be_is_refused(name, array, attributes):
    with pytest.raises(InvalidArgumentError):
        _call(name, array, **attributes)


def test_without_pillow_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(UnimplementedError, match=r"pip install 'jflow\[image\]'"):
        _call("decode_png", as_strings("a"))
    with pytest.raises(UnimplementedError, match=r"pip install 'jflow\[image\]'"):
        _call("encode_png", _pixels(3))

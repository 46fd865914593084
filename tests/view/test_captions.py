from __future__ import annotations

import jax
import pytest

import jflow as tf
from jflow.base.values import TensorSpec
from jflow.view.captions import counted, cut, listed, short_name, spec_text
from jflow.view.model import spec_bytes


@pytest.mark.parametrize(
    ("dtype", "shape", "text"),
    [
        ("float32", (2, 3), "f32[2,3]"),
        ("bfloat16", (), "bf16[]"),
        ("uint8", (7,), "u8[7]"),
        ("bool", (1,), "bool[1]"),
        ("complex64", (0,), "c64[0]"),
        ("float8_e4m3fn", (4,), "f8_e4m3fn[4]"),
    ],
)
def test_types_are_in_short_notation(dtype: str, shape: tuple[int, ...], text: str) -> None:
    assert spec_text(TensorSpec(shape, dtype)) == text


def test_unknown_sizes_and_dtypes_outside_xla_are_in_short_notation() -> None:
    assert spec_text(TensorSpec((None, 3), "float32")) == "f32[?,3]"
    assert spec_text(TensorSpec(None, "int8")) == "i8[...]"
    assert spec_text(TensorSpec((2,), tf.string)) == "string[2]"
    assert spec_text(TensorSpec((), jax.random.key(0).dtype)) == "key<fry>[]"


@pytest.mark.parametrize(
    ("shape", "n_bytes"), [((2, 3), 24), ((), 4), ((0, 5), 0), ((None, 3), 12), (None, 4)]
)
def test_unknown_sizes_count_as_one(shape: tuple[int | None, ...] | None, n_bytes: int) -> None:
    assert spec_bytes(TensorSpec(shape, "float32")) == n_bytes


def test_one_is_no_plural() -> None:
    assert [counted(n, "op") for n in (0, 1, 2)] == ["0 ops", "1 op", "2 ops"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a/b/dot", "a/b/dot"),
        ("tower/a/b/dot", "…/a/b/dot"),
        ("a_scope_that_is_long/dot", "…/dot"),
        ("a/dot_general_dilated", "dot_g…ated"),
    ],
)
def test_names_lose_scopes_first_and_then_their_middle(name: str, text: str) -> None:
    assert short_name(name, 10) == text


def test_cut_text_has_its_ends() -> None:
    assert cut("abcdefgh", 8) == "abcdefgh"
    assert cut("abcdefgh", 5) == "ab…gh"


def test_list_ends_where_there_is_no_more_room() -> None:
    words = ["one", "two", "three"]
    assert listed(words, 99) == "one, two, three"
    assert listed(words, 9) == "one, two, …"
    assert listed(["longer than that"], 3) == "longer than that"

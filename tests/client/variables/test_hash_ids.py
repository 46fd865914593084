"""`nn.hash_ids`: equal keys have one row, wherever it is computed, and rows are used evenly."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jflow as tf
from jflow.nn import hash_ids
from tests.drawn import examples

KNOWN = [0, 72635, 63312, 669224, 961800, 703017, 10170]
KNOWN_TEXTS = [498703, 802251, 331023]
INT32 = st.integers(-(2**31), 2**31 - 1)


# Each example compiles two programs.
@settings(max_examples=examples(8))
@given(st.lists(INT32, min_size=1, max_size=8), st.integers(1, 2**31 - 1), st.integers(0, 2**32))
def test_a_key_has_one_row_of_the_table_in_any_form(keys: Any, n_rows: int, salt: int) -> None:
    rows = hash_ids(np.array(keys, np.int64), n_rows, salt)
    assert rows.dtype == np.int32
    assert ((rows >= 0) & (rows < n_rows)).all()
    for form in (np.array(keys, np.int32), keys, jnp.array(keys)):
        np.testing.assert_array_equal(hash_ids(form, n_rows, salt), rows)
    traced = jax.jit(lambda x: hash_ids(x, n_rows, salt))(np.array(keys, np.int32))
    np.testing.assert_array_equal(traced, rows)
    with tf.Graph().as_default(), tf.Session() as session:
        tensor = tf.constant(np.array(keys, np.int32))
        np.testing.assert_array_equal(session.run(hash_ids(tensor, n_rows, salt)), rows)


def test_rows_of_known_keys_never_change() -> None:
    """Tables that were saved would have other rows for the same keys."""
    keys = [0, 1, -1, 2**31, 2**40, -(2**63), 2**63 - 1]
    assert hash_ids(np.array(keys), 1_000_003).tolist() == KNOWN
    assert hash_ids(["", "user 1", "größe"], 1_000_003, 7).tolist() == KNOWN_TEXTS
    assert hash_ids([b"user 1"], 1_000_003, 7).tolist() == KNOWN_TEXTS[1:2]


@pytest.mark.parametrize("kind", ["in order", "random", "multiples", "64 bits"])
def test_a_million_keys_use_rows_evenly(kind: str) -> None:
    """The number of pairs in one row, and that of free rows, are those of random rows."""
    n_keys, n_rows = 1_000_000, 1 << 20
    numbers = np.arange(n_keys, dtype=np.int64)
    keys = {
        "in order": numbers,
        "random": np.random.default_rng(0).integers(0, 2**63, n_keys),  # none is there twice
        "multiples": numbers << 20,
        "64 bits": numbers << 36,
    }[kind]
    counts = np.bincount(hash_ids(keys, n_rows), minlength=n_rows)
    pairs = (counts * (counts - 1) // 2).sum()
    assert pairs == pytest.approx(n_keys**2 / 2 / n_rows, rel=0.01)
    assert (counts == 0).mean() == pytest.approx(np.exp(-n_keys / n_rows), rel=0.01)
    other = hash_ids(keys, n_rows, salt=1)
    assert (other == hash_ids(keys, n_rows)).mean() < 1e-4


def test_what_has_no_row_is_refused() -> None:
    for keys in (np.float32([1]), [None], [object()], [["a"], ["a", "b"]]):
        with pytest.raises(
            TypeError, match=r"expected (integers or text as keys|keys that are all)"
        ):
            hash_ids(keys, 10)
    with pytest.raises(TypeError, match="all integers or all text, got 1"):
        hash_ids([1, "a"], 10)
    for n_rows in (0, 2**31):
        with pytest.raises(ValueError, match=r"up to 2\*\*31 - 1"):
            hash_ids([1], n_rows)


def test_forms_of_text_have_the_rows_of_the_text() -> None:
    wanted = [hash_ids([text], 1000)[0] for text in (b"a\0", b"a", b"long" * 1000)]
    assert wanted[0] != wanted[1]
    assert hash_ids([b"a\0", b"a", b"long" * 1000], 1000).tolist() == wanted
    assert hash_ids([["a"], ["b"]], 1000).shape == (2, 1)
    assert hash_ids(np.array(["a", "b"]), 1000).tolist() == hash_ids(["a", "b"], 1000).tolist()
    assert (
        hash_ids(np.array([5, 2**40], object), 1000).tolist() == hash_ids([5, 2**40], 1000).tolist()
    )
    assert hash_ids([], 1000).tolist() == []
    assert hash_ids("a", 1000) == hash_ids(["a"], 1000)[0]

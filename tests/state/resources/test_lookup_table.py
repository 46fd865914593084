"""Lookup tables: what their kernels refuse of plans that no graph would make."""

import numpy as np
import pytest

from jflow.errors import InvalidArgumentError
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.resources.cell import Cell
from jflow.state.resources.lookup_table import LOOKUP_TABLE, LookupTableSpec

TEXTS, NUMBERS = np.array([b"a", b"b"], object), np.array([1, 2])


def made(key_dtype="string", value_dtype="int64"):
    """The cell of a new table."""
    spec = LookupTableSpec(key_dtype, value_dtype)
    return Cell(LOOKUP_TABLE.make(spec, "t", AllowedDirectories(())))


def run(cell, kernel, *values, **attributes):
    """The results of a kernel that waits for nothing but its attempts, which complete at once."""
    running = LOOKUP_TABLE.kernels[f"lookup_table.{kernel}"]([cell], values, **attributes)
    while True:
        try:
            wanted, attempt = next(running)
        except StopIteration as end:
            return end.value
        assert wanted.submit(attempt, lambda _: None)


def initialized(key_dtype="string", value_dtype="int64", keys=TEXTS, values=NUMBERS):
    cell = made(key_dtype, value_dtype)
    run(cell, "initialize", keys, values)
    return cell


@pytest.mark.parametrize(
    ("keys", "values", "message"),
    [
        (NUMBERS, NUMBERS, "Type mismatch in keys. Expected string, got int64"),
        (TEXTS, TEXTS, "Type mismatch in values. Expected int64, got string"),
        (TEXTS, NUMBERS[:1], r"Shape mismatch in values. Expected \(2,\), got \(1,\)"),
        (TEXTS[:0], NUMBERS[:0], "at least one key"),
        (TEXTS[:1].reshape(()), NUMBERS[:1].reshape(()), "at least one key as a vector"),
    ],
)
def test_entries_have_the_dtypes_and_shapes_of_the_table(keys, values, message):
    cell = made()
    with pytest.raises(InvalidArgumentError, match=message):
        run(cell, "initialize", keys, values)
    assert run(cell, "size")[0] == 0


def test_a_lookup_has_keys_and_a_default_value_of_the_table():
    cell = initialized()
    with pytest.raises(InvalidArgumentError, match="Type mismatch in keys"):
        run(cell, "find", NUMBERS, np.array(0))
    for default in (np.array(0.5), np.array([0])):
        with pytest.raises(InvalidArgumentError, match="mismatch in default value"):
            run(cell, "find", TEXTS, default)
    assert run(cell, "find", TEXTS[1:], np.array(0))[0].tolist() == [2]
    assert run(cell, "size", num_buckets=3)[0] == 5


def test_buckets_follow_numbers_only():
    with pytest.raises(InvalidArgumentError, match=r"values\. Expected int64, got string"):
        run(initialized(value_dtype="string", values=TEXTS), "find_or_hash", TEXTS, num_buckets=1)
    with pytest.raises(InvalidArgumentError, match="at least one bucket"):
        run(initialized(), "find_or_hash", TEXTS, num_buckets=0)


def test_the_name_of_a_file_is_one_text():
    given = {"key_index": -2, "value_index": -1, "delimiter": "\t"}
    for name in (TEXTS, NUMBERS[0]):
        with pytest.raises(InvalidArgumentError, match="mismatch in file name"):
            run(made(), "initialize_from_file", np.asarray(name), **given)


@pytest.mark.parametrize(("keys", "values"), [("float32", "int64"), ("string", "text")])
def test_a_table_of_other_dtypes_is_no_table(keys, values):
    with pytest.raises(InvalidArgumentError):
        LookupTableSpec(keys, values)

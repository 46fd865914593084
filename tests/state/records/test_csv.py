import csv
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jflow.errors import InvalidArgumentError
from jflow.state.records import DECODERS
from tests.state.records.arrays import strings

NONE = {kind: np.empty(0, kind) for kind in (object, np.float32, np.int32, np.int64)}
TEXT = strings("")
INT = np.array([0], np.int32)
FLOAT = np.array([0], np.float32)


def _columns(records, *defaults, **attributes):
    arrays = DECODERS["decode_csv"](strings(*records), *defaults, **attributes)
    assert [x.dtype for x in arrays] == [x.dtype for x in defaults]
    assert all(x.shape == (len(records),) for x in arrays)
    return [x.tolist() for x in arrays]


# As TensorFlow 2.21 decodes them.
@pytest.mark.parametrize(
    ("record", "defaults", "attributes", "expected"),
    [
        ("1,2.5,a", (INT, FLOAT, TEXT), {}, [1, 2.5, b"a"]),
        (" 1 ,2", (INT, TEXT), {}, [1, b"2"]),
        ('"a""b",2', (TEXT, INT), {}, [b'a"b', 2]),
        ('"a\nb",2', (TEXT, INT), {}, [b"a\nb", 2]),
        ('"a\r\n","b,c"', (TEXT, TEXT), {}, [b"a\r\n", b"b,c"]),
        ("a,2,", (TEXT, INT, strings("q")), {}, [b"a", 2, b"q"]),
        ('"",2', (strings("dd"), INT), {}, [b"dd", 2]),
        ("NA,2", (strings("dd"), INT), {"na_value": "NA"}, [b"dd", 2]),
        ('"NA",2', (strings("dd"), INT), {"na_value": "NA"}, [b"dd", 2]),
        ('"a",2', (TEXT, INT), {"use_quote_delim": False}, [b'"a"', 2]),
        ("a,1,2", (INT, FLOAT), {"select_cols": [1, 2]}, [1, 2.0]),
        ('a,1,2,"x"', (INT, FLOAT), {"select_cols": [1, 2]}, [1, 2.0]),
        ("a;1", (TEXT, INT), {"field_delim": ";"}, [b"a", 1]),
        ("a\t1", (TEXT, INT), {"field_delim": "\t"}, [b"a", 1]),
        ("+5,-7", (INT, INT), {}, [5, -7]),
        ("1e400,-inf", (FLOAT, FLOAT), {}, [np.inf, -np.inf]),
        ("1e39,1e3", (FLOAT, FLOAT), {}, [np.inf, 1000.0]),
        (",,", (INT, FLOAT, TEXT), {}, [0, 0.0, b""]),
        ("9223372036854775807", (NONE[np.int64],), {}, [2**63 - 1]),
    ],
)
def test_records_become_columns(record, defaults, attributes, expected):
    assert _columns([record] * 2, *defaults, **attributes) == [[x, x] for x in expected]


@pytest.mark.parametrize(
    ("record", "defaults", "attributes", "message"),
    [
        ("1,x,a", (INT, FLOAT, TEXT), {}, "Field 1 in record 1 is not a valid float32: x"),
        ("1,,a", (INT, NONE[np.float32], TEXT), {}, "Field 1 is required but missing in record 1"),
        ("NA", (NONE[object],), {"na_value": "NA"}, "Field 0 is required but missing in record 1"),
        ("1,2", (INT, FLOAT, TEXT), {}, "Expect 3 fields but have 2 in record 1"),
        ("1,2,3,4", (INT, FLOAT, TEXT), {}, "Expect 3 fields but have 4 in record 1"),
        ("", (INT,), {}, "Expect 1 fields but have 0 in record 1"),
        ("a,1", (INT,), {"select_cols": [2]}, "Expect 3 or more fields but have 2 in record 1"),
        ("1,2", (INT, INT), {"select_cols": [0, 2]}, "Expect 3 or more fields but have 2 in rec"),
        ('"a""b"x,2', (TEXT, INT), {}, "record 1: Quote inside a string"),
        ('"a" ,1', (TEXT, INT), {}, "record 1: Quote inside a string"),
        ('a"b,2', (TEXT, INT), {}, "record 1: Unquoted fields cannot have quotes"),
        (' "a",1', (TEXT, INT), {}, "record 1: Unquoted fields cannot have quotes"),
        ('"ab,2', (TEXT, INT), {}, "record 1: Quoted field has to end"),
        ("a\nb,2", (TEXT, INT), {}, "record 1: Unquoted fields cannot have quotes/CRLFs"),
        ("a,2\r\n", (TEXT, INT), {}, "record 1: Unquoted fields cannot have quotes/CRLFs"),
        ("99999999999", (INT,), {}, "not a valid int32: 99999999999"),
        ("1.5", (INT,), {}, "not a valid int32: 1.5"),
        ("1_0", (INT,), {}, "not a valid int32: 1_0"),
        ("1_0", (FLOAT,), {}, "not a valid float32: 1_0"),
        ("9" * 5000, (INT,), {}, "not a valid int32: 999"),
        (b"\xff\xd9\xa1", (FLOAT,), {}, "Field 0 in record 1 is not a valid float32"),
    ],
)
def test_what_is_no_record_is_refused_by_number_and_column(record, defaults, attributes, message):
    good = {1: "1", 2: "1,2", 3: "1,2,3"}[
        max(len(defaults), *attributes.get("select_cols", [0]), 1)
    ]
    good = "1,2,3" if "select_cols" in attributes else good
    with pytest.raises(InvalidArgumentError) as raised:
        DECODERS["decode_csv"](strings(good, record), *defaults, **attributes)
    assert message in str(raised.value)
    str(raised.value).encode()


@pytest.mark.parametrize(
    ("defaults", "attributes", "message"),
    [
        ((np.zeros(2, np.float32),), {}, "1 default per field but field 0 has 2"),
        ((INT,), {"field_delim": "ab"}, "one byte"),
        ((INT,), {"field_delim": '"'}, "one byte"),
        ((INT, INT), {"select_cols": [2, 1]}, "strictly increasing"),
        ((INT, INT), {"select_cols": [1, 1]}, "strictly increasing"),
        ((INT, INT), {"select_cols": [-1, 1]}, "strictly increasing"),
        ((INT, INT), {"select_cols": [1]}, "record_defaults has 2"),
    ],
)
def test_bad_attributes_are_refused_even_without_records(defaults, attributes, message):
    with pytest.raises(InvalidArgumentError, match=message):
        DECODERS["decode_csv"](strings(), *defaults, **attributes)


def test_columns_have_the_shape_of_the_records():
    records = strings("1", "2", "3", "4").reshape(2, 1, 2)
    (column,) = DECODERS["decode_csv"](records, INT)
    assert column.tolist() == [[[1, 2]], [[3, 4]]]
    (column,) = DECODERS["decode_csv"](strings("7")[0:1].reshape(()), INT)
    assert (column.shape, column.tolist()) == ((), 7)
    assert _columns([], INT, TEXT) == [[], []]


def test_defaults_may_be_scalars():
    assert _columns(["", ","][1:], np.array(5, np.int32), np.array(b"x", object)) == [[5], [b"x"]]


CELLS = st.text(st.sampled_from('ab ,;"\n\rä'), max_size=6)


@given(
    rows=st.lists(st.lists(CELLS, min_size=3, max_size=3), min_size=1, max_size=6),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    delimiter=st.sampled_from(",;"),
)
def test_what_the_csv_module_writes_is_read(rows, quoting, delimiter):
    records = []
    for row in rows:
        out = io.StringIO()
        csv.writer(out, quoting=quoting, delimiter=delimiter).writerow(row)
        records.append(out.getvalue().removesuffix("\r\n"))
    columns = _columns(records, TEXT, TEXT, TEXT, field_delim=delimiter)
    assert columns == [[cell.encode() for cell in column] for column in zip(*rows, strict=True)]


@given(st.binary(max_size=20))
def test_any_bytes_are_read_as_the_csv_module_does_or_refused(record):
    text = record.decode("latin-1")
    try:
        fields = DECODERS["decode_csv"](strings(record), *[TEXT] * (record.count(b",") + 1))
    except InvalidArgumentError:
        return
    expected = next(csv.reader(io.StringIO(text, newline=""), strict=True))
    assert [x.item() for x in fields] == [x.encode("latin-1") for x in expected]

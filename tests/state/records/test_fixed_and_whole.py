import zlib
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jflow.errors import InvalidArgumentError, NotFoundError, ResourceExhaustedError
from jflow.state.records import open_records
from jflow.state.records.allowed_directories import AllowedDirectories

ANYWHERE = AllowedDirectories.anywhere()


def _open(path, position=None, kind="FixedLengthRecordReader", **options):
    return open_records(kind, str(path).encode(), options, ANYWHERE, position)


def _all(source):
    pairs = []
    while pair := source.read():
        pairs.append(pair)
    source.close()
    return pairs


@pytest.fixture
def file(tmp_path):
    def make(data):
        path = tmp_path / "f"
        path.write_bytes(data)
        return path

    return make


@pytest.mark.parametrize(
    ("data", "options", "records"),
    [
        (b"abcdef", {"record_bytes": 3}, [b"abc", b"def"]),
        (b"", {"record_bytes": 3}, []),
        (b"HabcdefFF", {"record_bytes": 3, "header_bytes": 1, "footer_bytes": 2}, [b"abc", b"def"]),
        (b"HF", {"record_bytes": 3, "header_bytes": 1, "footer_bytes": 1}, []),
        # As TensorFlow 2.21 reads them.
        (b"abcdefgh", {"record_bytes": 3, "hop_bytes": 2}, [b"abc", b"cde", b"efg"]),
        (b"abcdefgh", {"record_bytes": 2, "hop_bytes": 3}, [b"ab", b"de", b"gh"]),
        (b"abcdefghi", {"record_bytes": 2, "hop_bytes": 3}, [b"ab", b"de", b"gh"]),
        (b"abcdefg", {"record_bytes": 2, "hop_bytes": 3}, [b"ab", b"de"]),
    ],
)
@pytest.mark.parametrize("encoding", ["", "ZLIB"])
def test_pieces_of_one_length_are_records(file, data, options, records, encoding):
    path = file(zlib.compress(data) if encoding else data)
    name = str(path).encode()
    expected = [(b"%b:%d" % (name, i), record) for i, record in enumerate(records)]
    assert _all(_open(path, encoding=encoding, **options)) == expected
    for i in range(len(expected) + 1):
        assert _all(_open(path, i, encoding=encoding, **options)) == expected[i:]


@given(
    body=st.binary(max_size=60),
    length=st.integers(1, 9),
    hop=st.integers(1, 12),
    header=st.integers(0, 4),
    footer=st.integers(0, 4),
    encoding=st.sampled_from(["", "ZLIB"]),
)
def test_hops_are_slices(tmp_path_factory, body, length, hop, header, footer, encoding):
    path = tmp_path_factory.mktemp("t") / "f"
    body = body[: len(body) - len(body) % length] if hop == length else body
    data = b"H" * header + body + b"F" * footer
    path.write_bytes(zlib.compress(data) if encoding else data)
    source = _open(
        path,
        record_bytes=length,
        hop_bytes=hop,
        header_bytes=header,
        footer_bytes=footer,
        encoding=encoding,
    )
    expected = [body[i : i + length] for i in range(0, len(body) - length + 1, hop)]
    assert source.read_up_to(100)[1] == expected
    assert source.position == len(expected)
    source.close()


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (b"abcdefgh", {"record_bytes": 3}),
        (b"abcdefgh", {"record_bytes": 8, "header_bytes": 1}),
        (b"abc", {"record_bytes": 3, "header_bytes": 5, "footer_bytes": 5}),
        (b"abc", {"record_bytes": 1 << 60, "header_bytes": 2}),
    ],
)
def test_a_length_that_does_not_fit_is_refused(file, data, options):
    with pytest.raises(
        InvalidArgumentError, match=f"has {len(data)} bytes.*{options['record_bytes']}"
    ):
        _open(file(data), **options)
    source = _open(file(zlib.compress(data)), encoding="ZLIB", **options)
    whole = len(data) // options["record_bytes"] if "header_bytes" not in options else 0
    if whole:
        assert len(source.read_up_to(10)[0]) == whole
    with pytest.raises(InvalidArgumentError, match=f"has {len(data)} bytes"):
        source.read()
    source.close()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"record_bytes": 0},
        {"record_bytes": 1.5},
        {"record_bytes": 1, "hop_bytes": -1},
        {"record_bytes": 1, "encoding": "GZIP"},
    ],
)
def test_bad_options_are_refused(file, options):
    with pytest.raises(InvalidArgumentError):
        _open(file(b"abc"), **options)


def test_a_whole_file_is_one_record(file):
    for data in (b"", b"all of it" * 100_000):
        path = file(data)
        source = _open(path, kind="WholeFileReader")
        assert source.position == 0
        assert _all(source) == [(str(path).encode(), data)]
        assert source.position == 1
        assert _all(_open(path, 1, kind="WholeFileReader")) == []


def test_a_whole_file_that_is_too_long_is_refused(file):
    source = _open(file(b"abc"), kind="WholeFileReader", max_record_bytes=2)
    with closing(source), pytest.raises(ResourceExhaustedError, match="max_record_bytes=2"):
        source.read()


def test_a_missing_file_is_not_found(tmp_path):
    for kind in ("WholeFileReader", "TextLineReader", "TFRecordReader"):
        with pytest.raises(NotFoundError, match="missing"):
            _open(tmp_path / "missing", kind=kind)


def test_a_work_item_is_its_own_record_and_opens_no_file():
    source = open_records("IdentityReader", b"item\0", {}, AllowedDirectories([]))
    assert source.read_up_to(3) == ([b"item\0"], [b"item\0"])
    assert source.read() is None
    assert source.position == 1
    with pytest.raises(InvalidArgumentError, match="0 or 1"):
        open_records("IdentityReader", b"item", {}, AllowedDirectories([]), 2)

import io
import tracemalloc
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jflow.errors import InvalidArgumentError, ResourceExhaustedError
from jflow.state.records import open_records
from jflow.state.records.allowed_directories import AllowedDirectories

ANYWHERE = AllowedDirectories.anywhere()


def _open(path, position=None, **options):
    return open_records("TextLineReader", str(path).encode(), options, ANYWHERE, position)


def _lines(path, position=None, **options):
    pairs = []
    with closing(_open(path, position, **options)) as source:
        while pair := source.read():
            pairs.append(pair)
    return pairs


@pytest.fixture
def file(tmp_path):
    def make(data):
        path = tmp_path / "f.txt"
        path.write_bytes(data)
        return path

    return make


# As TensorFlow 2.21 reads them.
@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"a\n\n\nb", [b"a", b"", b"", b"b"]),
        (b"a\rb\r\nc\r\r\n\nz\r", [b"a\rb", b"c\r", b"", b"z"]),
        ("ä\n\0\n".encode(), ["ä".encode(), b"\0"]),
    ],
)
def test_lines_are_records(file, data, lines):
    path = file(data)
    name = str(path).encode()
    assert _lines(path) == [(b"%b:%d" % (name, i), x) for i, x in enumerate(lines, 1)]


def test_header_lines_are_skipped_but_counted(file):
    path = file(b"h1\nh2\na\nb\n")
    name = str(path).encode()
    assert _lines(path, skip_header_lines=2) == [(name + b":3", b"a"), (name + b":4", b"b")]
    assert _lines(path, skip_header_lines=9) == []


@given(
    st.lists(st.binary(max_size=40), max_size=30), st.sampled_from([b"\n", b"\r\n"]), st.booleans()
)
def test_lines_are_those_of_python(tmp_path_factory, parts, newline, ended):
    path = tmp_path_factory.mktemp("t") / "f"
    data = newline.join(parts) + (newline if ended else b"")
    path.write_bytes(data)
    expected = [line.removesuffix(b"\n").removesuffix(b"\r") for line in io.BytesIO(data)]
    assert [value for _, value in _lines(path)] == expected


@pytest.mark.parametrize("n", [1, 3, 1000])
def test_reading_goes_on_at_a_position(file, n):
    path = file(b"header\n" + b"".join(b"%d\r\n" % i * (i % 5) for i in range(200)) + b"end")
    expected = _lines(path, skip_header_lines=1)
    source, done = _open(path, skip_header_lines=1), 0
    while (batch := source.read_up_to(n))[0]:
        done += len(batch[0])
        assert _lines(path, source.position, skip_header_lines=1) == expected[done:]
    source.close()
    assert done == len(expected)


def test_lines_longer_than_a_block_are_read(file):
    long = b"x" * 1_000_000
    assert [v for _, v in _lines(file(b"a\n" + long + b"\r\nb\n" + long))] == [
        b"a",
        long,
        b"b",
        long,
    ]


def test_an_endless_line_is_refused_without_reading_it_all(file):
    path = file(b"a\n" + b"x" * 30_000_000)
    source = _open(path, max_line_bytes=100_000)
    tracemalloc.start()
    assert source.read_up_to(5)[1] == [b"a"]
    for _ in range(2):
        with pytest.raises(ResourceExhaustedError, match=r"line 2 of .*f\.txt.* 100000 bytes"):
            source.read()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    source.close()
    assert peak < 2_000_000
    with pytest.raises(ResourceExhaustedError, match="line 2"):
        _open(path, skip_header_lines=2)


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_the_limit_is_on_the_line_without_its_end(file, end):
    assert _lines(file(b"12345" + end), max_line_bytes=5)[0][1] == b"12345"
    with pytest.raises(ResourceExhaustedError):
        _lines(file(b"123456" + end), max_line_bytes=5)


@pytest.mark.parametrize("position", [3, [1], [1, 2, 3], [-1, 0], ["0", 0], {"offset": 0}])
def test_positions_that_are_none_are_refused(file, position):
    with pytest.raises(InvalidArgumentError):
        _open(file(b"a\n"), position)


@pytest.mark.parametrize("options", [{"skip_header_lines": -1}, {"max_line_bytes": 0}])
def test_bad_options_are_refused(file, options):
    with pytest.raises(InvalidArgumentError, match=next(iter(options))):
        _open(file(b"a\n"), **options)

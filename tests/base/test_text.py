"""Sizes, times, and text of other processes: what it may do to the terminal that shows it."""

from __future__ import annotations

import grpc
import pytest

from jflow.base.text import age_text, bytes_text, printable, seconds_text, table
from jflow.cli.demo import command
from jflow.cli.main import main
from jflow.cli.status import repeat
from jflow.errors import UnavailableError
from jflow.net.wire.grpc_stream import broken

CLEARS = "a\x1b[2J\r\nb"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Zürich, 東京", "Zürich, 東京"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b2J\x7f\u202e\ud800", "\\x9b2J\\x7f\\u202e\\ud800"),
        ("a\r\nb", "a\\r\\nb"),
    ],
)
def test_what_is_not_printable_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_lines_are_kept_where_they_are_wanted() -> None:
    assert printable(CLEARS, allowed="\n") == "a\\x1b[2J\\r\nb"


def test_a_cell_is_one_line_without_escape_sequences() -> None:
    assert table(["NAME"], [(CLEARS,)]) == "NAME\na\\x1b[2J\\r\\nb"


def test_errors_of_servers_are_shown_without_escape_sequences(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: object = None) -> str:
        raise UnavailableError(CLEARS)

    monkeypatch.setattr(command, "_demo", refuse)
    assert main(["demo"]) == 1
    assert capsys.readouterr().err.endswith("a\\x1b[2J\\r\nb\n")
    repeat(refuse, 0.0, 1)
    assert "\x1b" not in capsys.readouterr().out
    repeat(lambda: CLEARS, 0.0, 1)
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNKNOWN])
def test_the_status_of_a_stream_has_no_escape_sequences(code: grpc.StatusCode) -> None:
    class Ended(grpc.RpcError):
        def code(self) -> grpc.StatusCode:
            return code

        def details(self) -> str:
            return CLEARS

    assert str(broken(Ended())).endswith("a\\x1b[2J\\r\\nb")


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "0.977 KiB"),
        (401_408, "392 KiB"),
        (1_605_632, "1.53 MiB"),
        (1023 * 2**20, "0.999 GiB"),
        (5 * 2**60, "5120 PiB"),
    ],
)
def test_a_size_is_written_with_its_unit_and_three_digits(n_bytes: int, text: str) -> None:
    assert bytes_text(n_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.0000005, "500 ns"),
        (0.00025, "250 µs"),
        (0.0512345, "51.2 ms"),
        (0.05, "50 ms"),
        (0.99949, "999 ms"),
        (0.9996, "1000 ms"),
        (1, "1 s"),
        (12.25, "12.2 s"),
        (90.0, "90 s"),
        (12345.6, "12346 s"),
    ],
)
def test_a_time_is_written_with_its_unit_and_three_digits(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


def test_an_age_is_written_in_the_units_that_matter() -> None:
    ages = [age_text(s) for s in (0.24, 59.4, 90, 3700, 3600 * 50)]
    assert ages == ["0.2 s", "59 s", "1 min", "1 h 1 min", "2 d 2 h"]

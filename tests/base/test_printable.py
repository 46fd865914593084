"""Text of other processes: what it may do to the terminal that shows it."""

from __future__ import annotations

import grpc
import pytest

from jflow.base.printable import printable
from jflow.cli import main as command
from jflow.cli.main import main
from jflow.cli.status import repeat
from jflow.cli.tables import table
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
    assert printable(CLEARS, kept="\n") == "a\\x1b[2J\\r\nb"


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

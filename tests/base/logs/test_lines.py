"""The lines of the logs of servers: their form, what is escaped and left out, and their options."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from jflow.base.logs import LineFormatter, LogOptions, RateLimit, event
from jflow.base.logs.events import MAX_VALUE
from jflow.base.logs.setup import BURST
from jflow.errors import InvalidArgumentError

AT = 1_790_000_000.25


def record(message: str = "opened", **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("jflow.task.master", logging.INFO, "m.py", 3, message, (), None)
    made.created = AT
    if fields:
        made.fields = fields
    return made


def test_an_event_is_a_line_of_pairs_or_an_object() -> None:
    one = record(session=3, name="a b", op=None, at="127.0.0.1:80")
    assert LineFormatter("/job:ps/task:0").format(one) == (
        "2026-09-21T14:13:20.250Z INFO event=opened logger=jflow.task.master task=/job:ps/task:0 "
        'session=3 name="a b" op=None at=127.0.0.1:80'
    )
    assert json.loads(LineFormatter(is_json=True).format(one)) == {
        "time": "2026-09-21T14:13:20.250Z",
        "level": "INFO",
        "event": "opened",
        "logger": "jflow.task.master",
        "session": 3,
        "name": "a b",
        "op": None,
        "at": "127.0.0.1:80",
    }
    assert " message=opened " in LineFormatter().format(record())


@pytest.mark.parametrize("is_json", [False, True])
def test_names_of_peers_cannot_forge_lines_or_fill_a_disk(is_json: bool) -> None:
    name = '\x1b[2J"\n2026-01-01 forged' + "x" * 10_000
    line = LineFormatter(is_json=is_json).format(record(caller=name, other='\x1b[2J"\n\u202e'))
    assert line.isprintable()
    assert "\n" not in line
    assert len(line) < 2 * MAX_VALUE
    assert "more characters)" in line


def test_an_unexpected_error_is_one_line_with_the_end_of_its_traceback() -> None:
    made = record("a call failed")
    try:
        raise KeyError("x" * 10_000)
    except KeyError:
        made.exc_info = sys.exc_info()
    line = LineFormatter().format(made)
    assert line.isprintable()
    assert len(line) < 2 * MAX_VALUE


def test_records_of_a_kind_are_limited_in_a_second_and_the_others_counted() -> None:
    limit = RateLimit()

    def passes(at: float, message: str = "refused") -> logging.LogRecord | None:
        made = record(message)
        made.created = AT + at
        return made if limit.filter(made) else None

    assert [passes(0.0) is None for _ in range(BURST + 30)] == [False] * BURST + [True] * 30
    assert passes(0.0, "another kind") is not None
    later = passes(1.5)
    assert later is not None
    assert "n_left_out=30" in LineFormatter().format(later)
    assert passes(1.6) is None
    kinds = sum(passes(2.0, f"kind {n}") is not None for n in range(10_000))
    assert kinds < 300, "kinds that are made up have one limit"


def test_nothing_is_made_of_an_event_that_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("jflow.tests")
    event(logger, logging.INFO, "quiet", session=1)
    assert not caplog.records
    with caplog.at_level(logging.INFO, "jflow"):
        event(logger, logging.INFO, "told", session=1)
    assert [one.fields for one in caplog.records] == [{"session": 1}]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        (
            {"JFLOW_LOG": "loud"},
            "JFLOW_LOG must be one of debug, info, warning, error, off, got 'l",
        ),
        ({"JFLOW_LOG_FORMAT": "xml"}, "JFLOW_LOG_FORMAT must be one of text, json, got 'xml'"),
        ({"JFLOW_SLOW_STEP_S": "soon"}, "JFLOW_SLOW_STEP_S must be a number of seconds above 0"),
    ],
)
def test_options_that_are_malformed_are_refused(environ: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        LogOptions.of(environ)
    assert LogOptions.of({}) == LogOptions("warning", "text", 10.0)

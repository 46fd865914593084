"""What travels in the version before is what it was: a cluster is upgraded task by task.

`schemas_of_version_N.json` has it as the release that spoke version N had it; `schemas.py` wrote
it there.
"""

from __future__ import annotations

import json
from pathlib import Path

from jflow.base.versions import OLDEST_VERSION, VERSION
from tests.net.protocol.schemas import schemas

RECORDED = Path(__file__).parent / f"schemas_of_version_{OLDEST_VERSION}.json"

RULES = (
    "Tasks of the version before must understand what this code sends, and the reverse "
    "(jflow/base/versions.py). A new field of a record and a new parameter need a default and "
    f"`Annotated[..., Since({VERSION})]`, a new method `remote(..., since={VERSION})`, a new field "
    "of a message a number that none had. What was there keeps its place, name, type and meaning: "
    "for another one, add something beside it. If only a class was renamed, which does not travel, "
    f"correct its name in {RECORDED.name}"
)
MISSING = (
    f"{RECORDED} does not exist. When the version grows, the schemas of the release that spoke "
    "the former one are recorded, as tests/net/protocol/schemas.py says"
)


def broken(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """How what travels now differs from before in a way that the rules do not allow."""
    differences = [
        f"{name} was {schema} and is {now.get(name, 'gone')}"
        for name, schema in before.items()
        if now.get(name) != schema
    ]
    new = [
        f"{name} is new in version {OLDEST_VERSION}, which was released without it"
        for name in now.keys() - before.keys()
        if name.startswith("method ")
    ]
    return differences + new


def test_the_version_before_is_still_spoken_as_it_was_released() -> None:
    assert RECORDED.exists(), MISSING
    found = broken(json.loads(RECORDED.read_text()), schemas(OLDEST_VERSION))
    assert not found, "\n".join([*found, RULES])


def test_a_change_that_the_version_before_does_not_understand_is_found() -> None:
    # As they would be without their marks: what tasks of version 11 refuse.
    before, now = schemas(OLDEST_VERSION), schemas(VERSION)
    now = {name: now[name] for name in now if name in before}
    added = [name for name in now if now[name] != before[name]]
    assert {one.partition(" ")[2].rpartition(".")[2] for one in added} >= {"TaskStatus", "take"}
    assert len(broken(before, now)) == len(added)
    assert broken(before, now | {"method master's new": "{}"})[-1].startswith("method master's new")
    assert broken({"message Plan.1": "x"}, {}) == ["message Plan.1 was x and is gone"]

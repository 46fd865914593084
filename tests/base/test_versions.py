"""Records in the version before: what is left out, and what is read for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pytest

from jflow.base.packing import Meta, Record, Size
from jflow.base.versions import OLDEST_VERSION, VERSION, Since, converted, in_version, since_of
from jflow.errors import InvalidArgumentError
from jflow.state.watch import DeviceStatus, StepStatus, TaskStatus, UsageStatus


class Inner(Record, frozen=True):
    name: str
    size: Annotated[Size, Since(VERSION)] = 3
    left: float | None = msgspec.field(default=None, name="over")


class Outer(Record, frozen=True):
    inner: tuple[Inner, ...]
    by_name: Mapping[str, Inner] = msgspec.field(default_factory=dict)
    one: Inner | None = None
    wanted: Annotated[int, Meta(ge=0), Since(VERSION, absent=7)] = 9


class Same(Record, frozen=True):
    sizes: Annotated[tuple[Size, ...], Meta(max_length=3)] = ()
    what_for: Annotated[str | None, Since(OLDEST_VERSION)] = None


@dataclass(frozen=True)
class Plain:
    inner: Inner


VALUE = Outer((Inner("a", 5, 0.5), Inner("b")), {"k": Inner("c", 4)}, Inner("d", 1), 2)


def test_a_record_of_the_version_before_has_no_later_fields_wherever_they_are() -> None:
    data = VALUE.to_bytes(OLDEST_VERSION)
    assert msgspec.msgpack.decode(data) == {
        "inner": [{"name": "a", "over": 0.5}, {"name": "b", "over": None}],
        "by_name": {"k": {"name": "c", "over": None}},
        "one": {"name": "d", "over": None},
    }
    assert Outer.from_bytes(data) == Outer(
        (Inner("a", left=0.5), Inner("b")), {"k": Inner("c")}, Inner("d"), 7
    )
    assert Outer.from_bytes(VALUE.to_bytes()) == VALUE
    assert VALUE.to_bytes(OLDEST_VERSION - 5) == data, "of readers that no stream leads to"


def test_what_is_neither_of_this_version_nor_of_the_one_before_is_refused() -> None:
    for content in (
        {"name": "a", "size": 5},
        {"over": None, "name": "a"},
        {"name": "a", "over": None, "more": 1},
        {"name": 5, "over": None},
    ):
        with pytest.raises(InvalidArgumentError, match="malformed Inner"):
            Inner.from_bytes(msgspec.msgpack.encode(content))


def test_a_type_without_later_fields_is_itself() -> None:
    for kind in (Same, int, tuple[Same, ...], Mapping[str, Same], Same | None, Annotated[int, 5]):
        assert in_version(kind, OLDEST_VERSION) is kind
    assert in_version(Outer, VERSION) is Outer
    assert since_of(Annotated[int, 5]) == Since(0)
    assert since_of(Annotated[int, 5, Since(4)]).version == 4


def test_a_dataclass_has_no_earlier_form() -> None:
    with pytest.raises(TypeError, match=r"Plain\.inner has fields that version \d+ does not know"):
        in_version(Plain, OLDEST_VERSION)


def test_a_value_is_converted_with_all_that_is_in_it() -> None:
    earlier: Any = in_version(Outer, OLDEST_VERSION)
    assert converted(converted(VALUE, earlier), Outer).one == Inner("d")


def test_the_status_of_a_task_is_read_by_a_client_of_version_11_and_the_reverse() -> None:
    steps = (StepStatus("a", 1.0, abandoned_s=2.0, session=3, user="ann"),)
    devices = (DeviceStatus("d", "CPU", 5, 1, 2.0, True),)
    usage = (UsageStatus("c", "m", 1, "ann", 1, 1, 1, 1),)
    facts: Any = ("/job:ps/task:0", "h:1", 7, "0.1", 1, 2.0, 3, 4.0, 5, 6)
    status = TaskStatus(*facts, devices=devices, steps=steps, usage=usage)
    plain = msgspec.msgpack.decode(status.to_bytes(11))
    assert plain["devices"] == [{"name": "d", "type": "CPU", "memory_bytes": 5}]
    assert plain["steps"][0]["orphaned_s"] == 2.0
    assert not {"session", "user"} & plain["steps"][0].keys()
    assert "usage" not in plain
    assert TaskStatus.from_bytes(status.to_bytes(11)) == TaskStatus(
        *facts,
        devices=(DeviceStatus("d", "CPU", 5),),
        steps=(StepStatus("a", 1.0, abandoned_s=2.0),),
    )

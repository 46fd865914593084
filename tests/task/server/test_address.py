"""Where a server listens, and by which names callers may have come to it."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from jflow import errors
from jflow.base.cluster import Task
from jflow.net.wire.ports import are_loopback
from jflow.task.server.address import (
    Advertised,
    listening_hosts,
    location_at,
    own_hosts,
    read_advertised,
)

PS = Task("ps", 0)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Addresses by name, in the place of those that this machine knows; numbers stay."""
    known: dict[str, list[str]] = {"here": ["127.0.0.1"]}
    real = socket.getaddrinfo

    def resolve(host: str, *args: Any, **kwargs: Any) -> Sequence[Any]:
        return [one for each in known.get(host, [host]) for one in real(each, *args, **kwargs)]

    monkeypatch.setattr("jflow.task.server.address.socket.getaddrinfo", resolve)
    monkeypatch.setattr("jflow.task.server.address.socket.gethostname", lambda: "Here")
    known["Here"] = known["here"]
    return known


def test_localhost_is_one_address(names: Mapping[str, list[str]]) -> None:
    for name in ("localhost", "LOCALHOST", "127.0.0.1"):
        assert listening_hosts(name, PS, is_encrypted=False) == ("127.0.0.1",)


def test_all_addresses_that_a_name_has_on_this_machine_are_bound(
    names: dict[str, list[str]],
) -> None:
    names["both"] = ["127.0.0.1", "127.0.0.2", "127.0.0.1", "203.0.113.1"]
    assert listening_hosts("both", PS, is_encrypted=False) == ("127.0.0.1", "127.0.0.2")


def test_a_name_of_another_machine_is_refused(names: dict[str, list[str]]) -> None:
    names["there"] = ["203.0.113.1"]
    with pytest.raises(errors.InvalidArgumentError, match=r"'there'.*another machine"):
        listening_hosts("there", PS, is_encrypted=True)


@pytest.mark.parametrize(
    ("bound", "own"),
    [
        (("127.0.0.1",), {"127.0.0.1", "localhost"}),
        (("127.0.0.1", "::1"), {"127.0.0.1", "::1", "localhost"}),
        (("127.0.0.2",), {"127.0.0.2"}),
        (("::1",), {"::1"}),
        (("10.0.0.7",), {"10.0.0.7"}),
        (("10.0.0.7", "127.0.0.1"), {"10.0.0.7", "127.0.0.1", "localhost", "here"}),
        (("0.0.0.0",), {"0.0.0.0", "localhost", "here"}),
        (("::",), {"::", "localhost", "here"}),
    ],
    ids=lambda each: str(sorted(each)),
)
def test_a_server_has_the_names_that_lead_to_it_and_nowhere_else(
    names: Mapping[str, list[str]], bound: tuple[str, ...], own: set[str]
) -> None:
    assert own_hosts(bound) == own


def test_the_name_of_the_machine_is_a_server_s_only_if_it_listens_at_all_of_its_addresses(
    names: dict[str, list[str]],
) -> None:
    names["Here"] = ["10.0.0.7", "127.0.1.1"]
    assert own_hosts(["10.0.0.7"]) == {"10.0.0.7"}
    assert own_hosts(["10.0.0.7", "127.0.0.1"]) == {"10.0.0.7", "127.0.0.1", "localhost"}
    assert "here" in own_hosts(["10.0.0.7", "127.0.1.1"])


def test_only_loopback_addresses_are_loopback() -> None:
    assert are_loopback(["127.0.0.1", "127.8.9.10", "::1"])
    for other in ("0.0.0.0", "::", "10.0.0.7", "fe80::1%lo"):
        assert not are_loopback(["127.0.0.1", other])


def test_names_and_addresses_that_lead_to_a_server_are_advertised_by_the_environment() -> None:
    text = " jflow-worker-0.jflow,Gate.example.com:31222, [fd00::1]:5,[fd00::2],grpc://a"
    advertised = read_advertised({"JFLOW_ADVERTISE": text})
    assert advertised.hosts == {"jflow-worker-0.jflow", "fd00::2", "a"}
    assert advertised.addresses == {"gate.example.com:31222", "[fd00::1]:5"}
    assert read_advertised({}) == read_advertised({"JFLOW_ADVERTISE": ""}) == Advertised()
    location = location_at(["127.0.0.1"], advertised)
    assert {"jflow-worker-0.jflow", "127.0.0.1"} < location.hosts
    assert location.advertised == advertised.addresses


@pytest.mark.parametrize("text", ["localhost", "127.0.0.1:80", "[::1]:5", "0.0.0.0", "a,a:b:c"])
def test_what_does_not_lead_to_one_server_is_not_advertised(text: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="JFLOW_ADVERTISE"):
        read_advertised({"JFLOW_ADVERTISE": text})
